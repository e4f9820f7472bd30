"""What a sink can find out about its query: the micro-batch, and the kind of trigger.

Under a continuous trigger, Spark passes no messages to a sink in Python, but counts them as
written: it lets the sink commit each epoch without a commit message of any task. Spark does not
say which trigger a query has. But it makes the sink of a micro-batch after it has logged the end
of the batch, and the sink of an epoch before.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark import TaskContext

from cassieq_spark.errors import CassieqError, OptionError
from cassieq_spark.spark.checkpoint import Plan
from cassieq_spark.store.protocol import Store

# Only replays and refusals have to do with leases, and these imports take 40 ms.
if TYPE_CHECKING:
    from uuid import UUID

    from cassieq_spark.groups.group import ConsumerGroup

logger = logging.getLogger(__name__)

#: A batch that its sink has published could not be marked in the group that it came from.
NOT_KEPT_WHOLE = "replay.not_kept_whole"
#: The messages of a batch that its sink refused could not be given back uncounted.
NOT_GIVEN_BACK = "batch.not_given_back"

#: Names of the local properties with the ids of query and batch.
QUERY_ID = "sql.streaming.queryId"
BATCH_ID = "streaming.sql.batchId"


def query_and_batch() -> tuple[str | None, str | None]:
    """The ids of query and batch, the same after a restart and in a replay; None if unknown."""
    context = TaskContext.get()
    if context is None:
        return None, None
    return context.getLocalProperty(QUERY_ID), context.getLocalProperty(BATCH_ID)


def is_in_batch() -> bool:
    """True if this task is part of a micro-batch, or of a write inside ``foreachBatch``.

    False over Spark Connect, and possibly in a thread that the function of ``foreachBatch`` has
    started, as Spark does not pass the ids to that thread.
    """
    return query_and_batch()[1] is not None


def check_trigger(plan: Plan | None) -> None:
    """Refuse a continuous trigger, if the checkpoint shows it.

    With such a trigger, Spark has planned no batch beyond those that it has committed. If the
    checkpoint cannot be read, `check_task_messages` refuses the first commit.

    Args:
        plan: The plan in the checkpoint; None if it cannot be read, or its location is unknown.

    Raises:
        OptionError: The trigger is continuous.
    """
    if plan is not None and plan.batch_id <= plan.committed:
        raise _refusal()


def keep_sources_whole(store: Store, plan: Plan) -> None:
    """Make the sources of a query replay a batch whole, as its sink has published it.

    A batch that fails repeatedly is replayed smaller, and its messages die. If a batch was
    published, the messages that a replay leaves out would be published once more in a later batch.
    One LWT and two reads per lease of the plan, none for sources that are queues of another
    keyspace: these cannot be reached from here. Errors are logged: the next replay tries
    again.

    Args:
        store: The store of the sink.
        plan: The plan of the batch.
    """
    for group, lease in _leases_of(store, plan):
        try:
            group.keep_whole(lease)
        except CassieqError as error:
            logger.warning(
                "%s: could not mark the batch of lease %s, which is published, so its replay "
                "may leave out messages, which are delivered and published again: %s",
                group,
                lease,
                error,
                extra={"action": NOT_KEPT_WHOLE, **group.log_fields},
            )


def give_back_unseen(store: Store, plan: Plan) -> None:
    """Give back what the sources of a query have leased for a batch that its sink refuses.

    No task has run, so nobody has seen the messages, and the delivery is not counted: a query that
    is started repeatedly with a wrong checkpoint kills no message. If the queue is in another
    keyspace, the reader gives the messages back, counted. One LWT and three reads per lease of the
    plan. Errors are logged.

    Args:
        store: The store of the sink.
        plan: The plan of the batch, of which nothing is published.
    """
    from cassieq_spark.groups.state import Settlement  # noqa: PLC0415

    for group, lease in _leases_of(store, plan):
        try:
            for slot in group.read().held_by(lease):
                unseen = Settlement(unread=slot.monotons)
                group.settle(lease, unseen, deliveries=slot.deliveries)
        except CassieqError as error:
            logger.warning(
                "%s: could not give back the batch of lease %s, which nobody has seen, so its "
                "delivery counts: %s",
                group,
                lease,
                error,
                extra={"action": NOT_GIVEN_BACK, **group.log_fields},
            )


def _leases_of(store: Store, plan: Plan) -> Iterator[tuple[ConsumerGroup, UUID]]:
    """The leases of a plan, each with its group."""
    from cassieq_spark.groups.group import ConsumerGroup  # noqa: PLC0415
    from cassieq_spark.ledger.ledger import Ledger  # noqa: PLC0415
    from cassieq_spark.spark.source.offsets import leases_of  # noqa: PLC0415

    for values in plan.offsets():
        for queue_id, name, lease in leases_of(values):
            yield ConsumerGroup(Ledger(store, queue_id), name), lease


def check_task_messages(messages: Sequence[object]) -> None:
    """Refuse a commit without the messages of all tasks: Spark did not call the tasks.

    Raises:
        OptionError: A message is missing, so the trigger is continuous.
    """
    if None in messages:
        raise _refusal()


def _refusal() -> OptionError:
    return OptionError(
        "a queue cannot be written to with a continuous trigger: Spark hands no message to a sink "
        "in Python then, and counts them as written; leave out trigger(continuous=...)"
    )
