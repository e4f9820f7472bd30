"""Who publishes: writers and sinks, fast and slow, once and again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum, auto

from cassieq_spark.errors import (
    BatchChangedError,
    BatchOrderError,
    NotAppliedError,
    OutcomeUnknownError,
)
from cassieq_spark.ledger.identity import fingerprints_differ
from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.ledger.once import Once
from cassieq_spark.ledger.publish import Published, publish
from cassieq_spark.ledger.window import UniqueIds, UniqueWindow
from cassieq_spark.model import PendingBlock, SinkBatch, block_time
from tests.property.machine.world import UNIQUE_FOR, Delay, World

#: How long keys are remembered.
KEY_LIFETIME = timedelta(seconds=6)


@dataclass(frozen=True, slots=True)
class Key:
    """An idempotency key, and what is put under it: the same fingerprint, the same content."""

    name: str
    fingerprint: str | None = None


Named = SinkBatch | Key | None


@dataclass(frozen=True, slots=True)
class Publish:
    """Write blocks of so many messages, and publish them."""

    counts: Sequence[int]
    delays: Sequence[Delay]
    batch: Named
    ids: Sequence[str | None] = ()


@dataclass(frozen=True, slots=True)
class WriteOnly:
    """Write blocks; perhaps they are published later."""

    counts: Sequence[int]
    delays: Sequence[Delay]
    ids: Sequence[str | None] = ()


@dataclass(frozen=True, slots=True)
class PublishLate:
    """Publish what was written longest ago."""

    batch: Named


class Fate(Enum):
    """What a publish came to."""

    NEW = auto()
    REPLAY = auto()
    CHANGED = auto()
    BEHIND = auto()


class Producers:
    """All who publish.

    Args:
        world: Where.
        with_delays: Whether messages may be delayed.
    """

    def __init__(self, world: World, *, with_delays: bool) -> None:
        self._world = world
        self._model = world.queue
        self._with_delays = with_delays
        self._unique, self._other = self._new_window(), self._new_window()
        self._abandoned: list[tuple[Sequence[PendingBlock], datetime]] = []

    def publish(self, action: Publish) -> None:
        begun_at = self._world.clock.now
        pending = self._write(action.counts, action.delays, action.ids)
        self._publish(pending, action.batch, begun_at)

    def write_only(self, action: WriteOnly) -> None:
        begun_at = self._world.clock.now
        pending = self._write(action.counts, action.delays, action.ids)
        self._abandoned.append((pending, begun_at))

    def take_turns(self, *, forgets: bool) -> None:
        """The other of two processes publishes from now on; perhaps it was started anew."""
        self._unique, self._other = self._other, self._unique
        if forgets:
            self._unique = self._new_window()

    def publish_late(self, action: PublishLate) -> None:
        if self._abandoned:
            pending, begun_at = self._abandoned.pop(0)
            self._publish(pending, action.batch, begun_at)

    def _new_window(self) -> UniqueWindow:
        return UniqueWindow(UNIQUE_FOR, UniqueIds(self._world.clock.seconds))

    def _write(
        self, counts: Sequence[int], delays: Sequence[Delay], ids: Sequence[str | None]
    ) -> Sequence[PendingBlock]:
        return self._world.write(counts, delays if self._with_delays else [None], ids)

    def _check_repeats(self, pending: Sequence[PendingBlock], published: Published) -> None:
        """A message that is left out has the unique id of the one that is named instead."""
        ledger = self._model.ledger
        none = [None] * max(each.count for each in pending)
        ids = [each for it in pending for each in ledger.ids.get(it.block, none[: it.count])]
        for number, at in published.repeats.items():
            assert ids[number] is not None
            assert ledger.id_of(at) == ids[number], (number, at)

    def _publish(self, pending: Sequence[PendingBlock], named: Named, begun_at: datetime) -> None:
        if isinstance(named, Key):
            once = Once(f"key:{named.name}", KEY_LIFETIME, begun_at, named.fingerprint)
            self._publish_once(pending, once)
        else:
            self._publish_batch(pending, named)

    def _publish_once(self, pending: Sequence[PendingBlock], once: Once) -> None:
        ledger, store, trying = self._model.ledger, self._world.store, (pending, once)
        troubles, is_marked = store.unrest, ledger.is_marked(once)
        is_other = fingerprints_differ(ledger.contents.get(once.name), once.fingerprint)
        blocks = [each.block for each in pending]
        ledger.publishing.append(trying)
        try:
            queue_id = self._world.definition.queue_id
            published = publish(Ledger(store, queue_id), pending, batch=once, window=self._unique)
            monotons = published.monotons
        except NotAppliedError:
            is_late = self._world.clock.now - once.begun_at > KEY_LIFETIME / 2
            assert is_late or any(map(ledger.refuses, map(block_time, blocks)))
            assert not {each.block for each in ledger.published.values()} & set(blocks)
        except OutcomeUnknownError:
            assert troubles < store.unrest
            return  # it may still arrive
        except BatchChangedError:
            assert fingerprints_differ(ledger.contents[once.name], once.fingerprint)
            assert is_marked or troubles < store.unrest
        else:
            assert monotons is not None or ledger.uses[once.name]
            self._check_repeats(pending, published)
            if troubles == store.unrest:
                assert is_marked == (monotons is None), "I4"
                assert not (is_marked and is_other), "skipped, although it is another put"
        ledger.publishing.remove(trying)

    def _publish_batch(self, pending: Sequence[PendingBlock], batch: SinkBatch | None) -> None:
        ledger, store, trying = self._model.ledger, self._world.store, (pending, batch)
        troubles, last = store.unrest, ledger.sinks.copy()
        blocks = [each.block for each in pending]
        ledger.publishing.append(trying)
        came_to: Fate | None = None
        try:
            queue_id = self._world.definition.queue_id
            published = publish(Ledger(store, queue_id), pending, batch=batch, window=self._unique)
            monotons = published.monotons
        except NotAppliedError:
            assert any(map(ledger.refuses, map(block_time, blocks)))
            assert not {each.block for each in ledger.published.values()} & set(blocks)
        except OutcomeUnknownError:
            assert troubles < store.unrest
            return  # it may still arrive
        except BatchOrderError:
            came_to = Fate.BEHIND
        except BatchChangedError:
            came_to = Fate.CHANGED
        else:
            came_to = Fate.REPLAY if monotons is None else Fate.NEW
            self._check_repeats(pending, published)
            if monotons is not None:
                found = [at for at, each in ledger.published.items() if each.block in blocks]
                assert found == list(range(monotons.start, monotons.stop))
        if batch is None:
            assert came_to in {None, Fate.NEW}
        elif came_to is not None and troubles == store.unrest:
            assert came_to is _fate(batch, last.get(batch.sink)), "I4"
        elif came_to not in {None, Fate.NEW}:
            # Others have moved the sink meanwhile, up to this batch or beyond.
            now = ledger.sinks[batch.sink]
            is_behind = now.batch_id > batch.batch_id
            assert (
                is_behind if came_to is Fate.BEHIND else is_behind or _fate(batch, now) is came_to
            )
        ledger.publishing.remove(trying)


def _fate(batch: SinkBatch, last: SinkBatch | None) -> Fate:
    """What is to become of a batch, as docs/sink.md says."""
    if last is None or last.batch_id < batch.batch_id:
        return Fate.NEW
    if last.batch_id > batch.batch_id:
        return Fate.BEHIND
    one, other = batch.fingerprint, last.fingerprint
    if one is None or other is None or one == other:
        return Fate.REPLAY
    # Made in two ways, they tell nothing.
    return Fate.CHANGED if one.split(":")[0] == other.split(":")[0] else Fate.REPLAY
