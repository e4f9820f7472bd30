"""The options of writing."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from itertools import chain
from typing import ClassVar

from cassieq_spark.arguments import MOST
from cassieq_spark.errors import OptionError
from cassieq_spark.settings.declaration import check_both_or_neither, required, setting
from cassieq_spark.settings.kinds import (
    BOOLEAN,
    SECONDS,
    TEXT,
    choice,
    duration,
    name_of,
    size,
    whole_number,
)
from cassieq_spark.settings.spark import RoleOptions, a_role
from cassieq_spark.settings.verbs import VERBS

LARGEST_MESSAGE = 8 << 20

#: The default operation of a write.
PUBLISH = "publish"
REPLACE = "replace"
#: The operation of a write whose column ``operation`` has the operation of each row.
EACH = "each"
#: The columns that each way to settle messages takes.
SETTLING = {
    **{
        name: ("receipt", *((it.parameter.column,) if it.parameter else ()))
        for name, it in VERBS.items()
    },
    REPLACE: ("receipt", "value", "key", "headers", "delay"),
}
SETTLING[EACH] = tuple(dict.fromkeys(["receipt", "operation", *chain(*SETTLING.values())]))
#: When a write of receipts takes effect.
WITH_BATCH, NOW = "batch", "now"

#: The identity by which a batch write publishes once: its name, or its micro-batch.
BY_NAME, BY_BATCH = "name", "batch"


def _taking(column: str) -> tuple[str, ...]:
    """The ways to settle messages that take a column."""
    return tuple(name for name, columns in SETTLING.items() if column in columns)


@a_role
@dataclass(frozen=True, slots=True, kw_only=True)
class SinkOptions(RoleOptions):
    """Options of ``df.write`` and ``df.writeStream``."""

    role: ClassVar[str] = "writing"

    # A factory, as a column may name the queue of each row instead.
    queue: str = field(
        default_factory=str,
        metadata=required(
            name_of("queue"), "The queue, which must exist.", unless=(("queueColumn", None),)
        ),
    )
    queue_column: str | None = setting(
        TEXT,
        None,
        "Instead of `queue`: the column that names the queue of each row; the rows are published "
        "without it. See [sink.md](sink.md#several-queues).",
    )
    txn_app_id: str | None = setting(
        TEXT,
        None,
        "With `txnVersion`: names the writer, so that a batch write repeated under the same "
        "version is published once. With `exactlyOnce` = batch, and without `txnVersion`: tells "
        "several writes of one micro-batch to one queue apart. A streaming query needs neither.",
    )
    txn_version: int | None = setting(
        whole_number(0, MOST),
        None,
        "With `txnAppId`: number of this write, higher than those before it. Inside "
        "`foreachBatch`, use `exactlyOnce` = batch instead.",
    )
    exactly_once: str = setting(
        choice(BY_NAME, BY_BATCH),
        BY_NAME,
        "What makes a batch write publish once: its `txnAppId` and `txnVersion`, if they are "
        "given (name); or, for a write inside `foreachBatch`, the query and the micro-batch "
        "that it is a part of, which Spark tells its tasks (batch).",
    )
    fail_on_changed_batch: bool = setting(
        BOOLEAN,
        True,
        "Whether it is an error if a batch was published before by another plan of Spark's or, "
        "where the sink cannot read the query's `checkpointLocation`, with another content. That "
        "happens if a checkpoint was restored from an older copy, or if the rows of a query "
        "differ from run to run. If false, the batch is skipped, with an error in the log.",
    )
    operation: str = setting(
        choice(PUBLISH, *VERBS, REPLACE, EACH),
        PUBLISH,
        "What a batch write does: publish its rows, or settle the messages that its column "
        "`receipt` names: they are done (ack), to be delivered again (release), held beyond their "
        "batch (extend), dead (reject), or replaced by the message of the row (replace); or what "
        "its column `operation` says (each). See [settling.md](settling.md).",
    )
    delay: timedelta = setting(
        duration(timedelta(days=365), zero=True),
        timedelta(0),
        "With `operation` = release or replace, without a column `delay`: "
        "delay before the messages are delivered.",
    )
    seconds: timedelta | None = setting(
        SECONDS,
        None,
        "With `operation` = extend, without a column `seconds`: how long from "
        "now the messages are held.",
        without="as long as a lease of the queue",
    )
    reason: str = setting(
        TEXT,
        "rejected",
        "With `operation` = reject, without a column `reason`: the reason, for "
        "the dead-letter queue.",
    )
    settle: str | None = setting(
        choice(WITH_BATCH, NOW),
        None,
        "When a write of receipts takes effect: with its batch, so that a batch that is delivered "
        "again is complete (batch), or at once (now). Without it, with the batch inside "
        "`foreachBatch`, and at once elsewhere; over Spark Connect, give it.",
    )
    create_queue: bool = setting(
        BOOLEAN,
        False,
        "Whether to create the queue if there is none, with the columns of the DataFrame as its "
        "schema and the defaults of `Client.create_queue`.",
    )
    compression: str = setting(
        choice("lz4", "zstd", "none"), "lz4", "How messages are compressed."
    )
    chunk_bytes: int | None = setting(
        size(LARGEST_MESSAGE),
        None,
        "Bytes of messages per row of Cassandra, before compression; a larger "
        "message has a row of its own.",
        without="256k; 1m if the queue has a schema",
    )
    max_message_bytes: int = setting(
        size(LARGEST_MESSAGE),
        LARGEST_MESSAGE,
        "Largest message, with its key and headers; a larger one fails the write.",
    )

    def __post_init__(self) -> None:
        if self.queue and self.queue_column is not None:
            raise OptionError(
                "options 'queue' and 'queueColumn' both say where the rows go: give one of them"
            )
        if self.exactly_once == BY_BATCH:
            self._check_by_batch()
        else:
            check_both_or_neither(
                {"option 'txnAppId'": self.txn_app_id, "option 'txnVersion'": self.txn_version}
            )
        given = {
            "createQueue": (self.create_queue, (PUBLISH,)),
            "delay": (bool(self.delay), _taking("delay")),
            "seconds": (self.seconds is not None, _taking("seconds")),
            "reason": (self.reason != "rejected", _taking("reason")),
            "settle": (self.settle is not None, _taking("receipt")),
            "queueColumn": (self.queue_column is not None, (PUBLISH,)),
        }
        for key, (is_given, operations) in given.items():
            if is_given and self.operation not in operations:
                hint = "; to delay what is published, add a column 'delay'"
                raise OptionError(
                    f"option {key!r} is for 'operation' = {' or '.join(operations)}, not "
                    f"{self.operation!r}{hint if key == 'delay' else ''}"
                )

    def _check_by_batch(self) -> None:
        if self.txn_version is not None:
            raise OptionError(
                "option 'exactlyOnce' = 'batch' has its version from Spark, the batch id: leave "
                "out 'txnVersion' (and 'txnAppId', unless several writes of one micro-batch go to "
                "one queue)"
            )
        if self.operation != PUBLISH:
            raise OptionError(
                f"option 'exactlyOnce' is for publishing, not for 'operation' = {self.operation!r}"
            )
