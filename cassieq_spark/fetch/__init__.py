"""Finds messages in blocks, and reads their chunks as Arrow batches.

    lease -> find: ledger's blocks -> pieces -> read: chunks -> Arrow batches

To lease and ack, a query needs only `find`, so it starts without the imports of `read`.
"""

from __future__ import annotations
