"""The options of writing and of reading. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from difflib import get_close_matches
from typing import ClassVar, Self

from cassieq_spark.errors import OptionError
from cassieq_spark.options.cluster import ClusterOptions
from cassieq_spark.options.declaration import (
    check_both_or_neither,
    explain_missing,
    option,
    options_by_key,
    read_values,
)
from cassieq_spark.options.kinds import (
    BOOLEAN,
    SECONDS,
    TEXT,
    choice,
    duration,
    name_of,
    size,
    whole_number,
)
from cassieq_spark.options.position import POSITION, StartingPosition
from cassieq_spark.store.connection import ConnectionOptions

#: Set by Spark itself; in lower case, as Spark hands keys over.
_OF_SPARK = frozenset({"checkpointlocation", "queryname"})
_LARGEST_MESSAGE = 8 << 20
_LARGEST_BIGINT = 2**63 - 1
_LARGEST_BATCH = 1 << 40

#: What a write does.
PUBLISH = "publish"
ACK, RELEASE, EXTEND, REJECT, REPLACE = "ack", "release", "extend", "reject", "replace"
#: Each row says by itself what to do.
EACH = "each"

#: The view that a stream reads, and a batch read by default.
MESSAGES = "messages"
#: The view that is not of one queue.
QUEUES = "queues"


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleOptions:
    """What reading and writing have in common."""

    #: What is done with these options, for errors and headings.
    role: ClassVar[str]

    queue: str = field(metadata=option("queue", name_of("queue"), "The queue, which must exist."))
    connection: ConnectionOptions = field(default_factory=lambda: ClusterOptions().connection())

    @classmethod
    def parse(cls, raw: Mapping[str, str]) -> Self:
        """Read the options that a user gave; keys in any case of letters.

        Raises:
            OptionError: All that is unknown, missing or malformed, a line each; or, if nothing
                is, options that contradict each other.
        """
        given = {key.lower(): text for key, text in raw.items() if key.lower() not in _OF_SPARK}
        known = options_by_key(cls) | options_by_key(ClusterOptions)
        problems = [_explain_unknown(key, cls) for key in given if key not in known]
        own = read_values(cls, given, problems)
        cluster = read_values(ClusterOptions, given, problems)
        if problems:
            raise OptionError("\n".join(problems))
        return cls(connection=ClusterOptions(**cluster).connection(), **own)


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkOptions(RoleOptions):
    """Options of ``df.write`` and ``df.writeStream``."""

    role: ClassVar[str] = "writing"

    txn_app_id: str | None = field(
        default=None,
        metadata=option(
            "txnAppId",
            TEXT,
            "With `txnVersion`: names the writer, so that a batch write repeated under the same "
            "version is published once. A streaming query needs neither.",
        ),
    )
    txn_version: int | None = field(
        default=None,
        metadata=option(
            "txnVersion",
            whole_number(0, _LARGEST_BIGINT),
            "With `txnAppId`: number of this write, higher than those before it; in "
            "`foreachBatch`, the batch id.",
        ),
    )
    operation: str = field(
        default=PUBLISH,
        metadata=option(
            "operation",
            choice(PUBLISH, ACK, RELEASE, EXTEND, REJECT, REPLACE, EACH),
            "What a batch write does: publish its rows, or settle the messages that its column "
            "`receipt` names: they are done (ack), to be delivered again (release), held on "
            "beyond their batch (extend), dead (reject), or replaced by the message of the row "
            "(replace); or what its column `operation` says (each). See "
            "[settling.md](settling.md).",
        ),
    )
    delay: timedelta = field(
        default=timedelta(0),
        metadata=option(
            "delay",
            duration(timedelta(days=365), zero=True),
            "With `operation` = release or replace, where there is no column `delay`: how much "
            "later the messages are delivered, at the earliest.",
        ),
    )
    seconds: timedelta | None = field(
        default=None,
        metadata=option(
            "seconds",
            SECONDS,
            "With `operation` = extend, where there is no column `seconds`: how long from now the "
            "messages are held; without it, as long as a lease of the queue.",
        ),
    )
    reason: str = field(
        default="rejected",
        metadata=option(
            "reason",
            TEXT,
            "With `operation` = reject, where there is no column `reason`: why, for the "
            "dead-letter queue.",
        ),
    )
    compression: str = field(
        default="lz4",
        metadata=option(
            "compression", choice("lz4", "zstd", "none"), "How messages are compressed."
        ),
    )
    chunk_bytes: int = field(
        default=256 << 10,
        metadata=option(
            "chunkBytes",
            size(_LARGEST_MESSAGE),
            "Messages per row of Cassandra, in bytes before compression; a larger message has a "
            "row to itself.",
        ),
    )
    max_message_bytes: int = field(
        default=_LARGEST_MESSAGE,
        metadata=option(
            "maxMessageBytes",
            size(_LARGEST_MESSAGE),
            "Largest message, with its key and headers; a larger one fails the write.",
        ),
    )

    def __post_init__(self) -> None:
        check_both_or_neither({"txnAppId": self.txn_app_id, "txnVersion": self.txn_version})
        given = {
            "delay": (bool(self.delay), (RELEASE, REPLACE, EACH)),
            "seconds": (self.seconds is not None, (EXTEND, EACH)),
            "reason": (self.reason != "rejected", (REJECT, EACH)),
        }
        for key, (is_given, operations) in given.items():
            if is_given and self.operation not in operations:
                raise OptionError(
                    f"option {key!r} is for 'operation' = {' or '.join(operations)}, not "
                    f"{self.operation!r}"
                    + (
                        f"; to delay what is published, add a column {key!r}"
                        if key == "delay"
                        else ""
                    )
                )


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions(RoleOptions):
    """Options of ``spark.read`` and ``spark.readStream``."""

    role: ClassVar[str] = "reading"

    # A factory, not a default: what may be left out for one view is no default of the others.
    queue: str = field(
        default_factory=str,
        metadata=option(
            "queue", name_of("queue"), "The queue, which must exist.", unless=("view", QUEUES)
        ),
    )
    view: str = field(
        default=MESSAGES,
        metadata=option(
            "view",
            choice(MESSAGES, "blocks", "leases", "groups", QUEUES, "stats"),
            "What a batch read shows: [views.md](views.md). A stream reads messages.",
        ),
    )
    group: str | None = field(
        default=None,
        metadata=option(
            "group",
            name_of("group"),
            "Consumer group; each group gets every message. A stream needs it, a batch read only "
            "looks.",
        ),
    )
    starting_position: StartingPosition = field(
        default="earliest",
        metadata=option(
            "startingPosition",
            POSITION,
            "Where a group that the queue does not know yet begins: with what still exists, with "
            "what comes, at a monoton, or with what was published at an instant or later.",
        ),
    )
    fail_on_data_loss: bool = field(
        default=True,
        metadata=option(
            "failOnDataLoss",
            BOOLEAN,
            "Whether a new group whose `startingPosition` is deleted already is refused; "
            "otherwise it begins with what still exists.",
        ),
    )
    max_messages_per_trigger: int = field(
        default=1_000_000,
        metadata=option("maxMessagesPerTrigger", whole_number(1), "Messages per micro-batch."),
    )
    max_bytes_per_trigger: int | None = field(
        default=None,
        metadata=option(
            "maxBytesPerTrigger",
            size(_LARGEST_BATCH),
            "Bytes per micro-batch as they are stored, about; at least one message. Without it, "
            "no limit.",
        ),
    )
    min_messages_per_trigger: int = field(
        default=0,
        metadata=option(
            "minMessagesPerTrigger",
            whole_number(0),
            "Wait for so many messages before a micro-batch, but not longer than "
            "`maxTriggerDelay`. `Trigger.AvailableNow` does not wait.",
        ),
    )
    max_trigger_delay: timedelta = field(
        default=timedelta(minutes=15),
        metadata=option(
            "maxTriggerDelay",
            duration(timedelta(days=365)),
            "With `minMessagesPerTrigger`: the longest time from one micro-batch to the next, if "
            "there are any messages.",
        ),
    )
    max_in_flight: int | None = field(
        default=None,
        metadata=option(
            "maxInFlight",
            whole_number(1),
            "Messages that all readers of the group hold at a time, if each of them has this "
            "option; without it, no limit.",
        ),
    )
    skip_older_than: timedelta | None = field(
        default=None,
        metadata=option(
            "skipOlderThan",
            duration(timedelta(days=36_500)),
            "Messages that have been visible for longer when their turn comes first are not "
            "delivered to this group any more, and count as acked. Without it, none are skipped.",
        ),
    )
    retry_backoff: timedelta = field(
        default=timedelta(0),
        metadata=option(
            "retryBackoff",
            duration(timedelta(days=30), zero=True),
            "How long messages are left alone after their first delivery failed; twice as long "
            "after the second, and so on, up to an hour. A query that restarts repeats its last "
            "batch at once the first time.",
        ),
    )
    messages_per_task: int = field(
        default=100_000,
        metadata=option("messagesPerTask", whole_number(1), "Messages per Spark task, about."),
    )
    lease: timedelta | None = field(
        default=None,
        metadata=option(
            "leaseSeconds",
            SECONDS,
            "How long a batch is this reader's without a heartbeat; without it, as long as the "
            "queue says.",
        ),
    )
    include_headers: bool = field(
        default=False,
        metadata=option("includeHeaders", BOOLEAN, "Whether rows have the column `headers`."),
    )

    include_receipts: bool = field(
        default=False,
        metadata=option(
            "includeReceipts",
            BOOLEAN,
            "Whether rows of a stream have the column `receipt`, by which a write with "
            "`operation` settles a message.",
        ),
    )

    def stream_group(self) -> str:
        """The group, which a stream must have, and it must be one of messages.

        Raises:
            OptionError: There is no group, or another view is asked for.
        """
        if self.view != MESSAGES:
            raise OptionError(
                f"a stream reads messages: option 'view' is {self.view!r}, which is for "
                "spark.read; leave it out"
            )
        if self.group is None:
            raise OptionError("a stream reads as a consumer group: " + explain_missing("group"))
        return self.group


ROLES: tuple[type[RoleOptions], ...] = (SinkOptions, SourceOptions)


def _explain_unknown(key: str, cls: type[RoleOptions]) -> str:
    if key == "path":
        return "cassieq reads and writes a queue, not a path: use .option('queue', ...)"
    for role in ROLES:
        if key in options_by_key(role):
            return (
                f"option {options_by_key(role)[key].key!r} belongs to {role.role}, not {cls.role}"
            )
    known = options_by_key(cls) | options_by_key(ClusterOptions)
    nearest = get_close_matches(key, known, n=1)
    if nearest:
        return f"unknown option {key!r}; did you mean {known[nearest[0]].key!r}?"
    return f"unknown option {key!r}; known: {', '.join(item.key for item in known.values())}"
