"""Mutants of order: strict queues, lanes of keys, partitions, and who reads which (I11)."""

from __future__ import annotations

from tests.mutants.changes import (
    always,
    drop_condition,
    drop_element,
    drop_statement,
    never,
    rename,
    replace_call,
    set_argument,
    value,
)
from tests.mutants.mutant import Mutant

_IN_SOME_ORDER = ("property/test_interleavings.py",)
_KEYS = ("property/test_key_order_property.py",)
_EVERYWHERE = ("unit/partitions/test_group_everywhere.py",)
_SHARING = ("unit/partitions/test_sharing.py",)
_READING = ("unit/partitions/test_reading.py",)

ORDER = (
    # -- strict order -------------------------------------------------------------------------
    Mutant(
        "fresh messages while lower ones are outstanding",
        "strict order",
        "groups.plan:_lease_batch",
        never("outstanding"),
    ),
    Mutant(
        "over a gap out of order",
        "strict order",
        "groups.plan:_lease_batch",
        drop_statement("_count_in_order"),
    ),
    Mutant(
        "one lease serves all who wait in strict order",
        "strict order",
        "http.gateway.coalescer:_hand_out",
        never("STRICT"),
        ("property/test_strict_rounds_property.py",),
    ),
    Mutant(
        "a lease in strict order shares its round",
        "I11",
        "groups.rounds:Leasing.is_alone",
        value("False", of="is_exclusive"),
        ("unit/groups/test_rounds.py",),
    ),
    Mutant(
        "a queue that is ordered by key is strict after a purge",
        "I11",
        "queues.lifecycle:purge_queue.begin",
        drop_element("by_key"),
        ("unit/partitions/test_queue.py",),
    ),
    Mutant(
        "messages may be delayed in order by key",
        "I11",
        "queues.definition:check_delayable",
        never("is_ordered"),
        ("unit/partitions/test_queue.py", "unit/partitions/test_client.py"),
    ),
    # -- lanes --------------------------------------------------------------------------------
    Mutant(
        "a lane goes to two receivers",
        "I11",
        "groups.takers:hand_out",
        never("is_lane"),
    ),
    Mutant(
        "what is held holds up nothing of its lane",
        "I11",
        "groups.takers:_lines",
        set_argument("_Line", "below", "every", nth=1),
    ),
    Mutant(
        "the messages of a lane go out in the order of their rows",
        "I11",
        "groups.takers:_lines",
        drop_statement("sort"),
        ("unit/groups/test_takers.py",),
    ),
    Mutant(
        "what is given back has no lane any more",
        "lanes",
        "groups.state:Slot.to_waiting",
        replace_call("lanes_within", "None"),
        ("unit/client/test_lanes.py", *_KEYS),
    ),
    Mutant(
        "messages that failed together take others along",
        "poison isolated",
        "groups.takers:Taker.takes",
        never("suspect", nth=1),
    ),
    Mutant(
        "the ledger tells other lanes than the messages have",
        "lanes",
        "producer.blocks:_lanes_of",
        set_argument("lanes_of_keys", 1, "1"),
        ("unit/client/test_lanes.py",),
    ),
    Mutant(
        "the lanes that the ledger tells go by messages without repeats",
        "lanes",
        "consumer.lane_reader:_told",
        replace_call("offset_of", "block.offset_of(block.monotons.start + number)"),
        ("unit/client/test_lanes.py", "property/test_outside.py"),
    ),
    Mutant(
        "the lanes of too few messages are taken",
        "lanes",
        "groups.lanes:decode_lane_of_each",
        always("lanes", nth=2),
        ("unit/client/test_lanes.py",),
    ),
    Mutant(
        "the ledger tells the lanes of a block of any size",
        "bounded",
        "producer.blocks:_Notes.note",
        never("MOST_LANES"),
        ("unit/client/test_lanes.py",),
    ),
    Mutant(
        "a publish tells the lanes of any number of blocks",
        "bounded",
        "ledger.decide:_block_rows",
        set_argument("block_values", "with_lanes", "True"),
        ("unit/ledger/test_decide.py",),
    ),
    Mutant(
        "a lease takes any number of rows of one lane",
        "bounded",
        "groups.takers:_Line.offered",
        drop_condition("most_rows"),
    ),
    Mutant(
        "a group steps over any number of messages of one key",
        "bounded",
        "groups.singly:_may_park",
        drop_condition("MOST_PARKED"),
    ),
    Mutant(
        "what is stepped over is not parked",
        "I5",
        "groups.singly:_park",
        drop_statement("items"),
    ),
    # -- partitions ---------------------------------------------------------------------------
    Mutant(
        "partitions are not in order",
        "I11",
        "consumer.consumer:Consumer._of_this_queue",
        set_argument("replace", "strict_fifo", "_ and queue.partitions == 1"),
        _KEYS,
    ),
    Mutant(
        "another hash of keys",
        "I11",
        "producer.partitioner:_hash",
        rename("mmh3_32_uintdigest", "mmh3_32_sintdigest"),
        ("unit/partitions/test_partitioner.py",),
    ),
    Mutant(
        "rows of a partition do not keep their order",
        "I11",
        "producer.partitioner:deal",
        replace_call("argsort", "np.lexsort((-np.arange(len(numbers)), numbers))"),
        ("unit/partitions/test_partitioner.py", "unit/partitions/test_publishing.py"),
    ),
    Mutant(
        "a client makes its group in one partition",
        "I7",
        "groups.partitions:ensure_groups",
        value("[ensure(first)] * len(ledgers)", of="in_parallel"),
        _EVERYWHERE,
    ),
    Mutant(
        "a group that is held in one partition is moved in the others",
        "I6",
        "groups.partitions:_check_all_unleased",
        never("force"),
        ("unit/partitions",),
    ),
    Mutant(
        "a group is deleted in the first partition last",
        "I7",
        "groups.partitions:delete_groups",
        replace_call("any", "any([*in_parallel(delete, others), delete(first)])"),
        _EVERYWHERE,
    ),
    # -- who reads which partition ------------------------------------------------------------
    Mutant(
        "every reader takes all partitions",
        "presence",
        "groups.presence:share_of",
        set_argument("frozenset", 0, "range(partitions)"),
        _SHARING,
    ),
    Mutant(
        "readers that are gone count for ever",
        "presence",
        "groups.presence:Presence._write",
        set_argument("write_row", "ttl", "timedelta(days=1)"),
        _SHARING,
    ),
    Mutant(
        "a presence is never written again",
        "presence",
        "groups.presence:Presence.share",
        drop_condition("_again_after"),
        _SHARING,
    ),
    Mutant(
        "a partition that is another's now is not acked",
        "presence",
        "spark.source.queue_reader:QueueReader._next_batch",
        set_argument("_wait_until_due", 1, "share"),
        _SHARING,
    ),
    Mutant(
        "each partition gets the limit of all of them",
        "presence",
        "spark.source.queue_reader:share_out",
        value("limit", of="fair", nth=1),
        _READING,
    ),
    Mutant(
        "an offset leaves out the last of several partitions",
        "liveness",
        "spark.source.offsets:join_partitions",
        replace_call("sorted", "_[: max(1, len(ends) - 1)]"),
        _READING,
    ),
)
