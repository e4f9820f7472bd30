"""Writes and publishes messages of queues with one queue partition or several."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple, TypeVar

import pyarrow as pa

from cassieq_spark.arrow.chunks import check_messages
from cassieq_spark.arrow.fingerprint import Fingerprint
from cassieq_spark.arrow.typed_chunks import form_of
from cassieq_spark.errors import (
    BatchChangedError,
    CassieqError,
    InvariantError,
    OutcomeUnknownError,
)
from cassieq_spark.ledger.identity import PlanIdentity, Standing, standing_of
from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.ledger.once import Once, read_used
from cassieq_spark.ledger.publish import (
    Published,
    check_order,
    refuse_other_content,
    skip_published,
)
from cassieq_spark.model import (
    Position,
    Positions,
    QueueDefinition,
    QueueId,
    Range,
    SinkBatch,
    id_of,
    parts_of_id,
)
from cassieq_spark.parallel import in_parallel
from cassieq_spark.producer.blocks import MOST_TIMES, BlockWriter, checked_rows, times_of
from cassieq_spark.producer.new_message import CheckedMessage, Visible
from cassieq_spark.producer.partitioner import (
    deal,
    partition_of_key,
    partition_without_key,
)
from cassieq_spark.producer.publisher import (
    Attempt,
    Written,
    publish_written,
    put_into_partition,
    write_partition,
)
from cassieq_spark.settings import SinkOptions
from cassieq_spark.store.protocol import Store

_P = TypeVar("_P")
_R = TypeVar("_R")

#: Publishes what was written to one partition.
Publish = Callable[[Sequence[Written]], Published]

#: How many bytes a task collects, for all partitions together, before it writes them.
_HELD_BYTES = 32 << 20
#: How many partitions a task writes to in parallel: each has its own bytes in flight.
_WRITTEN_AT_ONCE = 4


def write_messages(  # noqa: PLR0913 (what to write, and how, by name)
    store: Store,
    queue: QueueDefinition,
    batches: Iterable[pa.RecordBatch],
    batch: SinkBatch | Once | None = None,
    *,
    options: SinkOptions | None = None,
    visible: Visible = None,
    most_times: int = MOST_TIMES,
    is_fresh: bool = False,
) -> list[Written]:
    """Write the messages of one task, each to its partition, unless published there before.

    One write per chunk. If the batch has a name, one read per partition with messages,
    unless ``is_fresh``. No message is visible before `publish_all`.

    Args:
        queue: The whole queue.
        batches: The messages, as `write_blocks` takes them.
        batch: See `write_partition`, also for the other arguments and the errors.
        visible: When all messages are delivered, if no column has the times.

    Returns:
        What was written to each partition, by number; for a queue with one partition, always one.
    """
    options = SinkOptions(queue=queue.name) if options is None else options
    if queue.partitions == 1:
        how = partial(write_partition, options=options, visible=visible, most_times=most_times)
        return [how(store, queue, batches, batch, is_fresh=is_fresh)]
    form, rows = form_of(queue), 0
    without_key = partition_without_key(batch, queue.partitions)
    parts: dict[int, _Part] = {}

    def begun(partition: int) -> _Part:
        of_it = queue.of_partition(partition)
        writer = BlockWriter(store, of_it, options, most_times=most_times)
        return _Part(Attempt(store, of_it, batch, is_fresh=is_fresh), writer)

    for each in checked_rows(queue, batches, visible):
        # Both here, so that an error names the row of the task, not that within the partition.
        check_messages(each, options.max_message_bytes, first_row=rows, form=form)
        times_of(queue, each, first_row=rows)
        rows += each.num_rows
        if not each.num_rows:
            continue
        dealt = dict(deal(each, form.names, queue.partitions, without_key=without_key))
        new = [partition for partition in dealt if partition not in parts]
        parts |= zip(new, in_parallel(begun, new), strict=True)
        for partition, own in dealt.items():
            parts[partition].add(own)
        if sum(part.writer.held_bytes for part in parts.values()) >= _HELD_BYTES:
            for part in parts.values():
                part.writer.flush()
    is_planned = isinstance(batch, SinkBatch) and PlanIdentity.of(batch.fingerprint) is not None
    if not parts and is_planned and not is_fresh:
        # Without rows, too, it must be found out whether all of the batch is published.
        parts[0] = begun(0)
    in_order = [parts[partition] for partition in sorted(parts)]
    written = in_parallel(lambda part: part.finish(visible), in_order, at_once=_WRITTEN_AT_ONCE)
    return [replace(each, partitions=queue.partitions) for each in written]


class _Part(NamedTuple):
    """A task's messages for one of several queue partitions."""

    attempt: Attempt
    writer: BlockWriter

    def add(self, rows: pa.RecordBatch) -> None:
        self.attempt.count(rows)
        if self.attempt.is_new:
            self.writer.add(rows)

    def finish(self, visible: Visible) -> Written:
        return self.attempt.written(self.writer.finish(visible))


def put_messages(
    store: Store, queue: QueueDefinition, messages: Sequence[CheckedMessage], publish: Publish
) -> list[Position | CassieqError]:
    """Write and publish messages; those of one partition all at once or not at all.

    Messages of one partition and time of delivery keep their order.

    Args:
        queue: The whole queue.
        messages: At least one.
        publish: Publishes what was written to one partition.

    Returns:
        The position of each message; or the error of its partition, which could not publish.
    """
    without_key = partition_without_key(None, queue.partitions)
    by_partition: defaultdict[int, list[int]] = defaultdict(list)
    for index, message in enumerate(messages):
        key = message.unique_id if message.key is None else message.key
        at = without_key if key is None else partition_of_key(key, queue.partitions)
        by_partition[at].append(index)

    def put(partition: int) -> list[Position]:
        own = [messages[index] for index in by_partition[partition]]
        return put_into_partition(store, queue.of_partition(partition), own, publish)

    outcomes: dict[int, Position | CassieqError] = {}
    for partition, found in _outcomes(put, list(by_partition)).items():
        own = by_partition[partition]
        each = [found] * len(own) if isinstance(found, CassieqError) else found
        outcomes |= zip(own, each, strict=True)
    return [outcomes[index] for index in range(len(messages))]


def publish_all(
    store: Store,
    written: Sequence[Written],
    *,
    fail_on_changed: bool = True,
    publish: Publish | None = None,
) -> Mapping[QueueId, Published]:
    """Publish what the tasks of a write have written. One LWT and one read per partition.

    The LWTs of several partitions are sent in parallel. The messages of one partition become
    visible together, or never. If one of several partitions fails, others may be visible; a write
    that has a name is completed by repeating it.

    If the write has a name, one more read per partition that gets no message; these reads come
    first, and in parallel.

    Args:
        written: What each task has written, all for one write.
        fail_on_changed: See `publish_written`.
        publish: Publishes one partition; None for `publish_written`.

    Returns:
        What was published, by partition with messages.

    Raises:
        BatchOrderError: The sink has published a later batch; nothing is published.
        BatchChangedError: Other messages were published under this number, or this name; nothing
            is published.
        OutcomeUnknownError: See `publish_written`; or the write has no name, and only some of the
            partitions have published it.
        CassieqError: See `publish_written`.
    """
    versions = {parts_of_id(each.queue_id)[:2] for each in written}
    if len(versions) > 1:
        raise InvariantError(f"the tasks of one write named several versions: {sorted(versions)}")
    whole = sum((each.fingerprint for each in written), Fingerprint())
    _check_key(store, written)
    if (batch := _batch_of(written, whole)) is not None:
        if _is_done(batch, _lasts(store, written, batch), fail_on_changed=fail_on_changed):
            return {each.queue_id: Published(None) for each in written}
        if PlanIdentity.of(batch.fingerprint) is not None:
            written = [replace(each, batch=batch) for each in written]
    by_partition = _by_partition(written, whole)

    def publish_one(queue_id: QueueId) -> Published:
        found = by_partition[queue_id]
        if publish is not None:
            return publish(found)
        return publish_written(store, found, fail_on_changed=fail_on_changed)

    # A partition that has the batch compares it first: if it differs, no partition publishes.
    before = dict.fromkeys(each.queue_id for each in written if each.published is not None)
    published = {queue_id: publish_one(queue_id) for queue_id in before}
    rest = [queue_id for queue_id in by_partition if queue_id not in published]
    errors: list[CassieqError] = []
    for queue_id, outcome in _outcomes(publish_one, rest).items():
        if isinstance(outcome, CassieqError):
            errors.append(outcome)
        else:
            published[queue_id] = outcome
    if errors:
        raise _error_of(errors, len(by_partition), named=written[0].batch is not None)
    return published


def _by_partition(written: Sequence[Written], whole: Fingerprint) -> dict[QueueId, list[Written]]:
    """Sort what was written by partition.

    Each partition remembers the fingerprint of the whole batch, because its own part may be equal
    in two batches that differ.
    """
    found: defaultdict[QueueId, list[Written]] = defaultdict(list)
    for each in written:
        counted = Fingerprint() if each.queue_id in found else whole
        found[each.queue_id].append(replace(each, fingerprint=counted))
    return dict(found)


def _outcomes(call: Callable[[_P], _R], partitions: Sequence[_P]) -> dict[_P, _R | CassieqError]:
    """Call for each partition, in parallel; return each result, or its error."""

    def caught(partition: _P) -> _R | CassieqError:
        try:
            return call(partition)
        except CassieqError as error:
            return error

    return dict(zip(partitions, in_parallel(caught, partitions), strict=True))


def _error_of(errors: Sequence[CassieqError], partitions: int, *, named: bool) -> CassieqError:
    """The error of a write that some of its partitions could not publish."""
    unknown = (error for error in errors if isinstance(error, OutcomeUnknownError))
    first = next(unknown, errors[0])
    for other in errors:
        if other is not first:
            first.add_note(f"and: {type(other).__name__}: {other}")
    if named and partitions > 1:
        first.add_note(
            f"The write goes to {partitions} partitions, each of which becomes visible by itself: "
            "some may be. A batch of a stream is completed when Spark repeats it, and so is a "
            "write that has a name"
        )
    if named or len(errors) == partitions or isinstance(first, OutcomeUnknownError):
        return first
    partly = OutcomeUnknownError(
        f"{partitions - len(errors)} of the {partitions} partitions that this write goes to have "
        "published it, so their messages are visible, and those of the others are not. The write "
        "has no name, so a repeated one would publish them again, except those with a unique id "
        f"that the queue still knows. The error was: {first}"
    )
    partly.__cause__ = first
    return partly


def read_lasts(
    store: Store, queue_ids: Iterable[QueueId], sink: str, *, serial: bool = False
) -> dict[QueueId, SinkBatch]:
    """The last batch that a sink has published to each of these partitions, if any.

    One read per partition, all in parallel.
    """
    wanted = list(queue_ids)
    found = in_parallel(lambda each: Ledger(store, each).read_sink(sink, serial=serial), wanted)
    return {each: last for each, last in zip(wanted, found, strict=True) if last is not None}


def _batch_of(written: Sequence[Written], whole: Fingerprint) -> SinkBatch | None:
    """The batch of a sink that goes to several partitions, with its whole fingerprint.

    Args:
        written: What all tasks have written.
        whole: The fingerprint of all rows.

    Returns:
        None if the write is no batch of a sink, or the queue has one partition.
    """
    one = next(iter(written), None)
    if one is None or one.partitions == 1 or not isinstance(one.batch, SinkBatch):
        return None
    plan = PlanIdentity.of(one.batch.fingerprint)
    if plan is None:
        return replace(one.batch, fingerprint=str(whole) if whole.rows else None)
    reached = [parts_of_id(each.queue_id)[2] or 0 for each in written if each.fingerprint.rows]
    return replace(one.batch, fingerprint=str(plan.dealt(reached, str(whole))))


def _lasts(store: Store, written: Sequence[Written], batch: SinkBatch) -> dict[QueueId, SinkBatch]:
    """The batches of the sink, per partition, that may be this batch or a later one.

    No read if that was known when the write was planned; else one read per partition that the
    tasks have not read.

    Raises:
        BatchOrderError: A partition has a later batch.
    """
    one = written[0]
    lasts = {
        each.queue_id: each.published for each in written if isinstance(each.published, SinkBatch)
    }
    read = {each.queue_id for each in written}
    if not one.is_fresh:
        name, version, _ = parts_of_id(one.queue_id)
        every = [id_of(name, version, number) for number in range(one.partitions)]
        lasts |= read_lasts(store, [each for each in every if each not in read], batch.sink)
    for queue_id, last in lasts.items():
        check_order(queue_id, batch, last)
    return {
        queue_id: last
        for queue_id, last in lasts.items()
        if standing_of(batch, last) is not Standing.NEW
    }


def _check_key(store: Store, written: Sequence[Written]) -> None:
    """Refuse a put if its idempotency key is used in a partition that the put leaves out.

    One read per such partition, all in parallel.

    Raises:
        BatchChangedError: The key is used there, and thus for another content: equal content goes
            to the same partitions, whatever the mark says about it.
    """
    one = next(iter(written), None)
    if one is None or one.partitions == 1 or not isinstance(one.batch, Once):
        return
    once = one.batch
    name, version, _ = parts_of_id(one.queue_id)
    read = {each.queue_id for each in written}
    every = [id_of(name, version, number) for number in range(one.partitions)]
    others = [each for each in every if each not in read]
    used = in_parallel(lambda each: read_used(Ledger(store, each), once), others)
    for queue_id, mark in zip(others, used, strict=True):
        if mark is not None:
            refuse_other_content(queue_id)


def _is_done(
    batch: SinkBatch, lasts: Mapping[QueueId, SinkBatch], *, fail_on_changed: bool
) -> bool:
    """True if no partition lacks its part of a batch; compares the batch with the published one.

    The rows of a replay may have other keys than those that were published, and so go to other
    partitions. So a batch that is known by its plan is either published completely, or completed
    with rows of the same keys. By content, the publish of each partition decides.

    Args:
        batch: The batch, with its whole fingerprint.
        lasts: The partitions that have published a batch of this number.

    Raises:
        BatchChangedError: A partition has the number with another plan or other content; or only
            some of the partitions have it, and the rows have other keys now.
    """
    for queue_id, last in lasts.items():
        if standing_of(batch, last) is Standing.CHANGED and fail_on_changed:
            skip_published(queue_id, batch, last, fail_on_changed=True)
    ours = PlanIdentity.of(batch.fingerprint)
    published = [PlanIdentity.of(last.fingerprint) for last in lasts.values()]
    one = next((each for each in published if each is not None), None)
    if ours is None or one is None:
        return False
    have = {parts_of_id(queue_id)[2] or 0 for queue_id in lasts}
    missing = [each for each in range(one.partitions.bit_length()) if one.reaches(each)]
    missing = [each for each in missing if each not in have]
    if not missing:
        for queue_id, last in lasts.items():
            skip_published(queue_id, batch, last, fail_on_changed=fail_on_changed)
        return True
    if ours != one and fail_on_changed:
        raise BatchChangedError(
            f"{batch.sink} has published batch {batch.batch_id} in the partitions "
            f"{sorted(have)} of {sorted({*have, *missing})}, as its driver died between them, and "
            "the rows have other keys now, so the rest of the batch is not known; nothing was "
            "published now. Give messages keys that are the same in a replay (not uuid() or "
            "rand()); to go on, publish the rows that go to the other partitions now with "
            ".option('failOnChangedBatch', 'false')"
        )
    return False


def positions_of(published: Mapping[QueueId, Published]) -> Range | Positions | None:
    """The monotons of published messages, by partition if there are several.

    Returns:
        None if all messages were published before.
    """
    found = {parts_of_id(queue_id)[2]: each.monotons for queue_id, each in published.items()}
    if None in found:
        return found[None]
    ranges = {at: each for at, each in found.items() if at is not None and each is not None}
    return Positions(ranges) if ranges or not found else None
