"""Publishes: one compare-and-set makes a whole write visible."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import NoReturn

from cassieq_spark.arguments import FIRST_INSTANT
from cassieq_spark.backoff import Backoff
from cassieq_spark.errors import (
    BatchChangedError,
    BatchOrderError,
    ContentionError,
    InvariantError,
    NotAppliedError,
    OutcomeUnknownError,
    TooLargeError,
    in_doubt,
)
from cassieq_spark.ledger.decide import (
    AlreadyPublished,
    Fenced,
    FromTheFuture,
    Publication,
    decide_publish,
)
from cassieq_spark.ledger.identity import PlanIdentity, Standing, fingerprints_differ, standing_of
from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.ledger.once import Once, TooLate, Used, claim, once_key, used_of
from cassieq_spark.ledger.state import (
    LedgerStatus,
    UniqueRow,
    check_open,
    sink_batch_of,
    sink_key,
)
from cassieq_spark.ledger.unique import ID_BYTES, MOST_IDS
from cassieq_spark.ledger.window import UniqueWindow
from cassieq_spark.model import PendingBlock, QueueId, Range, SinkBatch, block_time, name_of
from cassieq_spark.store.protocol import MOST_OPS, RowKey

logger = logging.getLogger(__name__)

#: A batch was published before; it is a replay, and is skipped.
ALREADY_PUBLISHED = "publish.already"
#: A batch was published before with another content, and is skipped nevertheless.
CHANGED = "publish.changed"
#: Maximum number of blocks of one publish: each is an operation of its LWT, and so are the head,
#: the sink, the row of unique ids and the deletion of earlier such rows.
MOST_BLOCKS = MOST_OPS - 4


@dataclass(frozen=True, slots=True)
class Published:
    """A write that is visible.

    Attributes:
        monotons: The monotons of the messages that this attempt has published; None if the batch
            was published before.
        repeats: The messages that are left out as repeated ones, by their number in the write,
            each with the monoton of the message that has its unique id.
    """

    monotons: Range | None
    repeats: Mapping[int, int] = field(default_factory=dict)


def publish(  # noqa: PLR0913 (what to publish, and how, by name)
    ledger: Ledger,
    pending: Sequence[PendingBlock],
    *,
    batch: SinkBatch | Once | None = None,
    fail_on_changed: bool = True,
    backoff: Backoff | None = None,
    window: UniqueWindow | None = None,
) -> Published:
    """Give all blocks their monotons at once, and so make their messages visible.

    One LWT and one read if nobody else publishes at that moment. A serial read resolves an unknown
    outcome (I1, I4).

    A message is left out if a message with its unique id was published within the window, or comes
    before it in the write. This takes no further LWT (I12). It takes one read if other processes
    publish such messages, and none otherwise. If all messages are left out, and the batch has no
    name, there is no LWT.

    Args:
        pending: Blocks that are completely written, in the order of publication.
        batch: A sink and the number of its batch, or a name that is remembered for a time. If
            something was published under this batch or name before, nothing is published.
        fail_on_changed: True to raise, rather than log, if the sink has published a batch of
            this number with another fingerprint.
        backoff: Paces the attempts, and counts lost races.
        window: The unique ids that were published before; required if a message has one.

    Raises:
        BatchChangedError: Other messages were published under this number, or this name.
        BatchOrderError: The sink has published a later batch.
        ContentionError: Other publishers won every attempt.
        NotAppliedError: The blocks may be deleted already, as the fence has passed them or their
            writer's clock is ahead; or the write took half as long as its name is remembered;
            or there are too many unique ids within the window. Write the messages again.
        QueueStateError: There is no such queue, or it was purged or deleted; nothing was applied.
        OutcomeUnknownError: The answer was lost, and no row shows the outcome; for example,
            because the queue was purged or deleted meanwhile.
        TooLargeError: There are more than `MOST_BLOCKS` blocks; nothing was applied.
    """
    pending = [each for each in pending if each.count]
    if window is None and any(each.ids for each in pending):
        raise InvariantError(f"queue {ledger.queue_id}: unique ids are published without a window")
    if len(pending) > MOST_BLOCKS:
        raise TooLargeError(
            f"queue {ledger.queue_id}: the write has {len(pending)} blocks, and {MOST_BLOCKS} is "
            "the most that one publish takes; nothing of it is visible. Each task makes one, or "
            "one for each time of delivery: write with fewer tasks (df.coalesce(1000)), with "
            "coarser delays, or in several writes"
        )
    if not pending:
        return Published(Range(0, 0))
    paces = backoff or Backoff()
    return _Publishing(ledger, pending, batch, fail_on_changed, paces, window).run()


_Decision = Publication | AlreadyPublished | Fenced | FromTheFuture | Used | TooLate


@dataclass(slots=True)
class _Publishing:
    """One call of `publish`; ``doubtful`` are attempts that may still be applied, or were."""

    ledger: Ledger
    pending: Sequence[PendingBlock]
    batch: SinkBatch | Once | None
    fail_on_changed: bool
    backoff: Backoff
    window: UniqueWindow | None = None
    doubtful: list[Publication] = field(default_factory=list)
    # When the head was read that the last decision is of, by its server; and by our own clock.
    _began: tuple[datetime, float] = (FIRST_INSTANT, 0.0)

    def run(self) -> Published:
        # A batch with a name may be published again in any case.
        doubtful = () if self.batch else self.doubtful
        with in_doubt(f"publish to queue {self.ledger.queue_id}", doubtful):
            return self._try_again_and_again()

    def _try_again_and_again(self) -> Published:
        queue_id = self.ledger.queue_id
        for _ in self.backoff.attempts():
            decision = self._decide_anew() if self.doubtful else self._decide()
            match decision:
                case Published():
                    return decision
                case AlreadyPublished(last=last) if isinstance(self.batch, SinkBatch):
                    failing = self.fail_on_changed
                    skip_published(queue_id, self.batch, last, fail_on_changed=failing)
                    return Published(None)
                case Used() if isinstance(self.batch, Once):
                    skip_used(queue_id, self.batch, decision)
                    return Published(None)
                case TooLate(begun_at=begun_at, most=most):
                    raise NotAppliedError(
                        f"queue {queue_id}: a publish under a name began at {begun_at}, "
                        f"more than {most} ago by the clock of the server: the name may have "
                        "been used and forgotten since; look at what is in the queue, put it "
                        "again, and check that the clocks agree"
                    )
                case Fenced(oldest=oldest, fence=fence):
                    self.doubtful.clear()  # fenced as well
                    check_open(queue_id, self.ledger.read_head())
                    raise NotAppliedError(
                        f"queue {queue_id}: the write began at {oldest} and the queue's "
                        f"fence stands at {fence}, so its blocks may have been deleted; write "
                        "it again, in smaller batches, or run the repair with a longer "
                        "--write-timeout; and check that the clocks agree: if the fence is "
                        f"ahead, cassieq queue fix-clocks {name_of(queue_id)} lowers it"
                    )
                case FromTheFuture(begun_at=begun_at, now=now):
                    raise NotAppliedError(
                        f"queue {queue_id}: the write began at {begun_at} by its writer's "
                        f"clock, and it is {now}; a fence that far ahead was lowered, and the "
                        "blocks of the write may have been deleted before: correct the clock "
                        "of the writer, and write again"
                    )
                case Publication(monotons=monotons, sifted=sifted) if self._apply(decision):
                    return Published(monotons, sifted.repeats)
        raise ContentionError(
            f"queue {queue_id}: lost the race to publish again and again; too many small "
            "publishes at once? gather them into larger ones"
        )

    def _decide_anew(self) -> _Decision | Published:
        """Decide while earlier attempts may still be applied, or were; see `_find_doubtful`."""
        # I1: an earlier attempt that is applied after this read moves `next`.
        decision = self._decide()
        if (found := self._find_doubtful()) is not None:
            return Published(found.monotons, found.sifted.repeats)
        # Serial reads take long, and others publish meanwhile. Nothing of ours may be applied any
        # more, so a later decision is as good.
        return decision if self.doubtful else self._decide()

    def _decide(self) -> _Decision:
        batch, ids = self.batch, None if self.window is None else self.window.ids
        keys: tuple[RowKey, ...] = ()
        if isinstance(batch, SinkBatch):
            keys = (sink_key(batch.sink),)
        elif batch is not None:
            keys = (once_key(batch.name),)
        if ids is not None:
            ids.look_ahead(self.ledger)
        # I4: at one moment, so a publish after this read moves `next`, and refuses ours.
        begun = 0.0 if ids is None else ids.clock()
        head, rows, now, sure_now = self.ledger.read_head_with(*keys)
        row = rows[0] if rows else None
        if ids is not None and self.window is not None:
            ids.catch_up(self.ledger, head, sure_now, self.window.lasts)
            self._began = (sure_now, begun)
        if not isinstance(batch, Once):
            last = None if row is None else sink_batch_of(row)
            return decide_publish(
                head, self.pending, batch=batch, last=last, now=sure_now, ids=ids
            )
        if row is not None:
            return used_of(row)
        decision = decide_publish(head, self.pending, batch=None, last=None, now=sure_now, ids=ids)
        if not isinstance(decision, Publication):
            return decision
        return claim(decision, batch, self.pending, now, head.fence)

    def _apply(self, decision: Publication) -> bool:
        if not decision.monotons and self.batch is None:
            return True  # All of it is there already.
        self._check_room(decision)
        try:
            is_applied = self.ledger.cas(decision.ops)
        except OutcomeUnknownError:
            self.doubtful.append(decision)
            return False
        if is_applied:
            self._remember(decision)
        return is_applied

    def _check_room(self, decision: Publication) -> None:
        """Refuse more unique ids than publishers can keep in memory."""
        count = len(decision.sifted.ids) // ID_BYTES
        if self.window is None or len(self.window.ids) + count <= MOST_IDS:
            return
        raise NotAppliedError(
            f"queue {self.ledger.queue_id}: {len(self.window.ids):,} unique ids were published "
            f"within the last {self.window.lasts}, and {count:,} more are over the limit of "
            f"{MOST_IDS:,}; nothing was published now. Wait, write smaller batches, shorten the "
            f"time: cassieq queue alter {name_of(self.ledger.queue_id)} --deduplicate, or make a "
            "queue with more partitions, each of which has this limit"
        )

    def _remember(self, decision: Publication) -> None:
        if self.window is None:
            return
        read_at, begun = self._began
        # Not earlier than by the coordinator's clock, by which others forget it.
        at = read_at + timedelta(seconds=self.window.ids.clock() - begun)
        row, ids = None, decision.sifted.ids
        if ids:
            begun_at = block_time(decision.sifted.parts[0].block.block)
            start, before = decision.monotons.start, decision.ids_before
            row = UniqueRow(start, ids, at, begun_at, before)
        monotons = decision.sifted.monotons
        self.window.ids.add(row, monotons, has_deleted=decision.has_deleted)

    def _find_doubtful(self) -> Publication | None:
        """Find an attempt that was applied although its answer was lost, by serial reads.

        An attempt is no longer doubtful once another publisher has its monotons: it is refused
        whenever it comes, as `next` has passed them.
        """
        for attempt in tuple(self.doubtful):
            monotons, parts = attempt.monotons, attempt.sifted.parts
            block = self.ledger.read_block_at(monotons.start, serial=True)
            if block is not None and parts and block.block == parts[0].block.block:
                return attempt
            if block is not None:
                self.doubtful.remove(attempt)
                continue
            head = self.ledger.read_head(serial=True)
            # A name shows it instead, unless the queue was purged or deleted with it.
            tells = self.batch is not None and head.status is LedgerStatus.OPEN
            if head.finalised > monotons.start and not tells:
                raise OutcomeUnknownError(
                    f"queue {self.ledger.queue_id}: the answer to a publish at {monotons} was "
                    "lost, and the repair has trimmed the ledger there since"
                )
        return None


def skip_published(
    queue_id: QueueId, batch: SinkBatch, last: SinkBatch, *, fail_on_changed: bool
) -> None:
    """Log that a batch is skipped because its sink has published it, or refuse the batch.

    A query that stops loses nothing, and continues once its operator has decided. A batch that is
    skipped by mistake is lost, as its source counts it as done. So a doubt raises an error, unless
    the operator has decided already.

    Args:
        batch: The batch with its fingerprint; without one if it has no rows, which cannot be lost.
        last: The last batch that the sink has published: this batch, or a later one.
        fail_on_changed: True if other content under the same number is an error.

    Raises:
        BatchOrderError: The last batch is a later one.
        BatchChangedError: The last batch has the same number and other content.
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
    if fail_on_changed and PlanIdentity.of(last.fingerprint) is not None:
        _refuse_other_plan(queue_id, batch, last)
    if fail_on_changed:
        raise BatchChangedError(
            f"queue {queue_id}: {batch.sink} has published batch {batch.batch_id} with another "
            f"content ({last.fingerprint}, here {batch.fingerprint}); nothing was published now. "
            "Either the checkpoint was restored from an older copy: continue with the newest one, "
            "or with a new one, which publishes its messages again. Or the rows of the query "
            "differ from run to run (random numbers, the time, a limit without order; or a lease "
            "ran out, and other readers have some of its messages): if the published rows are as "
            "good, skip this batch with .option('failOnChangedBatch', 'false'); and give the "
            "query's 'checkpointLocation' as an option, as a place that this process can read, so "
            "that a batch is known by its plan and not by its rows. Or two writes of one batch "
            "have the same name: give each a 'txnAppId'"
        )
    logger.error(
        "queue %s: %s has published batch %d by another plan or content (%s, here %s): this one "
        "is skipped, as 'failOnChangedBatch' is false",
        queue_id,
        batch.sink,
        batch.batch_id,
        last.fingerprint,
        batch.fingerprint,
        extra={"action": CHANGED, "queue": queue_id},
    )


def _refuse_other_plan(queue_id: QueueId, batch: SinkBatch, last: SinkBatch) -> NoReturn:
    """Raise the error for a batch that is not known to have the plan of the published batch."""
    if PlanIdentity.of(batch.fingerprint) is None:
        raise BatchChangedError(
            f"queue {queue_id}: {batch.sink} has published batch {batch.batch_id} by a plan of "
            "Spark's, and the plan of this one cannot be read, so it may be another batch; "
            "nothing was published now. Give the query's 'checkpointLocation' as an option, as a "
            "place that this process can read, as it was when the batch was published. Or, if you "
            "know that this is a replay of that batch, skip it with "
            ".option('failOnChangedBatch', 'false')"
        )
    raise BatchChangedError(
        f"queue {queue_id}: {batch.sink} has published batch {batch.batch_id} by another plan "
        f"({last.fingerprint}, here {batch.fingerprint}); nothing was published now. If you know "
        "that this is a replay of that batch, skip it with "
        ".option('failOnChangedBatch', 'false'). Otherwise, the checkpoint was restored from an "
        "older copy, or is the copy of one with which another query runs: continue with the "
        "newest one; or with a new one, which publishes its messages again; see docs/recipes.md, "
        "Begin with a new checkpoint"
    )


def skip_used(queue_id: QueueId, once: Once, used: Used) -> None:
    """Log that a write is skipped because its name is used, or refuse the write.

    A put that is skipped although it has other messages is lost, as its program counts it as done.

    Args:
        once: The name with the fingerprint of the write; without one if it has no rows.
        used: What the ledger remembers of the name.

    Raises:
        BatchChangedError: Another content was published under the name.
    """
    if fingerprints_differ(used.fingerprint, once.fingerprint):
        refuse_other_content(queue_id)
    logger.warning(
        "queue %s: %s is %s already: nothing to do",
        queue_id,
        once,
        used.mark.name.lower(),
        extra={"action": ALREADY_PUBLISHED, "queue": queue_id},
    )


def refuse_other_content(queue_id: QueueId) -> NoReturn:
    """Refuse a put whose idempotency key was used for another content.

    Raises:
        BatchChangedError: Always.
    """
    raise BatchChangedError(
        f"queue {queue_id}: this idempotency key was used for a put with another content; nothing "
        "was published now. A repeated put has the same messages, with the same keys and headers, "
        "in any order: so make them before the first attempt, and not in each attempt anew. If it "
        "is another put, give it a key of its own"
    )


def check_order(queue_id: QueueId, batch: SinkBatch, last: SinkBatch | None) -> None:
    """Refuse a batch with a lower number than the last one that its sink has published.

    Raises:
        BatchOrderError: The batch has a lower number.
    """
    if last is not None and standing_of(batch, last) is Standing.BEHIND:
        raise BatchOrderError(
            f"queue {queue_id}: {batch.sink} has published up to batch {last.batch_id}, and this "
            f"write says that it is batch {batch.batch_id}; nothing was published now. A query "
            "replays only its last batch. So its checkpoint was restored from an older copy, or "
            "is new while 'txnAppId' is not, or 'txnVersion' is below the last one. Continue with "
            "the newest checkpoint, or a higher 'txnVersion'; or begin with a new checkpoint and "
            "another 'txnAppId', which publishes its messages again"
        )
