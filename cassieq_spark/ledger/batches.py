"""What becomes of a batch whose sink has published one of its number, or a later one."""

from __future__ import annotations

import logging

from cassieq_spark.errors import BatchChangedError, BatchOrderError
from cassieq_spark.ledger.decide import Standing, standing_of
from cassieq_spark.model import QueueId, SinkBatch

logger = logging.getLogger(__name__)

#: A batch was found published already, and is skipped: a replay.
ALREADY_PUBLISHED = "publish.already"
#: A batch was found published already with another content, and is skipped all the same.
CHANGED = "publish.changed"


def skip_published(
    queue_id: QueueId, batch: SinkBatch, last: SinkBatch, *, fail_on_changed: bool
) -> None:
    """Tell that a batch is skipped, which its sink has published; or refuse it.

    A query that stops has lost nothing, and goes on once its operator has decided. A batch that is
    skipped may be lost for ever, as its source counts it as done. So a doubt is an error, unless
    the operator has decided already.

    Args:
        queue_id: Which queue.
        batch: What was to be published, with its fingerprint; without one if it has no rows, as
            then nothing can be lost.
        last: What the sink has published last: this batch, or a later one.
        fail_on_changed: Whether another content under the same number is an error.

    Raises:
        BatchOrderError: It was a later one.
        BatchChangedError: It was this one with another content.
    """
    check_order(queue_id, batch, last)
    if standing_of(batch, last) is not Standing.CHANGED:
        logger.warning(
            "queue %s: %s has published batch %d already: a replay, skipped",
            queue_id,
            batch.sink,
            batch.batch_id,
            extra={"action": ALREADY_PUBLISHED, "queue": queue_id},
        )
        return
    if fail_on_changed:
        raise BatchChangedError(
            f"queue {queue_id}: {batch.sink} has published batch {batch.batch_id} with another "
            f"content ({last.fingerprint}, here {batch.fingerprint}); nothing was published now. "
            "Either a checkpoint was restored from an older copy: go on with the newest one, or "
            "with a new one, and what was published already comes again. Or the rows of the query "
            "differ from run to run (random numbers, the time, a limit without order; or others "
            "have got some of its messages, as a lease ran out): if what was published is as "
            "good, skip this batch with .option('failOnChangedBatch', 'false'). Or it comes from "
            "a queue with a delivery limit, whose batches come back smaller from their third "
            "delivery on: skip it with that option, the rest comes in later batches. Or two "
            "writes of one batch have one name: give each a 'txnAppId'"
        )
    logger.error(
        "queue %s: %s has published batch %d with another content (%s, here %s): this one is "
        "skipped, as 'failOnChangedBatch' is false",
        queue_id,
        batch.sink,
        batch.batch_id,
        last.fingerprint,
        batch.fingerprint,
        extra={"action": CHANGED, "queue": queue_id},
    )


def check_order(queue_id: QueueId, batch: SinkBatch, last: SinkBatch | None) -> None:
    """Refuse a batch below the last one that its sink has published.

    Raises:
        BatchOrderError: It is.
    """
    if last is not None and standing_of(batch, last) is Standing.BEHIND:
        raise BatchOrderError(
            f"queue {queue_id}: {batch.sink} has published up to batch {last.batch_id}, and this "
            f"write says that it is batch {batch.batch_id}; nothing was published now. A query "
            "replays its last batch only, so its checkpoint was restored from an older copy, or "
            "is new and 'txnAppId' is not; or 'txnVersion' is below the last one. Go on with the "
            "newest checkpoint, or a higher 'txnVersion'; or with a new checkpoint and another "
            "'txnAppId', and what was published already comes again"
        )
