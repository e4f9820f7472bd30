"""Completion of the names of queues and groups: from Cassandra, quick, and silent on failure."""

from __future__ import annotations

import logging
import os
import shlex
from collections.abc import Callable, Iterable
from contextlib import closing, suppress
from dataclasses import replace
from datetime import timedelta

import typer

from cassieq_spark.cli.connection import read_connection
from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.queues import list_queues, open_ledgers
from cassieq_spark.store import open_store
from cassieq_spark.store.protocol import Store

#: How long a completion may take: a person waits for it, and types on.
_PATIENCE = timedelta(seconds=1)


def complete_queues(ctx: typer.Context, incomplete: str) -> list[str]:
    """The names of queues with this beginning. One read of the table of queues."""
    return _names(
        ctx, incomplete, lambda store: (each.name for each in list_queues(store, incomplete))
    )


def complete_groups(ctx: typer.Context, incomplete: str) -> list[str]:
    """The names of groups, of the queue on the line, with this beginning. Two reads."""
    queue = ctx.params.get("queue") or _word_after(str(ctx.info_name))

    def read(store: Store) -> Iterable[str]:
        ledger: Ledger = next(iter(open_ledgers(store, str(queue))))
        return (each.name for each in ledger.read_groups())

    return _names(ctx, incomplete, read) if queue else []


def _word_after(name: str) -> str | None:
    """The word of the line after the name of its command; None if the word is an option.

    An option whose value is being completed keeps the arguments before it from being read.
    """
    line = os.environ.get("_TYPER_COMPLETE_ARGS") or os.environ.get("COMP_WORDS", "")
    with suppress(ValueError):
        words = shlex.split(line)
        word = words[words.index(name) + 1 :][:1]
        return next((each for each in word if not each.startswith("-")), None)
    return None


def _names(
    context: typer.Context, incomplete: str, read: Callable[[Store], Iterable[str]]
) -> list[str]:
    logging.disable(logging.CRITICAL)
    try:
        connection = read_connection(context)
        if connection is None:
            return []
        hasty = replace(connection, request_timeout=_PATIENCE, patience=timedelta(0))
        with closing(open_store(hasty)) as store:
            return sorted(name for name in read(store) if name.startswith(incomplete))
    except Exception:  # noqa: BLE001 (a stack trace would go into the line that is being typed)
        return []
    finally:
        logging.disable(logging.NOTSET)
