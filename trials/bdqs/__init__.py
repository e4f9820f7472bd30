"""The experiments of the BDQS paper, on this queue.

BDQS was a queue on Cassandra by IBM Research. `cells` lists the runs, `clients` are the senders
and receivers, `nodes` fail by a schedule, `journal` records what happens and measures it as the
paper does, and `report` and `plots` make docs/bdqs.md from the results.
"""

from __future__ import annotations
