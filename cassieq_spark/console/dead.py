"""The page of dead letters, by origin and reason; and the changes that redrive and purge them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from starlette.responses import Response

from cassieq_spark.arguments import RESERVED
from cassieq_spark.client import Client
from cassieq_spark.client.receiver import read_stored
from cassieq_spark.console.pages import PageCall, flag, instant_of, page
from cassieq_spark.console.plans import Change, ChangePlan, command_of
from cassieq_spark.console.queue import about_queue
from cassieq_spark.consumer.message import StoredMessage
from cassieq_spark.dead_letters.letters import Filter
from cassieq_spark.dead_letters.redrive import read_routes
from cassieq_spark.dead_letters.survey import Survey, survey
from cassieq_spark.errors import LeaseLostError, QueueStateError
from cassieq_spark.fetch.read import Unreadable
from cassieq_spark.model import Range, Ranges
from cassieq_spark.store.protocol import Store

#: How many dead letters are read for a page, the first ones.
EXAMINED = 20_000
#: Maximum number of dead letters of one redrive or purge, so that it is done within a minute.
MOST_LETTERS = 10_000
#: The effect of a forced redrive.
_AGAIN = "Other groups of the queue get these messages once more"
#: Maximum number of dead letters that a list shows.
_LISTED = 50


@dataclass(frozen=True, slots=True)
class Letter:
    """A dead letter in the list.

    Attributes:
        message: The message as it is in the dead-letter queue.
        told: What the dead-lettering has written into the headers, by name without the prefix.
        own: The headers that the message had before.
    """

    message: StoredMessage
    told: dict[str, str | None]
    own: dict[str, str | None]


@page("/queues/{queue}/dead")
def dead(call: PageCall) -> Response:
    """Show dead letters. Reads the first 20,000 of them, about one read per bucket."""
    looked = call.console.watcher.read(call.name())
    about = about_queue(call, looked)
    try:
        found = find(call)
    except QueueStateError as error:
        # It has no dead-letter queue: that is nothing to be alarmed about.
        return call.render(
            "dead.html", **about, found=None, why_not=str(error), letters=[], **_asked(call)
        )
    store = call.console.watcher.looking
    in_queue = call.console.watcher.read(found.queue.name).snapshot.dead_letters
    return call.render(
        "dead.html",
        **about,
        found=found,
        why_not=None,
        count=found.monotons.count,
        in_queue=in_queue,
        examined=EXAMINED,
        letters=list_letters(store, found),
        listed=_LISTED,
        **_asked(call),
    )


def find(call: PageCall) -> Survey:
    """The requested dead letters, among the first ones."""
    return survey(call.console.watcher.looking, call.name(), criteria_of(call), examine=EXAMINED)


def criteria_of(call: PageCall) -> Filter:
    """The criteria of a page or a form for dead letters."""
    return Filter(
        group=call.asked("group") or None,
        reason=call.asked("reason") or None,
        since=instant_of(call, "since"),
        until=instant_of(call, "until"),
    )


def list_letters(store: Store, found: Survey) -> list[Letter]:
    """The first of these dead letters, as they are stored."""
    wanted, _ = found.monotons.split(_LISTED)
    return [_letter_of(each) for each in _read(store, found, wanted)]


def _read(store: Store, found: Survey, wanted: Ranges) -> Sequence[StoredMessage]:
    messages: list[StoredMessage] = []
    if wanted:
        try:
            messages += read_stored(store, found.queue, wanted, Unreadable().add)
        except LeaseLostError:
            # Purged or redriven meanwhile, and deleted.
            return messages
    return messages


def _letter_of(message: StoredMessage) -> Letter:
    told = {
        name.removeprefix(RESERVED): text
        for name, text in message.headers.items()
        if name.startswith(RESERVED)
    }
    own = {name: text for name, text in message.headers.items() if not name.startswith(RESERVED)}
    return Letter(message, told, own)


def _asked(call: PageCall) -> dict[str, Any]:
    return {name: call.asked(name) for name in ("group", "reason", "since", "until")}


# -- changes --------------------------------------------------------------------------------------


def _plan_redrive(call: PageCall) -> ChangePlan:
    found = _letters(call)
    force = flag("force", call)
    to = call.asked("to").strip() or None
    store = call.console.watcher.looking
    blocked = None if found.groups else "there is no such dead letter"
    could_be_forced = False
    try:
        routes = read_routes(store, found, to=to, force=force)
    except QueueStateError as error:
        # What can't be forced either is an error.
        routes = read_routes(store, found, to=to, force=True)
        blocked, could_be_forced = str(error), True
    count = sum(route.monotons.count for route in routes)
    if not count and blocked is None:
        blocked = "their headers do not say where they come from: name a queue to send them to"
    left_out = found.monotons.count - count
    figures: dict[str, int | str] = {
        f"to queue {route.target.name}": route.monotons.count for route in routes
    }
    if left_out:
        figures["left, as their headers name no origin"] = left_out
    return ChangePlan(
        sentence=f"{count:,} dead letter(s) of queue {found.queue.name} are published again, "
        "each once, and are dead letters no more.",
        command=command_of(
            "dead",
            "redrive",
            call.name(),
            *_filter_words(call),
            "--limit",
            MOST_LETTERS,
            *(["--to", to] if to else []),
            *(["--force"] if force else []),
            *(["--drop-columns"] if flag("drop_columns", call) else []),
        ),
        about=found.queue.queue_id,
        figures=figures,
        warnings=("What made them fail may make them fail again: look at the reasons first.",),
        blocked=blocked,
        force=_AGAIN if could_be_forced else None,
        button="Redrive them",
        values={"below": _end_of(found)},
    )


def _redrive(call: PageCall, client: Client) -> str:
    report = client.redrive(
        _letters(call),
        to=call.asked("to").strip() or None,
        force=flag("force", call),
        drop_columns=flag("drop_columns", call),
    )
    each = ", ".join(f"{count:,} to queue {name}" for name, count in report.redriven.items())
    missed = f" {report.missed:,} were left out: another run has or had them." * bool(
        report.missed
    )
    return f"Redrove {sum(report.redriven.values()):,} message(s): {each or 'none'}.{missed}"


def _plan_purge_dead(call: PageCall) -> ChangePlan:
    found = _letters(call)
    count = found.monotons.count
    return ChangePlan(
        sentence=f"{count:,} dead letter(s) of queue {found.queue.name} are given up for good.",
        command=command_of(
            "dead", "purge", call.name(), *_filter_words(call), "--limit", MOST_LETTERS
        ),
        about=found.queue.queue_id,
        figures={
            f"{group.origin_queue or 'no origin'}: {group.reason or 'no reason'}": (
                group.monotons.count
            )
            for group in found.groups
        },
        warnings=("They can't be had again: the next repair run deletes them.",),
        blocked=None if count else "there is no such dead letter",
        type_name=found.queue.name,
        button="Purge them",
        values={"below": _end_of(found)},
    )


def _purge_dead(call: PageCall, client: Client) -> str:
    report = client.purge_dead_letters(_letters(call))
    missed = f" {report.missed:,} were left out: another run has or had them." * bool(
        report.missed
    )
    return f"Purged {report.purged:,} dead letter(s).{missed}"


def _letters(call: PageCall) -> Survey:
    """The requested dead letters; for a confirmed form, those that the form showed."""
    found = find(call)
    below = call.number("below", 2**62)
    allowed, _ = (found.monotons & Ranges.of(Range(0, below))).split(MOST_LETTERS)
    groups = [replace(group, monotons=group.monotons & allowed) for group in found.groups]
    return Survey(found.queue, tuple(group for group in groups if group.monotons))


def _end_of(found: Survey) -> str:
    return str(found.monotons.hull.stop) if found.groups else "0"


def _filter_words(call: PageCall) -> list[str]:
    names = ("reason", "group", "since", "until")
    return [word for name in names if (text := call.asked(name)) for word in (f"--{name}", text)]


#: The changes of dead letters, by the last part of their path.
OF_DEAD: Mapping[str, Change] = {
    "purge": Change(
        "Purge dead letters",
        _plan_purge_dead,
        _purge_dead,
        True,
        lambda call: call.url("queues", call.name(), "dead"),
    ),
    "redrive": Change(
        "Redrive dead letters",
        _plan_redrive,
        _redrive,
        after=lambda call: call.url("queues", call.name(), "dead"),
    ),
}
