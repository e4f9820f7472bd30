"""``cassieq dead``: dead letters, the messages that could not be processed."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from cassieq_spark.cli.complete import complete_queues
from cassieq_spark.cli.options import (
    WHEN,
    AsJson,
    Value,
    Yes,
    check_not_empty,
    command,
    make_app,
)
from cassieq_spark.cli.output import (
    INTERRUPTED,
    ask,
    instant_text,
    print_json,
    progress_bar,
    stop_on_interrupt,
)
from cassieq_spark.cli.tables import Column, print_record, print_table
from cassieq_spark.dead_letters.letters import DeadLetterGroup, Filter
from cassieq_spark.dead_letters.purge import PurgeReport
from cassieq_spark.dead_letters.purge import purge as purge_letters
from cassieq_spark.dead_letters.redrive import RedriveReport, Route, read_routes
from cassieq_spark.dead_letters.redrive import redrive as redrive_letters
from cassieq_spark.dead_letters.survey import DeadLetterMessage, Survey, read_message, survey
from cassieq_spark.display import shown_age
from cassieq_spark.errors import OptionError
from cassieq_spark.schemas.to_rows import json_of, json_text
from cassieq_spark.settings.connection import ConnectionOptions
from cassieq_spark.settings.kinds import Kind
from cassieq_spark.store import open_store
from cassieq_spark.terminal import echo

app = make_app("Look at dead letters, send them back, or delete them.")

_CHOICE = "Which dead letters"
_SECONDS = {"s": 1, "m": 60, "h": 3600}
_MS = "milliseconds"
_OTHERWISE = "give --yes, or --dry-run to look first"
#: Characters of a key or value that are shown without ``--full``.
_SHOWN = 1000

Queue = Annotated[
    str,
    typer.Argument(
        help="A queue, for its dead letters; or a dead-letter queue, for all that are in it.",
        metavar="QUEUE",
        autocompletion=complete_queues,
    ),
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Change nothing; show what would be done.")
]


def parse_rate(text: str) -> float:
    """Read a rate, in messages per second.

    >>> parse_rate("50/s"), parse_rate("90/m")
    (50.0, 1.5)

    Raises:
        ValueError: The text is not a rate.
    """
    match = re.fullmatch(r"([0-9]{1,9})/([smh])", text.strip())
    if match is None or not int(match[1]):
        raise ValueError(text)
    return int(match[1]) / _SECONDS[match[2]]


RATE = Kind("messages per time, such as 50/s or 100/m", parse_rate, metavar="RATE")


@dataclass(frozen=True, slots=True)
class _Choice:
    """The criteria and the maximum number of the chosen dead letters; None for all."""

    criteria: Filter
    limit: int | None


def _choose(
    *,
    reason: Annotated[
        str | None,
        typer.Option(
            help="Only those with this text in their reason, in upper or lower case.",
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
            "Only those dead-lettered since then: 2h (ago), or 2026-11-20T12:00:00Z.",
            panel=_CHOICE,
        ),
    ] = None,
    until: Annotated[
        datetime | None,
        Value(WHEN, "Only those dead-lettered before then; as --since.", panel=_CHOICE),
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option(help="At most this many; the first ones.", min=1, rich_help_panel=_CHOICE),
    ] = None,
) -> _Choice:
    if since is not None and until is not None and since >= until:
        raise OptionError(
            f"--since is not before --until ({instant_text(since)} and {instant_text(until)}), so "
            "no dead letter can be between them"
        )
    for option, text in {"--reason": reason, "--group": group}.items():
        check_not_empty(option, text)
    return _Choice(Filter(group=group, reason=reason, since=since, until=until), limit)


@command(app, "list", choice=_choose)
def list_(
    queue: Queue,
    *,
    connection: ConnectionOptions,
    choice: _Choice,
    as_json: AsJson = False,
) -> None:
    """Count dead letters by origin and reason. Changes nothing.

    Examples:
        cassieq dead list orders
        cassieq dead list orders --since 1h --reason timeout
    """
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
        int, typer.Argument(help="Its monoton in the dead-letter queue: see 'dead list'.")
    ],
    *,
    connection: ConnectionOptions,
    full: Annotated[bool, typer.Option("--full", help="Show all of a long key or value.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show a dead letter: its headers, key and value. Changes nothing.

    Examples:
        cassieq dead show orders 12
        cassieq dead show orders 12 --json | jq -r .value | base64 -d
    """
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
        str | None,
        typer.Option(
            help="Queue to send them to.",
            metavar="QUEUE",
            show_default="the queue that each comes from",
            autocompletion=complete_queues,
        ),
    ] = None,
    rate: Annotated[
        float | None,
        Value(RATE, "Messages per time, at most: 50/s, 100/m.", without="no limit"),
    ] = None,
    force: Annotated[
        bool,
        typer.Option(
            "--force",
            help="Continue even if other groups of the queue get the messages a second time.",
        ),
    ] = False,
    across_accounts: Annotated[
        bool,
        typer.Option("--across-accounts", help="Send them also to queues of other accounts."),
    ] = False,
    drop_columns: Annotated[
        bool,
        typer.Option(
            "--drop-columns", help="Leave out values of columns and fields that the target lacks."
        ),
    ] = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Send dead letters back: publish each once, and remove it from the dead-letter queue.

    Ctrl-C stops the command after the current batch (exit code 130).

    Examples:
        cassieq dead redrive orders --dry-run
        cassieq dead redrive orders --rate 50/s
        cassieq dead redrive orders --reason timeout --to orders-again
    """
    check_not_empty("--to", to)
    with closing(open_store(connection)) as store:
        with progress_bar() as watch:
            found = survey(store, queue, choice.criteria, limit=choice.limit, watch=watch)
        routes = read_routes(store, found, to=to, force=force, across_accounts=across_accounts)
        _warn_of_left_out(found, routes)
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
                drop_columns=drop_columns,
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
    """Delete dead letters for good.

    Ctrl-C stops the command after the current batch (exit code 130).

    Examples:
        cassieq dead purge orders --until 30d
    """
    with closing(open_store(connection)) as store:
        with progress_bar() as watch:
            found = survey(store, queue, choice.criteria, limit=choice.limit, watch=watch)
        count = found.monotons.count
        if dry_run:
            _print_plan(found, {}, as_json=as_json)
            return
        if count:
            question = f"Delete {count:,} dead letter(s) of queue {found.queue.name} for good?"
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
    now = datetime.now(UTC)
    rows = [
        (
            group.origin_queue,
            group.origin_group,
            group.monotons.count,
            group.first and f"{shown_age(now - group.first)} ago",
            group.last and f"{shown_age(now - group.last)} ago",
            str(group.monotons.start),
            group.reason,
        )
        for group in found.groups
    ]
    columns = ("from queue", "group", "count", "oldest", "newest", "monoton")
    print_table([*columns, Column("reason", wraps=True)], rows)
    echo(
        f"{found.monotons.count:,} dead letter(s) in queue {found.queue.name}. To see one: "
        f"cassieq dead show {found.queue.name} MONOTON"
    )


def _survey_json(found: Survey) -> dict[str, Any]:
    """The dead letters by origin and reason, as JSON."""
    return {
        "dead_letter_queue": found.queue.name,
        "count": found.monotons.count,
        "letters": [_group_json(group) for group in found.groups],
    }


def _print_message(message: DeadLetterMessage, *, full: bool) -> None:
    limit = None if full else _SHOWN
    value = message.value
    text = json_text(value) if isinstance(value, dict) else value
    print_record(
        [
            ("queue", message.queue),
            ("monoton", str(message.monoton)),
            ("published", message.published_at),
            *(message.headers or ()),
            ("key", shown(message.key, limit)),
            ("value", shown(text, limit)),
        ]
    )


def _message_json(message: DeadLetterMessage) -> dict[str, Any]:
    """A dead letter as JSON; key and value are Base64, a value with columns is an object."""
    value = message.value
    return {
        "queue": message.queue,
        "monoton": message.monoton,
        "published_at": instant_text(message.published_at, _MS),
        "headers": dict(message.headers or ()),
        "key": None if message.key is None else b64encode(message.key).decode(),
        "value": json_of(value) if isinstance(value, dict) else b64encode(value).decode(),
    }


def _warn_of_left_out(found: Survey, routes: Sequence[Route]) -> None:
    """Report, on standard error, messages that name no origin, or could not be read."""
    left_out = found.monotons.count - sum(route.monotons.count for route in routes)
    if left_out:
        echo(
            f"{left_out:,} message(s) of queue {found.queue.name} are left out: their headers do "
            "not say which queue they come from, or they stand for messages that could not be "
            "read. To send them somewhere: --to QUEUE",
            err=True,
        )


def _describe(routes: Sequence[Route]) -> str:
    """How many messages, and where they go."""
    each = [f"{route.monotons.count:,} to queue {route.target.name}" for route in routes]
    return f"{sum(route.monotons.count for route in routes):,} message(s): {', '.join(each)}"


def _routes_json(routes: Sequence[Route]) -> dict[str, int]:
    """How many messages, by target queue."""
    return {route.target.name: route.monotons.count for route in routes}


def _print_plan(found: Survey, routes: dict[str, int], *, as_json: bool) -> None:
    if as_json:
        print_json(_survey_json(found) | {"dry_run": True, "to": routes})
        return
    _print_groups(found)
    for queue, count in routes.items():
        echo(f"{count:,} would go to queue {queue}.")
    echo("Nothing was changed.")


def _print_redriven(found: Survey, report: RedriveReport, *, as_json: bool) -> None:
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
    """A key or value as text if possible, else in hex; cut after ``limit``, None for never."""
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
            f"{report.missed:,} were left out, as another command has or had them. If it broke "
            f"off, they are available again after {found.queue.lease.total_seconds():.0f} s."
        )
    if report.is_stopped:
        echo("Stopped before the end; the others are still dead letters.")


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
