"""A ledger in plain Python: which message has which monoton, checked after every change.

Invariants are those of docs/design.md section 8.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from cassieq_spark.ledger.once import Once
from cassieq_spark.model import PendingBlock, QueueId, SinkBatch, block_time
from cassieq_spark.store.memory import MemoryStore
from cassieq_spark.store.protocol import partition_of_ledger
from cassieq_spark.store.tables import Table
from tests.property.machine.rows import AnyRows, of_kind
from tests.property.machine.terms import Terms
from tests.support.faults import FakeClock


@dataclass(frozen=True, slots=True)
class Block:
    """A row of the ledger."""

    start: int
    stop: int
    block: UUID
    published_at: datetime
    visible_at: datetime | None
    size: int
    size_before: int
    #: Where in the block each message is.
    offsets: tuple[int, ...]

    def offset_of(self, monoton: int) -> int:
        """Where in the block this message is."""
        return self.offsets[monoton - self.start]


def _offsets(row: Mapping[str, Any]) -> tuple[UUID, tuple[int, ...]]:
    """The id of a block, and which of its messages were published."""
    if row["kept"] is None:
        return row["block"], tuple(range(row["stop"] - row["position"]))
    assert row["block"] is None, "earlier releases would deliver the wrong messages"
    block, count, text = row["kept"].split()
    ranges = [tuple(map(int, part.split("-"))) for part in text.split(",")]
    offsets = tuple(at for start, stop in ranges for at in range(start, stop))
    assert max(offsets) < int(count)
    return UUID(block), offsets


@dataclass(frozen=True, slots=True)
class Pinned:
    """A seek pin: what ``finalised`` must not pass, for which group."""

    group: str
    position: int


def _sink(row: Mapping[str, Any]) -> SinkBatch:
    number, fingerprint = row["batch_id"], row["fingerprint"]
    known = fingerprint is not None and fingerprint.startswith(f"{number} ")
    return SinkBatch(row["name"], number, fingerprint.split()[1] if known else None)


class LedgerModel:
    """Looks at the rows of a ledger after each compare-and-set, and asks whether it may be so.

    Attributes:
        publishing: PendingBlock that somebody tries to publish now, with their batch, or name.
        uses: When something was published under each name.
        contents: The fingerprint of what was published last under each name.
        published: The blocks that ever were, by monoton of each message.
        registered: Groups by name: first monoton owed, and groups version.
        fence_is_wrong: Whether a clock that was ahead may have raised the fence, so that somebody
            takes it back.
        unfenced_until: Where the highest one stood that was taken back.
        ids: The unique ids of the messages of blocks that have some.
        lasts: For how long a unique id is unique.
        foreign: Told of blocks that nobody declared, with the name of their publication; None if
            there must be none.
    """

    def __init__(
        self, store: MemoryStore, queue_id: QueueId, clock: FakeClock, terms: Terms
    ) -> None:
        self._store = store
        self._clock = clock
        self._terms = terms
        self.queue_id = queue_id
        self.fence_is_wrong = False
        self.unfenced_until: datetime | None = None
        self.foreign: Callable[[Sequence[Block], str], None] | None = None
        self.publishing: list[tuple[Sequence[PendingBlock], SinkBatch | Once | None]] = []
        self.uses: defaultdict[str, list[datetime]] = defaultdict(list)
        self.contents: dict[str, str | None] = {}
        self._marks: set[str] = set()
        self.published: dict[int, Block] = {}
        self.sinks: dict[str, SinkBatch] = {}
        self.registered: dict[str, tuple[int, int]] = {}
        self.ids: dict[UUID, Sequence[str | None]] = {}
        self.lasts: timedelta | None = None
        self.seek_pins: dict[int, Pinned] = {}
        self.blocks: list[Block] = []
        self._ids: set[UUID] = set()
        self._take(self._read())

    def watch(self) -> None:
        """Check what a compare-and-set has changed."""
        rows = self._read()
        old_next, old_finalised = self.next, self.finalised
        old_fence, old_version = self.fence, self.groups_version
        old_blocks, old_delayed = self.blocks, self.delayed_stop
        self._take(rows)
        assert self.next >= old_next, "I1"
        assert self.finalised >= old_finalised, "I7"
        self._check_ages(range(old_finalised, self.finalised))
        if self.fence < old_fence:
            self.unfenced_until = max(old_fence, self.unfenced_until or old_fence)
        if not self.fence_is_wrong:
            assert self.fence >= old_fence, "I10"
            assert self.fence <= self._clock.now, "puts are refused"
        assert self.delayed_stop >= old_delayed, "a delayed block could be overlooked"
        self._check_tiling()
        left = set(self.blocks)
        for block in old_blocks:
            assert block in left or block.stop <= self.finalised, (block, "I2: changed or trimmed")
        self._watch_publication(rows, old_next, old_fence, set(old_blocks))
        self._watch_groups(rows, old_version, old_finalised, old_next)

    @property
    def delayed_times(self) -> dict[int, datetime]:
        """When the messages may be handed out that must not be at once."""
        return {at: b.visible_at for at, b in self.published.items() if b.visible_at}

    def refuses(self, begun_at: datetime) -> bool:
        """Whether a block that was begun then may be refused."""
        ahead = self.unfenced_until and self._clock.now < begun_at <= self.unfenced_until
        return begun_at <= self.fence or bool(ahead)

    def visible_since(self, at: int) -> datetime:
        """From when on a message may be handed out."""
        block = self.published[at]
        return block.visible_at or block.published_at

    def young_since(self, at: int) -> datetime:
        """From when on a message grows too old; see `LedgerBlock.young_since`."""
        return max(self.visible_since(at), block_time(self.published[at].block))

    def _check_ages(self, finalised: Iterable[int]) -> None:
        """What is finalised is old enough, whatever groups there are."""
        for at in finalised:
            age = self._clock.now - self.visible_since(at)
            kept = self._terms.keep_settled
            assert kept is None or age > kept, (at, "it was to be kept")
            assert self.registered or self._terms.has_expired(age), (at, "nobody had consumed it")

    def check_chunks(self, bucket_size: int) -> None:
        """I3, I7: each message that is not finalised is in one chunk, in the right bucket."""
        stored = Counter(
            (row["block"], row["bucket"], offset)
            for row in self._store.scan(Table.CHUNK)
            if row["queue_id"] == self.queue_id
            for offset in range(row["start"], row["stop"])  # type: ignore[arg-type]
        )
        for block in self.blocks:
            for at in range(max(block.start, self.finalised), block.stop):
                offset = block.offset_of(at)
                count = stored[block.block, offset // bucket_size, offset]
                assert count == 1, (block, at, count, "I3")

    def _read(self) -> AnyRows:
        return self._store.read_rows(partition_of_ledger(self.queue_id)).rows

    def _take(self, rows: AnyRows) -> None:
        (head,) = of_kind(rows, "head")
        self.next: int = head["next"]
        self.finalised: int = head["finalised"]
        self.fence: datetime = head["fence"]
        self.groups_version: int = head["groups_version"]
        self.delayed_stop: int = head["delayed_stop"]
        self.size: int = head["size"]
        self.blocks = [
            Block(
                row["position"],
                row["stop"],
                block,
                row["published_at"],
                row["visible_at"],
                row["size"],
                row["size_before"],
                offsets,
            )
            for row in of_kind(rows, "block")
            for block, offsets in [_offsets(row)]
        ]

    def _check_tiling(self) -> None:
        at = self.blocks[0].start if self.blocks else self.finalised
        size = self.blocks[0].size_before if self.blocks else self.size
        assert at <= self.finalised, "I1: a hole at the low end"
        for block in self.blocks:
            assert (block.start, block.size_before) == (at, size), (block, "I1")
            at, size = block.stop, size + block.size
        assert (at, size) == (self.next, self.size), "I1"

    def _watch_publication(
        self, rows: AnyRows, old_next: int, fence: datetime, old_blocks: set[Block]
    ) -> None:
        new = [each for each in self.blocks if each not in old_blocks]
        sinks = {row["name"]: _sink(row) for row in of_kind(rows, "sink")}
        assert self.sinks.keys() <= sinks.keys(), "I4"
        moved = {name: last for name, last in sinks.items() if self.sinks.get(name) != last}
        earlier = {name: self.sinks[name].batch_id for name in moved if name in self.sinks}
        assert all(last.batch_id > earlier.get(name, -1) for name, last in moved.items()), "I4"
        self.sinks = sinks
        marks = {row["name"] for row in of_kind(rows, "once")}
        marked, self._marks = marks - self._marks, marks
        if not new and not moved and not marked:
            return
        assert not new or new[0].start == old_next, "I1"
        for block in new:
            assert block.block not in self._ids, (block, "I1: published twice")
            assert block_time(block.block) > fence, (block, "I10")
            assert block.published_at == self._clock.now
            self._ids.add(block.block)
            self.published |= dict.fromkeys(range(block.start, block.stop), block)
            self._check_unique(block)
        late = [block.stop for block in new if block.visible_at is not None]
        assert max([0, *late]) <= self.delayed_stop, "a delayed block would be overlooked"
        if self.foreign is not None and new:
            (name,) = marked
            self.foreign(new, name)
            return
        batches = [batch for pending, batch in self.publishing if self._are(new, pending)]
        assert batches, (new, "nobody publishes this any more")
        batch = batches[0]
        sink = {batch.sink: batch} if isinstance(batch, SinkBatch) else {}
        assert moved == sink, "I4"
        if isinstance(batch, Once):
            self._use(batch, marks)
        else:
            assert not marked, "I4"

    def is_marked(self, once: Once) -> bool:
        """Whether the name is remembered now; by the server's clock, up to a second shorter."""
        used = [at.replace(microsecond=0) for at in self.uses[once.name]]
        return any(self._clock.now < at + once.lifetime for at in used)

    def _use(self, once: Once, marks: AbstractSet[str]) -> None:
        """An attempt that began within half a lifetime of the last use must not use it again."""
        assert once.name in marks, "I4: published, and nothing tells"
        for at in self.uses[once.name]:
            again = once.begun_at - at.replace(microsecond=0)
            assert again >= once.lifetime / 2, (once, at, "I4: used twice")
        self.uses[once.name].append(self._clock.now)
        self.contents[once.name] = once.fingerprint

    def id_of(self, monoton: int) -> str | None:
        """The unique id of a message that was published."""
        block = self.published[monoton]
        return self.ids[block.block][block.offset_of(monoton)] if block.block in self.ids else None

    def _check_unique(self, block: Block) -> None:
        """I12: within the window, one message of each unique id is published."""
        if self.lasts is None or block.block not in self.ids:
            return
        for at in range(block.start, block.stop):
            mine = self.id_of(at)
            others = [
                it
                for it in range(block.start)
                if mine is not None
                and self.id_of(it) == mine
                and self.published[it].published_at > self._clock() - self.lasts
            ]
            assert not others, (mine, at, others, "I12: published twice")
        own = [each for each in map(self.id_of, range(block.start, block.stop)) if each]
        assert len(own) == len({*own}), "I12: published twice by one publish"

    def _are(self, blocks: Sequence[Block], pending: Sequence[PendingBlock]) -> bool:
        """Whether these are the blocks of a write, but for what is repeated."""
        found = {each.block: each for each in blocks}
        if [each.block for each in blocks] != [it.block for it in pending if it.block in found]:
            return False
        return all(self._is_of(each, found.get(each.block)) for each in pending)

    def _is_of(self, pending: PendingBlock, block: Block | None) -> bool:
        offsets = () if block is None else block.offsets
        left_out = set(range(pending.count)) - {*offsets}
        if left_out and pending.block not in self.ids:
            return False
        for offset in left_out:
            mine = self.ids[pending.block][offset]
            # By the earliest clock that the publish may have read.
            since = block_time(pending.block) - (self.lasts or timedelta(0))
            known = [
                at
                for at, it in self.published.items()
                if mine is not None and self.id_of(at) == mine and it.published_at > since
            ]
            assert known, (pending, offset, mine, "I12: left out, and there is none")
        if block is None:
            return True
        same = (block.size, block.visible_at) == (pending.size, self._visible_at(pending))
        return same and block.offsets == tuple(sorted(block.offsets))

    def _visible_at(self, written: PendingBlock) -> datetime | None:
        if isinstance(written.visible, timedelta):
            return self._clock.now + written.visible
        return written.visible

    def _watch_groups(
        self, rows: AnyRows, old_version: int, old_finalised: int, old_next: int
    ) -> None:
        found = {
            row["name"]: (row["starts_at"], row["groups_version"])
            for row in of_kind(rows, "group")
        }
        seek_pins = {
            row["position"]: Pinned(row["name"], row["starts_at"])
            for row in of_kind(rows, "seek_pin")
        }
        changed = {name for name in found if found[name] != self.registered.get(name)}
        removed = self.registered.keys() - found.keys()
        placed = seek_pins.keys() - self.seek_pins.keys()
        changes = len(changed) + len(removed) + len(placed)
        assert changes <= 1
        assert self.groups_version == old_version + changes, "I7"
        for name in changed:
            assert name not in self.registered, (name, "I7: registered over another one")
            starts_at, number = found[name]
            assert old_finalised <= starts_at <= old_next, (name, starts_at, "I7")
            assert number == self.groups_version
        for number in placed:
            assert number == self.groups_version
            assert old_finalised <= seek_pins[number].position <= old_next, (
                seek_pins[number],
                "I7",
            )
        assert {each.group for each in seek_pins.values()} <= found.keys()
        self.registered, self.seek_pins = found, seek_pins
