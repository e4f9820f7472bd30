"""Finding and reading messages: where they are, and their chunks as Arrow batches.

    lease -> find: ledger's blocks -> pieces -> read: chunks -> Arrow batches

What leases and acks needs only `find`, so a query begins without what `read` imports.
"""

from __future__ import annotations
