"""Exact figures of a queue, computed from its state and not from counters, which could drift."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, replace
from datetime import timedelta
from typing import Any

from cassieq_spark.display import Displayed, ObjectView
from cassieq_spark.errors import InvariantError
from cassieq_spark.groups.registration import read_group_states
from cassieq_spark.groups.state import GroupState
from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.ledger.state import LedgerHead
from cassieq_spark.model import (
    LedgerBlock,
    OnDead,
    QueueDefinition,
    QueueId,
    Range,
    Ranges,
)
from cassieq_spark.parallel import in_parallel
from cassieq_spark.queues.record import ledgers_of
from cassieq_spark.settings.plain import Plain, PlainField, SqlType
from cassieq_spark.store.protocol import Store

#: Most blocks beyond the pointer that are examined if some of them are delayed.
BLOCKS_EXAMINED = 10_000


@dataclass(frozen=True, slots=True)
class GroupFigure(PlainField):
    """A figure of a group; the object is its `GroupStats`.

    Attributes:
        unit: The unit in the name of its metric; empty: none.
        is_exported: True if the figure is a metric.
    """

    unit: str = "messages"
    is_exported: bool = True

    @property
    def metric(self) -> str:
        """The last part of the name of its metric."""
        return f"{self.plain_name}_{self.unit}" if self.unit else self.plain_name


#: All figures of a group, in the order in which they are shown. Over several partitions, counts
#: and monotons are summed, and the highest age is the age of the group.
GROUP_FIGURES = (
    GroupFigure(
        "depth",
        SqlType.BIGINT,
        "Messages that the group has not settled: not offered yet, leased, due, waiting or dead.",
        by_http="size",
    ),
    GroupFigure("leased", SqlType.BIGINT, "Messages under a lease that has not run out."),
    GroupFigure("due", SqlType.BIGINT, "Messages to be delivered again now."),
    GroupFigure(
        "waiting",
        SqlType.BIGINT,
        "Messages to be delivered later; of those not offered yet, only in the first 10,000 "
        "blocks.",
    ),
    GroupFigure(
        "dead",
        SqlType.BIGINT,
        "Messages about to be dead-lettered or dropped, or at which the group has stopped.",
    ),
    GroupFigure(
        "oldest_age",
        SqlType.DOUBLE,
        "How long the oldest message that the group has not settled has been visible; if there is "
        "none, null, and 0 as a metric.",
        is_duration=True,
        unit="",
    ),
    GroupFigure(
        "pointer",
        SqlType.BIGINT,
        "The first monoton that was never offered to the group; of several partitions, the sum.",
        by_http="next",
        unit="",
    ),
    GroupFigure(
        "floor",
        SqlType.BIGINT,
        "The lowest monoton that the group has not settled; of several partitions, the sum.",
        # Its metric is the progress of the group: ``settled_messages``.
        is_exported=False,
    ),
    GroupFigure(
        "unexamined",
        SqlType.BIGINT,
        "Messages beyond the first 10,000 blocks that were not offered yet, up to the last "
        "delayed one: they count in the depth, but not as waiting, nor in the oldest age.",
    ),
    GroupFigure(
        "stopped",
        SqlType.INT,
        "Partitions in which the group has stopped at a dead message; of one partition, 1 or 0.",
        unit="partitions",
    ),
)


@dataclass(frozen=True, slots=True, repr=False)
class GroupStats(Displayed):
    """The messages that a consumer group is owed, in one queue partition or in all.

    Attributes:
        group: Name of the group.
        depth: All messages owed: not offered yet, leased, due, waiting or dead.
        leased: Messages under a running lease.
        due: Messages to be offered again now: their lease ran out, or their wait is over.
        waiting: Messages to be offered later: released with a delay, or published with one.
        dead: Messages that the next reader or the repair will dead-letter, or at which the group
            has stopped.
        oldest_age: How long the oldest message owed has been visible; None if none is visible.
        pointer: First monoton never offered; the sum over several partitions.
        floor: Lowest monoton owed; the sum over several partitions.
        unexamined: Messages that were not offered yet, beyond the first 10,000 blocks and up to
            the last delayed one: counted in ``depth``, but not in ``waiting`` or ``oldest_age``.
        stopped: Partitions in which the group has stopped at a dead message; see `OnDead`.
    """

    group: str
    depth: int
    leased: int
    due: int
    waiting: int
    dead: int
    oldest_age: timedelta | None
    pointer: int
    floor: int
    unexamined: int = 0
    stopped: int = 0

    def _view(self) -> ObjectView:
        facts = {it.name: getattr(self, it.name) for it in fields(self)}
        details = {name: str(facts.pop(name)) for name in ("pointer", "floor")}
        usual = {it.name: it.default for it in fields(self) if it.default is not MISSING}
        return ObjectView("groups", "", facts, details, usual)


@dataclass(frozen=True, slots=True, repr=False)
class QueueStats(Displayed):
    """The messages of a queue, ``[finalised, next)``, and the messages that each group is owed.

    Attributes:
        queue_id: The id of the version of the queue, or of one of its partitions.
        finalised: The number of deleted messages.
        next: The number of published messages.
        groups: The groups, ordered by name.
        partitions: The figures of each partition if the queue has several, of which these are the
            sum; else empty.
    """

    queue_id: QueueId
    finalised: int
    next: int
    groups: tuple[GroupStats, ...]
    partitions: tuple[QueueStats, ...] = ()

    @property
    def settled(self) -> int:
        """Messages that every group has settled and that are still stored.

        Groups can go back to these messages while the queue keeps them, or until the next repair
        run.
        """
        if self.partitions:
            return sum(each.settled for each in self.partitions)
        lowest = min((group.floor for group in self.groups), default=self.finalised)
        return max(0, lowest - self.finalised)

    def _view(self) -> ObjectView:
        facts = {
            "next": self.next,
            "finalised": self.finalised,
            "settled": self.settled,
            "partitions": len(self.partitions),
        }
        return ObjectView(
            "queues", self.queue_id, facts, usual={"partitions": 0}, parts=self.groups
        )


@dataclass(frozen=True, slots=True)
class Backlog:
    """The messages that a group is owed in one queue partition, each of them in one attribute.

    Attributes:
        leased: Under a lease that runs.
        due: To be offered again now.
        waiting: To be offered later.
        dead: To be dead-lettered.
        fresh: Not offered yet, and visible.
        stop: The end of the published messages.
    """

    leased: Ranges
    due: Ranges
    waiting: Ranges
    dead: Ranges
    fresh: Ranges
    stop: int


def plain_figures(group: GroupStats) -> dict[str, Plain]:
    """All figures of a group as plain values, by plain name."""
    return {it.plain_name: it.plain(group) for it in GROUP_FIGURES}


def http_figures(group: GroupStats) -> dict[str, Plain]:
    """The name of a group, and its figures by their names in HTTP."""
    return {"group": group.group, **{it.http_name: it.plain(group) for it in GROUP_FIGURES}}


def group_from_http(found: Mapping[str, Any]) -> GroupStats:
    """Decode the figures that `http_figures` wrote."""
    figures = {it.name: it.parsed(found[it.http_name]) for it in GROUP_FIGURES}
    return GroupStats(found["group"], **figures)


def read_stats(store: Store, queue: QueueDefinition) -> QueueStats:
    """Compute the figures of a queue. Per partition, the same reads as `queue_stats`.

    Raises:
        QueueStateError: The queue does not exist.
    """
    return sum_of(queue, in_parallel(queue_stats, ledgers_of(store, queue)))


def sum_of(queue: QueueDefinition, partitions: Sequence[QueueStats]) -> QueueStats:
    """The figures of a queue, given the figures of all its partitions in order."""
    if queue.on_dead is OnDead.STOP:
        partitions = [_with_stopped(each) for each in partitions]
    if queue.partitions == 1:
        (only,) = partitions
        return only
    names = dict.fromkeys(group.group for each in partitions for group in each.groups)
    groups = [
        _sum_of_group([it for each in partitions for it in each.groups if it.group == name])
        for name in sorted(names)
    ]
    return QueueStats(
        queue.queue_id,
        sum(each.finalised for each in partitions),
        sum(each.next for each in partitions),
        tuple(groups),
        tuple(partitions),
    )


def _sum_of_group(parts: Sequence[GroupStats]) -> GroupStats:
    ages = [each.oldest_age for each in parts if each.oldest_age is not None]
    counts = [it.name for it in GROUP_FIGURES if not it.is_duration]
    sums = {name: sum(getattr(each, name) for each in parts) for name in counts}
    return GroupStats(parts[0].group, oldest_age=max(ages, default=None), **sums)


def _with_stopped(stats: QueueStats) -> QueueStats:
    groups = tuple(replace(each, stopped=int(each.dead > 0)) for each in stats.groups)
    return replace(stats, groups=groups)


def queue_stats(ledger: Ledger) -> QueueStats:
    """Compute the figures of one partition, except `stopped`, which `sum_of` adds.

    Two reads, and five more per group; two more, for up to 10,000 blocks, if messages beyond a
    group's pointer are delayed.

    The figures of one group are a snapshot. Groups are read one after the other, before the
    ledger's head, so the figures of several groups are no common snapshot.

    Raises:
        QueueStateError: The queue does not exist.
    """
    states = read_group_states(ledger)
    return stats_of(ledger, states, ledger.read_head())


def stats_of(ledger: Ledger, states: Mapping[str, GroupState], head: LedgerHead) -> QueueStats:
    """Compute the figures of a partition whose groups, and then its head, were just read.

    One read per group, and two more if messages are delayed; see `queue_stats`.
    """
    figures = tuple(_group_stats(ledger, name, state, head) for name, state in states.items())
    return QueueStats(ledger.queue_id, head.finalised, head.next, figures)


def backlog_of(ledger: Ledger, state: GroupState, head: LedgerHead) -> Backlog:
    """The messages that `stats_of` counts. No read, unless some are delayed."""
    return _backlog(state, head, _blocks_beyond(ledger, state, head))


def _backlog(state: GroupState, head: LedgerHead, beyond: Sequence[LedgerBlock]) -> Backlog:
    held = [slot for slot in state.slots if slot.monotons and not slot.is_parked]
    parked = [slot.monotons for slot in state.slots if slot.is_parked]
    alive = [each for each in state.waiting if each.reason is None]
    not_offered = Ranges.of(Range(state.head.pointer, max(state.head.pointer, head.next)))
    delayed = not_offered & Ranges.of(
        *(block.monotons for block in beyond if block.visible_since > state.now)
    )
    return Backlog(
        leased=Ranges.union(slot.monotons for slot in held if slot.due_at >= state.now),
        due=Ranges.union(
            [
                *(slot.monotons for slot in held if slot.due_at < state.now),
                *(each.monotons for each in alive if each.due <= state.now_ms),
            ]
        ),
        waiting=Ranges.union(
            [delayed, *(each.monotons for each in alive if each.due > state.now_ms)]
        ),
        dead=Ranges.union(each.monotons for each in state.waiting if each.reason is not None),
        fresh=Ranges.union([not_offered - delayed, *parked]),
        stop=head.next,
    )


def _group_stats(ledger: Ledger, name: str, state: GroupState, head: LedgerHead) -> GroupStats:
    beyond = _blocks_beyond(ledger, state, head)
    owed = _backlog(state, head, beyond)
    counts = {each: getattr(owed, each).count for each in ("leased", "due", "waiting", "dead")}
    return GroupStats(
        group=name,
        depth=owed.fresh.count + sum(counts.values()),
        oldest_age=_age(ledger, state, _first_visible(state, head, beyond)),
        pointer=state.head.pointer,
        floor=state.floor,
        unexamined=max(0, head.delayed_stop - beyond[-1].monotons.stop) if beyond else 0,
        **counts,
    )


def _blocks_beyond(ledger: Ledger, state: GroupState, head: LedgerHead) -> list[LedgerBlock]:
    """The first blocks beyond the pointer, if some of them are delayed."""
    # Blocks that were settled and trimmed since the group was read are not missing.
    finalised = head.finalised
    while True:
        start = max(state.head.pointer, finalised)
        part = Range(start, max(start, head.delayed_stop))
        try:
            return ledger.locate(part, limit=BLOCKS_EXAMINED)
        except InvariantError:
            now = ledger.read_head().finalised
            if now <= finalised:
                raise
            finalised = now


def _first_visible(
    state: GroupState, head: LedgerHead, beyond: Sequence[LedgerBlock]
) -> int | None:
    """The lowest monoton that is owed and visible by now."""
    owed = [slot.monotons.start for slot in state.slots if slot.monotons]
    owed += [each.monotons.start for each in state.waiting if each.deliveries]
    owed += [each.monotons.start for each in state.waiting if each.due <= state.now_ms]
    owed += [
        max(state.head.pointer, block.monotons.start)
        for block in beyond
        if block.visible_since <= state.now
    ]
    rest = max(state.head.pointer, head.delayed_stop)
    if rest < head.next:
        owed.append(rest)
    return min(owed, default=None)


def _age(ledger: Ledger, state: GroupState, monoton: int | None) -> timedelta | None:
    block = None if monoton is None else ledger.read_block_of(monoton)
    # None: a reader has settled the message since, and the repair has trimmed its block.
    return max(timedelta(0), state.now - block.visible_since) if block else None
