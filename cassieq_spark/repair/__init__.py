"""The repair: deletes what is settled or was never published, and audits what is left.

Run now and then by `jobs/repair.py`, one at a time by a lock; several at once would be safe, as
every decision is carried out by a compare-and-set or repeats nothing but deletions.

    redeliver  dead-letter what no reader has: mark dead, copy, remove (I9)
    expire     what a group has not consumed after so long counts as settled (I5)
    finalise   head -> floors of all groups -> `finalised` up (I7) -> buckets -> ledger rows
    fence      `fence` up to now - write timeout: no block begun before is published any more (I10)
    clean      scan, then fence, then ledger: a block before the fence and in no row is deleted
    audit      ledger, then scan: each message from `finalised` on is in exactly one chunk (I3)
    retire     versions that are over: closed, buckets, ledger but its head

Each step reads a queue (`read`, `scan`), plans (the `plan_*` functions, which are pure) and yields
actions, which are applied one by one (`actions`) as long as the checkpoint agrees (`context`).

    run_alone: lock, history (`runner`) -> run_once: survey, then step after step (`steps`)

Finalise reads nothing of a queue that the survey shows to be idle. Clean and audit read the whole
table `chunk`, without its payload, through Spark or through the driver; then the fence is raised
only where the scan has found what is in no ledger.

| event | result |
|---|---|
| another repair run is at work | this one waits a while, and gives up |
| a repair run is paused, and another one begins | the checkpoint lets it finish one action |
| SIGTERM or Ctrl-C | it ends between two actions; so does a wait |
| a crash after `finalised` went up | ledger rows below it tell the next run what to delete |
| a crash amid the buckets of a block | the same, once all of the block is settled |
| a group is registered meanwhile | `finalised` stays; the next run looks again |
| a waiting range moves while floors are read | its group's version shows it: read again |
| chunks go while the scan runs | what looks missing is read again, then `finalised` is |
| a ledger lacks rows | clean leaves the queue alone: their blocks look unpublished |
| a reader takes what is to be dead-lettered or to expire | one of the two LWTs is refused |
| a crash amid a retirement | the queue's row still says so: all of it is done once more |
"""

from __future__ import annotations
