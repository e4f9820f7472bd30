"""Mutants of upkeep: finalise, delete, repair, seek, registration, clocks, locks (I3, I7, I10)."""

from __future__ import annotations

from tests.mutants.changes import (
    always,
    drop_argument,
    drop_condition,
    drop_element,
    drop_statement,
    drop_term,
    insert,
    never,
    replace,
    replace_call,
    unwrap,
    value,
)
from tests.mutants.mutant import Mutant

_IN_SOME_ORDER = ("property/test_interleavings.py",)
_CLOCKS = ("property/test_clocks_property.py",)
_REPAIR = ("property/test_repair_property.py",)
_FIX_CLOCKS = ("unit/queues/test_clocks.py",)
_LOCK = ("unit/lock",)
_RACING = ("unit/queues/test_racing.py",)

UPKEEP = (
    # -- nothing that somebody needs is deleted -----------------------------------------------
    Mutant(
        "the row of a block that straddles is trimmed",
        "I2",
        "repair.plan:plan_finalise",
        replace("block.monotons.stop", "block.monotons.start + 1"),
    ),
    Mutant(
        "one bucket too many is deleted",
        "I3",
        "repair.plan:_settled_buckets",
        replace_call("offset_of", "_ + bucket_size - 1"),
    ),
    Mutant(
        "rows are trimmed, buckets are not deleted",
        "I3",
        "repair.actions:DeleteSettled.apply",
        drop_statement("delete_buckets"),
    ),
    Mutant(
        "rows are trimmed before the buckets are deleted",
        "I3",
        "repair.plan:plan_finalise",
        value("sorted(_, key=lambda each: isinstance(each, DeleteSettled))", of="actions", nth=2),
    ),
    Mutant(
        "clean without the fence",
        "I10",
        "repair.plan:plan_clean",
        drop_condition("fence"),
        _IN_SOME_ORDER,
    ),
    Mutant(
        "finalise whatever groups came",
        "I7",
        "ledger.state:advance_finalised",
        drop_element("groups_version"),
    ),
    Mutant(
        "register on what is finalised by now",
        "I7",
        "ledger.state:advance_groups_version",
        drop_element("finalised"),
    ),
    Mutant(
        "a seek pin does not count",
        "I7",
        "groups.registration:read_group_states",
        unwrap("replace"),
        _IN_SOME_ORDER,
    ),
    Mutant(
        "the seek pin is removed before the group moves",
        "I7",
        "groups.seek:_Seek._try_again_and_again",
        insert("self._remove(self._ours)", before="_move"),
    ),
    Mutant(
        "slots do not count for the floor",
        "I7",
        "groups.state:GroupState.floor",
        value("[]", of="slots"),
    ),
    Mutant(
        "waiting messages do not count for the floor",
        "I7",
        "groups.state:GroupState.floor",
        drop_statement("waiting"),
    ),
    Mutant(
        "waiting_version is not bumped",
        "I7",
        "groups.changes:Changes.exclude_others",
        replace("head.waiting_version + 1", "head.waiting_version"),
    ),
    Mutant(
        "what waits may change while the repair reads",
        "I7",
        "groups.group:ConsumerGroup.read",
        always("_read_head"),
    ),
    Mutant(
        "floors rest on a plain read of the groups",
        "I7",
        "groups.registration:read_group_states",
        drop_argument("read", "serial", nth=1),
    ),
    Mutant(
        "compare-and-sets at another level than reads",
        "I7",
        "settings.connection:Consistency.of_conditions",
        never("LOCAL_QUORUM"),
        ("unit/store/test_consistency.py",),
    ),
    Mutant(
        "marks of deletions go before replicas are repaired",
        "I6",
        "store.tables:ROW_GRACE",
        value("GRACE"),
        ("unit/store/test_upgrade.py",),
    ),
    Mutant(
        "what is settled is not kept",
        "keep",
        "repair.plan:stays_from",
        replace("queue.keep_settled", "None"),
    ),
    Mutant(
        "without a group nothing expires",
        "keep",
        "repair.finalise:finalise_step",
        value("False", of="expire_after"),
    ),
    # -- the repair ---------------------------------------------------------------------------
    Mutant(
        "a repair run marks dead what a query that is down may have done",
        "what is done is acked",
        "repair.redeliver:_find_dead",
        replace_call("max", "GRACE"),
    ),
    Mutant(
        "an error of one queue ends the repair of all",
        "one queue's trouble is its own",
        "repair.steps:_apart",
        always("checkpoint"),
        _REPAIR,
    ),
    Mutant(
        "a queue that fails is not audited",
        "a loss is told",
        "repair.steps:_take_one",
        drop_condition("AUDIT"),
        ("unit/repair/test_apart.py",),
    ),
    # -- races to create ----------------------------------------------------------------------
    Mutant(
        "who lost the race to create a queue does not find it",
        "creation",
        "queues.record:read_active",
        drop_argument("read_record", "serial"),
        _RACING,
    ),
    # -- clocks -------------------------------------------------------------------------------
    Mutant(
        "one clock decides what is old, and how long messages wait",
        "clocks",
        "groups.state:GroupState.sure_now",
        drop_term("ahead"),
        _CLOCKS,
    ),
    Mutant(
        "one clock decides where the fence is",
        "clocks",
        "store.protocol:Rows.sure_now",
        drop_term("ahead"),
        _CLOCKS,
    ),
    Mutant(
        "a block from the future keeps what is behind it",
        "clocks",
        "repair.plan:aged",
        never("is_of_the_future"),
        _CLOCKS,
    ),
    Mutant(
        "a fence is taken back to where deleted blocks can be published",
        "I10",
        "queues.clocks:_lower_fence",
        value("now - timedelta(hours=1)", of="CLOCKS_APART"),
        _IN_SOME_ORDER,
    ),
    Mutant(
        "fix-clocks leaves a reader no longer lease than the queue's",
        "clocks",
        "queues.clocks:plan_due_now",
        unwrap("max"),
        _FIX_CLOCKS,
    ),
    Mutant(
        "a serial read by a node that is ahead begins without an LWT",
        "clocks",
        "store.cassandra.promises:read_serially",
        never("_is_ahead"),
        ("unit/store/test_promises.py",),
    ),
    Mutant(
        "a node whose clock most contradict is asked like the others",
        "clocks",
        "store.cassandra.clocks:RightClocksFirst.make_query_plan",
        never("outvoted"),
        ("unit/store/test_node_clocks.py",),
    ),
    # -- locks --------------------------------------------------------------------------------
    Mutant(
        "a ticket that is written again and again counts as silent",
        "lock",
        "lock.tickets:Watch.silent",
        never("writes", nth=1),
        _LOCK,
    ),
    Mutant(
        "the ticket of a dead process stays until its node's clock has come",
        "lock",
        "lock.bakery:Bakery._enter_with",
        unwrap("_delete"),
        _LOCK,
    ),
)
