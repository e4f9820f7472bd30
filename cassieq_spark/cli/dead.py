"""``cassieq dead``: what could not be processed; look at it, send it back, or give it up."""

from __future__ import annotations

import re
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Annotated

import typer

from cassieq_spark.cli import dead_output as output
from cassieq_spark.cli.connection import with_connection
from cassieq_spark.cli.group import is_interactive
from cassieq_spark.cli.long_run import progress_bar, stop_on_interrupt
from cassieq_spark.cli.output import INTERRUPTED, AsJson, print_json
from cassieq_spark.cli.shared import shared_options
from cassieq_spark.dead_letters.letters import Filter
from cassieq_spark.dead_letters.purge import purge as purge_letters
from cassieq_spark.dead_letters.redrive import plan_routes
from cassieq_spark.dead_letters.redrive import redrive as redrive_letters
from cassieq_spark.dead_letters.survey import read_message, survey
from cassieq_spark.errors import OptionError
from cassieq_spark.settings.connection import ConnectionOptions
from cassieq_spark.settings.kinds import duration
from cassieq_spark.settings.position import parse_position
from cassieq_spark.store import open_store
from cassieq_spark.terminal import confirm

app = typer.Typer(
    help="Look at dead letters, send them back, or give them up.", no_args_is_help=True
)

_CHOICE = "Which dead letters"
_AGO = duration(timedelta(days=36500))
_SECONDS = {"s": 1, "m": 60, "h": 3600}

Queue = Annotated[
    str,
    typer.Argument(
        help="A queue, for the dead letters that come from it; or a dead-letter queue, for all.",
        show_default=False,
    ),
]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only show what would be done.")]


@dataclass(frozen=True, slots=True)
class _Choice:
    """Which dead letters, and the first how many of them; None: all."""

    wanted: Filter
    limit: int | None


def _choose(
    *,
    reason: Annotated[
        str | None,
        typer.Option(
            help="With this text in their reason; case does not matter.", rich_help_panel=_CHOICE
        ),
    ] = None,
    group: Annotated[
        str | None,
        typer.Option(help="That this consumer group could not process.", rich_help_panel=_CHOICE),
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(
            help="Dead since then: 2026-11-20T12:00:00Z, or 2h for two hours ago.",
            rich_help_panel=_CHOICE,
        ),
    ] = None,
    until: Annotated[
        str | None,
        typer.Option(help="Dead since before then; as --since.", rich_help_panel=_CHOICE),
    ] = None,
    limit: Annotated[
        int | None, typer.Option(help="So many, the first ones.", min=1, rich_help_panel=_CHOICE)
    ] = None,
) -> _Choice:
    now = datetime.now(UTC)
    begin = None if since is None else parse_instant("--since", since, now)
    end = None if until is None else parse_instant("--until", until, now)
    if begin is not None and end is not None and begin >= end:
        raise OptionError(f"--since {since} is not before --until {until}: that is no time at all")
    return _Choice(Filter(group=group, reason=reason, since=begin, until=end), limit)


_with_choice = shared_options("choice", _choose)


@app.command("list")
@with_connection
@_with_choice
def list_(
    queue: Queue,
    *,
    connection: ConnectionOptions,
    choice: _Choice,
    as_json: AsJson = False,
) -> None:
    """List dead letters by where they come from, and why they are dead. Changes nothing."""
    with closing(open_store(connection)) as store, progress_bar() as watch:
        found = survey(store, queue, choice.wanted, limit=choice.limit, watch=watch)
    if as_json:
        print_json(output.survey_json(found))
    else:
        output.print_piles(found)


@app.command()
@with_connection
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
        print_json(output.message_json(message))
    else:
        output.print_message(message, full=full)


@app.command()
@with_connection
@_with_choice
def redrive(  # noqa: PLR0913 (one per option)
    queue: Queue,
    *,
    connection: ConnectionOptions,
    choice: _Choice,
    to: Annotated[
        str | None, typer.Option(help="Queue to send them to.", show_default="where each was")
    ] = None,
    rate: Annotated[
        str | None,
        typer.Option(help="So many messages at the most: 50/s, 100/m.", show_default="no limit"),
    ] = None,
    force: Annotated[
        bool,
        typer.Option("--force", help="Also if other groups of the queue get them once more."),
    ] = False,
    across_accounts: Annotated[
        bool,
        typer.Option(
            "--across-accounts", help="Also to queues of another account than they are in."
        ),
    ] = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Publish dead letters again, each once, and let go of them.

    Ctrl-C stops it after the batch in hand (exit code 130).
    """
    per_second = None if rate is None else parse_rate(rate)
    with closing(open_store(connection)) as store:
        with progress_bar() as watch:
            found = survey(store, queue, choice.wanted, limit=choice.limit, watch=watch)
        routes = plan_routes(store, found, to=to, force=force, across_accounts=across_accounts)
        output.warn_of_strays(found, routes)
        if dry_run:
            output.print_plan(found, output.routes_json(routes), as_json=as_json)
            return
        if routes and not yes:
            _confirm(f"Redrive {output.describe(routes)}?")
        with progress_bar() as watch, stop_on_interrupt() as wait:
            report = redrive_letters(
                store,
                found,
                to=to,
                rate=per_second,
                force=force,
                across_accounts=across_accounts,
                wait=wait,
                watch=watch,
            )
    output.print_redriven(found, report, as_json=as_json)
    _exit_if(stopped=report.is_stopped)


@app.command()
@with_connection
@_with_choice
def purge(  # noqa: PLR0913 (one per option)
    queue: Queue,
    *,
    connection: ConnectionOptions,
    choice: _Choice,
    dry_run: DryRun = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Give dead letters up: the sweep deletes them.

    Ctrl-C stops it after the batch in hand (exit code 130).
    """
    with closing(open_store(connection)) as store:
        with progress_bar() as watch:
            found = survey(store, queue, choice.wanted, limit=choice.limit, watch=watch)
        count = found.monotons.count
        if dry_run:
            output.print_plan(found, {}, as_json=as_json)
            return
        if count and not yes:
            _confirm(f"Give up {count:,} dead letter(s) of queue {found.queue.name} for good?")
        with progress_bar() as watch, stop_on_interrupt() as wait:
            report = purge_letters(store, found, wait=wait, watch=watch)
    output.print_purged(found, report, as_json=as_json)
    _exit_if(stopped=report.is_stopped)


def parse_rate(text: str) -> float:
    """Read a rate, in messages per second.

    >>> parse_rate("50/s"), parse_rate("90/m")
    (50.0, 1.5)

    Raises:
        OptionError: It is none.
    """
    match = re.fullmatch(r"([0-9]{1,9})/([smh])", text.strip())
    if match is None or not int(match[1]):
        raise OptionError(f"--rate must be messages per time, such as 50/s or 100/m, not {text!r}")
    return int(match[1]) / _SECONDS[match[2]]


def parse_instant(option: str, text: str, now: datetime) -> datetime:
    """Read an instant, or how long it is ago.

    >>> now = datetime(2026, 11, 20, 12, tzinfo=UTC)
    >>> parse_instant("--since", "2h", now).isoformat()
    '2026-11-20T10:00:00+00:00'

    Raises:
        OptionError: It is neither.
    """
    try:
        return now - _AGO.parse(text)
    except ValueError:
        pass
    try:
        instant = parse_position(text)
    except OptionError as error:
        raise OptionError(f"{option}: {error}") from error
    except ValueError:
        instant = "earliest"
    if not isinstance(instant, datetime):
        raise OptionError(
            f"{option} must be an instant such as 2026-11-20T12:00:00Z, or how long ago, such as "
            f"2h or 30m, not {text!r}"
        )
    return instant


def _confirm(question: str) -> None:
    if not is_interactive():
        raise OptionError("there is no terminal to ask on: give --yes, or --dry-run to look first")
    confirm(question)


def _exit_if(*, stopped: bool) -> None:
    if stopped:
        raise typer.Exit(INTERRUPTED)
