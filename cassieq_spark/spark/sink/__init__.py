"""The sink: tasks write blocks of messages, and the driver publishes all of them at once.

    task: read the sink's row, cut Arrow batches into chunks, write them; returns a commit message
    driver: commit(messages, batch id) -> one LWT on the ledger makes all of them visible

| event | result |
|---|---|
| a task fails, or runs twice | no commit message has its block: never visible, deleted later |
| the driver dies before the publish | nothing is visible; Spark writes the batch again |
| the driver dies after the publish | the replay finds the batch in the sink's row, writes nothing
|
| two drivers run the same query | because of the sink's row, only one publishes each batch |
| rows name their queues, and a publish fails | some queues have it; the replay completes it |

`abort` deletes nothing: a publish whose answer was lost may have been applied.
"""

from __future__ import annotations
