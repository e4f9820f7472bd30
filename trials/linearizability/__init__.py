"""Are the ledger's head and the delivery state linearizable, also while a node is paused?"""

from __future__ import annotations
