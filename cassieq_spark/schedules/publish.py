"""Publishes ticks of schedules: each is a batch of a sink of its own, so it is published once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from cassieq_spark.arguments import FIRST_INSTANT
from cassieq_spark.backoff import attempts
from cassieq_spark.errors import BatchOrderError, ContentionError
from cassieq_spark.ledger.identity import PlanIdentity
from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.ledger.state import (
    advance_groups_version,
    check_open,
    claim_batch,
    sink_batch_of,
    sink_key,
)
from cassieq_spark.model import QueueDefinition, QueueId, SinkBatch
from cassieq_spark.producer.new_message import NewMessage, batches_of, check_message
from cassieq_spark.producer.partitioner import partition_of_key
from cassieq_spark.producer.publisher import publish_written, write_partition
from cassieq_spark.schedules.due import Tick
from cassieq_spark.schedules.schedule import Schedule, parts_of_number
from cassieq_spark.store.protocol import Store

#: Two messages of one tick differ only in how many ticks a runner knew to be missing before it.
_KNOWN_BY_ITS_NUMBER = str(PlanIdentity("tick"))


class Progress(NamedTuple):
    """How far the ticks of a schedule were published.

    Attributes:
        last: The last tick; None if there was none.
        now: The time, by the clock of the server that answered.
        generation: The generation that may publish ticks, and later ones; 0 if no tick was
            published.
    """

    last: datetime | None
    now: datetime
    generation: int


def message_of(schedule: Schedule, tick: Tick) -> NewMessage:
    """The message of a tick, which follows from the schedule and the tick."""
    return NewMessage(
        schedule.value_of(tick.at),
        schedule.key,
        schedule.headers_of(tick.at, tick.missed),
        visible_at=tick.due_at if schedule.ahead else None,
    )


def read_progress(store: Store, queue: QueueDefinition, schedule: Schedule) -> Progress:
    """Read the last tick that was published. One read.

    Raises:
        QueueStateError: The queue was purged or deleted meanwhile.
    """
    return read_all_progress(store, queue, [schedule])[0]


def read_all_progress(
    store: Store, queue: QueueDefinition, schedules: Sequence[Schedule]
) -> list[Progress]:
    """Read the last tick of several schedules of a queue. One read per partition that has some.

    Raises:
        QueueStateError: The queue was purged or deleted meanwhile.
    """
    by_partition: defaultdict[QueueId, list[str]] = defaultdict(list)
    for each in schedules:
        by_partition[_partition_of(queue, each).queue_id].append(each.sink)
    found: dict[str, Progress] = {}
    for queue_id, sinks in by_partition.items():
        read = Ledger(store, queue_id).read_head_with(*map(sink_key, sinks))
        batches = {it.sink: it for it in map(sink_batch_of, read.rows)}
        for sink in sinks:
            batch = batches.get(sink)
            generation, last = parts_of_number(0 if batch is None else batch.batch_id)
            found[sink] = Progress(last, read.now, generation)
    return [found[each.sink] for each in schedules]


def publish_tick(store: Store, queue: QueueDefinition, schedule: Schedule, tick: Tick) -> bool:
    """Publish a tick, unless it or a later one was published. One LWT, one read and one write.

    Args:
        store: The store.
        queue: The whole queue.
        schedule: The schedule.
        tick: The tick.

    Returns:
        False if it, or a later one, was published before.

    Raises:
        MessageError, SchemaError: The queue does not take the message any more.
        OptionError: The queue takes no delayed messages.
        QueueStateError: The queue was purged or deleted meanwhile.
        StoreError: Cassandra failed. It does no harm to repeat the call.
    """
    checked = check_message(message_of(schedule, tick), queue)
    batch = SinkBatch(schedule.sink, schedule.number_of(tick.at), _KNOWN_BY_ITS_NUMBER)
    rows = batches_of([checked], queue)
    own = _partition_of(queue, schedule)
    written = write_partition(store, own, rows, batch, visible=checked.visible, is_fresh=True)
    try:
        return publish_written(store, [written]).monotons is not None
    except BatchOrderError:
        return False


def end_generations_before(store: Store, queue: QueueDefinition, schedule: Schedule) -> None:
    """From now on, let nobody publish a tick of this schedule as it was before its last alter.

    Its sink gets the number of the last tick, in this generation. One read, and one LWT unless it
    was done before.

    Raises:
        QueueStateError: The queue was purged or deleted meanwhile.
        ContentionError: Lost to others, or no answer, again and again.
    """
    ledger = Ledger(store, _partition_of(queue, schedule).queue_id)
    for _ in attempts():
        head, rows, _, _ = ledger.read_head_with(sink_key(schedule.sink))
        check_open(ledger.queue_id, head)
        last = sink_batch_of(rows[0]) if rows else None
        generation, tick = parts_of_number(0 if last is None else last.batch_id)
        if generation >= schedule.generation:
            return
        number = schedule.number_of(FIRST_INSTANT if tick is None else tick)
        claim = claim_batch(SinkBatch(schedule.sink, number, _KNOWN_BY_ITS_NUMBER), last)
        # Not in a ledger that was closed after the read: a purge may have copied the sink.
        if ledger.try_cas([advance_groups_version(head), claim]):
            return
    raise ContentionError(
        f"schedule {schedule.name!r} of queue {queue.name!r} is altered, but runners may still "
        "publish its ticks as they were before; alter it again"
    )


def _partition_of(queue: QueueDefinition, schedule: Schedule) -> QueueDefinition:
    """The partition of all messages of a schedule, and so of its sink."""
    return queue.of_partition(partition_of_key(schedule.key, queue.partitions))
