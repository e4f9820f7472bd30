"""One history of a queue: a client, a gateway, a stream, an operator and the repair use it."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import cycle
from types import SimpleNamespace
from typing import Any, Self

import pyarrow as pa
import pytest

from cassieq_spark import Client, NewMessage
from cassieq_spark.arrow.receipts import Receipt
from cassieq_spark.arrow.rows import metadata_of, rows_of
from cassieq_spark.client import exchange as exchange_module
from cassieq_spark.consumer import idle_backoff
from cassieq_spark.consumer.consumer import Consumer, Replacements
from cassieq_spark.consumer.message import Message, StoredMessage, stored_messages
from cassieq_spark.dead_letters.stopped import Resume
from cassieq_spark.errors import BatchChangedError, BatchOrderError, QueueStateError
from cassieq_spark.fetch.read import fetch
from cassieq_spark.groups.presence import Presence
from cassieq_spark.groups.state import Settlement
from cassieq_spark.ledger import window as window_module
from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.ledger.window import UniqueWindows
from cassieq_spark.model import OnDead, Order, QueueDefinition, Range, Ranges
from cassieq_spark.producer.new_message import batches_of, check_message
from cassieq_spark.queues import alter_queue
from cassieq_spark.repair.scan import DriverScan
from cassieq_spark.repair.steps import run_once
from cassieq_spark.spark.sink import message_writer
from cassieq_spark.spark.source import queue_reader
from cassieq_spark.spark.source.offsets import initial_offset, initial_offset_of_queues
from cassieq_spark.spark.source.queue_reader import QueueReader
from cassieq_spark.spark.source.selection import Selection
from tests.property.features.beside import BESIDE, Beside, write_to_both
from tests.property.features.model import GROUP, QUEUE, REDRIVES, At, Content, Model
from tests.support.builders import make_clocked_store
from tests.support.gateway import RECEIPTS, InProcess
from tests.support.repeatable import repeatable

LEASE = timedelta(seconds=60)
SECOND = timedelta(seconds=1)
MINUTES = timedelta(minutes=10)
NOTHING = timedelta(0)
#: For how long a unique id is unique.
UNIQUE_FOR = 2 * LEASE
#: Longer than any lease, delay, or pause before something is tried again.
LONG = timedelta(hours=1)
FIRST = initial_offset(QUEUE, GROUP)
FIRST_OF_BOTH = initial_offset_of_queues(GROUP)


class History:
    """A client, a gateway, a stream, an operator and the repair, at one queue."""

    def __init__(  # noqa: PLR0913 (each is a feature of its own)
        self,
        *,
        typed: bool,
        partitions: int,
        in_order: bool,
        strict: bool,
        stops: bool,
        drops: bool,
        max_deliveries: int,
        expire_after: timedelta | None,
        keep_settled: timedelta | None,
        delay: timedelta | None,
        several: bool,
    ) -> None:
        self.memory, self.clock = make_clocked_store()
        self.patch = repeatable(self.clock)
        # What a gateway knows is as old as can be, but not from before an alteration.
        self.seconds = 0.0
        self.patch.setattr(exchange_module, "monotonic", lambda: self.seconds)
        self.patch.setattr(window_module, "time", SimpleNamespace(monotonic=self.clock.seconds))
        for pause in ("LONGEST_PAUSE", "SHORTEST_PAUSE", "RECHECK"):
            self.patch.setattr(idle_backoff, pause, NOTHING)
        self.client = Client.from_store(self.memory)
        self.gateway = InProcess(self.memory).__enter__()
        self.by_http = self.gateway.queue("q")
        self.model = Model(self.memory, self.clock)
        order = "none" if not in_order else "strict" if strict and partitions == 1 else "key"
        # A reader looks at all partitions at once, and each time which queues there are.
        self.patch.setattr(Presence, "share", lambda it: frozenset(range(it._queue.partitions)))
        self.patch.setattr(queue_reader, "FIND_QUEUES", NOTHING)
        windows = UniqueWindows()
        self.patch.setattr(message_writer, "_windows_of", lambda _: windows)
        self.patch.setattr(message_writer, "open_store", lambda _: self.memory)
        self.columns = ["number bigint not null", "text string"] if typed else []
        self.client.create_queue(
            QUEUE,
            lease=LEASE,
            max_deliveries=max_deliveries,
            drop_dead=drops,
            order=order,
            partitions=partitions,
            on_dead="stop" if stops and in_order else "continue",
            expire_after=expire_after,
            keep_settled=keep_settled,
            delay=delay,
            deduplicate=UNIQUE_FOR,
            schema=", ".join(self.columns) or None,
        )
        self.client.create_group(QUEUE, GROUP)
        self.count = 0
        self.columns_ever = 0
        #: What was received and may be held; what was settled or lost.
        self.received: list[Message] = []
        #: The number of the last receive by the client, under which it is repeated.
        self.attempt = 0
        self.spent: list[Message] = []
        #: Idempotency keys that are used, with what was put under them, by who has used them.
        self.keys: dict[tuple[bool, str], list[NewMessage]] = {}
        self.versions: list[list[NewMessage]] = []
        #: When a message of each key and unique id was published last.
        self.unique: dict[tuple[Any, Any], datetime] = {}
        #: All that were begun, so that none outlives its history.
        self.readers: list[QueueReader] = []
        #: What was written to both queues as one batch, batch by batch.
        self.routed: list[list[tuple[str, NewMessage]]] = []
        #: The second queue of the stream; None if it reads one.
        self.beside = (
            Beside(self.client, self.memory, self.clock, typed=typed) if several else None
        )
        self._begin_stream()

    # -- putting --------------------------------------------------------------------------------

    def _new(
        self, keys: Sequence[str | None], ids: Sequence[str | None] = (None,)
    ) -> list[NewMessage]:
        found = []
        for key, unique_id in zip(keys, cycle(ids), strict=False):
            headers = {"h": str(self.count)} if self.count % 2 else None
            value = self._value(self.count)
            found.append(NewMessage(value, key, headers, unique_id=unique_id))
            self.count += 1
        return found

    def _value(self, number: int, columns: Sequence[str] | None = None) -> Any:
        columns = self.columns if columns is None else columns
        if not columns:
            return b"%d" % number
        names = [each.split()[0] for each in columns]
        texts = {name: f"{name} {number}" for name in names if number % 3}
        return dict.fromkeys(names) | texts | {"number": number}

    def put(
        self,
        keys: list[str | None],
        ids: list[str | None],
        delay: timedelta,
        *,
        by_http: bool,
    ) -> None:
        """The queue publishes no message whose unique id was published within the window."""
        messages, delay = self._new(keys, ids), self._possible(delay)
        told = (
            self.by_http.put_many(messages, delay=delay)
            if by_http
            else self.client.put_many(QUEUE, messages, delay=delay)
        )
        fresh = self._fresh(messages)
        assert len(told) == len(fresh)
        self._is_put(fresh, {"HTTP"} if by_http else set(), delay=delay)

    def _fresh(self, messages: Sequence[NewMessage]) -> list[NewMessage]:
        fresh = []
        for each in messages:
            name = (each.key, each.unique_id)
            if each.unique_id is not None:
                at = self.unique.get(name)
                if at is not None and self.clock.now < at + UNIQUE_FOR:
                    continue
                self.unique[name] = self.clock.now
            fresh.append(each)
        return fresh

    def put_under_a_key(
        self,
        keys: list[str],
        ids: list[str | None],
        name: str,
        delay: timedelta,
        *,
        by_http: bool,
    ) -> None:
        """A put that is repeated with the same messages publishes nothing."""
        repeated, delay = self.keys.get((by_http, name)), self._possible(delay)
        if repeated and not self._fit(repeated):
            return
        messages = self._new(keys, ids) if repeated is None else repeated
        told = (
            self.by_http.put_many(messages, delay=delay, idempotency_key=name)
            if by_http
            else self.client.put_many(QUEUE, messages, delay=delay, idempotency_key=name)
        )
        assert (told is None) is (repeated is not None)
        self.keys[by_http, name] = messages
        features = {"idempotency keys"} | ({"HTTP"} if by_http else set())
        self._is_put([] if repeated else self._fresh(messages), features, delay=delay)

    def put_a_version(
        self,
        keys: list[str],
        ids: list[str | None],
        back: int,
        delay: timedelta,
        *,
        changed: bool,
    ) -> None:
        """A batch is published once; after a later one, or with other messages, it is refused."""
        at, delay = len(self.versions) - back, self._possible(delay)
        if at < 0:
            return
        is_new = not back
        messages = self._new(keys, ids) if is_new else self.versions[at]
        if not self._fit(messages):
            return
        if is_new:
            self.versions.append(messages)
        elif changed:
            messages = [replace(each, value=self._value(self.count)) for each in messages]
        expected = BatchOrderError if back == 2 else BatchChangedError if changed else None
        named: Any = {"txn_app_id": "app", "txn_version": at}
        if expected is not None and not is_new:
            with pytest.raises(expected):
                self.client.put_many(QUEUE, messages, delay=delay, **named)
        else:
            told = self.client.put_many(QUEUE, messages, delay=delay, **named)
            assert (told is not None) is is_new
        fresh = self._fresh(messages) if is_new else []
        self._is_put(fresh, {"unique batches"}, delay=delay)

    def _fit(self, messages: Sequence[NewMessage]) -> bool:
        """Whether the queue has all their columns still."""
        names = {each.split()[0] for each in self.columns}
        return not names or all(each.value.keys() <= names for each in messages)

    def _possible(self, delay: timedelta) -> timedelta:
        return NOTHING if self.model.queue.order is not Order.NONE else delay

    def _is_put(
        self, messages: Sequence[NewMessage], features: set[str], *, delay: timedelta = NOTHING
    ) -> list[At]:
        places = self.model.publish(
            [content_of(each) for each in messages],
            delay=delay,
            touched=[features | ({"unique ids"} if it.unique_id else set()) for it in messages],
        )
        self.model.look()
        return places

    # -- two queues -----------------------------------------------------------------------------

    def put_beside(self, keys: list[str | None]) -> None:
        """Put messages into the second queue."""
        if self.beside is None:
            return
        messages = []
        for key in keys:
            messages.append(NewMessage(self._value(self.count, self.beside.columns), key))
            self.count += 1
        self.client.put_many(BESIDE, messages)
        self.beside.model.publish([content_of(each) for each in messages])
        self.beside.model.look()

    def write_to_both(self, keys: list[str], which: list[int], *, again: bool) -> None:
        """A batch of Spark's, each row to the queue that it names; repeated, it does nothing."""
        if self.beside is None:
            return
        both = {each.split()[0] for each in self.columns} & self.beside.names
        if again and self.routed:
            rows, expected = self.routed[-1], list[tuple[str, NewMessage]]()
            if not rows or (self.columns and not {*rows[0][1].value} <= both):
                return
        else:
            shared = [each for each in self.columns if each.split()[0] in both]
            rows = []
            for number, key in enumerate(keys):
                to = [QUEUE, BESIDE][which[number % len(which)] % 2]
                rows.append((to, NewMessage(self._value(self.count, shared), key)))
                self.count += 1
            self.routed.append(rows)
            expected = rows
        write_to_both(rows, len(self.routed))
        touches = {"several queues", "unique batches"}
        for model in (self.model, self.beside.model):
            own = [content_of(each) for to, each in expected if to == model.name]
            model.publish(own, touched=[touches] * len(own))
            model.look()

    def make_anew(self) -> None:
        """The second queue is deleted, and another one is created: the stream goes on with it."""
        if self.beside is not None:
            self.beside.make_anew()
            # The new queue knows no batch of the old one.
            self.routed.append([])

    def alter_beside(self, *, adds: bool) -> None:
        """The second queue gets a column, or loses one: the stream goes on."""
        if self.beside is not None:
            self.beside.alter(adds=adds)
            self.beside.model.look()

    # -- receiving and settling -----------------------------------------------------------------

    def receive(self, most: int, *, by_http: bool) -> None:
        """Receive; by the client, under a name."""
        self.attempt += not by_http
        self._receive(most, by_http=by_http)

    def receive_again(self, most: int) -> None:
        """Repeat the last receive of the client."""
        self._receive(most, by_http=False)

    def _receive(self, most: int, *, by_http: bool) -> None:
        attempt = str(self.attempt)
        self._tick()
        if by_http:
            found = [self._as_client(each) for each in self.by_http.receive(GROUP, max=most)]
        else:
            found = self.client.receive(QUEUE, GROUP, max=most, attempt=attempt)
        if by_http or not self.model.is_handed_over_again(found, attempt):
            assert len(found) <= most
            self.model.hand_out(found, [each.receipt for each in found], "HTTP" if by_http else "")
            if not by_http:
                self.model.attempts[attempt] = {
                    (each.partition, each.monoton): {each.receipt} for each in found
                }
        receipts = {each.receipt for each in found}
        self.received = [each for each in self.received if each.receipt not in receipts] + found
        self.model.look()

    def _tick(self) -> None:
        """No message is handed out twice at the same instant; see I9."""
        self.clock.advance(timedelta(milliseconds=1))

    def _as_client(self, message: Message) -> Message:
        """A message as the client gives it, with the receipt that the pop receipt stands for."""
        value, receipt = message.value, str(RECEIPTS.parse(message.receipt, QUEUE))
        return replace(
            message, value=json.loads(value) if self.columns else value, receipt=receipt
        )

    def settle(self, fate: str, which: list[int], by: timedelta, *, by_http: bool) -> None:
        if not self.received:
            self.receive(3, by_http=by_http)
        chosen = self._choose(which)
        if not chosen:
            return
        door: Any = self.by_http if by_http else self.client
        given = [RECEIPTS.of(each.receipt) if by_http else each.receipt for each in chosen]
        if by_http and any(not self.model.is_of_now(each) for each in chosen):
            return
        new: list[NewMessage] = []
        if fate == "replace":
            chosen, given = chosen[:1], given[:1]
            (message,) = self._new(["a"])
            new = [NewMessage(message.value, message.key)]
            stale = door.replace(given[0], message.value, key=message.key)
        else:
            name, named = {
                "ack": ("ack", {}),
                "release": ("release", {}),
                "release later": ("release", {"delay": by}),
                "extend": ("extend", {"by": by}),
                "reject": ("reject", {"reason": "bad"}),
            }[fate]
            stale = getattr(door, name)(*given, **named)
        told = {each.receipt for each, sent in zip(chosen, given, strict=True) if sent in stale}
        live = self.model.live(chosen, told)
        if fate != "extend":
            self.spent += [each for each in chosen if each in self.received]
            self.received = [each for each in self.received if each not in chosen]
        for at in live:
            self.model.puts[at].touched |= {"HTTP"} if by_http else set()
        self._is_settled(fate, live, by)
        if fate == "replace":
            self.model.publish(
                [content_of(each) for each in new] if live else [], touched=[{"replace"}]
            )
        self.model.look(must=live if fate in {"ack", "replace"} else ())

    def _is_settled(self, fate: str, live: Sequence[At], by: timedelta) -> None:
        for at in live:
            put = self.model.puts[at]
            if fate == "extend":
                self.model.held[at] = (self.model.held[at][0], self.clock.now + by)
                self.model.extended.add(self.model.held[at][0])
                put.touched.add("extend")
                continue
            del self.model.held[at]
            if fate == "reject":
                self.model.may_die.add(at)
            elif fate == "release later":
                self.model.waits[at] = self.clock.now + by
            elif fate == "replace":
                put.touched.add("replace")

    def _choose(self, which: Sequence[int]) -> list[Message]:
        """Some of the messages that were received last, or one whose receipt is spent."""
        if self.spent and not self.received[-1 - which[0] :]:
            return [self.spent[-1 - which[0] % len(self.spent)]]
        return [self.received[-1 - number] for number in {*which} if number < len(self.received)]

    # -- a stream -------------------------------------------------------------------------------

    def _start(self) -> None:
        queue, select = self.began_with
        self.reader = QueueReader(
            self.memory,
            queue,
            GROUP,
            # A query that goes on begins with a new queue at its first message all the same.
            starting="earliest" if self.done in (FIRST, FIRST_OF_BOTH) else "latest",
            fail_on_data_loss=select is None,
            with_receipts=True,
            select=select,
        )
        self.readers.append(self.reader)

    def _begin_stream(self) -> None:
        """A new query: another checkpoint, and the definitions of the queues as they are now."""
        self.began_with: tuple[QueueDefinition | None, Selection | None] = (self.model.queue, None)
        self.columns_read: pa.Schema | None = None
        self.done: Mapping[str, Any] = FIRST
        if self.beside is not None:
            select, self.columns_read = self.beside.selection()
            self.began_with = (None, select)
            self.done = FIRST_OF_BOTH
            self.beside.running = {}
        self._start()
        self.running: dict[At, str] = {}
        self.recorded: dict[At, tuple[str, timedelta]] = {}

    @property
    def _known(self) -> QueueDefinition:
        """The definition of the queue that the stream reads by."""
        return next(each for each in self.reader.queues if each.name == QUEUE)

    def trigger(self, limit: int | None) -> None:
        """The batch before is acked, as far as it is held, and the next one is leased."""
        self._tick()
        try:
            end = self.reader.next_batch(self.done, limit=limit)
        except QueueStateError:
            assert self.beside is None
            assert self._known.queue_id != self.model.queue.queue_id
            self._begin_stream()
            return
        self._is_acked()
        if end is not self.done:
            self.done = end
            self.shown: dict[tuple[str, int, int], int] = {}
            self._run_batch()
        self._look()

    def _look(self) -> None:
        self.model.look()
        if self.beside is not None:
            self.beside.model.look()

    def _is_acked(self) -> None:
        """What is recorded for the batch is carried out; what is not is acked."""
        must: set[At] = set()
        may: set[At] = set()
        for at, receipt in self.running.items():
            holder, until = self.model.held.get(at, ("", self.clock.now))
            if holder != receipt:
                continue
            is_certain = until >= self.clock.now
            fate, by = self.recorded.get(at, ("ack", NOTHING))
            if at in self.recorded:
                self.model.puts[at].touched.add("settle-with-batch")
            if fate in {"ack", "replace"}:
                (must if is_certain else may).add(at)
            elif is_certain:
                self._is_settled(fate, [at], by)
            else:
                # Whether it was carried out shows by what is stored.
                may |= {at}
                self.model.may_die |= {at} if fate == "reject" else set()
                del self.model.held[at]
        self.running, self.recorded = {}, {}
        self.model.look(must=must, may=may)
        if self.beside is not None:
            self.beside.is_acked()

    def _run_batch(self) -> None:
        found: defaultdict[str, list[tuple[StoredMessage, str]]] = defaultdict(list)
        for parts in self.reader.tasks(self.done, messages_per_task=3):
            for part in parts:
                rows = rows_of(part.queue, columns=self.columns_read)
                for batch in fetch(self.memory, part.queue, part.pieces, rows):
                    counts = metadata_of(batch, "delivery_count").to_pylist()
                    for each, count in zip(stored_messages([batch]), counts, strict=True):
                        receipt = f"{part.receipt_prefix}{each.monoton}"
                        found[part.queue.name].append((each, receipt))
                        self._is_counted(each, count)
        self.running, self.recorded = self._hand_out(self.model, found[QUEUE]), {}
        if self.beside is not None:
            self.beside.running = self._hand_out(self.beside.model, found[BESIDE])
            for at in self.running:
                self.model.puts[at].touched.add("several queues")

    def _hand_out(self, model: Model, found: Sequence[tuple[StoredMessage, str]]) -> dict[At, str]:
        messages, receipts = [each for each, _ in found], [receipt for _, receipt in found]
        model.hand_out(messages, receipts, "streams")
        places = [(each.partition, each.monoton) for each in messages]
        return dict(zip(places, receipts, strict=True))

    def _is_counted(self, message: StoredMessage, count: int) -> None:
        """The rows of a batch show the count of the group, and those of a replay the same one."""
        at = (message.partition, message.monoton)
        model = self.model if message.queue == QUEUE or self.beside is None else self.beside.model
        shown = self.shown.setdefault((message.queue, *at), count)
        assert shown == count, (message, "a replay has another count")
        assert count <= model.stored().deliveries[at], (message, count)

    def record(self, fates: list[str], which: list[int], by: timedelta) -> None:
        """Say what becomes of messages of the batch, once it is acked."""
        if not self.running:
            self.trigger(None)
        if not self.running:
            return
        places = sorted(self.running)
        chosen = dict.fromkeys(places[number % len(places)] for number in which)
        for number, at in enumerate(chosen):
            held, until = self.model.held.get(at, ("", self.clock.now))
            if held == self.running[at] and until >= self.clock.now and at not in self.recorded:
                self._record(fates[number % len(fates)], at, by)
        self.model.look()

    def _record(self, fate: str, at: At, by: timedelta) -> None:
        receipt = Receipt.parse(self.running[at])
        part = self._known.by_partition[at[0]]
        consumer = Consumer(self.memory, part, GROUP)
        one = Ranges.of(Range(at[1], at[1] + 1))
        token, count = receipt.lease, receipt.deliveries
        if fate == "replace":
            (message,) = self._new(["b"])
            new = NewMessage(self._fitting(message.value), "b")
            (batch,) = batches_of([check_message(new, part)], part)
            told = consumer.replace(
                token, Replacements([at[1]], batch), deliveries=count, with_batch=True
            )
            self.model.publish([content_of(new)], touched=[{"replace"}])
            self.model.puts[at].touched.add("replace")
        else:
            settlement = {
                "ack": Settlement(acked=one),
                "release": Settlement(released={NOTHING: one}),
                "release later": Settlement(released={by: one}),
                "extend": Settlement(extended={by: one}),
                "reject": Settlement(rejected={"bad": one}),
            }[fate]
            told = consumer.settle(token, settlement, deliveries=count, with_batch=True)
        assert (told.count, told.stale.count) == (1, 0)
        self.recorded[at] = (fate, by)

    def _fitting(self, value: Any) -> Any:
        """Without columns that came since the query began."""
        if not self.columns:
            return value
        schema = self._known.schema
        assert schema is not None
        known = {each.split()[0] for each in schema.split(", ")}
        return {name: it for name, it in value.items() if name in known}

    def crash(self) -> None:
        """Spark replays the batch in a new process; what was recorded for it counts no more."""
        beside = self.beside is not None and self.beside.running
        if self.beside is None and self._known.queue_id != self.model.queue.queue_id:
            return
        if not self.running and not beside:
            return
        self._let_go()
        self._start()
        self._run_batch()
        self._look()

    def _let_go(self) -> None:
        """What the stream runs is held no more."""
        for at, receipt in self.running.items():
            if self.model.held.get(at, ("",))[0] == receipt:
                del self.model.held[at]
        if self.beside is not None:
            self.beside.let_go()

    def stop(self) -> None:
        """The query ends; what it holds is due at once."""
        self.reader.stop()
        self._let_go()
        self._begin_stream()
        self._look()

    # -- operators, the repair, time ------------------------------------------------------------

    def seek(self, to: Any) -> None:
        partition = 0 if isinstance(to, int) else None
        before = self.model.stored()
        heads = [each.next for each in self._heads()]
        if isinstance(to, int):
            to = min(max(to, before.finalised[0]), heads[0])
        self.client.seek_group(QUEUE, GROUP, to, partition=partition, force=True)
        moved = range(len(heads)) if partition is None else [0]
        owed = {at for at in self.model.owed if at[0] not in moved}
        for number in moved:
            start = before.finalised[number] if to == "earliest" else heads[number]
            start = to if isinstance(to, int) else start
            owed |= {(number, monoton) for monoton in range(start, heads[number])}
        if owed != self.model.owed:
            self.model.features.add("seek")
        self.model.owed = owed
        self.model.marked = {at for at in self.model.marked if at[0] not in moved}
        for at in [at for at in self.model.held if at[0] in moved]:
            del self.model.held[at]
        for at in [at for at in self.model.puts if at[0] in moved]:
            self.model.may_die.discard(at)
            self.model.waits.pop(at, None)
        self.running = {at: each for at, each in self.running.items() if at[0] not in moved}
        assert self.model.stored().alive == owed
        self.model.look()

    def _heads(self) -> list[Any]:
        return [
            Ledger(self.memory, each.queue_id).read_head()
            for each in self.model.queue.by_partition
        ]

    def purge(self, *, by_http: bool) -> None:
        """The queue goes on as another version, with its group and its sinks."""
        if by_http:
            self.by_http.purge(force=True)
        else:
            self.client.purge_queue(QUEUE, force=True)
        if self.model.puts:
            self.model.features.add("purge")
        self.model.begin_version()
        self.keys.clear()
        self.unique.clear()
        self.running, self.recorded = {}, {}
        self.model.look()

    def alter(self, what: str, number: int) -> None:
        """Streams go on with what they know; see `_begin_stream`."""
        columns = [*self.columns]
        match what:
            case "add" if columns and len(columns) < 6:
                self.columns_ever += 1
                columns.append(f"c{self.columns_ever} string")
            case "drop" if len(columns) > 1:
                columns.pop(1)
        before = self.model.queue
        match what:
            case "expire":
                changes: dict[str, Any] = {"expire_after": MINUTES * number}
            case "keep":
                changes = {"keep_settled": MINUTES * number}
            case "on dead" if before.order is not Order.NONE:
                changes = {"on_dead": ["stop", "continue"][number]}
            case "deliveries":
                changes = {"max_deliveries": 3 + 3 * number}
            case "add" | "drop" if columns != self.columns:
                changes = {"schema": ", ".join(columns)}
            case _:
                return
        after = alter_queue(self.memory, QUEUE, **changes)
        self.columns = columns
        self.seconds += 1
        if after != before:
            self.model.features.add("alter")
        if what in {"on dead", "deliveries"}:
            self.stop()
        self.model.look()

    def redrive(self, *, by_http: bool) -> None:
        """Each letter is published once, where its key belongs, and is counted as redriven."""
        if not self.model.open_letters:
            self.settle("reject", [0, 1], NOTHING, by_http=by_http)
        if self.model.queue.dead_letter_queue is None or not self.model.open_letters:
            return
        letters = [self.model.letters[each] for each in sorted(self.model.open_letters)]
        if by_http:
            told = self.by_http.redrive(self.by_http.dead_letters(), drop_columns=True)
        else:
            told = self.client.redrive(self.client.dead_letters(QUEUE), drop_columns=True)
        assert (sum(told.redriven.values()), told.missed) == (len(letters), 0)
        self.model.open_letters.clear()
        expected, touched = [], []
        for each in letters:
            headers = dict(each.content.headers)
            count = int(headers.pop(REDRIVES, None) or 0) + 1
            expected.append(replace(each.content, headers=headers | {REDRIVES: str(count)}))
            touched.append(each.touched | {"redrive"} | ({"HTTP"} if by_http else set()))
        self.model.publish(expected, touched=touched, in_order=False)
        self.model.look()

    def resume(self, how: Resume, *, by_http: bool) -> None:
        queue = self.model.queue
        if not self.model.marked:
            self.settle("reject", [0], NOTHING, by_http=by_http)
        if queue.on_dead is not OnDead.STOP or not self.model.marked:
            return
        # The gateway drops nothing.
        by_http = by_http and how is not Resume.DROP
        if how is Resume.DEAD_LETTER and queue.dead_letter_queue is None:
            return
        marked = {*self.model.marked}
        found = self.by_http.stopped(GROUP) if by_http else self.client.stopped(QUEUE, GROUP)
        assert {
            (each.partition or 0, monoton)
            for each in found
            for some in each.monotons
            for monoton in range(some.start, some.stop)
        } == marked
        if by_http:
            count = self.by_http.resume_group(GROUP, how)
        else:
            count = self.client.resume_group(QUEUE, GROUP, how)
        assert count == len(marked)
        if how is Resume.RETRY:
            self.model.owed |= marked
            self.model.may_die -= marked
            self.model.marked = set()
        self.model.look(may=marked if how is Resume.DROP else ())
        for at in marked:
            self.model.puts[at].touched |= {"on-dead stop"} | ({"HTTP"} if by_http else set())

    def repair(self, after: timedelta) -> None:
        """What nobody is owed and nothing keeps is deleted; what is kept can be read."""
        self.clock.advance(after)
        queue, before = self.model.queue, self.model.stored().finalised
        report = run_once(self.memory, scan=DriverScan(self.memory))
        assert not report.failed, report.queues
        self._look()
        if queue.keep_settled is None:
            return
        since = self.clock.now - queue.keep_settled
        finalised = self.model.stored().finalised
        for at, put in self.model.puts.items():
            is_young = put.visible_from > since and at[1] >= before[at[0]]
            if is_young and at not in self.model.owed | self.model.marked:
                assert at[1] >= finalised[at[0]], (at, "was to be kept")
                put.touched.add("keep-settled")
        self._check_readable()

    def _check_readable(self) -> None:
        """Whatever is not finalised can be read as it was put."""
        found = {
            (each.partition, each.monoton): each for each in self.client.peek(QUEUE, max=10_000)
        }
        finalised = self.model.stored().finalised
        kept = {at: put for at, put in self.model.puts.items() if at[1] >= finalised[at[0]]}
        assert found.keys() == kept.keys()
        for at, put in kept.items():
            assert put.content.is_in(found[at], self.model.columns)

    def time_passes(self, by: timedelta) -> None:
        self.clock.advance(by)

    # -- the end --------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for each in self.readers:
            each.stop()
        self.gateway.__exit__()
        self.client.close()
        self.patch.undo()

    def end(self) -> None:
        """Everything that is owed is delivered, or dead-lettered, and then deleted."""
        self.stop()
        for _ in range(10 + 4 * len(self.model.puts)):
            if not self.model.owed | self.model.marked:
                break
            self.clock.advance(LONG)
            self.receive(100, by_http=False)
            live = self.model.live(self.received, self.client.ack(*self.received))
            self._is_settled("ack", live, NOTHING)
            self.model.look(must=live)
            self.received.clear()
            if self.model.marked and self.model.queue.on_dead is OnDead.STOP:
                self.resume(Resume.DROP, by_http=False)
        assert not self.model.owed | self.model.marked, "is not delivered"
        if self.beside is not None:
            self.beside.drain()
        self.repair(LONG)
        heads = self._heads()
        assert [each.finalised for each in heads] == [each.next for each in heads]


def content_of(message: NewMessage) -> Content:
    """What is to come out of the queue."""
    key = message.key.encode() if isinstance(message.key, str) else message.key
    return Content(message.value, key, dict(message.headers or {}))
