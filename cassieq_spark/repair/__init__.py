"""The repair: deletes messages that nobody needs, and audits the others.

`jobs/repair.py` or `cassieq repair run` runs it from time to time. A lock lets one run work at a
time. Several concurrent runs would be safe: an action is a compare-and-set, or deletes what nobody
needs.

    redeliver  dead-letter messages that no reader takes: mark dead, copy, remove (I9)
    expire     settle messages that a group has not consumed within the queue's limit (I5)
    finalise   read head, then floors of all groups; raise `finalised` (I7); delete buckets, rows
    fence      raise `fence` to now - write timeout: no earlier block can be published (I10)
    clean      scan, then read fence, then ledger: delete blocks before the fence and in no row
    audit      read ledger, then scan: is each message from `finalised` on in one chunk (I3)?
    retire     close versions of purged or deleted queues, delete their buckets and ledgers

Each step reads a queue (`read`, `scan`), plans (the pure functions of `plan`) and yields actions
(`actions`). The actions are applied one by one as long as the checkpoint allows it (`context`).

    run_alone: lock, history (`runs`) -> run_once: survey, then step after step (`steps`)
        -> `report`: what was done and found; `diagnosis`: the findings explained

Finalise reads nothing of a queue that the survey shows to be idle. Clean and audit read the whole
table `chunk`, without its payload, through Spark (`spark_scan`) or through the driver. After such
a scan, the fence is raised only in queues where the scan has found blocks that are in no ledger.

| event | result |
|---|---|
| another repair run has the lock | this run waits a while, and gives up |
| a repair run is paused, and another one begins | the paused run finishes at most one action |
| SIGTERM or Ctrl-C | the run, or its wait for the lock, ends; a run ends between two actions |
| a crash after `finalised` was raised | ledger rows below it show the next run what to delete |
| a crash between the buckets of a block | the same, once all of the block is settled |
| a group is registered meanwhile | raising `finalised` is refused; the next run tries again |
| a waiting row moves while floors are read | its group's version shows it: read again |
| chunks are deleted during the scan | missing messages are read again, and then `finalised` |
| a ledger lacks rows | clean leaves the queue alone: their blocks look unpublished |
| a reader takes messages that the repair would dead-letter or expire | one LWT is refused |
| a crash during a retirement | the queue's row still demands it: the next run repeats it |
"""

from __future__ import annotations
