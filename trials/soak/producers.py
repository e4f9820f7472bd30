"""Producers of a soak: clients, and writers like Spark's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta

import pyarrow as pa

from cassieq_spark import Client, NewMessage
from cassieq_spark.errors import (
    BatchChangedError,
    BatchOrderError,
    CassieqError,
    MessageError,
    OptionError,
    QueueStateError,
)
from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.ledger.publish import publish
from cassieq_spark.model import (
    PendingBlock,
    Positions,
    QueueDefinition,
    QueueId,
    Range,
    SinkBatch,
)
from cassieq_spark.producer.blocks import write_block
from cassieq_spark.queues import read_queue
from cassieq_spark.settings import SinkOptions
from cassieq_spark.store.protocol import Store
from trials.soak.actors import QUEUE_KINDS, UntilTheEnd, World, now
from trials.soak.checker import Outcome, Put
from trials.stores import Abandoned

_NEVER = (QueueStateError, MessageError, OptionError)


def _numbers(monotons: Range | Positions) -> range:
    """The monotons of a put into a queue with one partition."""
    if isinstance(monotons, Positions):
        raise TypeError(f"the queue has several partitions: {monotons}")
    return range(monotons.start, monotons.stop)


class ClientProducer(UntilTheEnd):
    """Puts by the client: one message, many, delayed ones, and by a producer."""

    def begin(self) -> None:
        self.client = Client.from_store(self.store)

    def act(self) -> None:
        if self.world.full.is_set():
            self.pause(0.1)
            return
        kind = self.chance.choice(QUEUE_KINDS)
        values = self.world.new_values(self.chance, self.chance.choice((1, 5, 20, 100)))
        delay = timedelta(0)
        if not kind.strict and self.chance.random() < 0.2:
            delay = timedelta(milliseconds=self.chance.randrange(5000))
        ways = (self._put_each, self._put_many, self._put_once, self._produce)
        self.chance.choice(ways)(kind.name, values, delay)
        self.pause(self.chance.uniform(0, 0.5))

    def _put_each(self, queue: str, values: Mapping[int, str], delay: timedelta) -> None:
        for number, value in list(values.items())[:3]:
            with self._told(queue, [number], delay) as told:
                told[number] = self.client.put(queue, value, delay=delay)

    def _put_many(self, queue: str, values: Mapping[int, str], delay: timedelta) -> None:
        with self._told(queue, list(values), delay) as told:
            monotons = self.client.put_many(queue, values.values(), delay=delay)
            told |= dict(zip(values, _numbers(monotons), strict=True))

    def _put_once(self, queue: str, values: Mapping[int, str], delay: timedelta) -> None:
        """Put a batch under a key, and repeat that as if the answers had been lost."""
        key = f"{self.name}-{min(values)}"
        with self._told(queue, list(values), delay) as told:
            for _ in range(self.chance.randrange(1, 4)):
                monotons = self.client.put_many(
                    queue, values.values(), delay=delay, idempotency_key=key
                )
                if monotons is not None:
                    told |= dict(zip(values, _numbers(monotons), strict=True))
                    self.world.note("batches put under a key")

    def _produce(self, queue: str, values: Mapping[int, str], delay: timedelta) -> None:
        before, begun = _home(self.world.store, queue), now()
        producer = self.client.producer(queue, linger=timedelta(milliseconds=20), max_batch=30)
        messages = {number: NewMessage(value, delay=delay) for number, value in values.items()}
        futures = {number: producer.put(message) for number, message in messages.items()}
        errors: dict[int, BaseException | None] = {
            number: future.exception() for number, future in futures.items()
        }
        after = _home(self.world.store, queue)
        for number, error in errors.items():
            home = before if before == after else None
            monoton = None if error else futures[number].result()
            outcome = _outcome_of(error) if error else Outcome.VISIBLE
            put = Put(number, outcome, home, monoton, begun + delay)
            self.world.journal.puts.append(put)
        producer.close() if not any(errors.values()) else None
        if self.store.is_dead:
            raise Abandoned

    @contextmanager
    def _told(
        self, queue: str, numbers: Sequence[int], delay: timedelta
    ) -> Iterator[dict[int, int]]:
        """Record the messages that are put, with the monotons that were returned."""
        told: dict[int, int] = {}
        outcome = Outcome.UNKNOWN
        before, begun = _home(self.world.store, queue), now()
        try:
            yield told
            outcome = Outcome.VISIBLE
        except CassieqError as error:
            # A repetition has failed, but the first put has made the messages visible.
            outcome = Outcome.VISIBLE if told else _outcome_of(error)
            raise
        finally:
            home = before if _home(self.world.store, queue) == before else None
            self.world.journal.puts += [
                Put(number, outcome, home, told.get(number), begun + delay) for number in numbers
            ]


class SparkLikeWriter(UntilTheEnd):
    """Publishes as the sink of a streaming query does: blocks by tasks, numbered batches.

    A batch is tried until it is published, also by successors, as it is in the query's log.
    """

    def __init__(self, world: World, name: str, lifetime: int | None = None) -> None:
        super().__init__(world, name, lifetime)
        self._batch = 0
        self._values: dict[int, str] = {}
        self._homes: set[QueueId] = set()
        self._queue = ""
        self._begun = now()

    def act(self) -> None:
        if self.world.full.is_set():
            self.pause(0.1)
            return
        if not self._values:
            self._queue = self.chance.choice(QUEUE_KINDS).name
            self._values = self.world.new_values(self.chance, self.chance.randrange(1, 200))
            self._homes, self._begun = set(), now()
            self._note(Outcome.UNKNOWN, None, None)
        try:
            queue = read_queue(self.store, self._queue)
        except QueueStateError:
            self.pause(0.1)
            return
        self._homes.add(queue.queue_id)
        parts = self._parts()

        def write(part: list[str]) -> PendingBlock:
            batches = [pa.record_batch({"value": part})]
            return write_block(self.store, queue, batches, SinkOptions(queue=self._queue))

        pending = [write(part) for part in parts]
        if self.chance.random() < 0.05:
            write(self.chance.choice(parts))
        sink = SinkBatch(f"query:{self.name}", self._batch, str(min(self._values)))
        done = publish(Ledger(self.store, queue.queue_id), pending, batch=sink)
        home = queue.queue_id if len(self._homes) == 1 else None
        self._note(Outcome.VISIBLE, home, done.monotons.start if done.monotons else None)
        self._values = {}
        self._batch += 1
        self._rewind(queue, pending, sink)
        self.pause(self.chance.uniform(0, 1))

    def _rewind(
        self, queue: QueueDefinition, pending: Sequence[PendingBlock], published: SinkBatch
    ) -> None:
        """Publish as a query with an older checkpoint does, which must be refused."""
        if self.chance.random() > 0.1:
            return
        back = self.chance.randrange(min(3, published.batch_id + 1))
        rewound = SinkBatch(published.sink, published.batch_id - back, "another content")
        try:
            publish(Ledger(self.store, queue.queue_id), pending, batch=rewound)
        except (BatchChangedError, BatchOrderError):
            self.world.note("rewound checkpoints refused")
        else:
            self.world.journal.alarms.append(f"{queue.queue_id}: {rewound} after {published}")

    def _parts(self) -> list[list[str]]:
        values = list(self._values.values())
        size = -(-len(values) // self.chance.randrange(1, 4))
        return [values[at : at + size] for at in range(0, len(values), size)]

    def _note(self, outcome: Outcome, home: QueueId | None, first: int | None) -> None:
        """Record the outcome; it replaces an earlier one of the same messages."""
        self.world.journal.puts += [
            Put(number, outcome, home, None if first is None else first + at, self._begun)
            for at, number in enumerate(self._values)
        ]


def _outcome_of(error: BaseException) -> Outcome:
    never = isinstance(error, CassieqError) and (error.retryable or isinstance(error, _NEVER))
    return Outcome.NEVER if never else Outcome.UNKNOWN


def _home(store: Store, queue: str) -> QueueId | None:
    """The version of a queue, if it is active."""
    with suppress(QueueStateError):
        return read_queue(store, queue).queue_id
    return None
