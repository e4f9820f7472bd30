"""The figures of queues in the progress of a streaming query."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from itertools import chain
from typing import Any

from cassieq_spark.display import Displayed, Listing, ObjectView
from cassieq_spark.model import QueueDefinition, QueueId, Range, name_of, parts_of_id
from cassieq_spark.spark.source.offsets import (
    decode,
    is_of_queues,
    is_of_several,
    split_partitions,
    split_queues,
)

_NO_RANGES: tuple[Range, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Progress(Displayed):
    """The figures of one source of a query after one batch.

    All attributes below ``messages`` are None if Spark replayed the batch after a restart.
    If queries and clients share the partitions of a queue, ``backlog`` to ``oldest_age`` are of
    ``partitions``. A query whose share has no messages may take a batch from the share of another
    query: its messages are ``borrowed``, and not in these figures.

    Attributes:
        queue: Name of the queue.
        group: The consumer group.
        batch: The monotons that the batch leased, in order, partition after partition; a replay
            may have fewer.
        messages: The number of these messages; 0 while idle.
        backlog: Messages owed to the group beyond this batch: not offered yet, leased by other
            readers, due or waiting.
        leased: Messages of the group under leases that have not run out, this batch included.
        waiting: Messages to be offered again later.
        next: The monoton that the next published message gets; the sum of several partitions.
        pointer: The first monoton never offered to the group; the sum of several partitions.
        oldest_age: Age of the oldest message owed, this batch included; also None if unknown.
        partitions: Numbers of the query's share of the partitions; also None if the queue has one.
        borrowed: Messages of this batch from other partitions.
        lost_leases: Messages whose lease ran out in this run of the query and went to others.
        dead: Messages that this run of the query dead-lettered, or dropped.
        skipped: Messages that were too old when their turn came in this run of the query.
    """

    queue: str
    group: str
    batch: tuple[Range, ...] = _NO_RANGES
    messages: int = 0
    backlog: int | None = None
    leased: int | None = None
    waiting: int | None = None
    next: int | None = None
    pointer: int | None = None
    oldest_age: timedelta | None = None
    partitions: tuple[int, ...] | None = None
    borrowed: int | None = None
    lost_leases: int | None = None
    dead: int | None = None
    skipped: int | None = None

    def _view(self) -> ObjectView:
        facts = {
            "queue": self.queue,
            "group": self.group,
            "messages": self.messages,
            "backlog": self.backlog,
            "leased": self.leased,
            "waiting": self.waiting,
            "oldest_age": self.oldest_age,
            "lost_leases": self.lost_leases,
            "dead": self.dead,
            "skipped": self.skipped,
        }
        details = {
            "batch": ", ".join(map(str, self.batch)),
            "next": None if self.next is None else str(self.next),
            "pointer": None if self.pointer is None else str(self.pointer),
            "partitions": None if self.partitions is None else str(list(self.partitions)),
            "borrowed": self.borrowed,
        }
        usual = {"lost_leases": 0, "dead": 0, "skipped": 0, "batch": "", "borrowed": 0}
        return ObjectView("sources", "", facts, details, usual)


def progress(query_progress: object) -> list[Progress]:
    """Read the figures of the cassieq sources of a query, in their order in the query.

    Args:
        query_progress: ``query.lastProgress``, one of ``query.recentProgress``, the progress of a
            listener's event, or the same as a dict; None before the first batch.

    Raises:
        QueueStateError: Another release of cassieq-spark wrote the offsets.
    """
    found = (_progress_of(source) for source in _get(query_progress, "sources") or ())
    return Listing(each for each in found if each is not None)


def _progress_of(source: object) -> Progress | None:
    """The figures of one source; None if it is a source of another kind."""
    end = _json(_get(source, "endOffset"))
    if not {"group", "v"} <= end.keys() or not end.keys() & {"queue", "queue_id", "queues"}:
        return None
    group, batches = str(end["group"]), {}
    # If both are the same, there is no new batch: Spark still shows the one before.
    is_new = end != _json(_get(source, "startOffset"))
    if is_of_queues(end):
        return _progress_of_queues(source, end, group, is_new=is_new)
    queue_id = QueueId(str(end.get("queue_id") or f"{end['queue']}@1"))
    if is_new:
        batches = _batches_of(end, queue_id, group)
    batch = tuple(chain.from_iterable(batches.values()))
    metrics = _json(_get(source, "latestOffset"))
    own = metrics.get("partitions")
    others = () if own is None else batches.keys() - set(own)
    return Progress(
        queue=name_of(queue_id),
        group=group,
        batch=batch,
        messages=sum(map(len, batch)),
        partitions=None if own is None else tuple(own),
        borrowed=sum(len(part) for each in others for part in batches[each]) if metrics else None,
        **_figures(metrics),
    )


def _progress_of_queues(
    source: object, end: Mapping[str, Any], group: str, *, is_new: bool
) -> Progress:
    """The figures of a source of several queues, all of them together."""
    metrics = _json(_get(source, "latestOffset"))
    parts = split_queues(end, group) if is_new else {}
    found = [_batches_of(part, queue_id, group) for queue_id, part in parts.items()]
    messages = sum(len(each) for of_one in found for runs in of_one.values() for each in runs)
    names = metrics.get("queues") or sorted(name_of(queue_id) for queue_id in parts)
    return Progress(
        queue=", ".join(names),
        group=group,
        # Monotons of several queues are no ranges of one.
        batch=(),
        messages=messages,
        partitions=None,
        borrowed=None,
        **_figures(metrics),
    )


def _figures(metrics: Mapping[str, Any]) -> dict[str, Any]:
    age = metrics.get("oldest_age_ms")
    names = ("backlog", "leased", "waiting", "next", "pointer", "lost_leases", "dead", "skipped")
    return {
        "oldest_age": None if age is None else timedelta(milliseconds=age),
        **{name: metrics.get(name) for name in names},
    }


def _batches_of(
    end: Mapping[str, Any], queue_id: QueueId, group: str
) -> dict[int, tuple[Range, ...]]:
    """The messages of the batch in each queue partition."""
    if not is_of_several(end):
        return {0: _batch_of(end, queue_id, group)}
    name, version, _ = parts_of_id(queue_id)
    count = 1 + max((int(number) for number, _ in end["partitions"]), default=1)
    queue = QueueDefinition(name, version, partitions=count)
    parts = split_partitions(end, queue, group)
    return {
        number: _batch_of(parts[number], queue.of_partition(number).queue_id, group)
        for number in sorted(parts)
    }


def _batch_of(end: Mapping[str, Any], queue_id: QueueId, group: str) -> tuple[Range, ...]:
    offset = decode(end, queue_id=queue_id, group=group)
    leased = offset.leased if offset else ()
    return tuple(sorted(monotons for each in leased for monotons in each.monotons))


def _get(what: object, name: str) -> Any:
    return what.get(name) if isinstance(what, Mapping) else getattr(what, name, None)


def _json(offset: object) -> Mapping[str, Any]:
    """The offset of a source as Spark shows it; empty if there is none, or it is not an object."""
    if isinstance(offset, str):
        try:
            offset = json.loads(offset)
        except ValueError:
            return {}
    return offset if isinstance(offset, Mapping) else {}
