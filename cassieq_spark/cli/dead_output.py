"""What ``cassieq dead`` prints: tables and sentences for people, JSON for programs."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from rich.table import Table
from rich.text import Text

from cassieq_spark.cli.output import print_json
from cassieq_spark.dead_letters.letters import Pile
from cassieq_spark.dead_letters.purge import PurgeReport
from cassieq_spark.dead_letters.redrive import RedriveReport, Route
from cassieq_spark.dead_letters.survey import Message, Survey
from cassieq_spark.terminal import Console, echo, visible

#: Characters of a key or value that are shown without ``--full``.
_SHOWN = 1000


def print_piles(found: Survey) -> None:
    """Print how many dead letters there are, by origin and reason."""
    if not found.piles:
        echo(f"Queue {found.queue.name} has no such dead letters.")
        return
    table = Table("from queue", "group", "reason", "count", "first", "last", "monoton")
    for pile in found.piles:
        cells = (
            pile.origin_queue,
            pile.origin_group,
            pile.reason,
            f"{pile.monotons.count:,}",
            _instant(pile.first),
            _instant(pile.last),
            str(pile.monotons.start),
        )
        table.add_row(*(Text(visible(cell or "-"), overflow="fold") for cell in cells))
    Console().print(table)
    echo(
        f"{found.monotons.count:,} dead letter(s) in queue {found.queue.name}; the monoton is "
        f"that of the first of them: cassieq dead show {found.queue.name} MONOTON"
    )


def survey_json(found: Survey) -> dict[str, Any]:
    """The dead letters by origin and reason."""
    return {
        "dead_letter_queue": found.queue.name,
        "count": found.monotons.count,
        "letters": [_pile(pile) for pile in found.piles],
    }


def print_message(message: Message, *, full: bool) -> None:
    """Print a dead letter."""
    limit = None if full else _SHOWN
    table = Table(show_header=False)
    rows = [("queue", message.queue), ("monoton", str(message.monoton))]
    rows += [("published at", _instant(message.published_at) or "-")]
    rows += [(name, "-" if value is None else value) for name, value in message.headers or ()]
    rows += [("key", shown(message.key, limit)), ("value", shown(message.value, limit))]
    for name, value in rows:
        table.add_row(Text(visible(name)), Text(visible(value), overflow="fold"))
    Console().print(table)


def message_json(message: Message) -> dict[str, Any]:
    """A dead letter, key and value in base 64."""
    return {
        "queue": message.queue,
        "monoton": message.monoton,
        "published_at": _instant(message.published_at),
        "headers": dict(message.headers or ()),
        "key": None if message.key is None else b64encode(message.key).decode(),
        "value": b64encode(message.value).decode(),
    }


def warn_of_strays(found: Survey, routes: Sequence[Route]) -> None:
    """Tell, on standard error, of messages that go nowhere."""
    strays = found.monotons.count - sum(route.monotons.count for route in routes)
    if strays:
        echo(
            f"{strays:,} message(s) of queue {found.queue.name} stay where they are: their "
            "headers do not say where they come from; --to says where they go",
            err=True,
        )


def describe(routes: Sequence[Route]) -> str:
    """How many messages, and where to."""
    each = [f"{route.monotons.count:,} to queue {route.target.name}" for route in routes]
    return f"{sum(route.monotons.count for route in routes):,} message(s): {', '.join(each)}"


def routes_json(routes: Sequence[Route]) -> dict[str, int]:
    """How many messages, by where they go."""
    return {route.target.name: route.monotons.count for route in routes}


def print_plan(found: Survey, routes: dict[str, int], *, as_json: bool) -> None:
    """Print what would be done."""
    if as_json:
        print_json(survey_json(found) | {"dry_run": True, "to": routes})
        return
    print_piles(found)
    for queue, count in routes.items():
        echo(f"{count:,} would go to queue {queue}.")
    echo("Nothing was changed.")


def print_redriven(found: Survey, report: RedriveReport, *, as_json: bool) -> None:
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


def print_purged(found: Survey, report: PurgeReport, *, as_json: bool) -> None:
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
            f"{report.missed:,} were left out: another run has or had them. What a run that broke "
            f"off holds is to be had again {found.queue.lease.total_seconds():.0f} s later, at "
            "the latest."
        )
    if report.is_stopped:
        echo("Stopped before the end; the rest stays dead.")


def _cut(text: str, size: int) -> str:
    return f"{text}... ({size:,} bytes; --full shows all)"


def _pile(pile: Pile) -> dict[str, Any]:
    return {
        "origin_queue": pile.origin_queue,
        "origin_group": pile.origin_group,
        "reason": pile.reason,
        "count": pile.monotons.count,
        "first_dead_lettered_at": _instant(pile.first),
        "last_dead_lettered_at": _instant(pile.last),
        "monotons": str(pile.monotons),
    }


def _instant(instant: datetime | None) -> str | None:
    return instant.astimezone(UTC).isoformat(timespec="milliseconds") if instant else None
