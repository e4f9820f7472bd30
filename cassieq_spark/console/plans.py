"""What can be changed, and what each change would do: plans by reads, and what carries them out.

The changes themselves are those of the client and of the command line.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from cassieq_spark.client import Client
from cassieq_spark.client.client import DEFAULT_MAX_DELIVERIES
from cassieq_spark.console import show
from cassieq_spark.console.pages import PageCall, flag
from cassieq_spark.console.watcher import Looked
from cassieq_spark.errors import (
    NEW_CHECKPOINT,
    CassieqError,
    OptionError,
    QueueStateError,
)
from cassieq_spark.model import (
    OnDead,
    Order,
    QueueDefinition,
    validate_name,
)
from cassieq_spark.queues import alter_queue, pause_queue, read_record, resume_queue
from cassieq_spark.queues.definition import MOST_PARTITIONS, parse_on_dead
from cassieq_spark.queues.record import known
from cassieq_spark.schemas.ddl import parse_ddl, schema_of, to_ddl
from cassieq_spark.schemas.evolution import check_change

#: What it means to force a change while readers hold messages.
LOSES_LEASES = "Readers lose the messages that they hold"


@dataclass(frozen=True, slots=True)
class ChangePlan:
    """What a change would do.

    Attributes:
        sentence: What it would do, in words.
        command: The same on the command line.
        about: What it was planned by; it is done only while that is still so.
        figures: How many of each thing it would change.
        warnings: What somebody should think of.
        blocked: Why it can't be done; None: it can.
        force: What it means to force it, where that is possible; None: it is not.
        type_name: What somebody has to type to confirm it; None: nothing.
        button: What the button says.
        values: Further fields that the form brings back.
    """

    sentence: str
    command: str
    about: str
    figures: Mapping[str, int | str] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    blocked: str | None = None
    force: str | None = None
    type_name: str | None = None
    button: str = "Do it"
    values: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Change:
    """A kind of change.

    Attributes:
        title: What it is called.
        plan: Reads what it would do.
        apply: Does it, and says what was done.
        is_danger: Whether it gives up messages.
        after: The page to go to when it is done.
    """

    title: str
    plan: Callable[[PageCall], ChangePlan]
    apply: Callable[[PageCall, Client], str]
    is_danger: bool = False
    after: Callable[[PageCall], str] = lambda call: call.url("queues", call.name())


def command_of(*words: object) -> str:
    """A command as a shell takes it."""
    return shlex.join(["cassieq", *(str(word) for word in words)])


# -- one queue ------------------------------------------------------------------------------------


def _plan_pause(call: PageCall) -> ChangePlan:
    looked = call.console.watcher.read(call.name())
    return ChangePlan(
        sentence=f"Readers of queue {call.name()} lease nothing more from their next batch on.",
        command=command_of("queue", "pause", call.name()),
        about=looked.record.definition.queue_id,
        figures={"leased now, to be acked as usual": _leased(looked)},
        warnings=("Writers go on: what they publish waits in the queue.",),
        button="Pause the queue",
    )


def _pause(call: PageCall, _: Client) -> str:
    changed = pause_queue(call.console.store, call.name())
    return f"Queue {call.name()} is paused{'' if changed else ' already'}."


def _plan_resume(call: PageCall) -> ChangePlan:
    looked = call.console.watcher.read(call.name())
    return ChangePlan(
        sentence=f"Readers of queue {call.name()} lease again with their next batch.",
        command=command_of("queue", "resume", call.name()),
        about=looked.record.definition.queue_id,
        button="Resume the queue",
    )


def _resume(call: PageCall, _: Client) -> str:
    changed = resume_queue(call.console.store, call.name())
    return f"Queue {call.name()} goes on." if changed else f"Queue {call.name()} was not paused."


def _plan_purge(call: PageCall) -> ChangePlan:
    looked = call.console.watcher.read(call.name())
    stats = looked.snapshot.stats
    return ChangePlan(
        sentence=f"All messages of queue {call.name()} are deleted; groups and settings stay.",
        command=command_of("queue", "purge", call.name()),
        about=looked.record.definition.queue_id,
        figures={
            "messages stored": stats.next - stats.finalised,
            "groups": len(stats.groups),
            "leased now": _leased(looked),
        },
        warnings=(
            "Running readers and writers stop with an error.",
            f"Restart them, readers of Spark with {NEW_CHECKPOINT}.",
        ),
        blocked=held_back(call, _leased(looked)),
        force=LOSES_LEASES,
        type_name=call.name(),
        button="Purge the queue",
    )


def _purge(call: PageCall, client: Client) -> str:
    purged = client.purge_queue(call.name(), force=flag("force", call))
    return f"Queue {call.name()} is empty, and goes on as {purged.queue_id}."


def _plan_delete(call: PageCall) -> ChangePlan:
    record = known(call.name(), read_record(call.console.watcher.looking, call.name()))
    try:
        looked = call.console.watcher.read(call.name())
    except CassieqError as error:
        # What can't be read can be deleted all the same.
        figures: dict[str, int | str] = {"messages": f"not known: {error}"}
        leased = 0
    else:
        stats, leased = looked.snapshot.stats, _leased(looked)
        figures = {
            "messages stored": stats.next - stats.finalised,
            "groups": len(stats.groups),
            "leased now": leased,
        }
    return ChangePlan(
        sentence=f"Queue {call.name()} is deleted, with its groups and messages.",
        command=command_of("queue", "delete", call.name()),
        about=record.definition.queue_id,
        figures=figures,
        warnings=("Its dead-letter queue stays.",) if record.definition.dead_letter_queue else (),
        blocked=held_back(call, leased),
        force=LOSES_LEASES,
        type_name=call.name(),
        button="Delete the queue",
    )


def _delete(call: PageCall, client: Client) -> str:
    client.delete_queue(call.name(), force=flag("force", call))
    return f"Queue {call.name()} is deleted. The next repair run deletes what was stored."


def _plan_alter(call: PageCall) -> ChangePlan:
    looked = call.console.watcher.read(call.name())
    queue = looked.record.definition
    wanted = _settings_of(call, queue)
    _check_chosen(queue, wanted)
    changes: dict[str, int | str] = {}
    words: list[object] = []
    if wanted["lease"] != queue.lease:
        changes["lease"] = f"{show.span(queue.lease)} → {show.span(wanted['lease'])}"
        words += ["--lease", show.span(wanted["lease"])]
    if wanted["max_deliveries"] != queue.max_deliveries:
        changes["max deliveries"] = f"{queue.max_deliveries} → {wanted['max_deliveries']}"
        words += ["--max-deliveries", wanted["max_deliveries"]]
    if wanted["dead_letter_queue"] != (queue.dead_letter_queue or ""):
        before, after = queue.dead_letter_queue or "none", wanted["dead_letter_queue"]
        changes["dead-letter queue"] = f"{before} → {after or 'none'}"
        words += ["--dead-letter-queue", after] if after else ["--drop-dead"]
    if wanted["on_dead"] is not queue.on_dead:
        changes["on a dead message"] = f"{queue.on_dead.value} → {wanted['on_dead'].value}"
        words += ["--on-dead", wanted["on_dead"].value]
    for name in ("expire_after", "keep_settled"):
        before_, after_ = getattr(queue, name) or timedelta(0), wanted[name]
        if before_ != after_:
            changes[name.replace("_", " ")] = f"{_period(before_)} → {_period(after_)}"
            words += [f"--{name.replace('_', '-')}", show.span(after_)]
    if wanted["schema"] is not None and wanted["schema"] != queue.schema:
        if queue.schema is None:
            raise OptionError("this queue has no schema, so it can't get one: create another one")
        done = check_change(
            [schema_of(each) for each in queue.schemas], parse_ddl(wanted["schema"])
        )
        changes["schema"] = f"version {len(queue.schemas)} → {len(queue.schemas) + 1}"
        changes |= {f"column change {at}": str(each) for at, each in enumerate(done, 1)}
        words += ["--schema", wanted["schema"]]
    if not changes:
        raise OptionError("nothing is to be altered: change a setting first")
    return ChangePlan(
        sentence=f"These settings of queue {call.name()} are altered; the others stay.",
        command=command_of("queue", "alter", call.name(), *words),
        about=f"{queue.queue_id} {queue}",
        figures=changes,
        warnings=("Readers and writers that run see the change when they are restarted.",),
        button="Alter the queue",
    )


def _alter(call: PageCall, _: Client) -> str:
    queue = call.queue()
    wanted = _settings_of(call, queue)
    del wanted["drop_dead"]
    target = wanted.pop("dead_letter_queue")
    if target == (queue.dead_letter_queue or ""):
        target = None
    alter_queue(call.console.store, call.name(), dead_letter_queue=target, **wanted)
    return f"Queue {call.name()} is altered. Restart its readers and writers to apply the change."


def _plan_create(call: PageCall) -> ChangePlan:
    name = validate_name("queue", call.asked("name").strip())
    record = read_record(call.console.watcher.looking, name)
    if record is not None and not record.is_gone:
        raise QueueStateError(f"there is a queue {name!r} already")
    wanted = _settings_of(call, _default(name))
    order, partitions = _order_of(call), _partitions_of(call)
    words: list[object] = ["--lease", show.span(wanted["lease"])]
    words += ["--max-deliveries", wanted["max_deliveries"]]
    given, is_dropped = wanted["dead_letter_queue"], wanted["drop_dead"]
    words += ["--dead-letter-queue", given] if given else []
    words += ["--drop-dead"] if is_dropped else []
    target = None if is_dropped or not wanted["max_deliveries"] else given or f"{name}.dead"
    words += [] if order is Order.NONE else ["--order", order.value]
    words += [] if partitions == 1 else ["--partitions", partitions]
    words += [] if wanted["on_dead"] is OnDead.CONTINUE else ["--on-dead", wanted["on_dead"].value]
    for setting in ("expire_after", "keep_settled"):
        length = wanted[setting]
        words += [f"--{setting.replace('_', '-')}", show.span(length)] if length else []
    figures: dict[str, int | str] = {
        "lease": show.span(wanted["lease"]),
        "max deliveries": wanted["max_deliveries"] or "no limit",
        "dead-letter queue": target or "none",
        "order": order.value,
        "partitions": partitions,
        "on a dead message": wanted["on_dead"].value,
        "expire after": _period(wanted["expire_after"]),
        "keep settled": _period(wanted["keep_settled"]),
    }
    if wanted["schema"] is not None:
        figures["schema"] = to_ddl(parse_ddl(wanted["schema"]))
        words += ["--schema", wanted["schema"]]
    return ChangePlan(
        sentence=f"Queue {name} is created.",
        command=command_of("queue", "create", name, *words),
        about=name,
        figures=figures,
        button="Create the queue",
    )


def _create(call: PageCall, client: Client) -> str:
    name = call.asked("name").strip()
    wanted = _settings_of(call, _default(name))
    queue = client.create_queue(
        name,
        lease=wanted["lease"],
        max_deliveries=wanted["max_deliveries"],
        dead_letter_queue=wanted["dead_letter_queue"] or None,
        drop_dead=wanted["drop_dead"],
        on_dead=wanted["on_dead"],
        order=_order_of(call),
        partitions=_partitions_of(call),
        expire_after=wanted["expire_after"] or None,
        keep_settled=wanted["keep_settled"] or None,
        schema=wanted["schema"],
    )
    return f"Queue {queue.name} is ready ({queue.queue_id})."


def _check_chosen(queue: QueueDefinition, wanted: Mapping[str, Any]) -> None:
    """Refuse to drop dead messages only because a field is empty."""
    if wanted["max_deliveries"] and not (wanted["dead_letter_queue"] or wanted["drop_dead"]):
        raise OptionError(
            f"name a dead-letter queue, such as {queue.name}.dead, or tick that dead messages are "
            "dropped"
        )


def _leased(looked: Looked) -> int:
    return sum(each.leased for each in looked.snapshot.stats.groups)


def held_back(call: PageCall, leased: int) -> str | None:
    """Why a change has to be forced while readers hold messages; None: it has not."""
    if not leased or flag("force", call):
        return None
    return (
        f"readers hold {leased:,} message(s); stop them, wait until their leases run out, or "
        "force it: then they lose these messages"
    )


def _default(name: str) -> QueueDefinition:
    """What a new queue has unless a form says otherwise; its dead-letter queue is NAME.dead."""
    return QueueDefinition(name, 1, max_deliveries=DEFAULT_MAX_DELIVERIES)


def _settings_of(call: PageCall, usual: QueueDefinition) -> dict[str, Any]:
    """The settings that a form gives; of a field that it lacks, those that are usual."""
    schema = call.asked("schema").strip()
    limit = call.number("max_deliveries", usual.max_deliveries, most=2**31 - 1)
    target = call.asked("dead_letter_queue", usual.dead_letter_queue or "").strip()
    is_dropped = flag("drop_dead", call)
    if target and (is_dropped or not limit):
        raise OptionError(
            f"dead-letter queue {target!r} cannot be combined with dropping dead messages, or "
            "with max deliveries 0: leave it empty"
        )
    return {
        "lease": _length_of(call, "lease", usual.lease),
        "max_deliveries": limit,
        "dead_letter_queue": target,
        "drop_dead": is_dropped,
        "on_dead": parse_on_dead(call.asked("on_dead") or usual.on_dead),
        "expire_after": _length_of(call, "expire_after", timedelta(0)),
        "keep_settled": _length_of(call, "keep_settled", timedelta(0)),
        "schema": to_ddl(parse_ddl(schema)) if schema else None,
    }


def _length_of(call: PageCall, name: str, default: timedelta) -> timedelta:
    text = call.asked(name).strip()
    if not text or text == show.NOTHING:
        return default
    try:
        return show.PERIOD.parse(text)
    except ValueError as error:
        raise OptionError(
            f"{name.replace('_', ' ')} must be {show.PERIOD.name}, not {text!r}"
        ) from error


def _period(length: timedelta) -> str:
    return show.span(length) if length else "none"


def _order_of(call: PageCall) -> Order:
    text = call.asked("order") or Order.NONE.value
    if text not in {each.value for each in Order}:
        raise OptionError(f"the order must be one of {', '.join(Order)}, not {text!r}")
    return Order(text)


def _partitions_of(call: PageCall) -> int:
    return call.number("partitions", 1, least=1, most=MOST_PARTITIONS)


#: The changes of a queue, by the last part of their path.
OF_QUEUE: Mapping[str, Change] = {
    "alter": Change("Alter the queue", _plan_alter, _alter),
    "delete": Change("Delete the queue", _plan_delete, _delete, True, lambda call: call.url()),
    "pause": Change("Pause the queue", _plan_pause, _pause),
    "purge": Change("Purge the queue", _plan_purge, _purge, True),
    "resume": Change("Resume the queue", _plan_resume, _resume),
}
CREATE = Change(
    "Create a queue",
    _plan_create,
    _create,
    after=lambda call: call.url("queues", call.asked("name").strip()),
)
