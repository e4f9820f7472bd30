"""The world of the machine: a queue, its dead-letter queue, their models, and trouble."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import count, cycle, islice

import pyarrow as pa

from cassieq_spark.model import PendingBlock, QueueDefinition
from cassieq_spark.producer.blocks import write_block
from cassieq_spark.queues import create_queue
from cassieq_spark.settings import SinkOptions
from cassieq_spark.store.memory import MemoryStore
from cassieq_spark.store.protocol import Partition, Store
from cassieq_spark.testing.faults import Fault, FaultyStore
from cassieq_spark.testing.stores import CountingStore
from cassieq_spark.testing.tearing import Draws, TearingStore
from cassieq_spark.testing.tombstones import TombstoneStore
from tests.property.machine.letters import Letters
from tests.property.machine.model import QueueModel
from tests.property.machine.terms import Terms
from tests.support.faults import FakeClock

BUCKET = 4
CHUNK = 2
#: For how long a unique id is unique.
UNIQUE_FOR = timedelta(seconds=4)
#: Deleted rows that a read may come across: in sixty steps some hundred rows may have waited, and
#: been taken, that were due after one that waits still. Repairs have a limit of their own.
MOST_TOMBSTONES = 200

#: When a message is to be visible: after this, or at so much from now; None for at once.
Delay = tuple[str, timedelta] | None


class Crash(BaseException):
    """The process ends, wherever it is: nothing may catch it."""


@dataclass(frozen=True, slots=True)
class Trouble:
    """What happens while something else does.

    Attributes:
        fault: Strikes its first compare-and-set.
        after: So many calls of the store later, something comes between.
        meanwhile: What; None for a crash.
        draws: Which replicas plain reads ask from now on.
    """

    fault: Fault | None
    after: int
    meanwhile: object | None
    draws: Draws = "fs"


class World:
    """Everything that there is; actors use ``store``, checks read ``memory``.

    In ``memory`` is what is decided, also while it is on one replica only.

    Attributes:
        is_shared: Whether others may act between any two calls of ``store``. Each time they did,
            its ``unrest`` has grown.
        happened: How often something has happened in the middle of an action, perhaps between a
            compare-and-set and its answer.
    """

    def __init__(self, terms: Terms, *, dead_letters: bool) -> None:
        self.clock = FakeClock()
        self.memory = MemoryStore(self.clock, here=self.clock.here)
        dead = create_queue(self.memory, "dead", bucket_size=BUCKET, chunk_size=CHUNK)
        queue = create_queue(
            self.memory,
            "q",
            bucket_size=BUCKET,
            chunk_size=CHUNK,
            lease=terms.lease,
            max_deliveries=terms.max_deliveries,
            dead_letter_queue=dead.name if dead_letters else None,
            order="strict" if terms.strict else "none",
            expire_after=terms.expire_after,
            keep_settled=terms.keep_settled,
            deduplicate=UNIQUE_FOR,
        )
        self.letters = Letters(self.memory)
        is_copied = self.letters.is_copied if dead_letters else _anything
        self.queue = QueueModel(self.memory, queue, self.clock, terms, is_copied)
        self.queue.ledger.lasts = UNIQUE_FOR
        self.dead = QueueModel(
            self.memory, dead, self.clock, Terms(timedelta(seconds=60)), _anything
        )
        self.dead.ledger.foreign = lambda blocks, sink: self.letters.look_at(
            self.queue, self.dead, blocks, sink
        )
        self.models = {each.queue.queue_id: each for each in (self.queue, self.dead)}
        self.replicas = TearingStore(self.memory)
        self.tombstones = TombstoneStore(self.replicas, limit=MOST_TOMBSTONES)
        self.counting = CountingStore(self.tombstones)
        self.store = FaultyStore(self.counting, self._watch, self.replicas)
        self.is_shared = False
        self.happened = 0
        self._values = count()

    @property
    def definition(self) -> QueueDefinition:
        """The queue as its readers know it."""
        return self.queue.queue

    def write(
        self,
        counts: Sequence[int],
        delays: Sequence[Delay],
        ids: Sequence[str | None] = (),
    ) -> list[PendingBlock]:
        """Write blocks of so many messages, to be visible after these delays, in turn.

        The messages have these unique ids, in turn.
        """
        left = cycle(ids)
        return [
            self._write(
                messages,
                delays[number % len(delays)],
                list(islice(left, messages)),
            )
            for number, messages in enumerate(counts)
        ]

    def _write(self, messages: int, delay: Delay, ids: Sequence[str | None]) -> PendingBlock:
        first = next(self._values)
        values = [str(first), *(str(next(self._values)) for _ in range(messages - 1))]
        columns: dict[str, pa.Array] = {"value": pa.array(values)}
        if ids:
            columns["unique_id"] = pa.array(ids, pa.string())
        batch = pa.record_batch(columns)
        options = SinkOptions(queue=self.definition.name)
        written = write_block(self.store, self.definition, [batch], options)
        self.queue.first_values[written.block] = first
        if written.ids:
            self.queue.ledger.ids[written.block] = ids
        return replace(written, visible=self._visible(delay))

    def _visible(self, delay: Delay) -> datetime | timedelta | None:
        match delay:
            case ("after", timedelta() as by):
                return by
            case ("at", timedelta() as by):
                return self.clock.now + by
            case _:
                return None

    def arrive(self) -> None:
        """Carry out the oldest request that is late."""
        self.set_outdated(value=True)
        self.store.arrive()
        self.set_outdated(value=False)

    def seen_by(
        self,
        store_around: Callable[[Store, Callable[[Partition], None], TearingStore], FaultyStore],
    ) -> World:
        """The same world for somebody who acts while others do, by a store of its own.

        Args:
            store_around: Makes that, around a store, with the function to tell what was applied,
                and the replicas.
        """
        view = copy.copy(self)
        view.is_shared = True
        view.counting = CountingStore(self.tombstones)
        view.store = store_around(view.counting, self._watch, self.replicas)
        return view

    def check_chunks(self) -> None:
        """I3, I7: no message that is owed is deleted."""
        for model in self.models.values():
            model.ledger.check_chunks(BUCKET)

    @contextmanager
    def in_trouble(self, trouble: Trouble | None, do: Callable[[object], None]) -> Iterator[None]:
        """Let trouble come over what is done within; if it dies of that, so be it."""
        if trouble is not None:
            self.replicas.draw(trouble.draws)
            self.store.fault = trouble.fault
            self.store.interrupt(
                lambda: self._happen(trouble.meanwhile, do), after=trouble.after, bit_by_bit=True
            )
        with suppress(Crash):
            yield
        self.set_outdated(value=False)
        self.store.calm()

    def _happen(self, what: object | None, do: Callable[[object], None]) -> None:
        if what is None:
            raise Crash
        do(what)
        self.happened += 1
        # Who was interrupted may have read what has changed by now.
        self.set_outdated(value=True)

    def set_outdated(self, *, value: bool) -> None:
        """Say whether who acts may have read what has changed since."""
        for model in self.models.values():
            model.outdated = value

    def _watch(self, partition: Partition) -> None:
        model = next((m for key, m in self.models.items() if key in partition.key), None)
        if model is not None:
            model.watch(partition)


def _anything(_group: str, _monoton: int) -> bool:
    return True
