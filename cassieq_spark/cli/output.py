"""What commands print: sentences and tables for people, one JSON value for programs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Annotated, Any

import typer

from cassieq_spark.model import QueueDefinition
from cassieq_spark.queues.stats import BLOCKS_EXAMINED, GroupStats
from cassieq_spark.terminal import echo, json_line

#: Exit code of a command that Ctrl-C has ended.
INTERRUPTED = 130

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]


def print_json(value: Any) -> None:
    """Print a value as JSON, on one line of standard output."""
    echo(json_line(value))


def tell(sentence: str, values: Mapping[str, Any], *, as_json: bool) -> None:
    """Print what was done: a sentence, or the same as an object."""
    if as_json:
        print_json(values)
    else:
        echo(sentence)


def tell_unexamined(groups: Iterable[GroupStats]) -> None:
    """Say of which groups there is more than was looked at."""
    for group in groups:
        if group.unexamined:
            echo(
                f"Group {group.group}: behind the first {BLOCKS_EXAMINED:,} blocks there are "
                f"{group.unexamined:,} messages more, some of them delayed; waiting is without "
                "these."
            )


def settings_json(queue: QueueDefinition) -> dict[str, Any]:
    """How a queue is defined; durations in seconds, and null for what it has not."""
    return {
        "queue": queue.name,
        "version": queue.version,
        "bucket_size": queue.bucket_size,
        "chunk_size": queue.chunk_size,
        "lease_seconds": int(queue.lease.total_seconds()),
        "max_deliveries": queue.max_deliveries,
        "dead_letter_queue": queue.dead_letter_queue,
        "strict_fifo": queue.strict_fifo,
        "expire_after_seconds": _whole_seconds(queue.expire_after),
        "keep_settled_seconds": _whole_seconds(queue.keep_settled),
    }


def _whole_seconds(period: timedelta | None) -> int | None:
    return None if period is None else int(period.total_seconds())
