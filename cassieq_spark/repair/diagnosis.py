"""The findings of the audit: what happened, which groups need the messages, what to do."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any
from uuid import UUID

from cassieq_spark.arguments import abridged
from cassieq_spark.groups.state import GroupState
from cassieq_spark.model import LedgerBlock, QueueDefinition, QueueId, Range, Ranges, block_time
from cassieq_spark.repair.scan import Run, buckets_of


class Problem(StrEnum):
    """A kind of damage to messages at or above ``finalised`` (I3)."""

    MISSING = "missing"
    OVERLAPPING = "overlapping"
    MISPLACED = "misplaced"
    #: The chunk of the messages exists, and cannot be decoded.
    UNREADABLE = "unreadable"


@dataclass(frozen=True, slots=True)
class Finding:
    """Messages that are not stored exactly once, where readers look for them.

    Attributes:
        problem: What is wrong.
        monotons: The messages.
        block: The block of the messages; None if the ledger has no block for them, or two (I1).
    """

    problem: Problem
    monotons: Range
    block: UUID | None

    def to_json(self) -> dict[str, Any]:
        """The finding as JSON; ``stop`` is exclusive."""
        return {
            "problem": self.problem,
            "start": self.monotons.start,
            "stop": self.monotons.stop,
            "block": str(self.block) if self.block else None,
        }


@dataclass(frozen=True, slots=True)
class Owed:
    """The messages of a finding that a group has not settled, and the effect of a seek past them.

    Attributes:
        group: The name of the group.
        monotons: The messages that the group has not settled.
        given_up: How many other messages, below the end of the finding, the seek gives up.
        repeated: How many messages, from that end on, the seek delivers again.
    """

    group: str
    monotons: Ranges
    given_up: int
    repeated: int


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The explanation of a finding.

    Attributes:
        finding: The finding.
        happened: What has happened to the messages.
        owed: The groups that have not settled all of the messages.
        remedies: What an operator can do, the best first.
    """

    finding: Finding
    happened: str
    owed: tuple[Owed, ...]
    remedies: tuple[str, ...]

    def lines(self, queue: str) -> Iterator[str]:
        """The explanation for people, line by line."""
        finding = self.finding
        where = f", block {finding.block}" if finding.block else ""
        count = f"{len(finding.monotons):,} message(s)"
        yield f"{queue}: {count} {finding.monotons} {finding.problem}{where}"
        yield f"  what happened: {self.happened}"
        for each in self.owed:
            parts = abridged(each.monotons.parts)
            yield f"  not settled by group {each.group}: {each.monotons.count:,} of them: {parts}"
        if not self.owed:
            yield "  needed by no group"
        yield from (f"  what to do: {remedy}" for remedy in self.remedies)

    def to_json(self) -> dict[str, Any]:
        """The explanation as JSON."""
        return self.finding.to_json() | {
            "happened": self.happened,
            "owed": [
                {
                    "group": each.group,
                    "ranges": [[part.start, part.stop] for part in each.monotons],
                    "seek_gives_up": each.given_up,
                    "seek_repeats": each.repeated,
                }
                for each in self.owed
            ],
            "remedies": self.remedies,
        }


class Belonging(StrEnum):
    """Why a stored block is in no ledger."""

    #: The queue of the block does not exist.
    NO_QUEUE = "no such queue"
    #: The queue's version was purged or deleted.
    OBSOLETE = "of a version that was purged or deleted"
    #: The block was begun before the fence, so it cannot be published any more.
    NEVER_PUBLISHED = "never published"
    #: The block may still be published.
    NOT_YET = "not published yet"
    #: The ledger has lost rows; one of them may have been for this block.
    LOST = "not in the ledger, which lacks rows"


_ADVICE = {
    Belonging.NO_QUEUE: "it is left alone; if nobody needs it, delete its partitions by hand",
    Belonging.OBSOLETE: "the step retire deletes it",
    Belonging.NEVER_PUBLISHED: "the step clean deletes it",
    Belonging.LOST: "it is left alone; compare it with the messages that the ledger lacks",
    Belonging.NOT_YET: "its write may be under way; if not, the step clean deletes it later",
}


@dataclass(frozen=True, slots=True)
class OrphanBlock:
    """A stored block that is in no ledger.

    Attributes:
        queue_id: The queue in its key.
        block: The id of the block.
        messages: How many messages it holds.
        belonging: Why it is in no ledger.
    """

    queue_id: QueueId
    block: UUID
    messages: int
    belonging: Belonging

    @property
    def begun_at(self) -> datetime:
        """When the writer began the block."""
        return block_time(self.block)

    def __str__(self) -> str:
        begun = self.begun_at.isoformat(timespec="seconds")
        return (
            f"{self.queue_id}: block {self.block} of {self.messages:,} message(s), begun {begun}: "
            f"{self.belonging}; {_ADVICE[self.belonging]}"
        )

    def to_json(self) -> dict[str, Any]:
        """The block as JSON."""
        return {
            "queue_id": self.queue_id,
            "block": str(self.block),
            "messages": self.messages,
            "begun_at": self.begun_at.isoformat(timespec="milliseconds"),
            "belonging": self.belonging,
        }


def diagnose(
    queue: QueueDefinition,
    findings: Sequence[Finding],
    blocks: Sequence[LedgerBlock],
    alive: Range,
    states: Mapping[str, GroupState],
) -> list[Diagnosis]:
    """Explain each finding.

    Args:
        queue: The queue.
        findings: What the audit has found.
        blocks: The blocks of the ledger.
        alive: The messages that are not finalised.
        states: The whole state of each group.
    """
    known = {block.block: block for block in blocks}
    result = []
    for finding in findings:
        block = known.get(finding.block) if finding.block else None
        happened, restore = _explain(queue, finding, block, alive)
        owed = tuple(_owed(finding.monotons, alive, states))
        go_on = _go_on(queue, finding, owed, begun=bool(states))
        result.append(Diagnosis(finding, happened, owed, (*restore, *go_on)))
    return result


def orphans_of(
    runs: Iterable[Run],
    published: Iterable[UUID],
    fence: datetime | None,
    *,
    lacks_rows: bool = False,
) -> list[OrphanBlock]:
    """The stored blocks that are not published, oldest first.

    Args:
        runs: What is stored of a queue, or of several queues that do not exist.
        published: The blocks in the ledger.
        fence: The fence of the ledger, read before the ledger; None if the queue does not exist.
        lacks_rows: True if the ledger has a hole.
    """
    known = set(published)
    counts: dict[tuple[QueueId, UUID], int] = {}
    for run in runs:
        if run.block not in known:
            key = run.queue_id, run.block
            counts[key] = counts.get(key, 0) + len(run.covered)
    orphans = [
        OrphanBlock(
            queue_id, block, count, Belonging.LOST if lacks_rows else _belonging(block, fence)
        )
        for (queue_id, block), count in counts.items()
    ]
    return sorted(orphans, key=lambda orphan: (orphan.begun_at, orphan.queue_id, orphan.block))


def _explain(
    queue: QueueDefinition, finding: Finding, block: LedgerBlock | None, alive: Range
) -> tuple[str, list[str]]:
    """Explain what has happened to the messages, and how to restore them."""
    if block is None:
        restore = (
            "restore the rows of kind 'block' of partition "
            f"'{queue.queue_id}' of table ledger from a backup"
        )
        if finding.problem is Problem.OVERLAPPING:
            return "two rows of the ledger claim them (I1); one was written by hand", [restore]
        return "the ledger has no row for them (I1), so their block is not known", [restore]
    buckets = buckets_of(block.offsets(finding.monotons), queue.bucket_size)
    named = f"{_buckets_named(buckets)} of the block"
    where = (
        f"queue_id = '{queue.queue_id}' AND block = {finding.block} "
        f"AND bucket IN ({', '.join(map(str, buckets))})"
    )
    if finding.problem is Problem.OVERLAPPING:
        return f"more than one chunk in {named} has them; nothing is lost", [
            (
                "look at start and stop of these rows of table chunk, and delete the row that the "
                f"writer of the block did not write: {where}"
            )
        ]
    if finding.problem is Problem.MISPLACED:
        return f"their chunks are in other buckets than {named}", [
            (
                "write the chunks again where readers look for them, and delete them where they "
                f"are: {where}"
            )
        ]
    happened = f"their chunks in {named} are truncated or overwritten"
    if finding.problem is Problem.MISSING:
        happened = _gone(queue, finding, block, alive, buckets)
    return happened, [
        (
            "let replicas that may have them repair the others: nodetool repair "
            "--full KEYSPACE chunk; then audit again"
        ),
        (
            f"restore these rows of table chunk from a backup: {where}; if they were deleted, "
            "the deletion hides them until Cassandra has forgotten it, after gc_grace_seconds "
            "(three hours) and a compaction"
        ),
    ]


def _gone(
    queue: QueueDefinition, finding: Finding, block: LedgerBlock, alive: Range, buckets: range
) -> str:
    whole = []
    for bucket in buckets:
        first = bucket * queue.bucket_size
        stored = Range(first, first + queue.bucket_size)
        held = block.monotons_at(stored) & block.monotons & alive
        if held == held & finding.monotons:
            whole.append(bucket)
    if not whole:
        named = _buckets_named(buckets)
        return f"chunks are gone from {named} of the block, while others of it are there"
    gone = "is gone" if len(whole) == 1 else "are gone"
    text = f"{_buckets_named(whole)} of the block {gone}: deleted too early, or by hand"
    rest = sorted(set(buckets) - set(whole))
    return text + (f"; so are chunks of {_buckets_named(rest)}" if rest else "")


def partition_option(queue: QueueDefinition) -> str:
    """The option of ``cassieq group seek`` that names one of several queue partitions."""
    return "" if queue.partition is None else f" --partition {queue.partition}"


def _go_on(
    queue: QueueDefinition, finding: Finding, owed: Sequence[Owed], *, begun: bool
) -> Iterator[str]:
    """How groups continue without the messages."""
    if finding.problem is Problem.OVERLAPPING:
        return
    stop = finding.monotons.stop
    if not begun:
        where = "latest" if queue.partitions > 1 else stop
        yield (
            "there is no group yet; let the first one begin after them: cassieq "
            f"group create {queue.name} GROUP --from {where}"
        )
    elif not owed:
        yield "every group has settled them: nothing needs to be done, the repair removes them"
    for each in owed:
        but = [f"gives up {each.given_up:,} other message(s)"] * bool(each.given_up)
        but += [f"delivers {each.repeated:,} message(s) again"] * bool(each.repeated)
        price = f"; it also {' and '.join(but)}" if but else ""
        yield (
            f"let group {each.group} continue without them: cassieq group seek "
            f"{queue.name} {each.group} --to {stop}{partition_option(queue)}{price}"
        )


def _owed(monotons: Range, alive: Range, states: Mapping[str, GroupState]) -> Iterator[Owed]:
    for group, state in states.items():
        owed = _all_owed(state, alive)
        affected = owed & Ranges.of(monotons)
        if affected:
            below = owed & Ranges.of(Range(0, monotons.stop))
            offered = Ranges.of(Range(monotons.stop, max(monotons.stop, state.head.pointer)))
            yield Owed(
                group,
                affected,
                given_up=(below - affected).count,
                repeated=(offered - _waiting(state)).count,
            )


def _all_owed(state: GroupState, alive: Range) -> Ranges:
    held = [part for slot in state.slots for part in slot.monotons]
    pointer = min(state.head.pointer, alive.stop)
    return Ranges.of(*held, *_waiting(state), Range(pointer, alive.stop))


def _waiting(state: GroupState) -> Ranges:
    return Ranges.of(*(part for waiting in state.waiting for part in waiting.monotons))


def _belonging(block: UUID, fence: datetime | None) -> Belonging:
    if fence is None:
        return Belonging.NO_QUEUE
    return Belonging.NEVER_PUBLISHED if block_time(block) <= fence else Belonging.NOT_YET


def _buckets_named(buckets: Sequence[int]) -> str:
    numbers = abridged(buckets)
    return f"bucket {numbers}" if len(buckets) == 1 else f"buckets {numbers}"
