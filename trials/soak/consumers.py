"""Consumers of a soak: clients, and readers like those of streaming queries."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from itertools import chain
from typing import Any
from uuid import UUID

from cassieq_spark import Client, Message
from cassieq_spark.arrow.receipts import Receipt
from cassieq_spark.arrow.rows import PlainRows
from cassieq_spark.client import LeaseRequest
from cassieq_spark.client.exchange import RoundResult
from cassieq_spark.errors import QueueStateError
from cassieq_spark.fetch.read import fetch
from cassieq_spark.model import QueueId, Ranges
from cassieq_spark.queues import read_queue
from cassieq_spark.settings import SourceOptions
from cassieq_spark.spark.source.offsets import (
    initial_offset,
    initial_offset_of_queues,
    leases_of,
    split_queues,
)
from cassieq_spark.spark.source.queue_reader import QueueReader
from cassieq_spark.spark.source.selection import read_selected
from trials.soak.actors import CLIENTS, QUEUE_KINDS, READERS, Actor, World, now
from trials.soak.checker import Delivery, Outcome, Put, Settle


class ClientConsumer(Actor):
    """Receives by the client, and settles in all ways."""

    #: How many clients share the requests.
    clients = 1

    def begin(self) -> None:
        self._clients = [Client.from_store(self.store) for _ in range(self.clients)]

    @property
    def client(self) -> Client:
        """The client for the next request."""
        return self.chance.choice(self._clients)

    def act(self) -> None:
        queue = self.chance.choice(QUEUE_KINDS).name
        lease = timedelta(seconds=self.chance.uniform(1, 5))
        begun = now()
        messages = self.client.receive(
            queue, CLIENTS, max=self.chance.choice((1, 20, 300)), lease=lease
        )
        at = now()
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
        begun = now()
        # If it fails, both messages may be there.
        self.world.journal.puts.append(Put(number, Outcome.UNKNOWN, None, None, begun))
        self._settle(lambda old: self.client.replace(old, value), [message], settles=False)

    def _settle(
        self, settle: Callable[..., list[str]], part: Sequence[Message], *, settles: bool
    ) -> None:
        begun = now()
        stale: list[str] | None = None
        try:
            stale = settle(*part)
        finally:
            self._note_settle(part, stale, begun, now(), settles=settles)

    def _note_settle(
        self,
        part: Sequence[Message],
        stale: Sequence[str] | None,
        begun: datetime,
        done: datetime,
        *,
        settles: bool,
    ) -> None:
        """Record a settlement; ``stale`` is None if it failed."""
        leases: dict[UUID, set[int]] = {}
        for message in part:
            receipt = Receipt.parse(message.receipt)
            leases.setdefault(receipt.lease, set())
            if stale is None or message.receipt not in stale:
                leases[receipt.lease].add(receipt.monoton)
        self.world.journal.settles += [
            Settle(lease, frozenset(monotons), begun, done, settles and stale is not None)
            for lease, monotons in leases.items()
        ]
        self.world.note("stale receipts", len(stale or ()))


class BalancedConsumer(ClientConsumer):
    """Uses two gateways behind a balancer; each acks and leases by one LWT.

    Each has an exchange for every queue. Messages of one are mostly settled by the other, or by a
    client that does not know them.
    """

    clients = 2

    def begin(self) -> None:
        super().begin()
        self._desks = [
            {kind.name: client.exchange(kind.name, CLIENTS) for kind in QUEUE_KINDS}
            for client in self._clients
        ]
        self._held: dict[str, list[Message]] = {kind.name: [] for kind in QUEUE_KINDS}

    def act(self) -> None:
        if self.chance.random() < 0.3:
            super().act()
            return
        queue = self.chance.choice(QUEUE_KINDS).name
        if self.world.ending.is_set():
            # Messages of a strictly ordered queue that it holds delay all others.
            queue = next((name for name, held in self._held.items() if held), queue)
        # The messages leave the list before the round, as the round may fail.
        done, self._held[queue] = self._held[queue], []
        limit, begun = self.chance.choice((1, 10, 50)), now()
        desk = self.chance.choice(self._desks)[queue]
        told: RoundResult | None = None
        try:
            lease = timedelta(seconds=self.chance.uniform(1, 5))
            request = LeaseRequest(max_messages=limit, lease=lease)
            told = desk.round([Receipt.parse(each.receipt) for each in done], request)
        finally:
            at = now()
            stale = None if told is None else [str(each) for each in told.stale]
            self._note_settle(done, stale, begun, at, settles=True)
        if told.error is not None:
            raise told.error
        self.world.journal.deliveries += [_delivery_of(each, begun, at) for each in told.messages]
        self._held[queue] = told.messages
        self.world.note("rounds at a gateway")
        if not told.messages:
            self.pause(0.05)


class QueryReader(Actor):
    """Reads as the source of a streaming query does; its offsets and commits outlive it.

    Args:
        world: What all actors share.
        name: Its name.
        lifetime: See `Actor`.
        queues: The queue; or several, by a pattern. One of several that is deleted or purged is
            left, and the query goes on with the same log.
    """

    def __init__(self, world: World, name: str, lifetime: int | None, *queues: str) -> None:
        super().__init__(world, name, lifetime)
        self._queues = queues
        self._done: Mapping[str, Any]
        self._planned: Mapping[str, Any] | None
        self._restart()

    def begin(self) -> None:
        try:
            self._length = timedelta(seconds=self.chance.uniform(2, 5))
            request = LeaseRequest(lease=self._length)
            pattern = "|".join(self._queues)
            options = SourceOptions(queue_pattern=pattern, group=READERS, fail_on_data_loss=False)
            queue = read_queue(self.store, self._queues[0]) if self._reads_one else None
            self._reader = QueueReader(
                self.store,
                queue,
                READERS,
                starting="earliest",
                fail_on_data_loss=self._reads_one,
                request=request,
                select=None if queue else partial(read_selected, self.store, options),
            )
        except QueueStateError:
            self.pause(0.2)
            raise
        #: The messages of the batch in hand, by lease, and how many leases were lost before.
        self._held: tuple[dict[UUID, set[int]], int] | None = None
        #: The end of the batch that this reader has leased, unlike one of an earlier reader.
        self._leased: Mapping[str, Any] | None = None

    @property
    def _reads_one(self) -> bool:
        return len(self._queues) == 1

    def act(self) -> None:
        try:
            if self._planned is None:
                self._next()
            if self._planned is None:
                self.pause(0.05)
            else:
                self._process(self._planned)
                if self.chance.random() < 0.03 and not self.world.ending.is_set():
                    self._stop()
                    return
                self._done, self._planned = self._planned, None
        except QueueStateError:
            if self._reads_one:
                # Purged or deleted: begin another query, with another log.
                self._restart()
            raise

    def _restart(self) -> None:
        self._done = initial_offset_of_queues(READERS)
        if self._reads_one:
            self._done = initial_offset(self._queues[0], READERS)
        self._planned = None

    def _next(self) -> None:
        begun, held = now(), self._held
        limit = self.chance.choice((5, 50, None))
        end = self._reader.next_batch(self._done, limit=limit)
        self._held, self._asked = None, begun
        if held is not None and held[0].keys() == set(_leases_of(self._done).values()):
            lost = (self._reader.report() or {}).get("lost_leases", 0)
            whole = lost == held[1]
            self.world.journal.settles += [
                Settle(lease, frozenset(monotons), begun, now(), settled=whole)
                for lease, monotons in held[0].items()
            ]
            self.world.note("batches acked" if whole else "batches whose lease was lost")
        if end != self._done:
            self._planned = self._leased = end

    def _process(self, end: Mapping[str, Any]) -> None:
        begun = now()
        replayed = self._held is None and self._leased != end
        leases = _leases_of(end)
        left_out = {
            queue_id: _monotons_of(part) if replayed else set[int]()
            for queue_id, part in _parts_of(end).items()
        }
        try:
            tasks = self._reader.tasks(end, messages_per_task=50)
            for part in chain.from_iterable(tasks):
                left_out[part.queue.queue_id] -= {
                    piece.first_monoton + at
                    for piece in part.pieces
                    for at in range(len(piece.offsets))
                }
        finally:
            # A replay may have only a part of a batch that has failed before.
            self.world.journal.settles += [
                Settle(leases[queue_id], frozenset(monotons), begun, now(), settled=False)
                for queue_id, monotons in left_out.items()
            ]
        if replayed:
            self.world.note("batches replayed")
            self._asked = begun
        if len(leases) > 1:
            self.world.note("batches of several queues")
        lost = (self._reader.report() or {}).get("lost_leases", 0)
        held: dict[UUID, set[int]] = {lease: set() for lease in leases.values()}
        self._held = held, lost
        if self.chance.random() < 0.1:
            self.pause(self.chance.uniform(0, 6))
        for part in chain.from_iterable(tasks):
            lease = leases[part.queue.queue_id]
            as_rows = PlainRows(part.queue.name, receipt_prefix=part.receipt_prefix)
            found = fetch(self.store, part.queue, part.pieces, as_rows)
            names = ["monoton", "value", "delivery_count"]
            rows = [row for batch in found for row in batch.select(names).to_pylist()]
            at = now()
            held[lease].update(row["monoton"] for row in rows)
            self.world.journal.deliveries += [
                Delivery(
                    part.queue.queue_id,
                    READERS,
                    row["monoton"],
                    _number_of(row["value"]),
                    lease,
                    row["delivery_count"],
                    self._asked,
                    at,
                    self._asked + self._length,
                )
                for row in rows
            ]

    def _stop(self) -> None:
        begun = now()
        # Recorded before the call, as others may get them before it returns.
        self.world.journal.settles += [
            Settle(lease, None, begun, begun, settled=False)
            for lease in ([] if self._held is None else self._held[0])
        ]
        self._reader.stop()
        self.world.note("queries stopped")
        self.begin()


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


def _parts_of(end: Mapping[str, Any]) -> Mapping[QueueId, Mapping[str, Any]]:
    """The part of each queue in a batch."""
    return split_queues(end, READERS)


def _leases_of(end: Mapping[str, Any]) -> dict[QueueId, UUID]:
    """The lease of a batch in each queue; none before the first batch."""
    return {queue_id: lease for queue_id, _, lease in leases_of(end)}


def _monotons_of(end: Mapping[str, Any]) -> set[int]:
    """The messages of a queue in a batch, when it was leased."""
    ranges = [part for _, text, _ in end["ranges"] for part in Ranges.parse(text)]
    return {at for part in ranges for at in range(part.start, part.stop)}


def _number_of(value: bytes) -> int:
    return int(value.partition(b":")[0])
