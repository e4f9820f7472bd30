"""The client: puts, receives and settles messages of all queues of a keyspace."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import Protocol, Self, Unpack, overload
from weakref import WeakValueDictionary

import pyarrow as pa

from cassieq_spark.arguments import (
    AT_ONCE,
    check_client_name,
    check_count,
    check_duration,
    check_flag,
    check_instant,
    check_text,
    shown,
)
from cassieq_spark.client.calls import Calls
from cassieq_spark.client.exchange import Exchange
from cassieq_spark.client.receiver import (
    Handed,
    KnownGroups,
    Member,
    QueueReceiver,
    Turns,
    lease_request,
    partition_given,
    peek_messages,
    read_message,
)
from cassieq_spark.client.settling import (
    Action,
    LeaseKey,
    SettleResult,
    by_lease,
    settle_all,
    settle_apart,
    settle_each,
    settling,
)
from cassieq_spark.consumer.consumer import Consumer, Replacements
from cassieq_spark.consumer.lane_reader import LaneReaders
from cassieq_spark.consumer.message import Message, StoredMessage
from cassieq_spark.consumer.prefetch import PrefetchBudget
from cassieq_spark.dead_letters.letters import Filter
from cassieq_spark.dead_letters.purge import PurgeReport, purge
from cassieq_spark.dead_letters.redrive import RedriveReport, redrive
from cassieq_spark.dead_letters.stopped import Resume, Stopped, find_stopped, resume_group
from cassieq_spark.dead_letters.survey import Survey, survey
from cassieq_spark.display import Listing
from cassieq_spark.errors import CassieqError, OptionError, SchemaError
from cassieq_spark.groups.history import HistoryEvent, flush_history, read_history
from cassieq_spark.groups.partitions import create_groups, delete_groups, seek_groups
from cassieq_spark.groups.presence import Presences
from cassieq_spark.groups.rounds import Rounds
from cassieq_spark.groups.settle import Settled
from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.ledger.once import Once, once_of_key
from cassieq_spark.ledger.state import Stored
from cassieq_spark.model import (
    Position,
    Positions,
    QueueDefinition,
    Range,
    Ranges,
    SinkBatch,
    parts_of_id,
    validate_name,
)
from cassieq_spark.parallel import in_parallel
from cassieq_spark.processes import process_name
from cassieq_spark.producer.group_commit import Commits, GroupCommit
from cassieq_spark.producer.new_message import (
    CheckedMessage,
    Headers,
    MessageParts,
    NewMessage,
    Value,
    batches_of,
    check_all,
    check_message,
    message_given,
    visible_from,
)
from cassieq_spark.producer.partitioned import (
    positions_of,
    publish_all,
    put_messages,
    write_messages,
)
from cassieq_spark.producer.producer import (
    DEFAULT_LINGER,
    DEFAULT_MAX_BATCH,
    DEFAULT_MAX_BYTES,
    Producer,
)
from cassieq_spark.producer.publisher import positions_in
from cassieq_spark.queues import (
    ClockRepair,
    QueueNames,
    alter_queue,
    create_queue,
    delete_queue,
    fix_clocks,
    list_queues,
    open_ledgers,
    pause_queue,
    purge_queue,
    read_attributes,
    read_names,
    read_queue,
    read_with_attributes,
    resume_queue,
    set_attributes,
)
from cassieq_spark.queues.stats import GroupStats, QueueStats, read_stats
from cassieq_spark.schedules import (
    Runner,
    Schedule,
    ScheduleProgress,
    alter_schedule,
    create_schedule,
    delete_schedule,
    list_progress,
    pause_schedule,
    read_schedule_progress,
    read_schedules_progress,
    resume_schedule,
    run_now,
)
from cassieq_spark.schemas.assign import arrow_batches
from cassieq_spark.settings.connection import Connection, ConnectionOptions, connection_options
from cassieq_spark.settings.position import StartingPosition
from cassieq_spark.settings.queue import (
    ALTERABLE,
    DEFAULT_MAX_DELIVERIES,
    QUEUE_SETTINGS,
    QueueChanges,
    StoredQueueSettings,
    check_settings,
    dead_letter_queue_of,
    takes,
)
from cassieq_spark.settings.schedule import (
    ScheduleChanges,
    ScheduledValue,
    ScheduleSettings,
    takes_settings,
)
from cassieq_spark.settings.verbs import MessageVerbs, Received
from cassieq_spark.store import open_store
from cassieq_spark.store.protocol import Store

#: How long the end of a client waits for the history of messages to be written.
_FLUSH = timedelta(seconds=1)


@dataclass(slots=True, weakref_slot=True, eq=False)
class Together:
    """What clients of one process share: one LWT carries out what several threads want.

    Attributes:
        commits: The threads that publish to queues.
        rounds: The threads that lease from groups, and that settle.
    """

    commits: Commits = field(default_factory=Commits)
    rounds: Rounds = field(default_factory=Rounds)

    @classmethod
    def of(cls, options: ConnectionOptions) -> Together:
        """The shared state of all clients that connect in the same way, as the same user."""
        return _KNOWN.setdefault(options, cls())


_KNOWN: WeakValueDictionary[ConnectionOptions, Together] = WeakValueDictionary()


class Client(MessageVerbs):
    """Puts, receives and settles messages. Safe to use from many threads, and across a fork.

    Each call reads the definition of the queue again, so it sees changes. Leaving the ``with``
    block closes the client.

    Pickling a client, as in a closure that Spark sends to its tasks, keeps only its settings: the
    copy connects with its first call, and shares the connection with other clients of its process.
    A password that is given as such, and not by reference, is pickled, too.

    Examples:
        >>> from cassieq_spark.store.memory import MemoryStore
        >>> with Client.from_store(MemoryStore()) as client:
        ...     _ = client.create_queue("mail")
        ...     monoton = client.put("mail", "hello")
        ...     for message in client.receive("mail", "senders", max=10):
        ...         print(message.monoton == monoton, message.value)
        ...         _ = client.ack(message)
        True b'hello'

    Args:
        name: The name of the client for people, who see it beside the leases that the client has;
            None: the host and the number of the process.
        connection: How to reach Cassandra; see `ConnectionOptions`.

    Raises:
        OptionError: The name or the connection is malformed.
        ConnectError: Nobody answers at the contact points, or the credentials are refused.
        MissingSchemaError: The keyspace does not exist, or its tables are of another release.
    """

    def __init__(self, *, name: str | None = None, **connection: Unpack[Connection]) -> None:
        checked = None if name is None else check_client_name(name)
        options = connection_options(connection)
        self._begin(open_store(options), options, checked, closes_store=True)

    @classmethod
    def from_store(cls, store: Store, *, name: str | None = None) -> Self:
        """Make a client, for tests, on a store that stays open when the client is closed."""
        checked = None if name is None else check_client_name(name)
        client = cls.__new__(cls)
        client._begin(store, None, checked, closes_store=False)  # noqa: SLF001 (our own)
        return client

    def __repr__(self) -> str:
        reached = type(self._store).__name__
        if self._options is not None:
            reached = f"Cassandra at {self._options.address}, keyspace {self._options.keyspace}"
        named = "" if self._name is None else f" {self._name!r}"
        return f"<{type(self).__name__}{named}: {reached}>"

    def __reduce__(self) -> tuple[Callable[..., Client], tuple[object, ...]]:
        whole = (type(self), self._store, self._options, self._name, self._closes_store)
        return _unpickled, whole

    def _begin(
        self,
        store: Store,
        options: ConnectionOptions | None,
        name: str | None,
        *,
        closes_store: bool,
    ) -> None:
        self._store = store
        self._name = name
        self._closes_store = closes_store
        self._calls = Calls("client", self._disconnect)
        self._options = options
        self._together = Together() if options is None else Together.of(options)
        self._commits = GroupCommit(store, self._together.commits)
        self._turns: Turns = {}
        self._known: KnownGroups = set()
        self._presences = Presences(store)
        self._lanes = LaneReaders(store)

    @overload
    def put(
        self, queue: str, value: Value | NewMessage, **parts: Unpack[MessageParts]
    ) -> Position: ...

    @overload
    def put(
        self,
        queue: str,
        value: Value | NewMessage,
        *,
        idempotency_key: str | None,
        **parts: Unpack[MessageParts],
    ) -> Position | None: ...

    def put(  # noqa: PLR0913 (each is a property of the message, by name)
        self,
        queue: str,
        value: Value | NewMessage,
        *,
        key: bytes | str | None = None,
        headers: Headers | None = None,
        delay: timedelta | None = None,
        visible_at: datetime | None = None,
        unique_id: bytes | str | None = None,
        idempotency_key: str | None = None,
    ) -> Position | None:
        """Put one message. One LWT, one write, a few reads; for many messages, use `producer`.

        Threads of this process that put at the same moment share the LWT.

        Args:
            queue: Name of the queue.
            value: The body; text is stored as UTF-8. If the queue has a schema, a dict of its
                columns, or a JSON object as text. Alternatively a `NewMessage`, without other
                arguments.
            key: Anything by which the program identifies the message. If the queue has several
                partitions, messages with the same key go to the same partition.
            headers: Names with values.
            delay: The shortest time from publication to delivery.
            visible_at: The earliest time of delivery; aware.
            unique_id: If a message with this id and key was published within the queue's time
                (setting ``deduplicate``), this message counts as the same, and is not published.
            idempotency_key: Calls with the same key publish once; the queue remembers the key for
                a day. The message then takes an LWT of its own.

        Returns:
            The position of the message, once it is visible: a number, its monoton in its
            partition. If a message with its unique id existed, the position of the existing
            message. With an idempotency key, None if the message was put before.

        Raises:
            MessageError: The queue does not take this kind of message.
            OptionError: The delay is out of range, or contradicts the instant; or a key, headers,
                a time or a unique id are given beside a `NewMessage`; or a unique id is given, and
                the queue does not deduplicate.
            BatchChangedError: The idempotency key was used for another message.
            QueueStateError: The queue does not exist.
            OutcomeUnknownError: The answer was lost, and no read can show the outcome any more.
            StoreError: Cassandra failed. If the error is retryable, the message is not visible and
                never will be.
        """
        new = message_given(
            value,
            key=key,
            headers=headers,
            delay=delay,
            visible_at=visible_at,
            unique_id=unique_id,
        )
        batch = _batch_named(None, None, idempotency_key)
        with self._calls:
            definition = read_queue(self._store, queue)
            checked = check_message(new, definition)
            if batch is not None:
                return self._put_named(definition, checked, batch)
            (outcome,) = put_messages(self._store, definition, [checked], self._commits.publish)
        if isinstance(outcome, CassieqError):
            raise outcome
        return outcome

    def _put_named(
        self, queue: QueueDefinition, message: CheckedMessage, batch: SinkBatch | Once
    ) -> Position | None:
        rows = batches_of([message], queue)
        written = write_messages(self._store, queue, rows, batch, visible=message.visible)
        published = publish_all(self._store, written, publish=self._commits.publish)
        ((queue_id, outcome),) = published.items()
        if outcome.monotons is None:
            return None
        partition = parts_of_id(queue_id)[2] or 0
        (position,) = positions_in(queue.of_partition(partition), outcome, 1)
        return position

    @overload
    def put_many(
        self,
        queue: str,
        messages: Iterable[Value | NewMessage] | ArrowRows,
        *,
        delay: timedelta | None = None,
        visible_at: datetime | None = None,
    ) -> Range | Positions: ...

    @overload
    def put_many(
        self,
        queue: str,
        messages: Iterable[Value | NewMessage] | ArrowRows,
        *,
        delay: timedelta | None = None,
        visible_at: datetime | None = None,
        txn_app_id: str | None = None,
        txn_version: int | None = None,
        idempotency_key: str | None = None,
    ) -> Range | Positions | None: ...

    def put_many(  # noqa: PLR0913 (what to put, and how, by name)
        self,
        queue: str,
        messages: Iterable[Value | NewMessage] | ArrowRows,
        *,
        delay: timedelta | None = None,
        visible_at: datetime | None = None,
        txn_app_id: str | None = None,
        txn_version: int | None = None,
        idempotency_key: str | None = None,
    ) -> Range | Positions | None:
        """Put several messages atomically: all become visible together, or none does.

        One LWT, whatever their number. If the queue has several partitions, one LWT per partition
        that gets messages, and the messages of each partition become visible together. If the call
        has a name and breaks off, repeating it completes it.

        Threads of this process that put at the same moment share the LWT.

        Messages are written as they are iterated; memory holds one or two chunks of them.

        Args:
            queue: Name of the queue.
            messages: Values, or messages with keys and headers. If the queue has a schema, also
                an Arrow table, or an object that offers one: a DataFrame of pandas, polars or
                DuckDB, or a reader of batches, which are read one by one. The table may have the
                columns ``_key``, ``_headers``, ``_unique_id``, and ``_delay`` or ``_visible_at``.
            delay: The shortest time from publication to delivery, if no column sets it.
            visible_at: The earliest time of delivery; aware; if no column sets it.
            txn_app_id: Names the writer. Calls with the same ``txn_version`` publish once.
            txn_version: The number of this call, higher than the numbers of earlier calls.
            idempotency_key: Used instead of these two. Calls with the same key publish once; the
                queue remembers the key for a day. In a queue with several partitions, one more
                read per partition that gets no message.

        Returns:
            The monotons of the messages that were published now, in order; empty if there were
            none. A message whose unique id existed is left out. With several partitions, the
            monotons by partition. With ``txn_app_id`` or a key, None if the call was published
            before, so that nothing was written.

        Raises:
            MessageError: The queue does not take one of the messages, or ``messages`` is a single
                message, or one has a delay of its own; nothing is visible.
            SchemaError: The columns of a table differ from the queue's, or it has both columns of
                time.
            OptionError: A delay, or the name of the batch, is not valid; or messages are to be
                delayed, in a queue with an order.
            BatchChangedError: This version, or key, was published before with other messages.
            BatchOrderError: A higher version was published before.
            QueueStateError: The queue does not exist.
            NotAppliedError: The call took longer than the repair job allows; nothing is visible.
            OutcomeUnknownError: The answer was lost, and so was every trace of the outcome.
        """
        batch = _batch_named(txn_app_id, txn_version, idempotency_key)
        visible = visible_from(delay, visible_at)
        with self._calls:
            definition = read_queue(self._store, queue)
            batches = _batches_of(messages, definition)
            written = write_messages(self._store, definition, batches, batch, visible=visible)
            published = publish_all(self._store, written, publish=self._commits.publish)
            return positions_of(published)

    def producer(
        self,
        queue: str,
        *,
        linger: timedelta = DEFAULT_LINGER,
        max_batch: int = DEFAULT_MAX_BATCH,
        max_bytes: int = DEFAULT_MAX_BYTES,
    ) -> Producer:
        """Make a producer, which collects the puts of many threads. One read; see `Producer`.

        Args:
            queue: Name of the queue.
            linger: How long the first message of a batch waits for others.
            max_batch: Most messages of a batch.
            max_bytes: Most bytes of a batch, unless it is a single message.

        Raises:
            OptionError: A value is out of range.
            QueueStateError: The queue does not exist.
        """
        return Producer(
            partial(self.queue, queue),
            self._put,
            linger=linger,
            max_batch=max_batch,
            max_bytes=max_bytes,
        )

    def receive(  # noqa: PLR0913 (what to receive, and how, by name)
        self,
        queue: str,
        group: str,
        *,
        max: int = 1,  # noqa: A002 (the word that a user looks for)
        wait: timedelta = AT_ONCE,
        lease: timedelta | None = None,
        make_group: bool = True,
        max_bytes: int | None = None,
        attempt: str | None = None,
    ) -> list[Message]:
        """Lease messages. One LWT for all of them, and some reads; no LWT if none is available.

        Threads of this process that receive or settle for the group at that moment share the LWT.

        If the queue has several partitions, one LWT per partition from which messages are leased.

        This program holds the messages until `Message.lease_until`. Messages that are not settled
        or extended by then are delivered again. Messages that were given back and fresh messages
        come together; messages whose lease ran out come separately, because one of them may have
        been the cause. A message that was delivered too often is dead-lettered.

        In a queue ordered by key, no message comes before all earlier messages of its key are
        settled, or come before it in the same call. Others may get messages of other keys
        meanwhile. The state of the group is read serially. For the keys of the messages ahead, up
        to two reads find their blocks. The ledger tells the lanes of small blocks; of others the
        keys are fetched by one read per bucket.

        Args:
            queue: Name of the queue.
            group: Name of the consumer group.
            max: Most messages.
            wait: How long to wait for the first message; costs about four reads per second.
            lease: How long the lease lasts; None: the queue's lease time.
            make_group: True to create the group, from the earliest message on, if it does not
                exist.
            max_bytes: The approximate size of all messages in bytes, but at least one message;
                costs two more reads. Fresh messages are leased up to this size as stored. Messages
                that exceed the size once decompressed are released at once, by one more LWT, and
                do not count as delivered. None for no limit.
            attempt: A name for this receive. A receive that is repeated under its name, after a
                lost answer, gets the messages that the first one still holds, leased anew and
                counted once, and no others; the receipts of the first one are then stale. Costs
                one more serial read per partition, each time the call looks for messages. The name
                is known for as long as the lease; give each receive a name of its own.

        Returns:
            Messages in the order of their monotons, partition after partition; empty if none came
            in time, or if the client was closed meanwhile.

        Raises:
            OptionError: A value is out of range.
            QueueStateError: The queue or group does not exist, or the group was deleted meanwhile.
            StoreError: Cassandra failed. Messages that were leased are due again: in a minute, and
                count as delivered, if they could not be read; otherwise at once if possible. If
                only one of several partitions failed, messages of the others are returned
                instead.
        """
        request = lease_request(max, wait, lease, max_bytes, attempt)
        with self._calls:
            receiver = self.receiver(queue, group, make_group=make_group)
            return Listing(self._look(receiver, partial(receiver.look, request), wait))

    def receive_table(  # noqa: PLR0913 (what to receive, and how, by name)
        self,
        queue: str,
        group: str,
        *,
        max: int = 10_000,  # noqa: A002 (the word that a user looks for)
        wait: timedelta = AT_ONCE,
        lease: timedelta | None = None,
        make_group: bool = True,
    ) -> pa.Table:
        """Lease messages, as an Arrow table; see `receive`.

        Returns:
            The columns of the queue, and the struct ``_metadata`` with the field ``receipt``, by
            which a message is settled; for a queue without a schema, the columns ``key``,
            ``value``, ``headers``, ``receipt`` and others. No rows if no message came in time.
        """
        request = lease_request(max, wait, lease)
        with self._calls:
            receiver = self.receiver(queue, group, make_group=make_group)
            return self._look(receiver, partial(receiver.look_table, request), wait)

    def _look(
        self, receiver: QueueReceiver, look: Callable[[], Handed], wait: timedelta
    ) -> Handed:
        """Look for messages until some are found, the time is over, or the client is closed."""
        pauses = receiver.pauses(wait)
        while True:
            handed = look()
            pause = None if len(handed) else next(pauses, None)
            if pause is None or not self._calls.pause(pause):
                return handed

    def receiver(self, queue: str, group: str, *, make_group: bool = True) -> QueueReceiver:
        """Make a receiver, whose looks for messages do not wait. One read."""
        return QueueReceiver(self._member(queue, group, make_group=make_group))

    def exchange(
        self,
        queue: str,
        group: str,
        *,
        make_group: bool = True,
        ahead: PrefetchBudget | None = None,
    ) -> Exchange:
        """Make an exchange, which acks and receives for one group by one LWT; see `Exchange`.

        Args:
            queue: Name of the queue.
            group: Name of the group.
            make_group: True to create the group if it does not exist.
            ahead: Limits the bytes read ahead by all exchanges that share it; None: 64 MiB for
                this exchange.

        Raises:
            OptionError: The name of the group is not valid, or an argument is of another type.
        """
        member = self._member(queue, group, make_group=make_group)
        return Exchange(self._calls, member, PrefetchBudget() if ahead is None else ahead)

    def _member(self, queue: str, group: str, *, make_group: bool) -> Member:
        return Member(
            self._store,
            self._turns,
            self._known,
            self._presences,
            self._together.rounds,
            self._lanes,
            # A client that was sent or forked is another process.
            self._name or process_name(),
            queue,
            group,
            make_group,
        )

    def peek(
        self,
        queue: str,
        *,
        max: int = 10,  # noqa: A002 (the word that a user looks for)
        start: StartingPosition = "earliest",
        max_bytes: int | None = None,
    ) -> list[StoredMessage]:
        """Read messages without leasing them, including leased and settled ones. A few reads.

        Args:
            queue: Name of the queue.
            max: Most messages.
            start: Where to begin: at the earliest message that exists, a monoton or an instant.
            max_bytes: The approximate size of all messages in bytes, decompressed, but at least
                one message; None for no limit.

        Returns:
            Messages in the order of their monotons, partition after partition, without unreadable
            ones.

        Raises:
            OptionError: ``max`` is below 1; or ``start`` is a monoton, and the queue has several
                partitions.
            QueueStateError: The queue does not exist, or has no such monoton yet.
        """
        with self._calls:
            found = read_queue(self._store, queue)
            return Listing(
                peek_messages(self._store, found, limit=max, start=start, max_bytes=max_bytes)
            )

    def message(self, queue: str, monoton: int, *, partition: int | None = None) -> StoredMessage:
        """Read one message by its position, even if it is leased or settled. Five reads.

        Args:
            queue: Name of the queue.
            monoton: Its position, as `put` returned it.
            partition: The partition of the message; needed if the queue has several.

        Raises:
            OptionError: The queue has several partitions, and ``partition`` is missing or too
                high.
            NotFoundError: The queue does not exist.
            NotYetError: No message has this position yet.
            DeletedError: The message was settled by every group, or expired, and is deleted.
            UnreadableError: The stored data of the message are damaged.
        """
        with self._calls:
            definition = read_queue(self._store, queue)
            return read_message(self._store, definition, monoton, partition=partition)

    def history(
        self, queue: str, monoton: int, *, partition: int | None = None
    ) -> list[HistoryEvent]:
        """Read who got, extended, released, acked or rejected a message, in order of time.

        Best effort: only what programs did while the queue kept the history (setting ``history``),
        and of that not what was lost with a program that died, or that came too fast. Spark's
        heartbeats, and outcomes before the ack of their batch, are no events. Three reads, and one
        for each group and 2,000 events of the 65,536 messages around it. The newest 200,000 are
        looked through, of each group an equal part.

        Args:
            queue: Name of the queue.
            monoton: Its position, as `put` returned it. The message may be deleted by now.
            partition: The partition that it is in; needed if the queue has several.

        Raises:
            OptionError: The queue has several partitions, and none or no such one is given.
            NotFoundError: There is no such queue.
        """
        with self._calls:
            definition = read_queue(self._store, queue)
            part = partition_given(definition, monoton, partition)
            return Listing(read_history(self._store, part, monoton))

    # -- settling ---------------------------------------------------------------------------------

    def settle(self, *messages: Message | str, action: Action) -> SettleResult:
        """Settle messages, and return the outcome of each receipt; see `ack`.

        If a lease fails, the others are still settled, and the result has the errors.

        Raises:
            MessageError: An argument is neither a message nor a receipt; nothing is settled.
            NotFoundError: One of the queues does not exist; nothing is settled.
            StoreError: One of the queues could not be read; nothing is settled.
        """
        if not isinstance(action, Action):
            raise OptionError(f"action must be an Action, not {shown(action)}")
        leases = by_lease(messages)
        with self._calls:
            settle, rounds = settling(action.settlement_of), self._together.rounds
            return settle_apart(self._store, leases, settle, rounds, self._name)

    def replace(
        self,
        message: Message | str,
        value: Value,
        *,
        key: bytes | str | None = None,
        headers: Headers | None = None,
        delay: timedelta = AT_ONCE,
    ) -> list[str]:
        """Put another message at the end of the queue, and ack this one. Three LWTs; see `ack`.

        Nothing is put if the receipt is stale. A crash half way leaves both messages; so may a
        lease that ends meanwhile, which is logged. The new message does not inherit the key and
        headers of the old one.

        Args:
            message: The message or its receipt.
            value: The body of the new message.
            key: The key of the new message.
            headers: The headers of the new message.
            delay: The shortest time until the new message is delivered.

        Raises:
            MessageError: The queue does not take this kind of message.
            OptionError: The delay is out of range.
        """
        check_duration("delay", delay)
        leases = by_lease([message])
        new = NewMessage(value, key, headers)

        def replace(consumer: Consumer, key: LeaseKey, monotons: Ranges) -> Settled:
            (batch,) = batches_of([check_message(new, consumer.queue)], consumer.queue)
            replaced = Replacements([monotons.start], batch)
            return consumer.replace(key.lease, replaced, deliveries=key.deliveries, delay=delay)

        with self._calls:
            rounds = self._together.rounds
            return settle_each(self._store, leases, replace, rounds, self._name)

    # -- queues, groups and dead letters ----------------------------------------------------------

    @takes(QUEUE_SETTINGS, defaults=True)
    def create_queue(
        self, queue: str, *, drop_dead: bool = False, **settings: Unpack[StoredQueueSettings]
    ) -> QueueDefinition:
        """Create a queue, and its dead-letter queue. One LWT per queue, and one per partition.

        Args:
            queue: Name of the queue.
            drop_dead: Drop dead messages, and have no dead-letter queue.
            settings: The settings of the queue, each by name: `StoredQueueSettings` and
                docs/options.md list them. By default, the dead-letter queue is ``<queue>.dead``.

        Raises:
            OptionError: A value is out of range, or contradicts another one.
            SchemaError: The messages do not fit the dead-letter queue.
            ExistsError: The queue exists already.
        """
        validate_name("queue", queue)
        limit = check_settings(settings).get("max_deliveries", DEFAULT_MAX_DELIVERIES)
        target = dead_letter_queue_of(settings, drop_dead=drop_dead)
        settings["max_deliveries"] = limit
        settings["dead_letter_queue"] = (
            None if drop_dead or not limit else target or f"{queue}.dead"
        )
        with self._calls:
            return create_queue(self._store, queue, **settings)

    @takes(ALTERABLE, defaults=False)
    def alter_queue(
        self, queue: str, *, drop_dead: bool = False, **changes: Unpack[QueueChanges]
    ) -> QueueDefinition:
        """Alter a queue; settings that are not given stay. One LWT and three reads.

        No LWT if no setting changes; one more read with ``max_deliveries``. Running readers and
        writers keep their settings until they are made again.

        Args:
            queue: Name of the queue.
            drop_dead: Drop dead messages from now on; the queue then has no dead-letter queue.
            changes: The settings, each by name: `QueueChanges` and docs/options.md list them. A
                queue without a limit of deliveries gets one only together with
                ``dead_letter_queue`` or ``drop_dead``. A schema is given whole; the dead-letter
                queue is widened, too.

        Returns:
            The queue as it is now.

        Raises:
            OptionError: A value is out of range, or contradicts another one; or a setting can't
                be altered.
            SchemaError: The change is not safe, or messages do not fit the dead-letter queue.
            QueueStateError: The queue does not exist.
        """
        validate_name("queue", queue)
        check_settings(changes, alters=True)
        target = dead_letter_queue_of(changes, drop_dead=drop_dead)
        if drop_dead:
            changes["dead_letter_queue"] = ""
        with self._calls:
            if changes.get("max_deliveries") and target is None and not drop_dead:
                self._check_dead_messages_go_somewhere(queue)
            return alter_queue(self._store, queue, **changes)

    def _check_dead_messages_go_somewhere(self, queue: str) -> None:
        if not read_queue(self._store, queue).max_deliveries:
            raise OptionError(
                f"queue {queue!r} had no limit of deliveries: say where dead messages go, such as "
                f"to {queue}.dead, or that they are dropped"
            )

    def pause_queue(self, queue: str) -> bool:
        """Let readers lease no more messages, from their next batch on; writers go on.

        Readers still ack the messages that they hold. One read, and one LWT and one read per
        partition.

        Returns:
            True if the queue was paused; False if it already was.

        Raises:
            QueueStateError: The queue does not exist.
        """
        with self._calls:
            return pause_queue(self._store, validate_name("queue", queue))

    def resume_queue(self, queue: str) -> bool:
        """Let readers lease messages again; False if the queue was not paused.

        Costs and raises the same as `pause_queue`.
        """
        with self._calls:
            return resume_queue(self._store, validate_name("queue", queue))

    def attributes(self, queue: str) -> dict[str, str]:
        """Read the attributes of a queue, which programs set, such as its team. One read.

        Raises:
            QueueStateError: The queue does not exist.
        """
        with self._calls:
            return read_attributes(self._store, queue)

    def queue_with_attributes(self, queue: str) -> tuple[QueueDefinition, dict[str, str]]:
        """Read the definition and the attributes of a queue together. One read.

        Raises:
            QueueStateError: The queue does not exist.
        """
        with self._calls:
            return read_with_attributes(self._store, queue)

    def set_attributes(self, queue: str, changes: Mapping[str, str | None]) -> dict[str, str]:
        """Set attributes of a queue; others stay. One LWT and two serial reads.

        Attributes mean nothing to this package. A purge keeps them; a deletion does not.

        Args:
            queue: Name of the queue.
            changes: The new values by name; None removes an attribute. Names have at most 200
                characters. A queue has at most 200 attributes, of 64 KiB together.

        Returns:
            All attributes of the queue.

        Raises:
            OptionError: A name or a value is not valid, or the queue would have too many
                attributes.
            QueueStateError: The queue does not exist.
        """
        with self._calls:
            return set_attributes(self._store, validate_name("queue", queue), changes)

    def fix_clocks(
        self, queue: str, *, longest: timedelta | None = None, dry_run: bool = False
    ) -> ClockRepair:
        """Undo the effects on a queue of a server's clock that was ahead, and is right by now.

        Per partition one read, and one LWT if the fence (the publish horizon) is ahead; four reads
        per group, and one LWT per 200 rows that wait. Safe to repeat, and while the queue is in
        use. First stop writers whose own clocks were ahead; see docs/repair.md.

        Args:
            queue: Name of the queue.
            longest: The longest lease or delay of a release that anybody has asked for; messages
                that wait for longer become due. None: one day, or ten leases of the queue if these
                are longer.
            dry_run: Change nothing, only return what would change.

        Raises:
            OptionError: ``longest`` is not above 0.
            ClockError: No server answers whose clock agrees with that of this process.
            QueueStateError: The queue does not exist.
        """
        validate_name("queue", queue)
        check_flag("dry_run", dry_run)
        if longest is not None:
            check_duration("longest", longest, least=timedelta(microseconds=1))
        with self._calls:
            return fix_clocks(self._store, queue, longest=longest, dry_run=dry_run)

    def queue(self, queue: str) -> QueueDefinition:
        """Read the definition of a queue. One read.

        Raises:
            QueueStateError: The queue does not exist.
        """
        with self._calls:
            return read_queue(self._store, queue)

    def stats(self, queue: str) -> QueueStats:
        """Count exactly the messages of a queue, and those owed to each group.

        A few reads per group.

        Raises:
            QueueStateError: The queue does not exist.
        """
        with self._calls:
            return read_stats(self._store, read_queue(self._store, queue))

    def stored(self, queue: str) -> Stored:
        """Count the stored messages, including settled ones, and their bytes.

        One read, and two per partition. See `Ledger.read_stored`.

        Raises:
            QueueStateError: The queue does not exist.
        """
        with self._calls:
            parts = in_parallel(Ledger.read_stored, open_ledgers(self._store, queue))
        return Stored(sum(each.messages for each in parts), sum(each.bytes for each in parts))

    def groups(self, queue: str) -> list[GroupStats]:
        """List the consumer groups of a queue, by name, with their counts; see `stats`."""
        return Listing(self.stats(queue).groups)

    def queues(self, prefix: str = "") -> list[QueueDefinition]:
        """List the queues whose names begin with ``prefix``. Reads the whole table of queues."""
        check_text("prefix", prefix)
        with self._calls:
            return Listing(list_queues(self._store, prefix))

    def queue_names(self, prefix: str = "") -> QueueNames:
        """List names that begin with ``prefix``, including deleted queues. Scans all queues."""
        check_text("prefix", prefix)
        with self._calls:
            return read_names(self._store, prefix)

    def delete_queue(self, queue: str, *, force: bool = False) -> None:
        """Delete a queue, its groups and its messages. Two LWTs, and one more per group.

        The dead-letter queue stays. Repeat a call that broke off. With ``force``, delete the queue
        even if readers hold messages, or if it gets the dead letters of other queues.

        Raises:
            NotFoundError: The queue does not exist.
            QueueStateError: Readers or other queues use the queue.
        """
        validate_name("queue", queue)
        check_flag("force", force)
        with self._calls:
            delete_queue(self._store, queue, force=force)

    def purge_queue(self, queue: str, *, force: bool = False) -> QueueDefinition:
        """Delete all messages of a queue. Five LWTs, and one more per group.

        The queue continues as its next version, with its groups. Repeat a call that broke off.
        With ``force``, purge the queue even if readers hold messages.

        Raises:
            NotFoundError: The queue does not exist.
            QueueStateError: Readers hold messages.
        """
        validate_name("queue", queue)
        check_flag("force", force)
        with self._calls:
            return purge_queue(self._store, queue, force=force)

    def create_group(self, queue: str, group: str, start: StartingPosition = "earliest") -> None:
        """Create a consumer group before its first reader does.

        Two LWTs and a few reads per partition. Repeat a call that broke off; the repeated call
        raises `ExistsError` if the first one had created the group in all partitions.

        Args:
            queue: Name of the queue.
            group: Name of the group.
            start: Where the group begins: "earliest", "latest", a monoton, or an instant.

        Raises:
            OptionError: The name is not valid.
            NotFoundError: The queue does not exist.
            ExistsError: The group exists already.
            QueueStateError: The queue has no such position.
        """
        validate_name("group", group)
        with self._calls:
            create_groups(open_ledgers(self._store, queue), group, start)

    def seek_group(
        self,
        queue: str,
        group: str,
        to: StartingPosition,
        *,
        partition: int | None = None,
        force: bool = False,
    ) -> int:
        """Move a group to another position. Three LWTs and some reads per partition.

        If the call breaks off, the group is moved in some partitions only: repeat the call.

        Args:
            queue: Name of the queue.
            group: Name of the group.
            to: Messages below this position count as settled, the others are delivered. A monoton
                is allowed only if the queue has one partition, or with ``partition``.
            partition: Move the group in this partition only; None: in all partitions.
            force: Move the group even if readers hold messages; the readers lose their leases.

        Returns:
            The monoton of the position; the sum, if the queue has several partitions.

        Raises:
            NotFoundError: The queue or the group does not exist.
            QueueStateError: The queue has no such position, or readers hold messages.
        """
        validate_name("group", group)
        check_flag("force", force)
        with self._calls:
            ledgers = open_ledgers(self._store, queue)
            return seek_groups(ledgers, group, to, partition=partition, force=force)

    def stopped(self, queue: str, group: str) -> list[Stopped]:
        """List the dead messages at which a group has stopped. One read, and three per partition.

        Groups stop only if the queue was created with ``on_dead="stop"``.

        Raises:
            QueueStateError: The queue or the group does not exist.
        """
        validate_name("group", group)
        with self._calls:
            return find_stopped(self._store, read_queue(self._store, queue), group)

    def resume_group(
        self, queue: str, group: str, how: Resume | str, *, partition: int | None = None
    ) -> int:
        """Let a group that has stopped at dead messages continue; see `stopped`.

        Args:
            queue: Name of the queue.
            group: Name of the group.
            how: What happens to the dead messages: with "retry", they are delivered again, and
                their deliveries are counted from 0; with "dead-letter", they go to the dead-letter
                queue; with "drop", they count as settled.
            partition: Resume the group in this partition only; None: in all partitions.

        Returns:
            The number of dead messages.

        Raises:
            OptionError: Groups of the queue do not stop at dead messages, or the queue has no
                dead-letter queue.
            QueueStateError: The queue or the group does not exist, or dead-lettering failed.
        """
        validate_name("group", group)
        with self._calls:
            found = read_queue(self._store, queue)
            return resume_group(self._store, found, group, how, partition=partition)

    def delete_group(self, queue: str, group: str, *, force: bool = False) -> bool:
        """Delete a group; return False if the group did not exist.

        Two LWTs and some reads per partition. With ``force``, delete the group even if readers
        hold messages; the readers lose their leases.

        Raises:
            NotFoundError: The queue does not exist.
            QueueStateError: Readers hold messages.
        """
        validate_name("group", group)
        check_flag("force", force)
        with self._calls:
            return delete_groups(open_ledgers(self._store, queue), group, force=force)

    def dead_letters(  # noqa: PLR0913 (each narrows it down, by name)
        self,
        queue: str,
        *,
        group: str | None = None,
        reason: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        limit: int | None = None,
    ) -> Survey:
        """Find dead letters. Reads the dead-letter queue and changes nothing.

        Args:
            queue: A queue, for the dead letters that come from it; or a dead-letter queue, for
                all dead letters in it.
            group: Only dead letters of this consumer group.
            reason: Only dead letters whose reason contains this text, ignoring case.
            since: Only messages that died at this instant or later.
            until: Only messages that died before this instant.
            limit: Most dead letters, the first ones.

        Raises:
            NotFoundError: The queue does not exist.
            QueueStateError: The queue has no dead-letter queue.
        """
        criteria = Filter(
            group=None if group is None else check_text("group", group),
            reason=None if reason is None else check_text("reason", reason),
            since=None if since is None else check_instant("since", since),
            until=None if until is None else check_instant("until", until),
        )
        with self._calls:
            return survey(self._store, queue, criteria, limit=limit)

    def redrive(  # noqa: PLR0913 (each is a choice of its own, by name)
        self,
        found: Survey,
        *,
        to: str | None = None,
        force: bool = False,
        across_accounts: bool = False,
        drop_columns: bool = False,
        rate: float | None = None,
    ) -> RedriveReport:
        """Publish dead letters again, each once, and settle them. Three LWTs per thousand.

        Args:
            found: The dead letters, as `dead_letters` found them.
            to: Name of the queue to which all of them go; None: each goes back to its source.
            force: Publish them even if the target has other groups, which get them once more.
            across_accounts: Allow queues of another account of the gateway, whose names differ up
                to the first colon.
            drop_columns: Leave out values of columns, and of fields, that the target lacks.
            rate: Most messages per second; None: no limit.

        Raises:
            OptionError: ``to`` is the queue that has the dead letters, or is of another account;
                or the rate is no number, or out of range.
            QueueStateError: A queue does not exist, or has other groups.
            MessageError: A value does not fit its column in the target; or, without
                ``drop_columns``, has no column there. The thousand with this letter, and all later
                ones, stay dead letters.
        """
        _check_survey(found)
        if to is not None:
            validate_name("queue", to)
        check_flag("force", force)
        check_flag("across_accounts", across_accounts)
        check_flag("drop_columns", drop_columns)
        with self._calls:
            return redrive(
                self._store,
                found,
                to=to,
                force=force,
                across_accounts=across_accounts,
                drop_columns=drop_columns,
                rate=rate,
            )

    def purge_dead_letters(self, found: Survey) -> PurgeReport:
        """Settle dead letters for good; the repair deletes them. One LWT for some thousands."""
        _check_survey(found)
        with self._calls:
            return purge(self._store, found)

    # -- schedules --------------------------------------------------------------------------------

    @takes_settings()
    def create_schedule(
        self,
        queue: str,
        name: str,
        message: ScheduledValue,
        **settings: Unpack[ScheduleSettings],
    ) -> Schedule:
        """Create a schedule, which puts a message again and again. One LWT and three serial reads.

        A runner must run: ``cassieq schedule run``, or `schedule_runner`. docs/schedules.md.

        Args:
            queue: Name of the queue.
            name: Name of the schedule; no other of the queue has it.
            message: The body; a dict is stored as JSON. ``{{tick}}``, ``{{local}}``, ``{{date}}``,
                ``{{unix}}``, ``{{schedule}}`` and ``{{queue}}`` stand for what the tick is.
            settings: Either ``cron``, five fields, in a ``zone``; or ``every``, a timedelta of at
                least a second. docs/options.md has the others.

        Raises:
            OptionError: A setting is not valid, or contradicts another one; or the queue has a
                hundred schedules, or 64 KiB of them.
            MessageError, SchemaError: The queue does not take such messages.
            ExistsError: The queue has a schedule of that name.
            QueueStateError: There is no such queue.
        """
        with self._calls:
            return create_schedule(self._store, queue, name, message, **settings)

    def schedules(self, queue: str | None = None) -> list[ScheduleProgress]:
        """List the schedules of a queue, by name, with last tick, next tick and lag.

        One read, and one per partition that has schedules. Without a queue, those of all queues;
        then the first read is of the whole table of queues.

        Raises:
            QueueStateError: There is no such queue.
        """
        with self._calls:
            if queue is not None:
                return Listing(read_schedules_progress(self._store, queue))
            return Listing(list_progress(self._store))

    def schedule(self, queue: str, name: str, *, ticks: int = 5) -> ScheduleProgress:
        """Show a schedule: its last tick, its next ones, and how late it is. Two reads.

        Args:
            queue: Name of the queue.
            name: Name of the schedule.
            ticks: How many of the next ticks to compute.

        Raises:
            NotFoundError: There is no such queue or schedule.
        """
        with self._calls:
            return read_schedule_progress(self._store, queue, name, ticks=ticks)

    @takes_settings(alters=True)
    def alter_schedule(
        self, queue: str, name: str, **changes: Unpack[ScheduleChanges]
    ) -> Schedule:
        """Alter a schedule; settings that are not given stay. Two LWTs and four reads.

        Once this has answered, nothing is put by the old settings any more; what was put ahead
        stays. New times begin now; no tick comes twice. docs/schedules.md.

        Args:
            queue: Name of the queue.
            name: Name of the schedule.
            changes: As of `create_schedule`, and ``message``; ``cron`` replaces ``every``, and the
                reverse. None gives a setting back its default.

        Returns:
            The schedule as it is now.

        Raises:
            OptionError: A setting is not valid, can't be altered or contradicts another one; or
                the schedule would never tick again.
            MessageError, SchemaError: The queue does not take such messages.
            NotFoundError: There is no such queue or schedule.
            StoreError, QueueStateError: The call is safe to repeat.
        """
        with self._calls:
            return alter_schedule(self._store, queue, name, **changes)

    def pause_schedule(self, queue: str, name: str) -> bool:
        """Let a schedule put nothing until it is resumed; False: it was paused already.

        One LWT and two serial reads. A runner learns of it within ten seconds.

        Raises:
            NotFoundError: There is no such queue or schedule.
        """
        with self._calls:
            return pause_schedule(self._store, queue, name)

    def resume_schedule(self, queue: str, name: str) -> bool:
        """Let a paused schedule go on; False: it was not paused. One LWT and three serial reads.

        The ticks of the pause are not made up for.

        Raises:
            NotFoundError: There is no such queue or schedule.
        """
        with self._calls:
            return resume_schedule(self._store, queue, name)

    def run_schedule_now(self, queue: str, name: str) -> Position:
        """Put a message of a schedule at once, also if it is paused. Costs a read and a `put`.

        Its ticks stay as they are.

        Raises:
            NotFoundError: There is no such queue or schedule.
            MessageError, SchemaError: The queue does not take the message any more.
            OutcomeUnknownError: See `put`.
        """
        with self._calls:
            return run_now(self._store, queue, name, self._commits.publish)

    def delete_schedule(self, queue: str, name: str) -> None:
        """Delete a schedule; what it has put stays. One LWT and two serial reads.

        Raises:
            NotFoundError: There is no such queue or schedule.
        """
        with self._calls:
            delete_schedule(self._store, queue, name)

    def schedule_runner(self, *, prefix: str = "") -> Runner:
        """Make a runner, which publishes the ticks of schedules; see `Runner`. No read.

        Any number may run, in any number of programs. End it before the client is closed.

        Args:
            prefix: Only those of queues whose names begin with it.
        """
        return Runner(self._store, prefix=check_text("prefix", prefix))

    # -- the client itself ------------------------------------------------------------------------

    def close(self) -> None:
        """Refuse new calls, wait for calls under way, and disconnect; `receive` stops waiting.

        Within a call of the same thread, as in a signal handler, `close` does not wait: the client
        disconnects when the last call has ended.

        Close producers of the client first: messages that are not published by then fail.
        """
        self._calls.close()

    def _disconnect(self) -> None:
        self._presences.leave()
        flush_history(self._store, _FLUSH)
        if self._closes_store:
            self._store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _put(
        self, queue: QueueDefinition, messages: Sequence[CheckedMessage]
    ) -> list[Position | CassieqError]:
        with self._calls:
            return put_messages(self._store, queue, messages, self._commits.publish)

    def _settle(
        self, verb: str, messages: Sequence[Received | str], value: timedelta | str | None = None
    ) -> list[str]:
        action, leases = Action(verb, value), by_lease(messages)
        with self._calls:
            rounds = self._together.rounds
            return settle_all(self._store, leases, action.settlement_of, rounds, self._name)


def _unpickled(
    kind: type[Client],
    store: Store,
    options: ConnectionOptions | None,
    name: str | None,
    closes_store: bool,
) -> Client:
    """Rebuild a pickled client in this process."""
    client = kind.__new__(kind)
    client._begin(store, options, name, closes_store=closes_store)  # noqa: SLF001 (our own)
    return client


class ArrowRows(Protocol):
    """An object that offers its rows as an Arrow table."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Export the rows as a stream, by Arrow's PyCapsule interface."""


def _batches_of(
    messages: Iterable[Value | NewMessage] | ArrowRows, queue: QueueDefinition
) -> Iterator[pa.RecordBatch]:
    if not (hasattr(messages, "__arrow_c_stream__") or hasattr(messages, "__arrow_c_array__")):
        return batches_of(check_all(messages, queue), queue)
    if queue.schema is None:
        raise SchemaError(
            f"queue {queue.name!r} has no schema, so it takes no tables: put values, or create a "
            "queue with a schema"
        )
    return arrow_batches(messages)


def _batch_named(
    app: str | None, version: int | None, idempotency_key: str | None
) -> SinkBatch | Once | None:
    """The name under which a batch is published once; None if it has no name.

    Spark's batch write with the same ``txnAppId`` and ``txnVersion`` has the same name.

    Raises:
        OptionError: The names are not valid, or do not go together.
    """
    if idempotency_key is not None:
        check_text("idempotency_key", idempotency_key)
    if app is not None:
        check_text("txn_app_id", app)
    if version is not None:
        check_count("txn_version", version, least=0)
    if idempotency_key is not None:
        if not idempotency_key.strip() or app is not None or version is not None:
            raise OptionError(
                "give an idempotency key that is not empty, and without txn_app_id and "
                "txn_version, not " + repr((idempotency_key, app, version))
            )
        return once_of_key(idempotency_key)
    if app is None and version is None:
        return None
    if not app or version is None:
        raise OptionError(
            "txn_app_id and txn_version name a batch together: give a name that is not empty and "
            f"a number from 0 on, or neither, not {app!r} and {version!r}"
        )
    return SinkBatch(f"app:{app}", version)


def _check_survey(found: object) -> None:
    if not isinstance(found, Survey):
        raise OptionError(f"found must be what dead_letters returned, not {shown(found)}")
