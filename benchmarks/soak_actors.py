"""The actors of a soak: who puts, receives, reads, operates and sweeps, and dies of it at times.

Each runs in a thread of its own, with a store of its own that may fail it at any call. What
becomes of it then is what becomes of a process that was killed: nobody closes or releases a thing,
and its successor knows what a process would find on disk, no more.
"""

from __future__ import annotations

import threading
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import count
from random import Random
from typing import Any
from uuid import UUID

import pyarrow as pa

from benchmarks.soak_checker import Delivery, Fate, Journal, LetGo, Put
from benchmarks.soak_store import Abandoned, MortalStore
from cassieq_spark import Client, Message
from cassieq_spark.blocks import write_block
from cassieq_spark.client.messages import rows_of
from cassieq_spark.delivery.groups import ensure_group
from cassieq_spark.errors import (
    CassieqError,
    InvariantError,
    MessageError,
    OptionError,
    QueueStateError,
)
from cassieq_spark.fetch.messages import fetch
from cassieq_spark.ledger.publish import publish
from cassieq_spark.model import QueueDefinition, QueueId, SinkBatch, to_millis
from cassieq_spark.options import SinkOptions
from cassieq_spark.queues import (
    alter_queue,
    create_queue,
    delete_queue,
    pause_queue,
    purge_queue,
    read_queue,
    read_record,
    resume_queue,
)
from cassieq_spark.receipts import Receipt
from cassieq_spark.repair.report import Report
from cassieq_spark.repair.scan import DriverScan
from cassieq_spark.repair.sweep import Step, run_once
from cassieq_spark.source.offsets import initial_offset
from cassieq_spark.source.reader import Reader
from cassieq_spark.store.protocol import Store

MAX_DELIVERIES = 5
#: Whoever takes longer to write than this is refused; what was not published goes after it.
WRITE_TIMEOUT = timedelta(seconds=20)
RETENTION = timedelta(seconds=45)
CLIENTS, READERS = "clients", "readers"
_LEASE = timedelta(seconds=4)
_PADDING = 1500
_MILLISECOND = timedelta(milliseconds=1)
_NEVER = (QueueStateError, MessageError, OptionError)


@dataclass(frozen=True, slots=True)
class Nature:
    """What a queue is like in a soak.

    Attributes:
        name: Its name.
        restless: Whether it is purged, deleted and made anew all the time.
        strict: Whether it is strictly ordered.
        expires: Whether messages are kept for `RETENTION` only.
        small: Whether its buckets are.
    """

    name: str
    restless: bool = False
    strict: bool = False
    expires: bool = False
    small: bool = True


NATURES = (
    Nature("steady", small=False),
    Nature("ordered", strict=True),
    Nature("fleeting", expires=True),
    Nature("purged", restless=True),
    Nature("restless", restless=True),
    Nature("moody", restless=True, small=False),
)


@dataclass
class World:
    """What all actors share.

    Attributes:
        store: The one that does the work.
        journal: What they note.
        seed: Of all that is left to chance.
        ending: Set: publish nothing more, settle everything, let nobody die.
        over: Set: stop.
        events: How often what happened.
    """

    store: Store
    journal: Journal
    seed: int
    ending: threading.Event = field(default_factory=threading.Event)
    over: threading.Event = field(default_factory=threading.Event)
    events: Counter[str] = field(default_factory=Counter)
    numbers: Iterator[int] = field(default_factory=count)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def note(self, event: str, times: int = 1) -> None:
        """Count something."""
        with self._lock:
            self.events[event] += times

    def new_values(self, chance: Random, how_many: int) -> dict[int, str]:
        """Bodies of new messages, by number."""
        with self._lock:
            fresh = [next(self.numbers) for _ in range(how_many)]
        return {number: f"{number}:{'x' * chance.randrange(_PADDING)}" for number in fresh}

    def make(self, store: Store, nature: Nature) -> QueueDefinition:
        """Make a queue, and both of its groups."""
        bucket, chunk = (64, 16) if nature.small else (8192, 512)
        queue = create_queue(
            store,
            nature.name,
            bucket_size=bucket,
            chunk_size=chunk,
            lease=_LEASE,
            max_deliveries=MAX_DELIVERIES,
            dead_letter_queue=f"{nature.name}.dead",
            strict_fifo=nature.strict,
            retention=RETENTION if nature.expires else None,
        )
        for group in (CLIENTS, READERS):
            ensure_group(store, queue.queue_id, group, starting="earliest")
        return queue


class Actor:
    """Does something again and again, and is replaced when it dies.

    Args:
        world: Where.
        name: Its own, of all actors.
        lifetime: About how many calls of the store it lives; None: for ever.
    """

    def __init__(self, world: World, name: str, lifetime: int | None = None) -> None:
        self.world = world
        self.name = name
        self.chance = Random(f"{world.seed}/{name}")  # noqa: S311 (what to do next)
        self.lifetime = lifetime
        self.store = MortalStore(world.store, self.chance, None)
        self.thread = threading.Thread(target=self._run, name=f"soak-{name}", daemon=True)

    def begin(self) -> None:
        """What a new process does first."""

    def act(self) -> None:
        """Do something."""
        raise NotImplementedError

    @property
    def is_wanted(self) -> bool:
        """Whether to go on; publishers end earlier."""
        return not self.world.over.is_set()

    def _run(self) -> None:
        while self.is_wanted:
            lifetime = None if self.world.ending.is_set() else self.lifetime
            self.store = MortalStore(self.world.store, self.chance, lifetime)
            try:
                self.begin()
                while self.is_wanted and not self.store.is_dead:
                    self.act()
                    if self.world.ending.is_set() and lifetime is not None:
                        break
            except Abandoned:
                self.world.note(f"{type(self).__name__} died")
            except InvariantError as error:
                self._alarm(error)
            except CassieqError as error:
                self.world.note(f"{type(self).__name__}: {type(error).__name__}")
                self.world.over.wait(0.05)
            except Exception as error:  # noqa: BLE001 (whatever it is, it must not be)
                self._alarm(error)

    def _alarm(self, error: Exception) -> None:
        told = "".join(traceback.format_exception(error)[-6:])
        self.world.journal.alarms.append(f"{self.name}: {type(error).__name__}: {error}\n{told}")
        self.world.over.wait(1)

    def pause(self, seconds: float) -> None:
        """Do nothing for a while."""
        self.world.over.wait(seconds)


class _Publisher(Actor):
    """Ends as soon as nothing more is to be published."""

    @property
    def is_wanted(self) -> bool:
        return not self.world.ending.is_set()


class ClientProducer(_Publisher):
    """Puts by the client: one, many, delayed, and through a producer."""

    def begin(self) -> None:
        """Open a client."""
        self.client = Client.from_store(self.store)

    def act(self) -> None:
        """Put something into one of the queues."""
        nature = self.chance.choice(NATURES)
        values = self.world.new_values(self.chance, self.chance.choice((1, 5, 20, 100)))
        delay = timedelta(0)
        if not nature.strict and self.chance.random() < 0.2:  # noqa: PLR2004 (a fifth)
            delay = timedelta(milliseconds=self.chance.randrange(5000))
        way = self.chance.choice((self._put_each, self._put_many, self._produce))
        way(nature.name, values, delay)
        self.pause(self.chance.uniform(0, 0.5))

    def _put_each(self, queue: str, values: Mapping[int, str], delay: timedelta) -> None:
        for number, value in list(values.items())[:3]:
            with self._told(queue, [number], delay) as told:
                told[number] = self.client.put(queue, value, delay=delay)

    def _put_many(self, queue: str, values: Mapping[int, str], delay: timedelta) -> None:
        with self._told(queue, list(values), delay) as told:
            monotons = self.client.put_many(queue, values.values(), delay=delay)
            told |= dict(zip(values, range(monotons.start, monotons.stop), strict=True))

    def _produce(self, queue: str, values: Mapping[int, str], delay: timedelta) -> None:
        before, begun = _home(self.world.store, queue), _now()
        producer = self.client.producer(queue, linger=timedelta(milliseconds=20), max_batch=30)
        futures = {number: producer.put(value, delay=delay) for number, value in values.items()}
        errors: dict[int, BaseException | None] = {
            number: future.exception() for number, future in futures.items()
        }
        after = _home(self.world.store, queue)
        for number, error in errors.items():
            home = before if before == after else None
            monoton = None if error else futures[number].result()
            fate = _fate_of(error) if error else Fate.VISIBLE
            put = Put(number, fate, home, monoton, begun + delay)
            self.world.journal.puts.append(put)
        producer.close() if not any(errors.values()) else None
        if self.store.is_dead:
            raise Abandoned

    @contextmanager
    def _told(self, queue: str, numbers: Sequence[int], delay: timedelta) -> Iterator[dict[int, int]]:
        """Note what was put, and what the caller was told of it."""
        told: dict[int, int] = {}
        fate = Fate.UNKNOWN
        before, begun = _home(self.world.store, queue), _now()
        try:
            yield told
            fate = Fate.VISIBLE
        except CassieqError as error:
            fate = _fate_of(error)
            raise
        finally:
            home = before if _home(self.world.store, queue) == before else None
            self.world.journal.puts += [
                Put(number, fate, home, told.get(number), begun + delay) for number in numbers
            ]


class SparkLikeWriter(_Publisher):
    """Publishes as a streaming query's sink does: blocks by tasks, one publish, batches by number.

    A batch is tried until it is published, also by its successors: it is in the query's log.
    """

    def __init__(self, world: World, name: str, lifetime: int | None = None) -> None:
        super().__init__(world, name, lifetime)
        self._batch = 0
        self._values: dict[int, str] = {}
        self._homes: set[QueueId] = set()
        self._queue = ""
        self._begun = _now()

    def act(self) -> None:
        """Publish the next batch."""
        if not self._values:
            self._queue = self.chance.choice(NATURES).name
            self._values = self.world.new_values(self.chance, self.chance.randrange(1, 200))
            self._homes, self._begun = set(), _now()
            self._note(Fate.UNKNOWN, None, None)
        try:
            queue = read_queue(self.store, self._queue)
        except QueueStateError:
            self.pause(0.1)
            return
        self._homes.add(queue.queue_id)
        parts = self._parts()
        drafts = [
            write_block(self.store, queue, [pa.record_batch({"value": part})], SinkOptions(queue=self._queue))
            for part in parts
        ]
        if self.chance.random() < 0.05:  # noqa: PLR2004 (a task that ran twice)
            part = self.chance.choice(parts)
            batches = [pa.record_batch({"value": part})]
            write_block(self.store, queue, batches, SinkOptions(queue=self._queue))
        sink = SinkBatch(f"query:{self.name}", self._batch)
        done = publish(self.store, queue.queue_id, drafts, batch=sink)
        home = queue.queue_id if len(self._homes) == 1 else None
        self._note(Fate.VISIBLE, home, done.monotons.start if done.monotons else None)
        self._values = {}
        self._batch += 1
        self.pause(self.chance.uniform(0, 1))

    def _parts(self) -> list[list[str]]:
        values = list(self._values.values())
        size = -(-len(values) // self.chance.randrange(1, 4))
        return [values[at : at + size] for at in range(0, len(values), size)]

    def _note(self, fate: Fate, home: QueueId | None, first: int | None) -> None:
        """A later note on the same message takes the place of an earlier one."""
        self.world.journal.puts += [
            Put(number, fate, home, None if first is None else first + at, self._begun)
            for at, number in enumerate(self._values)
        ]


class ClientConsumer(Actor):
    """Receives by the client, and settles in every way there is."""

    def begin(self) -> None:
        """Open a client."""
        self.client = Client.from_store(self.store)

    def act(self) -> None:
        """Receive from one of the queues, process, settle."""
        queue = self.chance.choice(NATURES).name
        lease = timedelta(seconds=self.chance.uniform(1, 5))
        begun = _now()
        messages = self.client.receive(
            queue, CLIENTS, max=self.chance.choice((1, 20, 300)), lease=lease
        )
        at = _now()
        self.world.journal.deliveries += [_delivery_of(each, begun, at) for each in messages]
        if not messages:
            self.pause(0.05)
            return
        if self.world.ending.is_set():
            self._settle(self.client.ack, messages, settles=True)
            return
        self.chance.shuffle(messages)
        while messages:
            size = self.chance.randrange(1, len(messages) + 1)
            part, messages = messages[:size], messages[size:]
            self._settle_somehow(part)

    def _settle_somehow(self, part: Sequence[Message]) -> None:
        ways: tuple[tuple[int, Callable[[Sequence[Message]], None]], ...] = (
            (80, lambda all_: self._settle(self.client.ack, all_, settles=True)),
            (6, self._release),
            (5, self._extend_and_ack),
            (3, lambda _: self.world.note("kept until the lease ran out")),
            (3, lambda all_: self._reject(all_[:2])),
            (3, lambda all_: self._replace(all_[0])),
        )
        weights = [weight for weight, _ in ways]
        self.chance.choices([way for _, way in ways], weights)[0](part)

    def _release(self, part: Sequence[Message]) -> None:
        delay = timedelta(milliseconds=self.chance.choice((0, 300, 2000)))
        self._settle(lambda *all_: self.client.release(*all_, delay=delay), part, settles=False)

    def _extend_and_ack(self, part: Sequence[Message]) -> None:
        self.client.extend(*part, by=timedelta(seconds=10))
        self.pause(self.chance.uniform(0, 0.5))
        self._settle(self.client.ack, part, settles=True)

    def _reject(self, part: Sequence[Message]) -> None:
        self._settle(lambda *all_: self.client.reject(*all_, reason="bad"), part, settles=True)

    def _replace(self, message: Message) -> None:
        ((number, value),) = self.world.new_values(self.chance, 1).items()
        begun = _now()
        # Whatever becomes of it: the new one may be there, and the old one as well.
        self.world.journal.puts.append(Put(number, Fate.UNKNOWN, None, None, begun))
        self._settle(lambda old: self.client.replace(old, value), [message], settles=False)

    def _settle(
        self, settle: Callable[..., list[str]], part: Sequence[Message], *, settles: bool
    ) -> None:
        begun = _now()
        stale: list[str] | None = None
        try:
            stale = settle(*part)
        finally:
            leases: dict[UUID, set[int]] = {}
            for message in part:
                receipt = Receipt.parse(message.receipt)
                leases.setdefault(receipt.lease, set())
                if stale is None or message.receipt not in stale:
                    leases[receipt.lease].add(receipt.monoton)
            done = _now()
            self.world.journal.let_go += [
                LetGo(lease, frozenset(monotons), begun, done, settles and stale is not None)
                for lease, monotons in leases.items()
            ]
            self.world.note("stale receipts", len(stale or ()))


class QueryReader(Actor):
    """Reads as a streaming query's source does: its offsets and commits outlive it."""

    def __init__(self, world: World, name: str, lifetime: int | None, queue: str) -> None:
        super().__init__(world, name, lifetime)
        self._queue = queue
        self._restart()

    def begin(self) -> None:
        """Start the query, with its log."""
        try:
            queue = read_queue(self.store, self._queue)
            self._length = timedelta(seconds=self.chance.uniform(2, 5))
            self._reader = Reader(
                self.store, queue, READERS, starting="earliest", length=self._length
            )
        except QueueStateError:
            self.pause(0.2)
            raise
        self._held: tuple[UUID, set[int], int] | None = None

    def act(self) -> None:
        """One batch: ack, lease, log, process, commit; or give up in good order."""
        try:
            if self._planned is None:
                self._next()
            if self._planned is None:
                self.pause(0.05)
            else:
                self._process(self._planned)
                if self.chance.random() < 0.03 and not self.world.ending.is_set():  # noqa: PLR2004
                    self._stop()
                    return
                self._done, self._planned = self._planned, None
        except QueueStateError:
            # Purged or deleted: another query, with another log.
            self._restart()
            raise

    def _restart(self) -> None:
        self._done: Mapping[str, Any] = initial_offset(self._queue, READERS)
        self._planned: Mapping[str, Any] | None = None

    def _next(self) -> None:
        begun, held = _now(), self._held
        limit = self.chance.choice((5, 50, None))
        end = self._reader.next_batch(self._done, limit=limit)
        self._held, self._asked = None, begun
        if held is not None and str(held[0]) == self._done.get("lease"):
            lost = (self._reader.gauge.report() or {}).get("lost_leases", 0)
            whole = lost == held[2]
            act = LetGo(held[0], frozenset(held[1]), begun, _now(), settled=whole)
            self.world.journal.let_go.append(act)
            self.world.note("batches acked" if whole else "batches whose lease was lost")
        if end != self._done:
            self._planned = end

    def _process(self, end: Mapping[str, Any]) -> None:
        begun = _now()
        replayed = self._held is None and str(self._reader._held) != end["lease"]  # noqa: SLF001
        tasks = self._reader.tasks(end, messages_per_task=50)
        if replayed:
            self.world.note("batches replayed")
            self._asked = begun
        prefix = self._reader.receipt_prefix
        lost = (self._reader.gauge.report() or {}).get("lost_leases", 0)
        self._held = (UUID(end["lease"]), set(), lost)
        if self.chance.random() < 0.1:  # noqa: PLR2004 (a slow batch, kept alive by its heartbeat)
            self.pause(self.chance.uniform(0, 6))
        for task in tasks:
            found = fetch(
                self.store, self._reader.queue, task, include_headers=True, receipt_prefix=prefix
            )
            rows = list(rows_of(found))
            at = _now()
            self._held[1].update(row["monoton"] for row in rows)
            self.world.journal.deliveries += [
                Delivery(
                    self._reader.queue.queue_id,
                    READERS,
                    row["monoton"],
                    _number_of(row["value"]),
                    UUID(end["lease"]),
                    row["delivery_count"],
                    self._asked,
                    at,
                    self._asked + self._length,
                )
                for row in rows
            ]

    def _stop(self) -> None:
        begun = _now()
        lease = None if self._held is None else self._held[0]
        if lease is not None:
            # Noted before: others may have them before the call returns.
            self.world.journal.let_go.append(LetGo(lease, None, begun, begun, settled=False))
        self._reader.stop()
        self.world.note("queries stopped")
        self.begin()


class Operator(Actor):
    """Alters, pauses, purges, deletes and makes anew; finishes what another one left."""

    def act(self) -> None:
        """Do something to a queue."""
        nature = self.chance.choice(NATURES)
        ways: list[Callable[[Nature], None]] = [self._alter, self._pause]
        if nature.restless:
            ways = [self._alter, self._pause, self._purge, self._delete, self._delete]
        way = self.chance.choice(ways)
        self.repair()
        way(nature)
        self.world.note(way.__name__.strip("_"))
        self.pause(self.chance.uniform(0.5, 4))

    def repair(self) -> None:
        """Finish what broke off: a purge, a creation, a pause."""
        for nature in NATURES:
            record = read_record(self.store, nature.name)
            if record is None or record.is_gone:
                with suppress(QueueStateError):
                    self.world.make(self.store, nature)
                continue
            if record.status.value == "purging":
                purge_queue(self.store, nature.name, force=True)
            with suppress(QueueStateError):
                queue = read_queue(self.store, nature.name)
                for group in (CLIENTS, READERS):
                    ensure_group(self.store, queue.queue_id, group, starting="earliest")
                resume_queue(self.store, nature.name)

    def _alter(self, nature: Nature) -> None:
        lease = timedelta(seconds=self.chance.randrange(2, 8))
        alter_queue(self.store, nature.name, lease=lease)

    def _pause(self, nature: Nature) -> None:
        pause_queue(self.store, nature.name)
        self.pause(self.chance.uniform(0, 2))
        resume_queue(self.store, nature.name)

    def _purge(self, nature: Nature) -> None:
        purge_queue(self.store, nature.name, force=True)

    def _delete(self, nature: Nature) -> None:
        delete_queue(self.store, nature.name, force=True)
        self.pause(self.chance.choice((0, 0, 2)))
        self.world.make(self.store, nature)


class Sweeper(Actor):
    """Sweeps without a lock, so that several meet."""

    def act(self) -> None:
        """Sweep once; one that may die lets nothing expire, as nobody would tell of it."""
        steps = [step for step in Step if self.lifetime is None or step is not Step.EXPIRE]
        sweep(self.world, self.store, steps, WRITE_TIMEOUT)
        self.pause(self.chance.uniform(1, 6))


def sweep(world: World, store: Store, steps: Sequence[Step], write_timeout: timedelta) -> Report:
    """Sweep once, and note what the audit finds: it must find nothing."""
    report = run_once(
        store,
        scan=DriverScan(store),
        steps=steps,
        write_timeout=write_timeout,
        keep_sinks=timedelta(seconds=30),
    )
    world.note("sweeps")
    for queue in report.queues.values():
        world.journal.alarms += [f"audit: {queue.queue_id}: {each}" for each in queue.findings]
    return report



def _delivery_of(message: Message, begun: datetime, at: datetime) -> Delivery:
    receipt = Receipt.parse(message.receipt)
    return Delivery(
        receipt.queue_id,
        receipt.group,
        receipt.monoton,
        _number_of(message.value),
        receipt.lease,
        message.delivery_count,
        begun,
        at,
        message.lease_until,
    )


def _fate_of(error: BaseException) -> Fate:
    """What an error promises."""
    never = isinstance(error, CassieqError) and (error.retryable or isinstance(error, _NEVER))
    return Fate.NEVER if never else Fate.UNKNOWN


def _number_of(value: bytes) -> int:
    return int(value.partition(b":")[0])


def _home(store: Store, queue: str) -> QueueId | None:
    """The version that a queue has, if it can be used."""
    with suppress(QueueStateError):
        return read_queue(store, queue).queue_id
    return None


def _now() -> datetime:
    """In whole milliseconds, rounded down, as the store's clock is."""
    now = datetime.now(UTC)
    return now.replace(microsecond=to_millis(now) % 1000 * 1000)
