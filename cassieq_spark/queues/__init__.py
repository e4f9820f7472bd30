"""Queues: created, altered, paused, purged and deleted by name.

Each name has one row, which stays when the queue is deleted: the row has the version of the queue,
so that no id, ``<name>@<version>``, is used twice (I10). Each version has a ledger of its own.

    create -> active --purge--> purging (version + 1) -> active
                 '--delete--> deleting --repair--> deleted --create--> active (version + 1)

A command first writes to the row what it is about to do, then changes ledger and groups, and then
completes the row. So a command that broke off is completed by repeating it, or by the next one.

| event | result |
|---|---|
| a writer knows the version before | its publish is refused by the fence: QueueStateError |
| a reader knows the version before | it leases nothing; QueueStateError with its next batch |
| the command dies | the row says purging or deleting; repeat it; the repair finishes a deletion |
| two commands at once | each change of the row is conditioned on the one before |
| the answer to a change is lost | a serial read tells whether the row has our token |
| a request arrives late | refused: the row has another token, or the ledger another status |

What changes queues is imported on first use: Spark's processes read them only.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from cassieq_spark.queues.definition import check_delayable
from cassieq_spark.queues.record import (
    CACHED_FOR,
    QueueNames,
    QueueRecord,
    Records,
    Status,
    known,
    ledgers_of,
    list_queues,
    list_records,
    open_ledgers,
    read_mended,
    read_names,
    read_queue,
    read_record,
    read_records,
)

if TYPE_CHECKING:
    from cassieq_spark.queues.attributes import (
        attributes_of,
        read_attributes,
        read_with_attributes,
        set_attributes,
    )
    from cassieq_spark.queues.clocks import ClockRepair, fix_clocks
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

__all__ = [
    "CACHED_FOR",
    "ClockRepair",
    "QueueNames",
    "QueueRecord",
    "Records",
    "Status",
    "alter_queue",
    "attributes_of",
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
    "read_attributes",
    "read_mended",
    "read_names",
    "read_queue",
    "read_record",
    "read_records",
    "read_with_attributes",
    "resume_queue",
    "set_attributes",
]

_MODULES = {
    "attributes": (
        "attributes_of",
        "read_attributes",
        "read_with_attributes",
        "set_attributes",
    ),
    "clocks": ("ClockRepair", "fix_clocks"),
    "lifecycle": (
        "alter_queue",
        "close_versions",
        "create_queue",
        "delete_queue",
        "is_paused",
        "mark_retired",
        "pause_queue",
        "purge_queue",
        "resume_queue",
    ),
}
_LAZY = {name: f"{__name__}.{module}" for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> object:
    if name in _LAZY:
        return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
