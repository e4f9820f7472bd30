"""The changes of one group: it is created, moved, resumed or deleted."""

from __future__ import annotations

from collections.abc import Mapping

from cassieq_spark.client import Client
from cassieq_spark.console.messages import parse_at
from cassieq_spark.console.pages import PageCall, flag
from cassieq_spark.console.plans import LOSES_LEASES, Change, ChangePlan, command_of, held_back
from cassieq_spark.console.watcher import Looked
from cassieq_spark.dead_letters.stopped import Resume
from cassieq_spark.errors import NotFoundError, OptionError, QueueStateError
from cassieq_spark.groups.partitions import check_for_all
from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.model import OnDead, QueueDefinition, validate_name
from cassieq_spark.queues.moves import plan_move, sum_of_moves
from cassieq_spark.settings.position import show_position

#: What becomes of the dead messages at which a group has stopped.
_FATES = {
    Resume.RETRY: "are delivered again, and their deliveries are counted anew",
    Resume.DEAD_LETTER: "go to the dead-letter queue",
    Resume.DROP: "are discarded, without a copy",
}


def _plan_seek(call: PageCall) -> ChangePlan:
    looked, name = _with_group(call)
    position = parse_at(call.asked("to").strip() or "latest")
    number = _partition_asked(call, looked.record.definition)
    parts = looked.record.definition.by_partition
    chosen = list(range(len(parts))) if number is None else [number]
    store = call.console.watcher.looking
    ledgers = [Ledger(store, parts[each].queue_id) for each in chosen]
    check_for_all(ledgers, position)
    move = sum_of_moves(
        plan_move(ledger, state, look.head, position)
        for ledger, each in zip(ledgers, chosen, strict=True)
        if (state := (look := looked.looks[each]).states.get(name)) is not None
    )
    force = flag("force", call)
    where = show_position(position) + ("" if number is None else f" in partition {number}")
    partition = [] if number is None else ["--partition", number]
    return ChangePlan(
        sentence=f"Group {name} continues from {where}.",
        command=command_of(
            "group",
            "seek",
            call.name(),
            name,
            "--to",
            show_position(position),
            *partition,
            *(["--force"] if force else []),
        ),
        about=looked.record.definition.queue_id,
        figures={
            "delivered again, though settled": move.again,
            "skipped, though owed": move.skipped,
            "owed afterwards": move.owed,
            "leased now": move.leased,
        },
        warnings=("Skipped messages count as settled for this group.",) if move.skipped else (),
        blocked=held_back(call, move.leased),
        force=LOSES_LEASES,
        button="Move the group",
    )


def _seek(call: PageCall, client: Client) -> str:
    position = parse_at(call.asked("to").strip() or "latest")
    number = _partition_asked(call, call.queue())
    name = call.name("group")
    client.seek_group(call.name(), name, position, partition=number, force=flag("force", call))
    return f"Group {name} continues from {show_position(position)}."


def _plan_delete_group(call: PageCall) -> ChangePlan:
    looked, name = _with_group(call)
    (stats,) = [each for each in looked.snapshot.stats.groups if each.group == name]
    return ChangePlan(
        sentence=f"Group {name} is deleted, with all that it is owed.",
        command=command_of("group", "delete", call.name(), name),
        about=looked.record.definition.queue_id,
        figures={"not settled by it": stats.depth, "leased now": stats.leased},
        warnings=("Its readers stop; one that restarts creates the group anew.",),
        blocked=held_back(call, stats.leased),
        force=LOSES_LEASES,
        type_name=name,
        button="Delete the group",
    )


def _delete_group(call: PageCall, client: Client) -> str:
    name = call.name("group")
    if not client.delete_group(call.name(), name, force=flag("force", call)):
        raise NotFoundError(f"queue {call.name()!r} has no group {name!r} any more")
    return f"Group {name} is deleted."


def _plan_create_group(call: PageCall) -> ChangePlan:
    looked = call.console.watcher.read(call.name())
    name = validate_name("group", call.asked("name").strip())
    position = parse_at(call.asked("start").strip() or "earliest")
    if any(each.group == name for each in looked.snapshot.stats.groups):
        raise QueueStateError(f"queue {call.name()!r} has a group {name!r} already")
    return ChangePlan(
        sentence=f"Group {name} is created, and begins at {show_position(position)}.",
        command=command_of(
            "group", "create", call.name(), name, "--from", show_position(position)
        ),
        about=looked.record.definition.queue_id,
        button="Create the group",
    )


def _create_group(call: PageCall, client: Client) -> str:
    name = call.asked("name").strip()
    client.create_group(call.name(), name, parse_at(call.asked("start").strip() or "earliest"))
    return f"Group {name} is created."


def _plan_resume(call: PageCall) -> ChangePlan:
    looked, name = _with_group(call)
    queue, how = looked.record.definition, _resume_of(call)
    number = _partition_asked(call, queue)
    if queue.on_dead is not OnDead.STOP:
        raise OptionError(f"queue {queue.name!r} does not stop at dead messages")
    if how is Resume.DEAD_LETTER and queue.dead_letter_queue is None:
        raise OptionError(
            f"queue {queue.name!r} has no dead-letter queue: name one in its settings, or retry "
            "or drop the messages"
        )
    chosen = [number] if number is not None else range(queue.partitions)
    states = [looked.looks[each].states.get(name) for each in chosen]
    dead = [
        row.monotons.count
        for state in states
        if state is not None
        for row in state.waiting
        if row.reason is not None
    ]
    partition = [] if number is None else ["--partition", number]
    return ChangePlan(
        sentence=f"The dead messages at which group {name} has stopped {_FATES[how]}.",
        command=command_of("group", "resume", queue.name, name, f"--{how.value}", *partition),
        about=queue.queue_id,
        figures={"dead messages": sum(dead)},
        blocked=None if dead else "the group has not stopped at a dead message",
        button="Resume the group",
    )


def _resume(call: PageCall, client: Client) -> str:
    how, number = _resume_of(call), _partition_asked(call, call.queue())
    name = call.name("group")
    count = client.resume_group(call.name(), name, how, partition=number)
    return f"Group {name} continues: {count:,} dead message(s) {_FATES[how]}."


def _resume_of(call: PageCall) -> Resume:
    how = call.asked("how")
    if how not in set(Resume):
        raise OptionError(f"choose retry, dead-letter or drop, not {how!r}")
    return Resume(how)


def _with_group(call: PageCall) -> tuple[Looked, str]:
    looked, name = call.console.watcher.read(call.name()), call.name("group")
    if all(each.group != name for each in looked.snapshot.stats.groups):
        raise NotFoundError(f"queue {call.name()!r} has no group {name!r}")
    return looked, name


def _partition_asked(call: PageCall, queue: QueueDefinition) -> int | None:
    text = call.asked("partition").strip()
    if not text or queue.partitions == 1:
        return None
    return call.number("partition", 0, most=queue.partitions - 1)


#: The changes of a queue that make a group, and those of a group, by the last part of their path.
MAKING: Mapping[str, Change] = {
    "create-group": Change("Create a group", _plan_create_group, _create_group),
}
OF_GROUP: Mapping[str, Change] = {
    "delete": Change("Delete the group", _plan_delete_group, _delete_group, True),
    "resume": Change("Resume the group", _plan_resume, _resume),
    "seek": Change("Move the group", _plan_seek, _seek, True),
}
