"""The client: puts, receives and settles messages of all queues of a keyspace."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from functools import partial
from types import TracebackType
from typing import Self, Unpack, overload

from cassieq_spark.arguments import AT_ONCE, check_count, check_text
from cassieq_spark.client.calls import Calls
from cassieq_spark.client.exchange import Exchange
from cassieq_spark.client.operations import Operations
from cassieq_spark.client.received import Message, StoredMessage
from cassieq_spark.client.receiver import (
    Receiver,
    Turns,
    check_receive,
    pauses_within,
    peek_messages,
)
from cassieq_spark.client.settling import Settling
from cassieq_spark.errors import OptionError
from cassieq_spark.groups.lease import LeaseRequest
from cassieq_spark.ledger.once import Once, once_of_key
from cassieq_spark.model import Range, SinkBatch
from cassieq_spark.producer.new_message import (
    CheckedMessage,
    Headers,
    NewMessage,
    batches_of,
    check_all,
    check_message,
    message_limit,
    visible_from,
)
from cassieq_spark.producer.producer import (
    DEFAULT_LINGER,
    DEFAULT_MAX_BATCH,
    DEFAULT_MAX_BYTES,
    Producer,
)
from cassieq_spark.producer.publisher import Publisher
from cassieq_spark.queues import read_queue
from cassieq_spark.settings.connection import Connection, connection_options
from cassieq_spark.settings.position import StartingPosition
from cassieq_spark.store import open_store
from cassieq_spark.store.protocol import Store


class Client(Operations, Settling):
    """Puts, receives and settles messages. Safe to use from many threads, and across a fork.

    Each call reads the queue's definition anew, so it sees changes. Leaving the ``with`` closes
    the client.

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
        connection: How to reach Cassandra; see `ConnectionOptions`.

    Raises:
        OptionError: The connection is malformed.
        ConnectError: Nobody answers at the contact points, or the credentials are refused.
        MissingSchemaError: There is no such keyspace, or its tables are of another release.
    """

    def __init__(self, **connection: Unpack[Connection]) -> None:
        self._begin(open_store(connection_options(connection)), closes_store=True)

    @classmethod
    def from_store(cls, store: Store) -> Self:
        """Make a client of a store that stays open when the client is closed: for tests."""
        client = cls.__new__(cls)
        client._begin(store, closes_store=False)  # noqa: SLF001 (our own)
        return client

    def _begin(self, store: Store, *, closes_store: bool) -> None:
        self._store = store
        self._closes_store = closes_store
        self._calls = Calls("client")
        self._turns: Turns = {}

    def put(  # noqa: PLR0913 (each is a property of the message, by name)
        self,
        queue: str,
        value: bytes | str,
        *,
        key: bytes | str | None = None,
        headers: Headers | None = None,
        delay: timedelta | None = None,
        visible_at: datetime | None = None,
    ) -> int:
        """Put one message. One LWT, a write, a few reads; for many messages, use `producer`.

        Args:
            queue: Name of the queue.
            value: Its body; text is stored as UTF-8.
            key: Anything by which the program identifies it.
            headers: Names with values.
            delay: How long after it is published it is delivered, at the earliest.
            visible_at: When it is delivered, at the earliest; aware.

        Returns:
            Its monoton, once it is visible.

        Raises:
            MessageError: The queue does not take such a message.
            OptionError: The delay is out of range, or contradicts the instant.
            QueueStateError: There is no such queue.
            OutcomeUnknownError: The answer was lost, and so was every trace of the outcome.
            StoreError: Cassandra failed. If the error is retryable, the message is not visible
                and never will be.
        """
        new = NewMessage(value, key, headers, delay, visible_at)
        return self._put(queue, [check_message(new, limit=message_limit(queue))])[0]

    @overload
    def put_many(
        self,
        queue: str,
        messages: Iterable[bytes | str | NewMessage],
        *,
        delay: timedelta | None = None,
        visible_at: datetime | None = None,
    ) -> Range: ...

    @overload
    def put_many(
        self,
        queue: str,
        messages: Iterable[bytes | str | NewMessage],
        *,
        delay: timedelta | None = None,
        visible_at: datetime | None = None,
        txn_app_id: str | None = None,
        txn_version: int | None = None,
        idempotency_key: str | None = None,
    ) -> Range | None: ...

    def put_many(  # noqa: PLR0913 (what to put, and how, by name)
        self,
        queue: str,
        messages: Iterable[bytes | str | NewMessage],
        *,
        delay: timedelta | None = None,
        visible_at: datetime | None = None,
        txn_app_id: str | None = None,
        txn_version: int | None = None,
        idempotency_key: str | None = None,
    ) -> Range | None:
        """Put messages that become visible together, or never. One LWT, whatever their number.

        They are written as they come; memory holds one or two chunks of them.

        Args:
            queue: Name of the queue.
            messages: Values, or messages with more than that.
            delay: How long after they are published they are delivered, at the earliest.
            visible_at: When they are delivered, at the earliest; aware.
            txn_app_id: Names the writer. Calls of the same ``txn_version`` publish once.
            txn_version: The number of this call, higher than those before it.
            idempotency_key: Used instead of these two. Calls with the same key publish once; the
                queue remembers the key for a day.

        Returns:
            Their monotons, in order; empty if there were no messages. With ``txn_app_id`` or a
            key, None if the call was published before, so that nothing was written.

        Raises:
            MessageError: The queue does not take one of the messages, or ``messages`` is a single
                message, or one has a delay of its own; nothing is visible.
            OptionError: A delay, or the name of the batch, is not valid.
            BatchChangedError: This version was published before with other messages.
            BatchOrderError: A higher version was published before.
            QueueStateError: There is no such queue.
            NotAppliedError: It took longer than the repair job allows; nothing is visible.
            OutcomeUnknownError: The answer was lost, and so was every trace of the outcome.
        """
        batch = _batch_named(txn_app_id, txn_version, idempotency_key)
        visible = visible_from(delay, visible_at)
        with self._calls:
            publisher = Publisher(self._store, read_queue(self._store, queue))
            checked = check_all(messages, limit=message_limit(queue))
            written = publisher.write(batches_of(checked), batch, visible=visible)
            return publisher.publish([written]).monotons

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
            QueueStateError: There is no such queue.
        """
        return Producer(
            partial(self._put, queue),
            self.queue(queue),
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
    ) -> list[Message]:
        """Lease messages. One LWT, however many they are, and some reads; none if none are there.

        This program holds them until `Message.lease_until`. Messages that are not settled or
        extended by then are delivered again. A call returns either fresh messages or messages that
        are delivered again. A message that was delivered too often is dead-lettered.

        Args:
            queue: Name of the queue.
            group: Name of the consumer group.
            max: Most messages.
            wait: How long to wait for the first message; takes about four reads a second.
            lease: How long they are held; None for the queue's default.
            make_group: Whether to create the group, from the earliest message on, if it does not
                exist.
            max_bytes: About how many bytes of messages, but at least one message; takes two more
                reads. Fresh messages are leased up to this size as they are stored. What exceeds
                it once decompressed is released at once, by one more LWT, and does not count as
                delivered. None for no limit.

        Returns:
            Messages in the order of their monotons; none if none came in time, or if the client
            was closed meanwhile.

        Raises:
            OptionError: A value is out of range.
            QueueStateError: There is no such queue or group, or the group was deleted meanwhile.
            StoreError: Cassandra failed. Messages that were leased are due again, at once if
                possible.
        """
        check_receive(max, wait, lease, max_bytes)
        pauses = pauses_within(wait)
        request = LeaseRequest(
            max_messages=max, lease=lease, max_bytes=max_bytes, max_decoded_bytes=max_bytes
        )
        with self._calls:
            receiver = self.receiver(queue, group, make_group=make_group)
            while True:
                messages = receiver.look(request)
                pause = None if messages else next(pauses, None)
                if pause is None or not self._calls.pause(pause):
                    return messages

    def receiver(self, queue: str, group: str, *, make_group: bool = True) -> Receiver:
        """Make a receiver: it looks once for messages, and does not wait. One read."""
        return Receiver(self._store, self._turns, queue, group, make_group=make_group)

    def exchange(self, queue: str, group: str, *, make_group: bool = True) -> Exchange:
        """Ack and receive for one group by one LWT, again and again; see `Exchange`.

        Args:
            queue: Name of the queue.
            group: Name of the group.
            make_group: Whether to create the group if it does not exist.
        """
        return Exchange(self._store, self._calls, self._turns, queue, group, make_group=make_group)

    def peek(
        self,
        queue: str,
        *,
        max: int = 10,  # noqa: A002 (the word that a user looks for)
        start: StartingPosition = "earliest",
        max_bytes: int | None = None,
    ) -> list[StoredMessage]:
        """Read messages without leasing them, leased and settled ones included. A few reads.

        Args:
            queue: Name of the queue.
            max: Most messages.
            start: Where to begin: at the earliest message that exists, a monoton or an instant.
            max_bytes: About how many bytes of messages, decompressed, but at least one message;
                None for no limit.

        Returns:
            Messages in the order of their monotons.

        Raises:
            OptionError: ``max`` is below 1.
            QueueStateError: There is no such queue, or no such monoton yet.
        """
        with self._calls:
            return peek_messages(
                self._store,
                read_queue(self._store, queue),
                limit=max,
                start=start,
                max_bytes=max_bytes,
            )

    def close(self) -> None:
        """Refuse new calls, wait for those under way, and disconnect; `receive` stops waiting."""
        if self._calls.close() and self._closes_store:
            self._store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _put(self, queue: str, messages: Sequence[CheckedMessage]) -> list[int]:
        with self._calls:
            return Publisher(self._store, read_queue(self._store, queue)).put(messages)


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
                "an idempotency key is not empty, and goes without txn_app_id and txn_version, "
                "not with " + repr((idempotency_key, app, version))
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
