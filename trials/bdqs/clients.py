"""Senders and receivers: threads that use clients, in one process or more."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from itertools import count
from multiprocessing import get_context
from random import Random
from typing import Any, Self, TypeVar

from cassieq_spark import Client, Message
from cassieq_spark.errors import CassieqError, ConnectError, OutcomeUnknownError
from cassieq_spark.settings.connection import ConnectionOptions
from cassieq_spark.store import open_store
from cassieq_spark.store.protocol import Store
from trials.bdqs.cells import Cell
from trials.bdqs.journal import Arrival, Call, Journal, body_of, parse_body
from trials.stores import Abandoned, LossyStore, MortalStore

GROUP = "receivers"
#: A cell ends after this time; messages that have not come count as lost.
LIMIT = timedelta(minutes=20)
#: Steps of the store in a cycle of receiving and acking, at which a receiver may die.
_MOMENTS = 16
_IDLE_SECONDS = 0.02
_LOOK_SECONDS = 0.5
_REPEAT_SECONDS = 0.02

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Shift:
    """The queues of a cell for one process; ``seed`` decides what is lost and who dies."""

    cell: Cell
    queues: tuple[str, ...]
    seed: int


def send(store: Store, shift: Shift) -> dict[str, Journal]:
    """Send all messages to these queues; return when they are confirmed."""
    return _work(store, shift, Sending, shift.cell.senders)


def receive(store: Store, shift: Shift) -> dict[str, Journal]:
    """Receive and ack all messages of these queues."""
    return _work(store, shift, Receiving, shift.cell.receivers)


class Work:
    """The work of several threads on one queue; ``store`` loses nothing."""

    def __init__(self, store: Store, shift: Shift, queue: str) -> None:
        self.store = store
        self.cell = shift.cell
        self.queue = queue
        self.journal = Journal()
        self.deadline = time.monotonic() + LIMIT.total_seconds()

    def run(self, number: int, chance: Random) -> None:
        raise NotImplementedError

    def close(self) -> None:
        """Called when all threads have ended."""

    def lossy(self, chance: Random) -> Store:
        """The store for one thread."""
        return LossyStore(self.store, chance, self.cell.lost) if self.cell.lost else self.store

    def insist(self, call: Callable[[], _T]) -> _T:
        """Repeat a call until it succeeds.

        Raises:
            CassieqError: It cannot succeed, or the cell has taken too long.
        """
        while True:
            try:
                return call()
            except CassieqError as error:
                passing = error.retryable or isinstance(error, OutcomeUnknownError | ConnectError)
                if not passing or time.monotonic() > self.deadline:
                    raise
                self.journal.repeated[type(error).__name__] += 1
                time.sleep(_REPEAT_SECONDS)


class Sending(Work):
    """The senders of a queue; they share the numbers of messages."""

    def __init__(self, store: Store, shift: Shift, queue: str) -> None:
        super().__init__(store, shift, queue)
        self._tags = count()
        self._client = Client.from_store(store)
        self._producer = self._client.producer(queue) if self.cell.gathered else None

    def run(self, number: int, chance: Random) -> None:
        client = Client.from_store(self.lossy(chance))
        for version in range(self.cell.messages):
            content = chance.randbytes(self.cell.body_bytes)
            tag = next(self._tags)
            body = body_of(tag, content)
            began = time.monotonic()
            if self._producer is not None:
                gathered = self._producer.put(body)
                gathered.add_done_callback(partial(self._note_gathered, tag, began))
                continue
            if self.cell.named:
                name: dict[str, Any] = {"txn_app_id": f"sender-{number}", "txn_version": version}
                self.insist(partial(client.put_many, self.queue, [body], **name))
            else:
                self.insist(partial(client.put, self.queue, body))
            self._note(tag, began)
            time.sleep(self.cell.send_pause.total_seconds())

    def close(self) -> None:
        if self._producer is not None:
            self._producer.close()
        self._client.close()

    def _note_gathered(self, tag: int, began: float, monoton: Future[int]) -> None:
        if monoton.exception() is None:
            self._note(tag, began)

    def _note(self, tag: int, began: float) -> None:
        self.journal.puts.append(Call(began, time.monotonic()))
        self.journal.sent.append(tag)


class Receiving(Work):
    """The receivers of a queue; they end when the group has settled everything."""

    def __init__(self, store: Store, shift: Shift, queue: str) -> None:
        super().__init__(store, shift, queue)
        self._lock = threading.Lock()
        self._acked: set[int] = set()
        self._done = False
        self._next_look = 0.0

    def run(self, number: int, chance: Random) -> None:
        del number
        while not self._done:
            mortal = MortalStore(self.lossy(chance), chance, lifetime=None)
            try:
                self._live(mortal, chance)
            except Abandoned:
                self.journal.deaths += 1

    def _live(self, mortal: MortalStore, chance: Random) -> None:
        client = Client.from_store(mortal)
        idle = False
        while not self._done:
            doomed = not idle and chance.random() < self.cell.killed
            if doomed:
                mortal.kill(after=chance.randrange(1, _MOMENTS))
            began = time.monotonic()
            messages = self.insist(
                lambda: client.receive(
                    self.queue, GROUP, max=self.cell.batch, lease=self.cell.lease
                )
            )
            if messages:
                self.journal.receives.append(Call(began, time.monotonic(), len(messages)))
                self._process(client, messages)
            if doomed:
                raise Abandoned
            idle = not messages
            if idle:
                self._look()
                time.sleep(_IDLE_SECONDS)

    def _process(self, client: Client, messages: Sequence[Message]) -> None:
        for message in messages:
            self.journal.arrivals.append(
                Arrival(time.monotonic(), message.monoton, parse_body(message.value))
            )
            time.sleep(self.cell.receive_pause.total_seconds())
        began = time.monotonic()
        stale = set(self.insist(lambda: client.ack(*messages)))
        acked = {message.monoton for message in messages if message.receipt not in stale}
        self.journal.acks.append(Call(began, time.monotonic(), len(acked)))
        with self._lock:
            self._acked |= acked
            self._done |= len(self._acked) == self.cell.senders * self.cell.messages

    def _look(self) -> None:
        """Check now and then whether all is acked, as receivers that died cannot tell."""
        with self._lock:
            now = time.monotonic()
            if self._done or now < self._next_look:
                return
            self._next_look = now + _LOOK_SECONDS
            groups = Client.from_store(self.store).stats(self.queue).groups
            self._done = now > self.deadline or any(group.depth == 0 for group in groups)


def _work(
    store: Store, shift: Shift, kind: type[Sending | Receiving], threads: int
) -> dict[str, Journal]:
    """Run threads for each queue, and return the journals; raises the first error of a thread."""
    works = [kind(store, shift, queue) for queue in shift.queues]
    failures: list[BaseException] = []
    seeds = Random(shift.seed)

    def run(work: Work, number: int, seed: float) -> None:
        chance = Random(seed)
        try:
            work.run(number, chance)
        except BaseException as failure:  # noqa: BLE001 (any error makes the cell invalid)
            failures.append(failure)

    workers = [
        threading.Thread(target=run, args=(work, number, seeds.random()))
        for number in range(threads)
        for work in works
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    for work in works:
        work.close()
    if failures:
        raise failures[0]
    return {work.queue: work.journal for work in works}


Phase = Callable[[Store, Shift], dict[str, Journal]]


class Crew:
    """Carries out the shifts of a phase, here one after the other in this process."""

    size = 1

    def __init__(self, store: Store) -> None:
        self._store = store

    def work(self, phase: Phase, shifts: Sequence[Shift]) -> dict[str, Journal]:
        """Carry out up to `size` shifts; returns the journal of each queue."""
        return {queue: each for s in shifts for queue, each in phase(self._store, s).items()}


class Processes(Crew):
    """A crew of processes during a ``with`` block, each with a connection of its own."""

    def __init__(self, connection: ConnectionOptions, size: int) -> None:
        self.size = size
        self._connection = connection
        self._held = ExitStack()
        self._members: list[ProcessPoolExecutor] = []

    def __enter__(self) -> Self:
        for _ in range(self.size):
            # A pool of several could give two shifts of a phase to one process.
            member = ProcessPoolExecutor(
                1, get_context("spawn"), initializer=_connect, initargs=(self._connection,)
            )
            self._members.append(self._held.enter_context(member))
        return self

    def __exit__(self, *_: object) -> None:
        self._held.close()

    def work(self, phase: Phase, shifts: Sequence[Shift]) -> dict[str, Journal]:
        futures = [
            member.submit(_carry_out, phase, shift)
            for member, shift in zip(self._members, shifts, strict=False)
        ]
        return {queue: each for future in futures for queue, each in future.result().items()}


_stores: list[Store] = []


def _connect(connection: ConnectionOptions) -> None:
    # Losses are intended, so they are not logged.
    logging.getLogger("cassieq_spark").setLevel(logging.CRITICAL)
    _stores.append(open_store(connection))


def _carry_out(phase: Phase, shift: Shift) -> dict[str, Journal]:
    return phase(_stores[0], shift)
