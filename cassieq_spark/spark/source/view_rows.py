"""The rows of a view: what a queue's state says, as plain values. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from operator import attrgetter
from types import MappingProxyType

from cassieq_spark.errors import QueueStateError
from cassieq_spark.groups.registration import read_group_states
from cassieq_spark.groups.state import GroupState, Slot, Waiting
from cassieq_spark.ledger.read import read_groups, read_head, stream_blocks
from cassieq_spark.model import QueueId, from_millis
from cassieq_spark.queues import list_records, read_queue
from cassieq_spark.queues.stats import queue_stats
from cassieq_spark.settings import SourceOptions
from cassieq_spark.store.protocol import Store

#: A value for each column of the view, in order; instants are aware.
ViewRow = tuple[object, ...]


def read_view(store: Store, options: SourceOptions) -> Iterator[ViewRow]:
    """Read the rows of the view that the options ask for, messages excepted; see docs/views.md.

    A few reads, most of them serial, for each group; for `queues`, a read of that whole table.

    Raises:
        QueueStateError: There is no such queue, or no such group.
    """
    return _READERS[options.view](store, options)


def _blocks(store: Store, options: SourceOptions) -> Iterator[ViewRow]:
    queue_id = _queue_id(store, options)
    head = read_head(store, queue_id)
    for it in stream_blocks(store, queue_id, start=head.trimmed):
        if it.monotons.stop > head.finalised:
            yield (
                options.queue,
                it.monotons.start,
                it.monotons.stop,
                len(it.monotons),
                str(it.block),
                it.published_at,
            )


def _leases(store: Store, options: SourceOptions) -> Iterator[ViewRow]:
    states = read_group_states(store, _queue_id(store, options))
    if options.group is not None:
        if options.group not in states:
            known = ", ".join(states) or "none"
            raise QueueStateError(
                f"queue {options.queue!r} has no group {options.group!r}; it has: {known}"
            )
        states = {options.group: states[options.group]}
    for group, state in states.items():
        held: list[Slot | Waiting] = [slot for slot in state.slots if slot.monotons]
        for it in sorted([*held, *state.waiting], key=attrgetter("monotons.start")):
            told = _lease_of_slot(it, state) if isinstance(it, Slot) else _no_lease(it, state)
            standing, slot, lease, due_at = told
            for part in it.monotons:
                ends = (part.start, part.stop, len(part))
                yield options.queue, group, standing, slot, *ends, lease, due_at, it.deliveries


def _lease_of_slot(slot: Slot, state: GroupState) -> ViewRow:
    standing = "leased" if slot.due_at >= state.now else "due"
    return standing, slot.number, str(slot.lease), slot.due_at


def _no_lease(waiting: Waiting, state: GroupState) -> ViewRow:
    standing = "due" if waiting.due <= state.now_ms else "waiting"
    if waiting.reason is not None:
        standing = "dead"
    return standing, None, None, from_millis(waiting.due)


def _groups(store: Store, options: SourceOptions) -> Iterator[ViewRow]:
    queue_id = _queue_id(store, options)
    groups = queue_stats(store, queue_id).groups
    starts = {group.name: group.starts_at for group in read_groups(store, queue_id)}
    for it in groups:
        yield options.queue, it.group, starts.get(it.group), it.pointer, it.floor, it.depth


def _queues(store: Store, options: SourceOptions) -> Iterator[ViewRow]:
    for record in list_records(store):
        it = record.definition
        if options.queue in {"", it.name}:
            sizes = (it.bucket_size, it.chunk_size, int(it.lease.total_seconds()))
            dead = (it.max_deliveries, it.dead_letter_queue)
            periods = (
                None if each is None else int(each.total_seconds())
                for each in (it.expire_after, it.keep_settled)
            )
            settings = (*sizes, *dead, it.strict_fifo, *periods)
            yield it.name, it.version, record.status.value, *settings, it.created_at


def _stats(store: Store, options: SourceOptions) -> Iterator[ViewRow]:
    stats = queue_stats(store, _queue_id(store, options))
    ends = (stats.finalised, stats.next)
    for it in stats.groups:
        age = it.oldest_age.total_seconds() if it.oldest_age is not None else None
        counts = (it.depth, it.leased, it.due, it.waiting, it.dead)
        figures = (*counts, age, it.pointer, it.floor)
        yield options.queue, it.group, *ends, *figures
    if not stats.groups:
        yield options.queue, None, *ends, *[None] * 8


def _queue_id(store: Store, options: SourceOptions) -> QueueId:
    return read_queue(store, options.queue).queue_id


_READERS: Mapping[str, Callable[[Store, SourceOptions], Iterator[ViewRow]]] = MappingProxyType(
    {
        "blocks": _blocks,
        "leases": _leases,
        "groups": _groups,
        "queues": _queues,
        "stats": _stats,
    }
)
