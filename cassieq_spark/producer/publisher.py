"""Writes messages of a sink or a client, and then publishes them, so that they become visible."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from typing import TypeVar

import pyarrow as pa

from cassieq_spark.arrow.chunks import ColumnNames, Form
from cassieq_spark.arrow.fingerprint import Fingerprint, fingerprint_of
from cassieq_spark.arrow.framing import used_column
from cassieq_spark.arrow.typed_chunks import form_of
from cassieq_spark.backoff import Backoff
from cassieq_spark.errors import InvariantError
from cassieq_spark.ledger.identity import PlanIdentity, Standing, standing_of
from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.ledger.once import Once, Used, read_used
from cassieq_spark.ledger.publish import (
    Published,
    check_order,
    publish,
    skip_published,
    skip_used,
)
from cassieq_spark.ledger.window import UniqueWindow, UniqueWindows
from cassieq_spark.model import (
    PendingBlock,
    Position,
    QueueDefinition,
    QueueId,
    Range,
    SinkBatch,
)
from cassieq_spark.producer.blocks import MOST_TIMES, checked_rows, write_block, write_blocks
from cassieq_spark.producer.new_message import CheckedMessage, Visible, batches_of
from cassieq_spark.producer.unique_ids import keys_to_go_by
from cassieq_spark.settings import SinkOptions
from cassieq_spark.store.protocol import Store

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Written:
    """The part of a batch that one task has written to one queue partition.

    Attributes:
        queue_id: The queue id of that version and partition.
        batch: The name under which the batch is published once; None if it has no name.
        blocks: The task's blocks; empty if the batch was published before.
        fingerprint: The fingerprint of the task's rows, if the batch has a name; of their keys
            only, if the batch is known by its plan and the queue has several partitions.
        published: What was published before under the name; None if nothing was.
        partitions: How many partitions the queue has.
        is_fresh: True if no partition had published the batch, or a later one, when the write was
            planned.
        deduplicate: The window of unique ids that the queue had then.
        created_at: When the queue was created.
    """

    queue_id: QueueId
    batch: SinkBatch | Once | None = None
    blocks: tuple[PendingBlock, ...] = ()
    fingerprint: Fingerprint = field(default_factory=Fingerprint)
    published: SinkBatch | Used | None = None
    partitions: int = 1
    is_fresh: bool = False
    deduplicate: timedelta | None = None
    created_at: datetime | None = None


class Attempt:
    """An attempt of one task to write a batch to one partition.

    One read if the batch has a name, unless it is known that nothing is published under that name.

    Args:
        queue: The queue, or a partition of it.
        batch: The name of the batch, if it has one.
        is_fresh: True if nothing was published under the name when the write was planned.

    Attributes:
        published: What was published before under the name; None if nothing was.

    Raises:
        BatchOrderError: The sink has published a later batch.
    """

    def __init__(
        self,
        store: Store,
        queue: QueueDefinition,
        batch: SinkBatch | Once | None,
        *,
        is_fresh: bool = False,
    ) -> None:
        ledger = Ledger(store, queue.queue_id)
        self._queue = queue
        self._batch = batch
        self._is_fresh = is_fresh
        self._fingerprint_of = _fingerprint_of(queue, batch)
        self._fingerprint = Fingerprint()
        self.published: SinkBatch | Used | None = None
        if isinstance(batch, Once):
            self.published = read_used(ledger, batch)
        elif batch is not None and not is_fresh:
            last = ledger.read_sink(batch.sink)
            check_order(queue.queue_id, batch, last)
            self.published = None if standing_of(batch, last) is Standing.NEW else last

    @property
    def is_new(self) -> bool:
        """True if the messages must be written."""
        return self.published is None

    def count(self, rows: pa.RecordBatch) -> None:
        """Add rows of the batch to the fingerprint, whether they are written or not."""
        if self._fingerprint_of is not None:
            self._fingerprint += self._fingerprint_of(rows)

    @property
    def counts(self) -> bool:
        """True if rows count even though they are not written."""
        return self._fingerprint_of is not None

    def counted(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield these batches, and `count` each."""
        for rows in batches:
            self.count(rows)
            yield rows

    def written(self, blocks: Iterable[PendingBlock] = ()) -> Written:
        """The result of the task; call it after all rows were counted."""
        return Written(
            self._queue.queue_id,
            self._batch,
            tuple(blocks),
            self._fingerprint,
            self.published,
            is_fresh=self._is_fresh,
            deduplicate=self._queue.deduplicate,
            created_at=self._queue.created_at,
        )


def _fingerprint_of(
    queue: QueueDefinition, batch: SinkBatch | Once | None
) -> Callable[[pa.RecordBatch], Fingerprint] | None:
    """The function that computes the fingerprint of rows of a batch; None if none is needed.

    If the batch is known by its plan, only the partitions of its rows count; with one partition,
    not even these.
    """
    if batch is None:
        return None
    form = form_of(queue)
    if PlanIdentity.of(batch.fingerprint) is None:
        return partial(_fingerprint_of_content, form)
    return None if queue.partitions == 1 else partial(_fingerprint_of_keys, form.names)


def _fingerprint_of_content(form: Form, rows: pa.RecordBatch) -> Fingerprint:
    found = form.fingerprint(rows)
    ids = used_column(rows, form.names.unique_id)
    # By them, messages go to partitions.
    return found if ids is None else found + fingerprint_of(pa.record_batch({"key": ids}))


def _fingerprint_of_keys(names: ColumnNames, rows: pa.RecordBatch) -> Fingerprint:
    keys = keys_to_go_by(rows, names)
    return (
        Fingerprint(rows.num_rows)
        if keys is None
        else fingerprint_of(pa.record_batch({"key": keys}))
    )


def write_partition(  # noqa: PLR0913 (what to write, and how, by name)
    store: Store,
    queue: QueueDefinition,
    batches: Iterable[pa.RecordBatch],
    batch: SinkBatch | Once | None = None,
    *,
    options: SinkOptions | None = None,
    visible: Visible = None,
    most_times: int = MOST_TIMES,
    is_fresh: bool = False,
) -> Written:
    """Write the messages of one task to one partition, unless the batch was published before.

    One write per chunk, and one read if the batch has a name, unless ``is_fresh``. If the batch
    was published before, and its plan is not known, the rows are read nevertheless, for their
    fingerprint.

    Args:
        queue: The queue, or a partition of it.
        batches: The messages, as `write_blocks` takes them.
        batch: The name of the batch; the same for all tasks of the batch.
        visible: When all messages are delivered, if no column has the times.
        is_fresh: See `Attempt`.

    Raises:
        BatchOrderError: The sink has published a later batch.
        MessageError: See `write_blocks`.
        OptionError, SchemaError: See `checked_rows`.
        StoreError: Cassandra did not take the messages within the time allowed.
    """
    options = SinkOptions(queue=queue.name) if options is None else options
    attempt = Attempt(store, queue, batch, is_fresh=is_fresh)
    rows = attempt.counted(checked_rows(queue, batches, visible))
    if not attempt.is_new:
        if attempt.counts:
            for _ in rows:
                pass  # only for the fingerprint
        return attempt.written()
    if visible is None:
        return attempt.written(write_blocks(store, queue, rows, options, most_times=most_times))
    return attempt.written([replace(write_block(store, queue, rows, options), visible=visible)])


def put_into_partition(
    store: Store,
    queue: QueueDefinition,
    messages: Sequence[CheckedMessage],
    publish: Callable[[Sequence[Written]], Published],
) -> list[Position]:
    """Write and publish messages of one partition, one block per time of delivery.

    Args:
        queue: The queue, or a partition of it.
        messages: At least one.
        publish: Makes the blocks visible.

    Returns:
        The position of each message. Messages with the same time of delivery keep their order.
    """
    by_time: defaultdict[Visible, list[int]] = defaultdict(list)
    for index, message in enumerate(messages):
        by_time[message.visible].append(index)
    written = []
    for visible, indices in by_time.items():
        batches = batches_of([messages[index] for index in indices], queue)
        written.append(write_partition(store, queue, batches, visible=visible))
    published = publish(written)
    if published.monotons is None:
        raise InvariantError(f"{queue.queue_id}: a publish without a name published nothing")
    order = [index for indices in by_time.values() for index in indices]
    where = dict(zip(order, positions_in(queue, published, len(messages)), strict=True))
    return [where[index] for index in range(len(messages))]


def positions_in(queue: QueueDefinition, published: Published, count: int) -> list[Position]:
    """The positions of the messages of a write, in order.

    Args:
        queue: The queue, or a partition of it.
        published: What has become visible of the write.
        count: How many messages the write has.
    """
    monotons, repeats = published.monotons or Range(0, 0), published.repeats
    where = (queue.partition or 0, queue.version)
    fresh = Position.of_all(monotons, *where)
    if not repeats:
        return fresh
    following = iter(fresh)
    return [
        Position(repeats[number], *where, is_repeat=True) if number in repeats else next(following)
        for number in range(count)
    ]


def publish_written(
    store: Store,
    written: Sequence[Written],
    *,
    fail_on_changed: bool = True,
    backoff: Backoff | None = None,
    windows: UniqueWindows | None = None,
) -> Published:
    """Publish what the tasks of a write have written to one partition, all of it or nothing.

    One LWT and one read. If one task found the batch published, the whole batch was published. The
    batch is published in the version of the queue to which it was written: in the ledger of a
    later version the blocks would have no chunks.

    Args:
        written: What each task has written, all for one batch.
        fail_on_changed: See `ledger.publish.publish`, also for the other errors.
        backoff: See `ledger.publish.publish`.
        windows: The unique ids that this process remembers; None: they are read when needed.

    Raises:
        BatchChangedError: Other messages were published under this number, or this name.
        BatchOrderError: The sink has published a later batch.
        QueueStateError: The queue was purged or deleted since the tasks began.
    """
    if not written:
        return Published(Range(0, 0))
    queue_id = _only("versions of a queue", {each.queue_id for each in written})
    batch = _only("batches", {each.batch for each in written})
    if batch is not None and PlanIdentity.of(batch.fingerprint) is None:
        fingerprint = sum((each.fingerprint for each in written), Fingerprint())
        # Without rows no message can be lost, whatever was published.
        batch = replace(batch, fingerprint=str(fingerprint) if fingerprint.rows else None)
    last = next((each.published for each in written if each.published is not None), None)
    if last is None:
        blocks = [block for each in written for block in each.blocks]
        ledger = Ledger(store, queue_id)
        return publish(
            ledger,
            blocks,
            batch=batch,
            fail_on_changed=fail_on_changed,
            backoff=backoff,
            window=_window_of(written, windows or UniqueWindows()),
        )
    if isinstance(batch, SinkBatch) and isinstance(last, SinkBatch):
        skip_published(queue_id, batch, last, fail_on_changed=fail_on_changed)
    elif isinstance(batch, Once) and isinstance(last, Used):
        skip_used(queue_id, batch, last)
    return Published(None)


def _window_of(written: Sequence[Written], windows: UniqueWindows) -> UniqueWindow | None:
    """The known unique ids, which decide what is published; None if no message has one."""
    if not any(block.ids for each in written for block in each.blocks):
        return None
    lasts = max((each.deduplicate for each in written if each.deduplicate), default=None)
    if lasts is None:
        raise InvariantError(f"{written[0].queue_id}: unique ids were written without a window")
    return UniqueWindow(lasts, windows.of(written[0].queue_id, written[0].created_at))


def _only(what: str, found: Collection[_T]) -> _T:
    """The only element: all tasks of a write have it in common."""
    if len(found) > 1:
        raise InvariantError(f"the tasks of one write named several {what}: {found}")
    return next(iter(found))
