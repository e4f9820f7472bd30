"""The mutants: at least one for each invariant, and for each promise of the delivery."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_RESOLVED = """            applied = went_in(
                slots_of(self.store.read_rows(self._partition, slots, serial=True).rows)
            )
"""

#: What the state machine finds only now and then, and the interleavings always.
_IN_SOME_ORDER = ("test_interleavings.py",)

#: Where a client acks and leases at once.
_EXCHANGED = ("test_client_machine.py",)

MUTANTS = (
    # -- the ledger ---------------------------------------------------------------------------
    Mutant(
        "publish without next",
        "I1",
        "ledger/decide.py",
        'when=(When("next", "=", head.next), When("fence", "<", oldest))',
        'when=(When("fence", "<", oldest),)',
    ),
    Mutant(
        "publish blindly again",
        "I1",
        "ledger/publish.py",
        "            self._doubtful.append(decision.monotons)\n",
        "",
    ),
    Mutant(
        "one row too many is trimmed",
        "I2",
        "ledger/sweep.py",
        'DeleteBelow("block", below)]',
        'DeleteBelow("block", below + 1)]',
    ),
    Mutant(
        "the row of a block that straddles is trimmed",
        "I2",
        "repair/plan.py",
        "if done := [block for block in blocks if block.monotons.stop <= reached]:",
        "if done := [block for block in blocks if block.monotons.start < reached]:",
    ),
    Mutant(
        "one bucket too many is deleted",
        "I3",
        "repair/plan.py",
        "max(0, end - block.monotons.start) // bucket_size",
        "-(-max(0, end - block.monotons.start) // bucket_size)",
    ),
    Mutant(
        "rows are trimmed, buckets are not deleted",
        "I3",
        "repair/apply.py",
        "        case DeleteSettled(queue_id=queue_id, buckets=buckets):\n"
        "            store.delete_buckets(queue_id, buckets)\n",
        "        case DeleteSettled():\n            pass\n",
    ),
    Mutant(
        "rows are trimmed before the buckets are deleted",
        "I3",
        "repair/plan.py",
        "    return actions\n\n\ndef plan_fence(",
        "    return sorted(actions, key=lambda each: isinstance(each, DeleteSettled))\n\n\n"
        "def plan_fence(",
    ),
    Mutant(
        "a sink publishes the same batch again",
        "I4",
        "ledger/decide.py",
        "last >= batch.batch_id",
        "last > batch.batch_id",
    ),
    Mutant(
        "publish behind the fence",
        "I10",
        "ledger/decide.py",
        'When("next", "=", head.next), When("fence", "<", oldest)',
        'When("next", "=", head.next),',
        _IN_SOME_ORDER,
    ),
    Mutant(
        "clean without the fence",
        "I10",
        "repair/plan.py",
        "if run.block not in published and block_time(run.block) <= fence:",
        "if run.block not in published:",
        _IN_SOME_ORDER,
    ),
    Mutant(
        "delayed_stop is not set",
        "delay",
        "ledger/decide.py",
        '        values["delayed_stop"] = stop\n',
        "        pass\n",
    ),
    # -- groups and the sweep -----------------------------------------------------------------
    Mutant(
        "the survey takes what waits for settled",
        "dead letters are buried",
        "repair/survey.py",
        "return None if may_wait else GroupState(",
        "return GroupState(",
    ),
    Mutant(
        "a sweep goes by the survey of what it has changed",
        "a sweep finishes what it begins",
        "repair/work.py",
        "return None if is_changed else self.survey.get(queue.queue_id)",
        "return self.survey.get(queue.queue_id)",
    ),
    Mutant(
        "what a crash has left of a block is overlooked",
        "nothing stays for ever",
        "repair/finalise.py",
        "return first is None or first.monotons.stop <= head.finalised",
        "return first is None",
    ),
    Mutant(
        "finalise whatever groups came",
        "I7",
        "ledger/sweep.py",
        '        When("finalised", "=", head.finalised),\n'
        '        When("groups_version", "=", head.groups_version),\n',
        '        When("finalised", "=", head.finalised),\n',
    ),
    Mutant(
        "register on what is finalised by now",
        "I7",
        "ledger/decide.py",
        '        When("groups_version", "=", head.groups_version),\n'
        '        When("finalised", "=", head.finalised),\n',
        '        When("groups_version", "=", head.groups_version),\n',
    ),
    Mutant(
        "a hold does not count",
        "I7",
        "delivery/groups.py",
        "        return min(self.hold, super().floor)",
        "        return super().floor",
        _IN_SOME_ORDER,
    ),
    Mutant(
        "the hold is lifted before the group moves",
        "I7",
        "delivery/seek.py",
        "            target = self._place_hold(known, position)\n",
        "            target = self._place_hold(known, position)\n"
        "            self._lift(self._ours)\n",
    ),
    Mutant(
        "slots do not count for the floor",
        "I7",
        "delivery/state.py",
        "        outstanding = [slot.monotons.start for slot in self.slots if slot.monotons]\n",
        "        outstanding: list[int] = []\n",
    ),
    Mutant(
        "waiting messages do not count for the floor",
        "I7",
        "delivery/state.py",
        "        outstanding += [waiting.monotons.start for waiting in self.waiting]\n",
        "",
    ),
    Mutant(
        "waiting_version is not bumped",
        "I7",
        "delivery/changes.py",
        'self._advance("waiting_version", head.waiting_version, head.waiting_version + 1)',
        'self._advance("waiting_version", head.waiting_version, head.waiting_version)',
    ),
    Mutant(
        "what waits may change while the sweep reads",
        "I7",
        "delivery/lease.py",
        "if head_of(heads[0]).waiting_version == state.head.waiting_version:",
        "if heads:",
    ),
    # -- leases -------------------------------------------------------------------------------
    Mutant(
        "fresh messages without the pointer",
        "I5",
        "delivery/changes.py",
        '            self._advance("pointer", self.state.head.pointer, pointer)',
        '            self._head_values["pointer"] = pointer\n'
        '            self._head_when["pointer"] = When("pointer", ">=", 0)',
    ),
    Mutant(
        "what does not fit is forgotten",
        "I5",
        "delivery/plan.py",
        "    give_back(changes, rest, slot, after=timedelta(0))\n",
        "",
    ),
    Mutant(
        "a waiting row loses what does not fit",
        "I5",
        "delivery/changes.py",
        "        self.take_waiting(waiting)\n        if left:\n",
        "        self.take_waiting(waiting)\n        if left and waiting.deliveries:\n",
    ),
    Mutant(
        "take over what is held on",
        "I6",
        "delivery/plan.py",
        '        When("due_at", "<", ServerNow()),\n'
        '        When("ranges", "=", str(slot.monotons)),\n',
        '        When("ranges", "=", str(slot.monotons)),\n',
    ),
    Mutant(
        "take over what is settled by now",
        "I6",
        "delivery/plan.py",
        '        When("due_at", "<", ServerNow()),\n'
        '        When("ranges", "=", str(slot.monotons)),\n',
        '        When("due_at", "<", ServerNow()),\n',
    ),
    Mutant(
        "change a slot whoever has it",
        "I6",
        "delivery/changes.py",
        'under = When("lease", "=", slot.lease)',
        'under = When("deliveries", ">=", 0)',
        _IN_SOME_ORDER,
    ),
    Mutant(
        "hold on whoever has it",
        "I6",
        "delivery/lease.py",
        '        held = (When("lease", "=", lease),)\n',
        '        held = (When("deliveries", ">=", 0),)\n',
    ),
    Mutant(
        "the token of an attempt is used again",
        "I6",
        "delivery/lease.py",
        "            token = uuid4() if attempt or known is not None else wish.lease\n",
        "            token = wish.lease\n",
    ),
    Mutant(
        "a lost answer counts as not applied",
        "I6",
        "delivery/lease.py",
        _RESOLVED,
        "            applied = False\n",
    ),
    Mutant(
        "a lost answer counts as applied",
        "I6",
        "delivery/lease.py",
        _RESOLVED,
        "            applied = True\n",
    ),
    Mutant(
        "a lapsed lease is taken a moment early",
        "I6",
        "delivery/due.py",
        "        and slot.due_at + backoff(wish.retry_backoff, slot.deliveries) < state.now\n",
        "        and slot.due_at < state.now\n",
    ),
    # -- settling -----------------------------------------------------------------------------
    Mutant(
        "settle over what is settled meanwhile",
        "I6",
        "delivery/settle.py",
        "        changes.change_slot(slot, values, still)\n",
        "        changes.change_slot(slot, values)\n",
        _IN_SOME_ORDER,
    ),
    Mutant(
        "the ack of a batch reaches what is held on",
        "I6",
        "delivery/plan.py",
        "    acked = state.held_by(wish.held)\n",
        "    acked = state.held_by(wish.held)\n    if wish.held:\n"
        "        acked += state.held_by(UUID(int=wish.held.int ^ 2))\n",
    ),
    Mutant(
        "receipts do not reach what is held on",
        "settle",
        "delivery/settle.py",
        "    for slot in (*state.held_by(lease), *state.held_by(kept_token(lease))):\n",
        "    for slot in state.held_by(lease):\n",
    ),
    Mutant(
        "a release counts as done",
        "I5",
        "delivery/settle.py",
        "        for row in rows:\n            changes.wait(row)\n",
        "        for row in [r for r in rows if r.reason]:\n            changes.wait(row)\n",
    ),
    Mutant(
        "a release with a delay is due at once",
        "settle",
        "delivery/settle.py",
        "now + delay // timedelta(milliseconds=1)",
        "now",
    ),
    # -- exchanges ----------------------------------------------------------------------------
    Mutant(
        "an ack with a lease overlooks what else was settled under its token",
        "I6",
        "delivery/acks.py",
        'changes.change_slot(slot, {"ranges": str(slot.monotons - gone)}, still)',
        'changes.change_slot(slot, {"ranges": str(slot.monotons - gone)})',
        _EXCHANGED,
    ),
    Mutant(
        "what is not known is stale",
        "settle",
        "delivery/lease.py",
        "if known is not None and holds(known, wish.acks):",
        "if known is not None:",
        _EXCHANGED,
    ),
    Mutant(
        "an ack leaves no token",
        "settle",
        "delivery/plan.py",
        "    if settled and not (acked or leased or dead):\n",
        "    if False:\n",
        _EXCHANGED,
    ),
    # -- deliveries and the dead --------------------------------------------------------------
    Mutant(
        "deliveries are not counted",
        "I8",
        "delivery/plan.py",
        "    values = _lease_values(wish, taken) | handed_out(leased.deliveries, slot.first_at)\n",
        "    values = _lease_values(wish, taken) | handed_out(slot.deliveries, slot.first_at)\n",
    ),
    Mutant(
        "a replay is not counted",
        "I8",
        "delivery/replay.py",
        "            values = held | handed_out(slot.deliveries + 1, slot.first_at)\n",
        "            values = held | handed_out(slot.deliveries, slot.first_at)\n",
    ),
    Mutant(
        "one delivery too many",
        "I8",
        "delivery/isolation.py",
        "    return 0 < max_deliveries <= deliveries",
        "    return 0 < max_deliveries < deliveries",
    ),
    Mutant(
        "a failing message drags its neighbours along",
        "poison",
        "delivery/isolation.py",
        "    if steps_left <= 0:\n",
        "    if steps_left < 0:\n",
        ("test_queue_machine.py", "test_poison_property.py"),
    ),
    Mutant(
        "a condemned slot stays under its token",
        "I9",
        "delivery/plan.py",
        "    changes.empty_slot(slot, lease, When(",
        "    changes.change_slot(slot, {}, When(",
    ),
    Mutant(
        "a condemned slot keeps its token",
        "I9",
        "delivery/plan.py",
        "    changes.empty_slot(slot, lease, When(",
        "    changes.empty_slot(slot, slot.lease, When(",
    ),
    Mutant(
        "condemn what is held on by now",
        "I6",
        "delivery/plan.py",
        'spare_token(wish.lease), When("due_at", "<", ServerNow()))',
        "spare_token(wish.lease))",
        _IN_SOME_ORDER,
    ),
    Mutant(
        "the dead are handed out",
        "I9",
        "delivery/due.py",
        "    condemned = isinstance(each, Waiting) and each.reason is not None\n",
        "    condemned = False\n",
        _IN_SOME_ORDER,
    ),
    Mutant(
        "buried before the copy",
        "I9",
        "dead_letters/burial.py",
        "            if queue.dead_letter_queue is not None:\n",
        "            delivery.bury(each)\n            if queue.dead_letter_queue is not None:\n",
    ),
    Mutant(
        "copied again by every reader",
        "I9",
        "dead_letters/burial.py",
        "batch=SinkBatch(sink, 0))",
        "batch=SinkBatch(sink + draft.block.hex, 0))",
        _IN_SOME_ORDER,
    ),
    Mutant(
        "the sink of the dead is named after the first only",
        "I9",
        "dead_letters/burial.py",
        ":{dead.monotons.start}:{digest}",
        ":{dead.monotons.start}",
    ),
    Mutant(
        "what can't be buried is not postponed",
        "poison",
        "dead_letters/burial.py",
        "        delivery.postpone(dead, by=RETRY_AFTER)\n",
        "        pass\n",
    ),
    # -- delays, order, limits ----------------------------------------------------------------
    Mutant(
        "delayed messages are handed out at once",
        "delay",
        "delivery/ahead.py",
        "        if due is not None and due > now:\n",
        "        if due is not None and due > now and not leased:\n",
    ),
    Mutant(
        "delayed messages are stepped over and lost",
        "I5",
        "delivery/plan.py",
        "    for each in ahead.waiting:\n        changes.wait(each)\n",
        "",
    ),
    Mutant(
        "a delay counts from the beginning of the write",
        "delay",
        "delivery/ahead.py",
        "max(to_millis(due), waiting_from)",
        "max(to_millis(block.published_at), waiting_from)",
    ),
    Mutant(
        "messages that are not too old are skipped",
        "I5",
        "delivery/ahead.py",
        "(due or block.published_at) < not_before",
        "block.published_at < not_before",
    ),
    Mutant(
        "fresh messages while lower ones are outstanding",
        "strict",
        "delivery/plan.py",
        "    if wish.strict and outstanding(state, wish):\n",
        "    if wish.strict and state.waiting:\n",
    ),
    Mutant(
        "over a gap out of order",
        "strict",
        "delivery/plan.py",
        "            limit = min(limit, count_in_order(state, wish, again))\n",
        "            pass\n",
    ),
    Mutant(
        "what others hold does not count",
        "in flight",
        "delivery/due.py",
        "            - sum(slot.monotons.count for slot in others if slot.due_at >= state.now),\n",
        "",
    ),
    Mutant(
        "two at once exceed what may be in flight",
        "in flight",
        "delivery/plan.py",
        "        changes.exclude_others()\n",
        "        pass\n",
        _IN_SOME_ORDER,
    ),
    Mutant(
        "an idle reader changes something",
        "idle",
        "delivery/changes.py",
        "        if pointer != self.state.head.pointer:\n",
        "        if pointer is not None:\n",
    ),
    Mutant(
        "fresh messages wait for ever",
        "liveness",
        "delivery/plan.py",
        "    if (delayed or ahead.leased) and (wish.prefer_fresh or again is None):\n",
        "    if (delayed or ahead.leased) and again is None:\n",
    ),
    Mutant(
        "waiting_from runs ahead",
        "I5",
        "delivery/changes.py",
        "        return max(state.head.waiting_from, min([end, *left]))",
        "        return max(state.head.waiting_from, end)",
    ),
)
