"""The changes of a queue: plans, by reads, of what each change would do, and their execution.

The changes themselves are those of the client and of the command line.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from cassieq_spark.client import Client
from cassieq_spark.console.pages import PageCall, flag
from cassieq_spark.console.watcher import Looked
from cassieq_spark.errors import NEW_CHECKPOINT, CassieqError
from cassieq_spark.queues import read_record
from cassieq_spark.queues.record import known
from cassieq_spark.schedules.changes import readable_schedules

#: The effect of a change that is forced while readers hold messages.
LOSES_LEASES = "Readers lose the messages that they hold"


@dataclass(frozen=True, slots=True)
class ChangePlan:
    """The effect that a change would have.

    Attributes:
        sentence: The effect in words.
        command: The command line with the same effect.
        about: The state that the plan is based on; the change is made only while it is the same.
        figures: How many of each thing the change would affect.
        warnings: What the user should consider.
        blocked: Why the change can't be made; None if it can.
        force: The effect of forcing it, where that is possible; None where it is not.
        type_name: The name that the user must type to confirm; None for no name.
        button: The label of the button.
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
        title: The name of the change.
        plan: Reads what the change would do.
        apply: Makes the change, and returns what was done.
        is_danger: True if the change gives up messages.
        after: The page to go to when the change is made.
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


def _pause(call: PageCall, client: Client) -> str:
    changed = client.pause_queue(call.name())
    return f"Queue {call.name()} is paused{'' if changed else ' already'}."


def _plan_resume(call: PageCall) -> ChangePlan:
    looked = call.console.watcher.read(call.name())
    return ChangePlan(
        sentence=f"Readers of queue {call.name()} lease again with their next batch.",
        command=command_of("queue", "resume", call.name()),
        about=looked.record.definition.queue_id,
        button="Resume the queue",
    )


def _resume(call: PageCall, client: Client) -> str:
    changed = client.resume_queue(call.name())
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
        if schedules := readable_schedules(record):
            figures["schedules"] = len(schedules)
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


def _leased(looked: Looked) -> int:
    return sum(each.leased for each in looked.snapshot.stats.groups)


def held_back(call: PageCall, leased: int) -> str | None:
    """Why a change must be forced while readers hold messages; None if it need not."""
    if not leased or flag("force", call):
        return None
    return (
        f"readers hold {leased:,} message(s); stop them, wait until their leases run out, or "
        "force it: then they lose these messages"
    )


#: The changes of a queue, by the last part of their path.
OF_QUEUE: Mapping[str, Change] = {
    "delete": Change("Delete the queue", _plan_delete, _delete, True, lambda call: call.url()),
    "pause": Change("Pause the queue", _plan_pause, _pause),
    "purge": Change("Purge the queue", _plan_purge, _purge, True),
    "resume": Change("Resume the queue", _plan_resume, _resume),
}
