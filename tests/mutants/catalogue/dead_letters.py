"""Mutants of the ways to and from dead letters: unreadable, rejected, stopped, redriven (I9)."""

from __future__ import annotations

from tests.mutants.changes import (
    always,
    insert,
    negate,
    never,
    replace_call,
    set_argument,
    unwrap,
    value,
)
from tests.mutants.mutant import Mutant

_IN_SOME_ORDER = ("property/test_interleavings.py",)
_DEAD = ("unit/dead_letters",)
_REDRIVE = ("unit/dead_letters/test_redrive.py",)
_COLUMNS = ("unit/dead_letters/test_columns.py",)
_CRAFTED = ("unit/arrow/test_crafted_chunks.py",)
_BAD_MESSAGES = ("property/test_bad_messages_property.py",)
_FEATURES = ("property/test_features_machine.py::test_no_feature_breaks_another",)

DEAD_LETTERS = (
    # -- once, and copied first ---------------------------------------------------------------
    Mutant(
        "any reader may discard dead letters where they are claimed",
        "claims",
        "groups.partitions:_check_free",
        never("name"),
        ("unit/dead_letters/test_purge.py",),
    ),
    Mutant(
        "a dead slot keeps its token",
        "I9",
        "groups.plan:mark_dead",
        set_argument("empty_slot", 1, "slot.lease"),
    ),
    Mutant(
        "the dead are handed out",
        "I9",
        "groups.deliveries:row_is_dead",
        value("False", of="reason"),
        _IN_SOME_ORDER,
    ),
    Mutant(
        "copied before it is marked dead",
        "I9",
        "dead_letters.dead_letter:dead_letter_messages",
        never("reason"),
        _DEAD,
    ),
    Mutant(
        "removed before the copy",
        "I9",
        "dead_letters.dead_letter:dead_letter_messages",
        insert("group.remove_dead(each)", before="_publish_copies"),
    ),
    Mutant(
        "copied again by every reader",
        "I9",
        "dead_letters.dead_letter:_publish_copies",
        set_argument("publish", "batch", "Once(_.name + written.block.hex, _.lifetime)"),
        _IN_SOME_ORDER,
    ),
    Mutant(
        "dropped by a reader of before there was a dead-letter queue",
        "poison",
        "dead_letters.dead_letter:dead_letter_messages",
        unwrap("_definition_now", 1),
        _DEAD,
    ),
    # -- what stops ---------------------------------------------------------------------------
    Mutant(
        "a reader dead-letters where the group should stop",
        "on_dead",
        "consumer.consumer:Consumer.dead_letter",
        never("STOP"),
        ("unit/dead_letters/test_stopped.py",),
    ),
    Mutant(
        "the repair dead-letters where the group should stop",
        "on_dead",
        "repair.redeliver:redeliver_step",
        never("STOP"),
        ("unit/dead_letters/test_stopped.py",),
    ),
    Mutant(
        "a message that is retried is dead still",
        "on_dead",
        "groups.group:ConsumerGroup.retry_dead",
        set_argument("Waiting", "deliveries", "dead.deliveries"),
        ("unit/dead_letters/test_stopped.py",),
    ),
    # -- what can't be read -------------------------------------------------------------------
    Mutant(
        "what a task can't read is acked with its batch",
        "poison",
        "spark.source.stream:MessageStreamReader._read_part",
        never("by_reason"),
        _CRAFTED,
    ),
    Mutant(
        "what can't be read stops its queue",
        "poison",
        "fetch.read:_rows_of_piece",
        always("on_unreadable"),
        _CRAFTED,
    ),
    Mutant(
        "a row of a queue that cannot be read ends what lists queues",
        "one queue's trouble is its own",
        "queues.record:read_records",
        insert("raise error", before="unreadable", nth=2),
        ("unit/queues/test_unreadable.py",),
    ),
    # -- redriven -----------------------------------------------------------------------------
    Mutant(
        "a program says where a dead letter came from",
        "redrive",
        "arguments:header_pairs",
        never("is_reserved"),
        _BAD_MESSAGES,
    ),
    Mutant(
        "a DataFrame says where a dead letter came from",
        "redrive",
        "arrow.chunks:_check_headers",
        replace_call("_any_reserved", "False"),
        _BAD_MESSAGES,
    ),
    Mutant(
        "dead letters go to any account",
        "redrive",
        "dead_letters.redrive:read_routes",
        negate("across_accounts"),
        _REDRIVE,
    ),
    Mutant(
        "all letters of a redrive go to the partition of those without a key",
        "redrive",
        "dead_letters.redrive:_Run._by_partition",
        always("key"),
        _FEATURES,
    ),
    Mutant(
        "a redrive leaves out columns that its target lacks",
        "redrive",
        "schemas.evolution:without_place",
        never("null_count"),
        _COLUMNS,
    ),
    Mutant(
        "a claim is given back while the row of its target cannot be read",
        "redrive",
        "dead_letters.claims:read_claims",
        value("False", of="unreadable"),
        _DEAD,
    ),
)
