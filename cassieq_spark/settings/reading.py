"""The options of reading."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, ClassVar

from cassieq_spark.errors import OptionError
from cassieq_spark.settings.declaration import (
    explain_missing,
    required,
    setting,
    settings_by_option,
    settings_of,
)
from cassieq_spark.settings.kinds import (
    BOOLEAN,
    CLIENT_NAME,
    NAMES,
    PATTERN,
    SECONDS,
    TEXT,
    choice,
    duration,
    name_of,
    names_of,
    size,
    whole_number,
)
from cassieq_spark.settings.position import POSITION, StartingPosition
from cassieq_spark.settings.spark import RoleOptions, a_role

_LARGEST_BATCH = 1 << 40

#: Spark tasks of a batch, unless tasks would have fewer messages than the second number.
USUAL_TASKS, LEAST_PER_TASK = 16, 25_000
#: Most messages of a task, approximately, of larger batches.
MOST_PER_TASK = 100_000

#: The view that a stream reads, and that a batch read reads by default.
MESSAGES = "messages"
#: The view of all queues; all others show one queue.
QUEUES = "queues"

#: The kinds of reads. Some options apply to one kind only.
STREAM, BATCH = "a stream", "a batch read of messages"
_LEASES, _HISTORY = "the view leases", "the view history"


def usual_task(messages: int) -> int:
    """The most messages of a Spark task, approximately, if no option gives a number.

    The number follows from the batch, as the process beside the driver cannot see how many cores
    Spark has.

    >>> [usual_task(messages) for messages in (10_000, 800_000, 10_000_000)]
    [25000, 50000, 100000]

    Args:
        messages: Messages of the batch.
    """
    return min(MOST_PER_TASK, max(LEAST_PER_TASK, -(-messages // USUAL_TASKS)))


@a_role
@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions(RoleOptions):
    """Options of ``spark.read`` and ``spark.readStream``."""

    role: ClassVar[str] = "reading"

    # A factory, because the queue is optional for one view, and has no default for the others.
    queue: str = field(
        default_factory=str,
        metadata=required(
            names_of("queue"),
            "The queue, which must exist; for a stream also several, as in `orders,returns`: "
            "[Several queues](source.md#several-queues).",
            unless=(("view", QUEUES), ("queuePattern", None)),
        ),
    )
    queue_pattern: str | None = setting(
        PATTERN,
        None,
        "Instead of `queue`: a regular expression; all queues whose whole names match are read, "
        "also those that are made while the query runs.",
        only_for=(STREAM,),
    )
    view: str = setting(
        choice(MESSAGES, "blocks", "leases", "groups", QUEUES, "stats", "history"),
        MESSAGES,
        "What a batch read shows: [views.md](views.md). A stream reads messages.",
    )
    group: str | None = setting(
        name_of("group"),
        None,
        "Consumer group; each group gets every message. A stream needs it.",
        only_for=(STREAM, _LEASES, _HISTORY),
    )
    starting_position: StartingPosition = setting(
        POSITION,
        "earliest",
        "Where a batch read or a new group begins: at the earliest message "
        "that still exists, at the first one published from now on (latest), "
        "at a monoton, or at the first block published at an instant or later.",
        only_for=(STREAM, BATCH),
    )
    fail_on_data_loss: bool = setting(
        BOOLEAN,
        True,
        "Whether to refuse a `startingPosition` that is deleted, for a batch read and for a new "
        "group; otherwise they begin with the first message that still exists. Also whether a "
        "stream of several queues fails if one is deleted or purged; otherwise it leaves it.",
        only_for=(STREAM, BATCH),
    )
    ending_position: StartingPosition = setting(
        POSITION,
        "latest",
        "Where a batch read ends: before this monoton, or before the first block published at an "
        "instant or later. `latest` is the end of the queue when the read is planned.",
        only_for=(BATCH,),
    )
    max_messages: int | None = setting(
        whole_number(1),
        None,
        "Messages of a batch read, which reads the first ones.",
        without="no limit",
        only_for=(BATCH,),
    )
    max_messages_per_trigger: int = setting(
        whole_number(1), 1_000_000, "Messages per micro-batch.", only_for=(STREAM,)
    )
    max_bytes_per_trigger: int | None = setting(
        size(_LARGEST_BATCH),
        None,
        "Approximate bytes per micro-batch, as stored; at least one message.",
        without="no limit",
        only_for=(STREAM,),
        of_lease="max_bytes",
    )
    min_messages_per_trigger: int = setting(
        whole_number(0),
        0,
        "Wait for this many messages before a micro-batch, but no longer than "
        "`maxTriggerDelay`. `Trigger.AvailableNow` does not wait.",
        only_for=(STREAM,),
        of_lease="min_messages",
    )
    max_trigger_delay: timedelta = setting(
        duration(timedelta(days=365)),
        timedelta(minutes=15),
        "With `minMessagesPerTrigger`: the longest time from one micro-batch to the next, if "
        "there are any messages.",
        only_for=(STREAM,),
    )
    max_in_flight: int | None = setting(
        whole_number(1),
        None,
        "Messages that all readers of the group together may hold at a time, "
        "if each of them has this option.",
        without="no limit",
        only_for=(STREAM,),
        of_lease="max_in_flight",
    )
    skip_older_than: timedelta | None = setting(
        duration(timedelta(days=36_500)),
        None,
        "Messages that have been visible for longer when the group first "
        "reaches them are skipped, and count as acked. No message is older "
        "than its write, whatever its `visible_at`.",
        without="none are skipped",
        only_for=(STREAM,),
        of_lease="skip_older_than",
    )
    retry_backoff: timedelta = setting(
        duration(timedelta(days=30), zero=True),
        timedelta(0),
        "Pause before messages whose first delivery failed are delivered "
        "again; twice as long after the second, and so on, up to an hour. A "
        "query that restarts repeats its last batch at once the first time.",
        only_for=(STREAM,),
        of_lease="retry_backoff",
    )
    messages_per_task: int | None = setting(
        whole_number(1),
        None,
        "Most messages of a Spark task, approximately.",
        without=f"{LEAST_PER_TASK:,} to {MOST_PER_TASK:,}, by the size of the batch",
        see="source.md#tasks",
        only_for=(STREAM, BATCH),
    )
    min_partitions: int | None = setting(
        whole_number(1),
        None,
        "Fewest Spark tasks of a batch, approximately, if it has enough messages, such as the "
        "number of Spark's cores; as of Kafka's source.",
        without="as many as messagesPerTask makes",
        see="source.md#tasks",
        only_for=(STREAM, BATCH),
    )
    lease: timedelta | None = setting(
        SECONDS,
        None,
        "How long the lease of a batch lasts without a heartbeat.",
        without="as long as the queue says",
        only_for=(STREAM,),
        option="leaseSeconds",
        of_lease="lease",
    )
    client_name: str | None = setting(
        CLIENT_NAME,
        None,
        "The name of the query for people, who see it beside the leases that the query has.",
        without="the host and the number of the process that reads",
        only_for=(STREAM,),
        of_lease="by",
    )
    checkpoint_location: str | None = setting(
        TEXT,
        None,
        "The `checkpointLocation` of the query, as `writeStream` has it: a "
        "path of the driver's machine, or a URI that pyarrow reads (`hdfs`, "
        "`s3`, `s3a`, `gs`, ...; not `dbfs` or `wasbs`). With it a query that "
        "is stopped acks its last batch if Spark has committed it; without it, "
        "that batch is delivered again.",
        only_for=(STREAM,),
    )
    include_headers: bool = setting(
        BOOLEAN, False, "Whether rows have the column `headers`.", only_for=(STREAM, BATCH)
    )
    include_receipts: bool = setting(
        BOOLEAN,
        False,
        "Whether rows of a stream have the column `receipt`, by which a write with `operation` "
        "settles a message; of a queue with a schema, the field `_metadata.receipt`.",
        only_for=(STREAM,),
    )
    columns: tuple[str, ...] | None = setting(
        NAMES,
        None,
        "Of a queue with a schema: the columns to read, as in `vendor,fare`. The others are not "
        "even decompressed. As in Spark SQL, backquotes inside of backquotes are doubled.",
        without="all of them",
        only_for=(STREAM, BATCH),
    )
    include_metadata: bool = setting(
        BOOLEAN,
        False,
        "Of a queue with a schema: whether rows have the struct `_metadata`, with queue, "
        "partition, monoton, key, headers, published_at and delivery_count.",
        only_for=(STREAM, BATCH),
    )

    def __post_init__(self) -> None:
        if self.queue and self.queue_pattern is not None:
            raise OptionError(
                "options 'queue' and 'queuePattern' both say what to read: give one of them"
            )
        least, most = self.min_messages_per_trigger, self.max_messages_per_trigger
        if least > most:
            raise OptionError(
                f"option 'minMessagesPerTrigger' is {least}, and 'maxMessagesPerTrigger' is {most}"
                ": a batch can't have that many; give a minimum up to the maximum"
            )

    @property
    def lease_limits(self) -> dict[str, Any]:
        """The fields of a lease request that these options set, with their values."""
        of_lease = (each for each in settings_of(type(self)) if each.of_lease)
        return {each.of_lease: getattr(self, each.attribute) for each in of_lease}

    @property
    def queues(self) -> tuple[str, ...]:
        """The names in ``queue``; none with ``queue_pattern``."""
        return tuple(self.queue.split(",")) if self.queue else ()

    @property
    def is_of_several(self) -> bool:
        """True if a stream reads all queues of a list, or of a pattern."""
        return self.queue_pattern is not None or len(self.queues) > 1

    def check_meaning(self, reads: str, given: Iterable[str]) -> None:
        """Check that all given options apply to a read.

        Args:
            reads: `STREAM` or `BATCH`; `BATCH` also for a read of a view.
            given: The names of the options, in any case of letters.

        Raises:
            OptionError: Some options do not apply; the error has one line per option.
        """
        if reads == BATCH and self.view != MESSAGES:
            reads = f"the view {self.view}"
        known = settings_by_option(type(self))
        found = (known.get(key.lower()) for key in given)
        problems = [
            f"option {each.option!r} is for {each.uses}, not for {reads}: leave it out"
            for each in found
            if each is not None and each.only_for and reads not in each.only_for
        ]
        if reads != STREAM and len(self.queues) > 1:
            problems.append(
                f"option 'queue' has {len(self.queues)} names, and only a stream reads several "
                f"queues: for {reads} name one"
            )
        if problems:
            raise OptionError("\n".join(problems))

    def stream_group(self) -> str:
        """The group of a stream; a stream needs a group, and reads messages only.

        Raises:
            OptionError: No group is given, or another view is to be read.
        """
        if self.view != MESSAGES:
            raise OptionError(
                f"a stream reads messages: option 'view' is {self.view!r}, which is for "
                "spark.read; leave it out"
            )
        if self.group is None:
            raise OptionError("a stream reads as a consumer group: " + explain_missing("group"))
        return self.group
