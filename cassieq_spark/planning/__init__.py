"""The capacity model: what a load needs of Cassandra and of Spark, from measured coefficients.

`units` reads rates and sizes, `coefficients` has the measured values, `costs` computes the costs
of work, and `plan` derives machines from them. All of it is pure; only the file of coefficients is
read.
"""

from __future__ import annotations
