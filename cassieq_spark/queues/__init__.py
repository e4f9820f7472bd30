"""Queues: what is defined, by name, and what becomes of it.

One row per name, also when the queue is deleted: it says which version the queue has, so that an
id, ``<name>@<version>``, is never used twice (I10). Each version has a ledger of its own.

    create -> active --purge--> purging (version + 1) -> active
                 '--delete--> deleting --repair--> deleted --create--> active (version + 1)

The row says what is wanted, then ledger and groups follow, and what comes last makes it true. So
each command that broke off is finished by repeating it, or by the next one.

| event | result |
|---|---|
| a writer that knew the version before | its publish is refused by the fence: QueueStateError |
| a reader that did | leases nothing; QueueStateError with its next batch |
| the command dies | the row says purging or deleting; repeat it; the repair finishes a deletion |
| two commands at once | each change of the row is conditioned on the one before |
| the answer of a change is lost | the row has our token, or not: a serial read tells |
| a request arrives late | refused: the token in the row, or the status of the ledger, is another |
"""

from __future__ import annotations

from cassieq_spark.queues.clocks import ClockRepair, fix_clocks
from cassieq_spark.queues.definition import check_delayable
from cassieq_spark.queues.lifecycle import (
    alter_queue,
    close_versions,
    create_queue,
    delete_queue,
    is_paused,
    mark_retired,
    pause_queue,
    purge_queue,
    resume_queue,
)
from cassieq_spark.queues.record import (
    QueueRecord,
    Records,
    Status,
    known,
    ledgers_of,
    list_queues,
    list_records,
    open_ledgers,
    read_mended,
    read_queue,
    read_record,
    read_records,
)

__all__ = [
    "ClockRepair",
    "QueueRecord",
    "Records",
    "Status",
    "alter_queue",
    "check_delayable",
    "close_versions",
    "create_queue",
    "delete_queue",
    "fix_clocks",
    "is_paused",
    "known",
    "ledgers_of",
    "list_queues",
    "list_records",
    "mark_retired",
    "open_ledgers",
    "pause_queue",
    "purge_queue",
    "read_mended",
    "read_queue",
    "read_record",
    "read_records",
    "resume_queue",
]
