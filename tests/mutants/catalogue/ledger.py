"""Mutants of what is published: blocks, sinks, fingerprints, unique ids (I1 to I4, I10, I12)."""

from __future__ import annotations

from tests.mutants.changes import (
    always,
    compare,
    drop_argument,
    drop_condition,
    drop_element,
    drop_statement,
    never,
    replace,
    replace_call,
    set_argument,
    unwrap,
    value,
)
from tests.mutants.mutant import Mutant

_IN_SOME_ORDER = ("property/test_interleavings.py",)
_WRITERS = ("property/test_writer_property.py",)
_COMMITS = ("property/test_group_commit_property.py",)
_PUBLISHER = ("unit/producer/test_publisher.py",)
_MESSAGE_WRITER = ("unit/spark/sink/test_message_writer.py",)
_CHUNKS = ("unit/arrow/test_framing.py",)
_TYPED_CHUNKS = ("unit/arrow/test_typed_framing.py",)
_UNIQUE = ("unit/ledger", "unit/client/test_unique_ids.py")

LEDGER = (
    # -- blocks tile the ledger ---------------------------------------------------------------
    Mutant(
        "publish without next",
        "I1",
        "ledger.state:advance_next",
        drop_element("next", nth=2),
    ),
    Mutant(
        "publish blindly again",
        "I1",
        "ledger.publish:_Publishing._apply",
        drop_statement("doubtful"),
    ),
    Mutant(
        "an attempt is given up though nobody else has its monotons",
        "I1",
        "ledger.publish:_Publishing._find_doubtful",
        always("block", nth=2),
    ),
    Mutant(
        "a head is believed beyond the blocks",
        "I1",
        "ledger.ledger:Ledger.locate",
        set_argument("_locate", "serial", "False"),
    ),
    Mutant(
        "threads publish again after an unknown outcome of a shared publish",
        "I1",
        "producer.group_commit:GroupCommit._publish",
        replace_call("_for_others", "_Turn.ALONE"),
        _COMMITS,
    ),
    Mutant(
        "a publish of any number of blocks",
        "I1",
        "ledger.publish:publish",
        never("MOST_BLOCKS"),
    ),
    # -- rows and chunks stay as they are -----------------------------------------------------
    Mutant(
        "tasks of several versions of a queue are published together",
        "I2",
        "producer.publisher:publish_written",
        replace_call("_only", "written[-1].queue_id", nth=1),
        _PUBLISHER,
    ),
    Mutant(
        "a thread that is fenced off fails those that publish with it",
        "I2",
        "producer.group_commit:GroupCommit._outcomes",
        always("len"),
        _COMMITS,
    ),
    Mutant(
        "one row too many is trimmed",
        "I2",
        "ledger.ledger:Ledger.trim",
        set_argument("DeleteBelow", 1, "_ + 1"),
    ),
    Mutant(
        "a body that is too short shows what was in memory",
        "I3",
        "arrow.packing:unpack",
        never("_LZ4_MAGIC"),
        _CHUNKS,
    ),
    Mutant(
        "what a header says is allocated, however much",
        "I3",
        "arrow.framing:decode",
        never("_excess"),
        _CHUNKS,
    ),
    # -- once ---------------------------------------------------------------------------------
    Mutant(
        "a batch below the last one counts as published",
        "I4",
        "ledger.identity:standing_of",
        replace("Standing.BEHIND", "Standing.PUBLISHED"),
    ),
    Mutant(
        "another content counts as a replay",
        "I4",
        "ledger.identity:standing_of",
        replace("Standing.CHANGED", "Standing.PUBLISHED"),
    ),
    Mutant(
        "a sink publishes the same batch again",
        "I4",
        "ledger.identity:standing_of",
        compare("<", "<="),
    ),
    Mutant(
        "another plan counts as a replay",
        "I4",
        "ledger.identity:standing_of",
        value("True", of="digest"),
        _MESSAGE_WRITER,
    ),
    Mutant(
        "a publish does not look what its sink has published",
        "I4",
        "ledger.publish:_Publishing._decide",
        value("None", of="sink_batch_of"),
    ),
    Mutant(
        "a fingerprint of the last word only",
        "I4",
        "arrow.fingerprint:_folded",
        drop_statement("reduceat"),
        ("property/test_fingerprint_property.py::test_a_bit_that_changes_anywhere_is_noticed",),
    ),
    Mutant(
        "a write inside foreachBatch shares the sink of its query's stream",
        "I4",
        "spark.sink.message_writer:_sink_of_foreach",
        replace("'batch:'", "'query:'"),
        _WRITERS,
    ),
    Mutant(
        "a name that may be forgotten is used again",
        "I4",
        "ledger.once:claim",
        never("lifetime"),
    ),
    Mutant(
        "a server that is behind forgets a name at once",
        "clocks",
        "ledger.once:claim",
        never("CLOCKS_APART"),
    ),
    Mutant(
        "a server that is further behind than the one that was read marks a name",
        "clocks",
        "ledger.once:claim",
        drop_element("no_further"),
    ),
    Mutant(
        "another content under an idempotency key is dropped without a word",
        "I4",
        "ledger.publish:skip_used",
        never("fingerprints_differ"),
        ("unit/client/test_putting.py",),
    ),
    Mutant(
        "rows of other keys complete a batch",
        "all or nothing",
        "producer.partitioned:_is_done",
        never("fail_on_changed", nth=2),
        _MESSAGE_WRITER,
    ),
    # -- fences -------------------------------------------------------------------------------
    Mutant(
        "publish behind the fence",
        "I10",
        "ledger.state:advance_next",
        drop_element("fence"),
        _IN_SOME_ORDER,
    ),
    Mutant(
        "who is ahead publishes what was deleted under a fence that was taken back",
        "I10",
        "ledger.decide:decide_publish",
        drop_condition("unfenced_until"),
        _IN_SOME_ORDER,
    ),
    # -- unique ids ---------------------------------------------------------------------------
    Mutant(
        "the ids that others have published are not read",
        "I12",
        "ledger.window:UniqueIds.catch_up",
        never("last_ids"),
        _UNIQUE,
    ),
    Mutant(
        "a row of unique ids is learned before the head is read, over a gap",
        "I12",
        "ledger.window:UniqueIds.look_ahead",
        always("before"),
        _UNIQUE,
    ),
    Mutant(
        "a gap among the rows of unique ids is not seen",
        "I12",
        "ledger.window:_is_whole",
        value("True", of="follow", nth=2),
        _UNIQUE,
    ),
    Mutant(
        "a write that repeats none of its ids is not compared with what was published",
        "I12",
        "ledger.unique:sift",
        drop_condition("isdisjoint"),
        _UNIQUE,
    ),
    Mutant(
        "a write of which no id is known is not compared with itself",
        "I12",
        "ledger.unique:sift",
        drop_condition("without_id"),
        _UNIQUE,
    ),
    Mutant(
        "an id may come twice in one write",
        "I12",
        "ledger.unique:_sift_one_by_one",
        unwrap("setdefault", 1),
        _UNIQUE,
    ),
    Mutant(
        "an id is forgotten before its time",
        "I12",
        "ledger.window:UniqueIds.catch_up",
        set_argument("_forget", 1, "_ / 2"),
        _UNIQUE,
    ),
    Mutant(
        "a clock that was ahead lets ids be known until it is right",
        "I12",
        "ledger.state:UniqueRow.known_since",
        always("CLOCKS_APART"),
        _UNIQUE,
    ),
    Mutant(
        "rows of unique ids are deleted before their window is over",
        "I12",
        "ledger.window:UniqueIds.forget_below",
        never("_rows"),
        _UNIQUE,
    ),
    Mutant(
        "repeats are told of another attempt",
        "I12",
        "ledger.publish:_Publishing._decide_anew",
        drop_argument("Published", "repeats"),
        _UNIQUE,
    ),
    Mutant(
        "a message without a key goes anywhere, whatever its unique id",
        "I12",
        "producer.partitioned:put_messages",
        never("key", nth=1),
        _UNIQUE,
    ),
    Mutant(
        "an earlier release uses a queue with unique ids",
        "I12",
        "queues.record:settings_of",
        replace("_NOT_FOR_EARLIER", "''"),
        _UNIQUE,
    ),
    # -- partitions of a batch ----------------------------------------------------------------
    Mutant(
        "a batch is looked for only where its rows go now",
        "I4",
        "producer.partitioned:_lasts",
        never("is_fresh"),
        ("unit/partitions/test_publishing.py",),
    ),
    Mutant(
        "an idempotency key that another partition knows is used again",
        "I4",
        "producer.partitioned:_check_key",
        never("mark"),
        ("unit/partitions/test_client.py", "property/test_keyed_puts_property.py"),
    ),
    Mutant(
        "a batch that its sink refuses before a task runs counts as delivered",
        "I8",
        "spark.sink.message_writer:MessageStreamWriter.__init__",
        drop_statement("_give_back"),
        _MESSAGE_WRITER,
    ),
)
