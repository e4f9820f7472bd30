"""The sink: writes blocks of messages from tasks, and publishes them all at once.

    task: read the sink row -> cut Arrow batches into chunks -> write them -> commit message
    driver: commit(messages, batch id) -> one LWT on the ledger makes all of them visible

| event | result |
|---|---|
| a task fails, or runs twice | its block is not among the commit messages: never visible, swept |
| the driver dies before the publish | nothing is visible; Spark writes the batch again |
| it dies after the publish | the replay finds the batch in the sink row and writes nothing |
| two drivers run the same query | the sink row lets one of them publish each batch |

`abort` deletes nothing: a publish whose answer was lost may have gone in.
"""

from __future__ import annotations
