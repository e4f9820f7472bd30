"""The producer: collects many small puts, from many threads, into few publishes."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, wait
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import takewhile
from typing import NamedTuple, Self

from cassieq_spark.arguments import check_count, check_duration
from cassieq_spark.errors import CassieqError, QueueStateError
from cassieq_spark.model import Position, QueueDefinition
from cassieq_spark.processes import StaysHere
from cassieq_spark.producer.blocks import FINEST, MOST_TIMES
from cassieq_spark.producer.new_message import (
    CheckedMessage,
    NewMessage,
    Value,
    Visible,
    check_message,
)
from cassieq_spark.queues import CACHED_FOR, check_delayable

logger = logging.getLogger(__name__)

#: A batch of a producer could not be published; its futures have the error.
PUBLISH_FAILED = "producer.publish_failed"
#: A callback of a future has raised an error that ends threads; the producer continues.
CALLBACK_FAILED = "producer.callback_failed"

DEFAULT_LINGER = timedelta(milliseconds=5)
DEFAULT_MAX_BATCH = 10_000
DEFAULT_MAX_BYTES = 8 << 20
#: How long the thread of a producer waits for the next message, as starting a thread per put is
#: slow. A program that ends waits for it.
_IDLE = timedelta(milliseconds=100)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

#: Gives messages of a queue their monotons; those of one partition all at once or not at all.
Publish = Callable[[QueueDefinition, Sequence[CheckedMessage]], Sequence[Position | CassieqError]]


class Producer(StaysHere):
    """Collects messages that many threads put into batches; each batch is one LWT.

    A batch is published when its first message has waited for ``linger``, when it is full, or by
    `flush`. One batch is published at a time, so messages get their monotons in the order of their
    puts. Meanwhile the next batch fills; when it is full as well, `put` waits. The end of the
    producer's ``with`` publishes the rest.

    A batch reads the queue unless it was read within a tenth of a second. If the queue is altered,
    the waiting messages are published with the columns that the queue had, and later messages are
    checked for its new columns. If the queue was purged, or created again, messages are put into
    the new version.

    Made by `Client.producer`. Safe to use from several threads. A forked process begins with an
    empty batch: the parent publishes its own messages.

    Args:
        read: Reads the queue.
        publish: Publishes a batch.
        linger: How long the first message of a batch waits for others.
        max_batch: Maximum number of messages of a batch.
        max_bytes: Maximum number of bytes of a batch, unless it has a single message.

    Raises:
        OptionError: A value is out of range.
    """

    _instead = "send the client, and make a producer where it is used"

    def __init__(
        self,
        read: Callable[[], QueueDefinition],
        publish: Publish,
        *,
        linger: timedelta = DEFAULT_LINGER,
        max_batch: int = DEFAULT_MAX_BATCH,
        max_bytes: int = DEFAULT_MAX_BYTES,
    ) -> None:
        check_duration("linger", linger)
        check_count("max_batch", max_batch)
        check_count("max_bytes", max_bytes)
        self._read, self._put = read, publish
        self._definition = read()
        self._read_at = time.monotonic()
        self.queue = name = self._definition.name
        self._new_batcher = partial(_Batcher, self._publish, name, linger, max_batch, max_bytes)
        self._batchers: dict[int, _Batcher] = {}

    def put(self, message: Value | NewMessage) -> Future[Position]:
        """Put a message into the next batch; waits while there is no room for it.

        The future's callbacks run in the producer's thread and delay its next batch: they must not
        wait for a future of this producer. They cannot end the thread, not even by `SystemExit`.
        `put`, `flush` and `close` do not wait in a callback, or in a signal handler that
        interrupts a method of this producer.

        Args:
            message: A value; or a `NewMessage`, which may have a key, headers, a delay and a
                unique id. A time of delivery is rounded up to a second.

        Returns:
            A future of the position, a number, the monoton; or of the error if the batch could not
            be published. If a message with its unique id existed, the position of that message.

        Raises:
            MessageError: The queue does not take such a message.
            OptionError: The delay is not valid, or the queue is strictly ordered and accepts none.
            CassieqError: The producer is closed.
        """
        queue = self._definition
        try:
            checked = _checked(message, queue)
        except CassieqError:
            # The queue may have been altered since the last batch.
            queue = self._read_anew()
            checked = _checked(message, queue)
        return self._batcher.add(queue, checked)

    def try_put(self, message: Value | NewMessage) -> Future[Position] | None:
        """Put a message as `put` does, but never wait: None if there is no room for it now.

        The message is checked for the queue as it was last read, whereas `put` reads the queue
        before it refuses a message.
        """
        queue = self._definition
        return self._batcher.try_add(queue, _checked(message, queue))

    def flush(self) -> None:
        """Publish all messages that were put until now, and wait for the outcome.

        Raises:
            CassieqError: A batch since the last flush could not be published, and the program has
                not asked its futures; the first such error.
        """
        self._batcher.flush()

    def close(self) -> None:
        """Refuse further messages, publish the rest, and wait for the outcome; see `flush`.

        In a callback, or in a signal handler that interrupts `put`, the call does not wait: the
        producer's thread publishes the rest, and Python waits for that thread before it ends.
        """
        self._batcher.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _: object, error: object, __: object) -> None:
        try:
            self.close()
        except CassieqError:
            # It is in the log, and the error that ends the ``with`` comes first.
            if error is None:
                raise

    def _read_anew(self) -> QueueDefinition:
        began = time.monotonic()
        if (found := self._read()) != self._definition:
            self._definition = found
        self._read_at = began
        return self._definition

    def _publish(
        self, queue: QueueDefinition, messages: Sequence[CheckedMessage]
    ) -> Sequence[Position | CassieqError]:
        """Publish messages that were checked for a definition of the queue."""
        is_fresh = time.monotonic() < self._read_at + CACHED_FOR.total_seconds()
        now = self._definition if is_fresh else self._read_anew()
        outcomes = list(self._publish_into(now, queue, messages))
        # The queue was purged, deleted or created again since it was read.
        refused = [at for at, each in enumerate(outcomes) if isinstance(each, QueueStateError)]
        if refused:
            again = self._publish_again(queue, [messages[at] for at in refused])
            for at, outcome in zip(refused, again, strict=True):
                outcomes[at] = outcome
        return outcomes

    def _publish_again(
        self, queue: QueueDefinition, messages: Sequence[CheckedMessage]
    ) -> Sequence[Position | CassieqError]:
        """Publish messages that an earlier version refused, into the present version."""
        try:
            return self._publish_into(self._read_anew(), queue, messages)
        except CassieqError as error:
            return [error] * len(messages)

    def _publish_into(
        self, now: QueueDefinition, queue: QueueDefinition, messages: Sequence[CheckedMessage]
    ) -> Sequence[Position | CassieqError]:
        if now.version == queue.version:
            # Writers go on with the schema that they began with.
            return self._put(queue, messages)
        has_delays = any(message.visible is not None for message in messages)
        has_ids = any(message.unique_id is not None for message in messages)
        is_other = now.schema != queue.schema or (has_delays and now.is_ordered)
        if is_other or (has_ids and now.deduplicate is None):
            raise QueueStateError(
                f"queue {self.queue!r} was deleted, and created again with another schema or "
                f"order, or without unique ids, while {len(messages)} messages waited for their "
                "publish; they are not published: put them again as the new queue takes them"
            )
        return self._put(now, messages)

    @property
    def _batcher(self) -> _Batcher:
        pid = os.getpid()
        return self._batchers.get(pid) or self._batchers.setdefault(pid, self._new_batcher())


def _checked(message: Value | NewMessage, queue: QueueDefinition) -> CheckedMessage:
    """Refuse a message that would fail its whole batch."""
    checked = check_message(message, queue)
    if checked.visible is None:
        return checked
    check_delayable(queue)
    return checked._replace(visible=_rounded(checked.visible))


def _rounded(visible: datetime | timedelta) -> datetime | timedelta:
    """Rounded up to whole seconds, as each time of delivery needs a block of its own."""
    if isinstance(visible, datetime):
        over = (visible - _EPOCH) % FINEST
        return visible + (FINEST - over) % FINEST
    return -(-visible // FINEST) * FINEST


class _Put(Future[Position]):
    """The monoton of a message, once it is published; until then `cancel` takes it back."""

    #: True if the program asked for the outcome, and so knows of an error.
    asked = False

    def result(self, timeout: float | None = None) -> Position:
        self.asked = True
        return super().result(timeout)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        self.asked = True
        return super().exception(timeout)


class _Waiting(NamedTuple):
    """A message that waits for its publish, and the definition for which it was checked."""

    queue: QueueDefinition
    message: CheckedMessage
    put: _Put


@dataclass(slots=True)
class _Batcher:
    """The batches of a producer in one process, and the thread that publishes them.

    One batch fills while another one is being published. See `Producer` for the arguments.
    """

    publish: Publish
    queue: str
    linger: timedelta
    max_batch: int
    max_bytes: int
    _changed: threading.Condition = field(default_factory=threading.Condition)
    _filling: list[_Waiting] = field(default_factory=list)
    _times: set[Visible] = field(default_factory=set)
    _bytes: int = 0
    _first_at: float = 0.0
    _under_way: list[_Put] = field(default_factory=list)
    _failed: list[_Put] = field(default_factory=list)
    _hurry: bool = False
    _closed: bool = False
    # There while there are messages, and a moment longer. Python waits for it before it ends, so
    # no message is lost without a `close`.
    _worker: threading.Thread | None = None
    # The threads that are within a method of this object.
    _inside: set[int] = field(default_factory=set)

    def add(self, queue: QueueDefinition, message: CheckedMessage) -> Future[Position]:
        with self._entered() as is_nested, self._changed:
            while not (self._closed or self._has_room(message) or is_nested):
                self._send_off()
                self._changed.wait()
            return self._added(queue, message)

    def try_add(self, queue: QueueDefinition, message: CheckedMessage) -> Future[Position] | None:
        with self._entered(), self._changed:
            if self._closed or self._has_room(message):
                return self._added(queue, message)
            self._send_off()
            return None

    def flush(self) -> None:
        with self._entered() as is_nested:
            with self._changed:
                if self._filling:
                    self._send_off()
                outstanding = [*self._under_way, *(each.put for each in self._filling)]
            if not is_nested:
                self._wait_for(outstanding)

    def close(self) -> None:
        with self._entered() as is_nested:
            with self._changed:
                self._closed = True
                self._changed.notify_all()
                outstanding = [*self._under_way, *(each.put for each in self._filling)]
                worker = self._worker
            if is_nested:
                return
            if worker is not None and worker.is_alive():
                worker.join()
            self._wait_for(outstanding)

    @contextmanager
    def _entered(self) -> Iterator[bool]:
        """Mark this thread as within a method; yield True if it was within one before.

        In that case it is a callback, or a signal handler, which may interrupt any step. It must
        not wait: it may hold the lock, or publish, and would wait for itself.
        """
        me = threading.get_ident()
        is_nested = me in self._inside
        self._inside.add(me)
        try:
            yield is_nested
        finally:
            if not is_nested:
                self._inside.discard(me)

    def _wait_for(self, outstanding: Sequence[_Put]) -> None:
        """Wait for the outcomes, and raise the first error that the program has not asked for."""
        wait(outstanding)
        with self._changed:
            failed, self._failed = self._failed, []
        for put in failed:
            if not put.asked and (error := put.exception()) is not None:
                raise error

    def _run(self) -> None:
        """Publish batch after batch until no message has come for a moment."""
        with self._entered():
            with self._changed:
                if self._worker is not threading.current_thread():
                    # An interrupt ended its start, and another put has started another one.
                    return
            while batch := self._next_batch():
                self._publish_batch(batch)

    def _publish_batch(self, batch: Sequence[_Waiting]) -> None:
        puts = [each.put for each in batch]
        try:
            outcomes = self.publish(batch[0].queue, [each.message for each in batch])
        except BaseException as error:  # noqa: BLE001 (the futures have it, whatever it is)
            self._fail(puts, error)
            return
        failed: defaultdict[CassieqError, list[_Put]] = defaultdict(list)
        for put, outcome in zip(puts, outcomes, strict=True):
            if isinstance(outcome, CassieqError):
                failed[outcome].append(put)
            else:
                self._tell(partial(put.set_result, outcome))
        for reason, of_it in failed.items():
            self._fail(of_it, reason)

    def _next_batch(self) -> list[_Waiting]:
        """Wait until a batch is due, and take it; empty if no message comes.

        All messages of a batch were checked for the same definition of the queue.
        """
        with self._changed:
            self._under_way = []
            while self._changed.wait_for(self._has_work, _IDLE.total_seconds()) and self._filling:
                left = self._first_at + self.linger.total_seconds() - time.monotonic()
                if left > 0 and not (self._hurry or self._closed or self._is_full()):
                    self._changed.wait(left)
                    continue
                batch = [each for each in self._taken() if each.put.set_running_or_notify_cancel()]
                self._under_way = [each.put for each in batch]
                self._changed.notify_all()
                if batch:
                    return batch
            self._worker = None
            return []

    def _has_work(self) -> bool:
        return bool(self._filling) or self._closed

    def _taken(self) -> Iterable[_Waiting]:
        """Take the messages that begin the filling batch; under the lock."""
        queue = self._filling[0].queue
        taken = list(takewhile(lambda each: each.queue is queue, self._filling))
        rest = self._filling[len(taken) :]
        self._filling, self._hurry = rest, bool(rest)
        self._bytes = sum(each.message.size for each in rest)
        self._times = {each.message.visible for each in rest}
        return taken

    def _fail(self, puts: Sequence[_Put], error: BaseException) -> None:
        logger.error(
            "queue %s: a producer could not publish %d messages: %s",
            self.queue,
            len(puts),
            error,
            extra={"action": PUBLISH_FAILED, "queue": self.queue, "count": len(puts)},
        )
        with self._changed:
            unheard = [put for put in self._failed if not put.asked]
            # `flush` raises the first error, so the first puts are kept.
            self._failed = [*unheard, *puts][: self.max_batch]
        for put in puts:
            self._tell(partial(put.set_exception, error))

    def _tell(self, tell: Callable[[], None]) -> None:
        """Give a future its outcome, whatever its callbacks do."""
        try:
            tell()
        except BaseException as error:  # noqa: BLE001 (as SystemExit: it would end the producer)
            logger.error(  # noqa: TRY400 (as all errors of the producer)
                "queue %s: a callback of a producer's future raised %s: %s",
                self.queue,
                type(error).__name__,
                error,
                extra={"action": CALLBACK_FAILED, "queue": self.queue},
            )

    def _added(self, queue: QueueDefinition, message: CheckedMessage) -> Future[Position]:
        """Add a message for which there is room; under the lock."""
        put = _Put()
        if self._closed:
            raise CassieqError(f"this producer for queue {self.queue!r} is closed")
        if not self._filling:
            self._first_at = time.monotonic()
        if self._worker is None or not self._worker.is_alive():
            name = "cassieq-producer"
            self._worker = threading.Thread(target=self._run, name=name, daemon=False)
            self._worker.start()
        self._filling.append(_Waiting(queue, message, put))
        self._times.add(message.visible)
        self._bytes += message.size
        if len(self._filling) == 1 or self._is_full():
            self._changed.notify_all()
        return put

    def _send_off(self) -> None:
        """Make the filling batch due at once; under the lock."""
        self._hurry = True
        self._changed.notify_all()

    def _is_full(self) -> bool:
        return len(self._filling) >= self.max_batch or self._bytes >= self.max_bytes

    def _has_room(self, message: CheckedMessage) -> bool:
        if not self._filling:
            return True
        return (
            len(self._filling) < self.max_batch
            and self._bytes + message.size <= self.max_bytes
            and (message.visible in self._times or len(self._times) < MOST_TIMES)
        )
