"""The experiments of the BDQS paper, on this queue.

BDQS was a queue on Cassandra by IBM Research. `cells` says what is run, `clients` are the senders
and receivers, `nodes` fail on schedule; `journal` notes what happened and measures it as the paper
does, and `report` and `plots` make docs/bdqs.md of the result.
"""

from __future__ import annotations
