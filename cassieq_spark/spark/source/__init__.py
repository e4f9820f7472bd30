"""The source: leases messages from a queue and hands them to Spark.

One run of a streaming query is one reader. Everything except `read` happens in one long-lived
process beside Spark's driver. Spark calls `latestOffset` before every batch, with the end of a
batch that is completely done:

    latestOffset(done)  acks `done` and leases the next batch, one LWT; its offset *is* the lease
    partitions(_, end)  finds the leased messages in the ledger and cuts them into tasks
    read(task)          on an executor: fetches chunks, yields Arrow batches
    heartbeat           extends the lease at a third of its length while the batch runs

| event | result |
|---|---|
| crash before the offset is in Spark's log | that lease runs out; its messages are leased again |
| crash after that | Spark replays the batch: `partitions` takes up the same lease by its token |
| crash after the batch, before its ack | the ack comes with the next `latestOffset(done)` |
| the lease went to another reader | a replay leaves those messages out, and says how many |
| the query is stopped | its messages are due at once |
"""

from __future__ import annotations
