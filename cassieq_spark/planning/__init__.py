"""The capacity model: what a load needs of Cassandra and of Spark, from measured coefficients.

`units` reads rates and sizes, `coefficients` has what was measured, `costs` says what work costs,
and `plan` makes machines of it. All of it is pure; only the file of coefficients is read.
"""

from __future__ import annotations
