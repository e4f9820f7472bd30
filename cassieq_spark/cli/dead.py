"""``cassieq dead``: what could not be processed; look at it, send it back, or give it up."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from cassieq_spark.cli.options import AsJson, Value, Yes, command
from cassieq_spark.cli.output import (
    INTERRUPTED,
    ask,
    instant_text,
    print_json,
    progress_bar,
    stop_on_interrupt,
)
from cassieq_spark.dead_letters.letters import DeadLetterGroup, Filter
from cassieq_spark.dead_letters.purge import PurgeReport
from cassieq_spark.dead_letters.purge import purge as purge_letters
from cassieq_spark.dead_letters.redrive import RedriveReport, Route, plan_routes
from cassieq_spark.dead_letters.redrive import redrive as redrive_letters
from cassieq_spark.dead_letters.survey import Message, Survey, read_message, survey
from cassieq_spark.display import visible
from cassieq_spark.errors import OptionError
from cassieq_spark.schemas.to_rows import json_of, json_text
from cassieq_spark.settings.connection import ConnectionOptions
from cassieq_spark.settings.kinds import Kind, duration
from cassieq_spark.settings.position import parse_position
from cassieq_spark.store import open_store
from cassieq_spark.terminal import Console, echo

app = typer.Typer(
    help="Look at dead letters, send them back, or give them up.", no_args_is_help=True
)

_CHOICE = "Which dead letters"
_AGO = duration(timedelta(days=36500))
_SECONDS = {"s": 1, "m": 60, "h": 3600}
_MS = "milliseconds"
_OTHERWISE = "give --yes, or --dry-run to look first"
#: Characters of a key or value that are shown without ``--full``.
_SHOWN = 1000

Queue = Annotated[
    str,
    typer.Argument(
        help="A queue, for the dead letters that come from it; or a dead-letter "
        "queue, for everything in it.",
        show_default=False,
    ),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only show what would be done.")]


def parse_rate(text: str) -> float:
    """Read a rate, in messages per second.

    >>> parse_rate("50/s"), parse_rate("90/m")
    (50.0, 1.5)

    Raises:
        ValueError: It is none.
    """
    match = re.fullmatch(r"([0-9]{1,9})/([smh])", text.strip())
    if match is None or not int(match[1]):
        raise ValueError(text)
    return int(match[1]) / _SECONDS[match[2]]


def parse_instant(text: str, now: datetime | None = None) -> datetime:
    """Read an instant, or how long it is ago.

    >>> parse_instant("2h", datetime(2026, 11, 20, 12, tzinfo=UTC)).isoformat()
    '2026-11-20T10:00:00+00:00'

    Raises:
        ValueError: It is neither.
    """
    try:
        return (now or datetime.now(UTC)) - _AGO.parse(text)
    except ValueError:
        instant = parse_position(text)
    if not isinstance(instant, datetime):
        raise ValueError(text)  # noqa: TRY004 (the text is wrong, not its type)
    return instant


RATE = Kind("messages per time, such as 50/s or 100/m", parse_rate, metavar="RATE")
WHEN = Kind(
    "an instant such as 2026-11-20T12:00:00Z, or how long ago, such as 2h or 30m",
    parse_instant,
    metavar="WHEN",
)


@dataclass(frozen=True, slots=True)
class _Choice:
    """Which dead letters, and at most how many of them; None for all."""

    criteria: Filter
    limit: int | None


def _choose(
    *,
    reason: Annotated[
        str | None,
        typer.Option(
            help="Only those with this text in the reason; case does not matter.",
            rich_help_panel=_CHOICE,
        ),
    ] = None,
    group: Annotated[
        str | None,
        typer.Option(
            help="Only those that this consumer group could not process.", rich_help_panel=_CHOICE
        ),
    ] = None,
    since: Annotated[
        datetime | None,
        Value(
            WHEN,
            "Dead-lettered since then: 2026-11-20T12:00:00Z, or 2h for two hours ago.",
            panel=_CHOICE,
        ),
    ] = None,
    until: Annotated[
        datetime | None,
        Value(WHEN, "Dead-lettered before this instant; written as --since.", panel=_CHOICE),
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option(help="At most this many, the first ones.", min=1, rich_help_panel=_CHOICE),
    ] = None,
) -> _Choice:
    if since is not None and until is not None and since >= until:
        raise OptionError(
            f"--since is not before --until, {instant_text(since)} not before "
            f"{instant_text(until)}: no dead letter can be from then"
        )
    return _Choice(Filter(group=group, reason=reason, since=since, until=until), limit)


@command(app, "list", choice=_choose)
def list_(
    queue: Queue,
    *,
    connection: ConnectionOptions,
    choice: _Choice,
    as_json: AsJson = False,
) -> None:
    """Count dead letters by origin and reason. Changes nothing."""
    with closing(open_store(connection)) as store, progress_bar() as watch:
        found = survey(store, queue, choice.criteria, limit=choice.limit, watch=watch)
    if as_json:
        print_json(_survey_json(found))
    else:
        _print_groups(found)


@command(app)
def show(
    queue: Queue,
    monoton: Annotated[
        int, typer.Argument(help="Its monoton in the dead-letter queue.", show_default=False)
    ],
    *,
    connection: ConnectionOptions,
    full: Annotated[bool, typer.Option("--full", help="Cut nothing short.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show a dead letter: headers, key and value. Changes nothing."""
    with closing(open_store(connection)) as store:
        message = read_message(store, queue, monoton)
    if as_json:
        print_json(_message_json(message))
    else:
        _print_message(message, full=full)


@command(app, choice=_choose)
def redrive(  # noqa: PLR0913 (one per option)
    queue: Queue,
    *,
    connection: ConnectionOptions,
    choice: _Choice,
    to: Annotated[
        str | None, typer.Option(help="Queue to send them to.", show_default="where each was")
    ] = None,
    rate: Annotated[
        float | None,
        Value(RATE, "At most this many messages per time: 50/s, 100/m.", without="no limit"),
    ] = None,
    force: Annotated[
        bool,
        typer.Option(
            "--force",
            help="Redrive even if other groups of the queue get the messages a second time.",
        ),
    ] = False,
    across_accounts: Annotated[
        bool,
        typer.Option("--across-accounts", help="Allow queues of another account."),
    ] = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Publish dead letters again, each once, and remove them from the dead-letter queue.

    Ctrl-C stops it after the current batch (exit code 130).
    """
    with closing(open_store(connection)) as store:
        with progress_bar() as watch:
            found = survey(store, queue, choice.criteria, limit=choice.limit, watch=watch)
        routes = plan_routes(store, found, to=to, force=force, across_accounts=across_accounts)
        _warn_of_strays(found, routes)
        if dry_run:
            _print_plan(found, _routes_json(routes), as_json=as_json)
            return
        if routes:
            ask(lambda: f"Redrive {_describe(routes)}?", yes=yes, otherwise=_OTHERWISE)
        with progress_bar() as watch, stop_on_interrupt() as wait:
            report = redrive_letters(
                store,
                found,
                to=to,
                rate=rate,
                force=force,
                across_accounts=across_accounts,
                wait=wait,
                watch=watch,
            )
    _print_redriven(found, report, as_json=as_json)
    _exit_if(stopped=report.is_stopped)


@command(app, choice=_choose)
def purge(  # noqa: PLR0913 (one per option)
    queue: Queue,
    *,
    connection: ConnectionOptions,
    choice: _Choice,
    dry_run: DryRun = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Give dead letters up: the repair deletes them.

    Ctrl-C stops it after the current batch (exit code 130).
    """
    with closing(open_store(connection)) as store:
        with progress_bar() as watch:
            found = survey(store, queue, choice.criteria, limit=choice.limit, watch=watch)
        count = found.monotons.count
        if dry_run:
            _print_plan(found, {}, as_json=as_json)
            return
        if count:
            question = f"Give up {count:,} dead letter(s) of queue {found.queue.name} for good?"
            ask(lambda: question, yes=yes, otherwise=_OTHERWISE)
        with progress_bar() as watch, stop_on_interrupt() as wait:
            report = purge_letters(store, found, wait=wait, watch=watch)
    _print_purged(found, report, as_json=as_json)
    _exit_if(stopped=report.is_stopped)


def _exit_if(*, stopped: bool) -> None:
    if stopped:
        raise typer.Exit(INTERRUPTED)


def _print_groups(found: Survey) -> None:
    """Print how many dead letters there are, by origin and reason."""
    if not found.groups:
        echo(f"Queue {found.queue.name} has no such dead letters.")
        return
    table = Table("from queue", "group", "reason", "count", "first", "last", "monoton")
    for group in found.groups:
        cells = (
            group.origin_queue,
            group.origin_group,
            group.reason,
            f"{group.monotons.count:,}",
            instant_text(group.first, _MS),
            instant_text(group.last, _MS),
            str(group.monotons.start),
        )
        table.add_row(*(Text(visible(cell or "-"), overflow="fold") for cell in cells))
    Console().print(table)
    echo(
        f"{found.monotons.count:,} dead letter(s) in queue {found.queue.name}; the monoton is "
        f"that of the first of them: cassieq dead show {found.queue.name} MONOTON"
    )


def _survey_json(found: Survey) -> dict[str, Any]:
    """The dead letters by origin and reason."""
    return {
        "dead_letter_queue": found.queue.name,
        "count": found.monotons.count,
        "letters": [_group_json(group) for group in found.groups],
    }


def _print_message(message: Message, *, full: bool) -> None:
    """Print a dead letter."""
    limit = None if full else _SHOWN
    table = Table(show_header=False)
    rows = [("queue", message.queue), ("monoton", str(message.monoton))]
    rows += [("published at", instant_text(message.published_at, _MS) or "-")]
    rows += [(name, "-" if value is None else value) for name, value in message.headers or ()]
    value = message.value
    text = json_text(value) if isinstance(value, dict) else value
    rows += [("key", shown(message.key, limit)), ("value", shown(text, limit))]
    for name, told in rows:
        table.add_row(Text(visible(name)), Text(visible(told), overflow="fold"))
    Console().print(table)


def _message_json(message: Message) -> dict[str, Any]:
    """A dead letter, key and value in base 64; an object, if the queue has a schema."""
    value = message.value
    return {
        "queue": message.queue,
        "monoton": message.monoton,
        "published_at": instant_text(message.published_at, _MS),
        "headers": dict(message.headers or ()),
        "key": None if message.key is None else b64encode(message.key).decode(),
        "value": json_of(value) if isinstance(value, dict) else b64encode(value).decode(),
    }


def _warn_of_strays(found: Survey, routes: Sequence[Route]) -> None:
    """Report, on standard error, messages whose headers name no origin."""
    strays = found.monotons.count - sum(route.monotons.count for route in routes)
    if strays:
        echo(
            f"{strays:,} message(s) of queue {found.queue.name} stay where they are: their "
            "headers do not say where they come from; --to says where they go",
            err=True,
        )


def _describe(routes: Sequence[Route]) -> str:
    """How many messages, and where to."""
    each = [f"{route.monotons.count:,} to queue {route.target.name}" for route in routes]
    return f"{sum(route.monotons.count for route in routes):,} message(s): {', '.join(each)}"


def _routes_json(routes: Sequence[Route]) -> dict[str, int]:
    """How many messages, by where they go."""
    return {route.target.name: route.monotons.count for route in routes}


def _print_plan(found: Survey, routes: dict[str, int], *, as_json: bool) -> None:
    """Print what would be done."""
    if as_json:
        print_json(_survey_json(found) | {"dry_run": True, "to": routes})
        return
    _print_groups(found)
    for queue, count in routes.items():
        echo(f"{count:,} would go to queue {queue}.")
    echo("Nothing was changed.")


def _print_redriven(found: Survey, report: RedriveReport, *, as_json: bool) -> None:
    """Print what was redriven."""
    if as_json:
        print_json(
            {
                "dead_letter_queue": found.queue.name,
                "dry_run": False,
                "redriven": report.redriven,
                "missed": report.missed,
                "stopped": report.is_stopped,
            }
        )
        return
    total = sum(report.redriven.values())
    each = [f"{count:,} to queue {queue}" for queue, count in report.redriven.items()]
    echo(f"Redrove {total:,} message(s){': ' * bool(each)}{', '.join(each)}.")
    _print_rest(found, report)


def _print_purged(found: Survey, report: PurgeReport, *, as_json: bool) -> None:
    """Print what was purged."""
    if as_json:
        print_json(
            {
                "dead_letter_queue": found.queue.name,
                "dry_run": False,
                "purged": report.purged,
                "missed": report.missed,
                "stopped": report.is_stopped,
            }
        )
        return
    echo(f"Purged {report.purged:,} message(s) from queue {found.queue.name}.")
    _print_rest(found, report)


def shown(data: bytes | None, limit: int | None) -> str:
    """A key or value as text if it is some, else in hex; cut after ``limit``, None for never."""
    if data is None:
        return "-"
    try:
        text = data.decode()
    except UnicodeDecodeError:
        text = f"0x{data[:limit].hex()}"
        return text if limit is None or len(data) <= limit else _cut(text, len(data))
    return text if limit is None or len(text) <= limit else _cut(text[:limit], len(data))


def _print_rest(found: Survey, report: RedriveReport | PurgeReport) -> None:
    if report.missed:
        echo(
            f"{report.missed:,} were left out: another command has or had them. "
            "Messages of a command that broke off are available again "
            f"{found.queue.lease.total_seconds():.0f} s later, at the latest."
        )
    if report.is_stopped:
        echo("Stopped before the end; the rest stays dead.")


def _cut(text: str, size: int) -> str:
    return f"{text}... ({size:,} bytes; --full shows all)"


def _group_json(group: DeadLetterGroup) -> dict[str, Any]:
    return {
        "origin_queue": group.origin_queue,
        "origin_group": group.origin_group,
        "reason": group.reason,
        "count": group.monotons.count,
        "first_dead_lettered_at": instant_text(group.first, _MS),
        "last_dead_lettered_at": instant_text(group.last, _MS),
        "monotons": str(group.monotons),
    }
