"""Puts messages, for the sink, the client and the gateway.

    NewMessage -> check -> Arrow batches -> blocks of chunks -> publish (1 LWT): visible

| module | |
|---|---|
| `new_message` | checks messages that a program gives, and turns them into Arrow batches |
| `blocks` | writes messages as blocks, one per time of delivery |
| `publisher` | writes and publishes a batch, once if it has a name |
| `partitioned`, `partitioner` | do the same for queues with several queue partitions |
| `group_commit` | lets threads that publish at the same moment share one LWT |
| `producer` | collects the puts of many threads into batches |
"""

from __future__ import annotations
