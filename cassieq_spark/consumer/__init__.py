"""The consumer, which Spark's source and the client share.

    poll: head of the ledger -> state cache, or two reads -> plan -> one LWT -> lease
    settle, replace, reject: receipts of a lease -> one LWT -> rejected messages are dead-lettered

`StateCache` saves reads while no other process changes the group. `Prefetch` reads messages before
they are leased. `Heartbeat` extends the lease of a batch while it runs.
"""

from __future__ import annotations
