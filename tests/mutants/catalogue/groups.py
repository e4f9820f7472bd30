"""Mutants of consumer groups: leases, rounds, settling, batches, attempts (I5, I6, I8)."""

from __future__ import annotations

from tests.mutants.changes import (
    always,
    compare,
    drop_argument,
    drop_condition,
    drop_element,
    drop_statement,
    drop_term,
    never,
    rename,
    replace,
    replace_call,
    set_argument,
    unwrap,
    value,
)
from tests.mutants.mutant import Mutant

#: What the state machine finds only now and then, and the interleavings always.
_IN_SOME_ORDER = ("property/test_interleavings.py",)
#: Where a client acks and leases at once.
_EXCHANGED = ("property/test_client_machine.py",)
#: Where a gateway gives back what no request gets.
_GIVEN_BACK = (
    "unit/client/test_exchange.py",
    "property/test_handed_over_property.py::test_a_gateway_delivers_each_message_once_whoever_leaves",
)
#: Where calls are repeated that may be.
_REPEATED = "property/test_repeats_property.py::test_{}_that_is_repeated_{}"
_SETTLED = (_REPEATED.format("a_settlement", "is_not_told_to_be_stale"),)
_CREATED = (_REPEATED.format("a_creation", "does_not_say_that_it_exists_already"),)
_ROUND = (_REPEATED.format("an_exchange", "acks_and_counts_once"),)
_ROUNDS = ("unit/groups/test_rounds.py",)
_COMPETING = ("unit/client/test_competing.py",)
_HISTORY = ("unit/client/test_message_history.py",)
_NAMES = ("unit/client/test_names.py",)
_ATTEMPTS = ("unit/client/test_attempts.py",)
_CHECKPOINT = ("unit/spark/test_checkpoint.py",)
_MESSAGE_WRITER = ("unit/spark/sink/test_message_writer.py",)

GROUPS = (
    # -- every message is somewhere -----------------------------------------------------------
    Mutant(
        "fresh messages without the pointer",
        "I5",
        "groups.changes:Changes.move_pointer",
        drop_statement("_advance"),
    ),
    Mutant(
        "what does not fit is forgotten",
        "I5",
        "groups.plan:_lease_again",
        drop_statement("add_waiting"),
    ),
    Mutant(
        "a waiting row loses what does not fit",
        "I5",
        "groups.changes:Changes.remove_waiting",
        never("rest"),
    ),
    Mutant(
        "delayed messages are stepped over and lost",
        "I5",
        "groups.plan:plan_lease",
        drop_statement("add_waiting"),
    ),
    Mutant(
        "a release counts as done",
        "I5",
        "groups.settle:put_away",
        drop_statement("add_waiting"),
    ),
    Mutant(
        "what was leased beyond the bytes that are handed over is forgotten",
        "I5",
        "groups.settle:put_away",
        never("unread"),
        _EXCHANGED,
    ),
    Mutant(
        "waiting_from runs ahead",
        "I5",
        "groups.changes:Changes._low_end",
        replace_call("min", "beyond[0]", nth=1),
    ),
    Mutant(
        "a lease decides by waiting rows read at another moment than the slots",
        "I5",
        "groups.group:ConsumerGroup._try_again_and_again",
        unwrap("_with_waiting"),
        _IN_SOME_ORDER,
    ),
    Mutant(
        "a settlement that was applied late is told to be stale, and a lease runs out unseen",
        "I8",
        "groups.group:ConsumerGroup._try_again_and_again",
        never("_applied_late"),
    ),
    Mutant(
        "a round that may be applied yet is said not to be",
        "I8",
        "groups.group:ConsumerGroup._carry_out_round",
        set_argument("in_doubt", 1, "()"),
        _SETTLED,
    ),
    Mutant(
        "what is settled in part is said not to be settled",
        "I8",
        "client.settling:error_of_parts",
        replace("partly", "False"),
        _SETTLED,
    ),
    Mutant(
        "a round is said not to be done, as one of its partitions is not",
        "I8",
        "client.exchange:Exchange._round",
        replace_call("error_of_parts", "errors[0]"),
        _ROUND,
    ),
    Mutant(
        "a change whose outcome nobody could read is said not to be applied",
        "I8",
        "groups.group:ConsumerGroup.carry_out",
        set_argument("in_doubt", 1, "()"),
        _SETTLED,
    ),
    Mutant(
        "a creation of a group that may be done is said not to be",
        "an error says whether a call may be repeated",
        "groups.registration:create_group",
        set_argument("in_doubt", 1, "()"),
        _CREATED,
    ),
    Mutant(
        "a change of a queue that may be done is said not to be",
        "an error says whether a call may be repeated",
        "queues.record:change",
        set_argument("in_doubt", 1, "()"),
        _CREATED,
    ),
    Mutant(
        "a change of an account that may be done is said not to be",
        "an error says whether a call may be repeated",
        "http.accounts.records:Accounts._change",
        set_argument("in_doubt", 1, "()"),
        _CREATED,
    ),
    Mutant(
        "a replay that was applied late counts twice",
        "I8",
        "groups.group:ConsumerGroup.take_again",
        never("was_taken_up", nth=1),
    ),
    Mutant(
        "a group that one replica knows is not there",
        "I5",
        "groups.group:ConsumerGroup._read_slots",
        never("serial"),
        _IN_SOME_ORDER,
    ),
    Mutant(
        "a new group begins by a head that one replica has",
        "I5",
        "groups.registration:ensure_group",
        drop_argument("read_head", "serial"),
    ),
    # -- one holder ---------------------------------------------------------------------------
    Mutant(
        "take over what is held on",
        "I6",
        "groups.plan:_lease_again",
        drop_element("RAN_OUT"),
    ),
    Mutant(
        "take over what is settled by now",
        "I6",
        "groups.plan:_lease_again",
        drop_element("monotons", nth=2),
    ),
    Mutant(
        "a lapsed lease is taken a moment early",
        "I6",
        "groups.plan:_due_rows",
        drop_term("backoff"),
    ),
    Mutant(
        "change a slot of any holder",
        "I6",
        "groups.changes:Changes.change_slot",
        replace_call("as_read", "When('deliveries', '>=', 0)"),
        _IN_SOME_ORDER,
    ),
    Mutant(
        "hold on to what any holder has",
        "I6",
        "groups.state:still_held",
        drop_element("lease"),
    ),
    Mutant(
        "a lost answer counts as not applied",
        "I6",
        "groups.group:ConsumerGroup.carry_out",
        replace_call("was_applied", "False"),
    ),
    Mutant(
        "a lost answer counts as applied",
        "I6",
        "groups.group:ConsumerGroup.carry_out",
        replace_call("was_applied", "True"),
    ),
    Mutant(
        "settle over what is settled meanwhile",
        "I6",
        "groups.settle:take_out",
        replace("'monotons'", "'lease'"),
        _IN_SOME_ORDER,
    ),
    Mutant(
        "mark dead what is extended by now",
        "I6",
        "groups.plan:plan_lease",
        drop_argument("mark_dead", "RAN_OUT"),
        _IN_SOME_ORDER,
    ),
    Mutant(
        "a receipt of another partition settles",
        "I6",
        "model:partition_of_id",
        set_argument("of_partition", 0, "0"),
        ("unit/partitions/test_client.py",),
    ),
    # -- rounds of several threads ------------------------------------------------------------
    Mutant(
        "changes of a round are planned on the state before all of them",
        "I6",
        "groups.rounds:plan_round",
        unwrap("state_after"),
        ("property/test_rounds_property.py",),
    ),
    Mutant(
        "a round of which no token is left counts as applied if one change looks so",
        "I6",
        "groups.rounds:Round.was_applied",
        rename("all", "any"),
        _ROUNDS,
    ),
    Mutant(
        "a round leaves no token of its own",
        "I6",
        "groups.rounds:plan_round",
        drop_statement("_with_token"),
        _ROUNDS,
    ),
    Mutant(
        "a thread repeats what an interrupted one has carried out for it",
        "I8",
        "groups.rounds:Rounds.share",
        never("was_carried_out"),
        _COMPETING,
    ),
    # -- settling -----------------------------------------------------------------------------
    Mutant(
        "an ack leaves no token",
        "settle",
        "groups.plan:plan_lease",
        drop_statement("leave_token"),
        _EXCHANGED,
    ),
    Mutant(
        "a slot is freed before its batch is acked",
        "settle",
        "groups.settle:is_freed",
        drop_condition("_is_settled_singly"),
    ),
    Mutant(
        "what was taken over meanwhile counts as settled",
        "settle",
        "groups.settle:were_settled",
        drop_condition("due_at"),
        _EXCHANGED,
    ),
    Mutant(
        "receipts do not reach what is held on",
        "settle",
        "groups.settle:plan_settle",
        drop_element("kept_token"),
    ),
    Mutant(
        "a release with a delay is due at once",
        "settle",
        "groups.settle:put_away",
        drop_argument("due_in", 0),
    ),
    Mutant(
        "an exchange acks only where it leases",
        "settle",
        "client.exchange:Exchange._exchange",
        drop_condition("own"),
        ("property/test_exchange_property.py",),
    ),
    Mutant(
        "more is recorded for a batch than an ack carries out",
        "bounded",
        "groups.settle:_check_count",
        never("MOST_OUTCOMES"),
        ("unit/groups/test_outcomes.py",),
    ),
    # -- outcomes of a batch ------------------------------------------------------------------
    Mutant(
        "what is recorded for a batch is carried out before it is done",
        "settled with its batch",
        "groups.settle:plan_settle",
        always("of_batch", nth=1),
    ),
    Mutant(
        "who takes a lease over gets what was recorded for it",
        "settled with its batch",
        "groups.state:_told_of",
        value("True", of="deliveries"),
    ),
    Mutant(
        "an ack overlooks what is recorded meanwhile",
        "settled with its batch",
        "groups.settle:finish_slot",
        drop_element("recorded"),
    ),
    Mutant(
        "receipts of a cut-off run settle what its successor has taken up",
        "settled with its batch",
        "groups.settle:plan_settle",
        never("deliveries", nth=1),
        _IN_SOME_ORDER,
    ),
    Mutant(
        "a write inside foreachBatch takes effect at once",
        "settled with its batch",
        "spark.sink.receipt_writer:ReceiptWriter._with_batch",
        replace("in_batch", "False", nth=2),
        ("unit/spark/sink/test_receipt_writer.py",),
    ),
    # -- deliveries and replays ---------------------------------------------------------------
    Mutant(
        "deliveries are not counted",
        "I8",
        "groups.plan:_lease_again",
        set_argument("leased_values", 2, "_ - 1"),
    ),
    Mutant(
        "a replay is not counted",
        "I8",
        "groups.plan:plan_replay",
        set_argument("handed_out", 0, "_ - 1"),
    ),
    Mutant(
        "one delivery too many",
        "I8",
        "groups.deliveries:is_dead",
        compare("<=", "<"),
    ),
    Mutant(
        "messages that nobody received count as delivered",
        "I8",
        "client.receiver:Receiver._hand_over",
        set_argument("_give_back", "read_failed", "True"),
        ("unit/client/test_receiving.py",),
    ),
    Mutant(
        "a gateway counts what nobody has seen",
        "I8",
        "client.exchange:Exchange.give_back",
        replace_call("Settlement", "Settlement(released={CACHED_FOR: monotons})"),
        _GIVEN_BACK,
    ),
    Mutant(
        "a replay shows how often the batch was handed out by now",
        "same offsets, same rows",
        "spark.source.partition_reader:PartitionReader.find",
        unwrap("get", 1),
        ("unit/spark/source/test_reader.py",),
    ),
    Mutant(
        "a batch in order by key is cut into tasks that run at the same time",
        "I11",
        "spark.source.tasks:plan_tasks",
        never("KEY"),
        ("unit/spark/source/test_tasks.py",),
    ),
    Mutant(
        "a published batch dies",
        "published once",
        "groups.plan:plan_replay",
        drop_condition("is_published"),
    ),
    Mutant(
        "the source is not told that a batch is published",
        "published once",
        "spark.sink.message_writer:MessageStreamWriter.__init__",
        never("is_published"),
        _MESSAGE_WRITER,
    ),
    Mutant(
        "a stop acks what is not committed",
        "at least once",
        "spark.checkpoint:look_up",
        set_argument("Told", 0, "True"),
        _CHECKPOINT,
    ),
    Mutant(
        "a stop releases what is committed",
        "what is done is acked",
        "spark.source.partition_reader:PartitionReader.stop",
        never("_is_committed"),
        _CHECKPOINT,
    ),
    Mutant(
        "a reader whose JVM has died gives its batch away",
        "at least once",
        "spark.source.stream:_is_stopped_by_spark",
        never("getppid"),
        ("unit/spark/source/test_stream.py",),
    ),
    # -- attempts -----------------------------------------------------------------------------
    Mutant(
        "an attempt holds what has run out",
        "I6",
        "groups.state:Slot.is_held_by_attempt",
        drop_condition("due_at"),
        _ATTEMPTS,
    ),
    Mutant(
        "a repeated receive leaves the lease as it is",
        "attempts",
        "groups.group:ConsumerGroup.lease_again",
        drop_condition("lease"),
        _ATTEMPTS,
    ),
    Mutant(
        "a repeated receive shares its token with the first one",
        "attempts",
        "groups.group:ConsumerGroup.lease_again",
        set_argument("slot_values", "lease", "(token := slots[0].lease)"),
        _ATTEMPTS,
    ),
    Mutant(
        "a repeated receive gets others from the first partition",
        "attempts",
        "client.receiver:QueueReceiver._gather_again",
        replace("self._receivers", "_[:1]"),
        _ATTEMPTS,
    ),
    # -- names of readers ---------------------------------------------------------------------
    Mutant(
        "a slot shows the name of an earlier lease",
        "names",
        "groups.state:Slot.by",
        drop_condition("digits"),
        _NAMES,
    ),
    Mutant(
        "a replay leaves the name of the process before",
        "names",
        "groups.plan:plan_replay",
        drop_statement("holder_values"),
        _NAMES,
    ),
    Mutant(
        "nobody holds what is held beyond its batch",
        "names",
        "groups.settle:put_away",
        drop_statement("holder_values"),
        _NAMES,
    ),
    # -- history ------------------------------------------------------------------------------
    Mutant(
        "the history says what a stale receipt did not do",
        "history",
        "groups.history:events_of_settlement",
        drop_term("stale"),
        _HISTORY,
    ),
    Mutant(
        "an event is where its first message is, and nowhere else",
        "history",
        "groups.history:_by_span",
        replace("each.split_at_multiples(SPAN)", "[each]"),
        _HISTORY,
    ),
    Mutant(
        "what a read of the history cuts off in a millisecond is never read",
        "history",
        "groups.history:_newest_first",
        replace("cut + 1", "cut", nth=1),
        _HISTORY,
    ),
    # -- in flight, idle, delays --------------------------------------------------------------
    Mutant(
        "what others hold does not count",
        "in flight",
        "groups.plan:_most_now",
        drop_term("_count", nth=1),
    ),
    Mutant(
        "two at once exceed what may be in flight",
        "in flight",
        "groups.plan:plan_lease",
        drop_statement("exclude_others"),
        _IN_SOME_ORDER,
    ),
    Mutant(
        "an idle reader changes something",
        "idle",
        "groups.changes:Changes.move_pointer",
        always("pointer"),
    ),
    Mutant(
        "fresh messages wait for ever",
        "liveness",
        "groups.plan:_lease_batch",
        drop_condition("prefer_fresh"),
    ),
    Mutant(
        "delayed messages are handed out at once",
        "delay",
        "groups.lookahead:look_ahead",
        never("due"),
    ),
    Mutant(
        "a message that waits for its time alone is delayed by its queue",
        "delay",
        "producer.blocks:_TimedBlock.finish",
        drop_condition("visible"),
        ("unit/client/test_queue_delay.py",),
    ),
    Mutant(
        "a failing message drags its neighbours along",
        "poison",
        "groups.deliveries:most_messages",
        compare("<=", "<", of="steps_left"),
        ("property/test_queue_machine.py", "property/test_poison_property.py"),
    ),
    Mutant(
        "a pause is doubled before it is limited",
        "liveness",
        "groups.deliveries:backoff",
        never("LONGEST_BACKOFF"),
    ),
)
