"""A consumer group: lease, extend, release, settle, each by one compare-and-set on its state."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from uuid import UUID, uuid4

from cassieq_spark.backoff import attempts
from cassieq_spark.errors import (
    ContentionError,
    InvariantError,
    OutcomeUnknownError,
    QueueStateError,
)
from cassieq_spark.groups.lease import Lease, LeasedSlot, LeaseRequest, is_leased, is_taken_up
from cassieq_spark.groups.plan import plan_lease, plan_replay
from cassieq_spark.groups.settle import (
    Settled,
    holds_all,
    is_settled,
    plan_defer_dead,
    plan_remove_dead,
    plan_settle,
)
from cassieq_spark.groups.state import (
    HEAD,
    GroupState,
    Head,
    Settlement,
    Slot,
    Waiting,
    head_of,
    new_head,
    slot_key,
    slot_values,
    slots_of,
    waiting_key,
    waiting_of,
)
from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.ledger.state import Group
from cassieq_spark.model import LedgerBlock, QueueId, Range
from cassieq_spark.store.decoded import decoded, demand
from cassieq_spark.store.protocol import (
    Delete,
    DeleteBelow,
    Insert,
    Op,
    Row,
    RowKey,
    Rows,
    ServerNow,
    Slice,
    Update,
    When,
    partition_of_group,
)

logger = logging.getLogger(__name__)

#: An answer was lost, and a serial read resolved it.
LEASE_RESOLVED = "lease.resolved"

#: Above the keys of all rows of a kind.
NO_END = 2**63 - 1
#: Waiting rows that a reader looks at; it takes one range a batch.
_WAITING_READ = 100
#: Blocks that a reader looks ahead, in a queue that has delayed messages.
_BLOCKS_READ = 500


@dataclass(frozen=True, slots=True)
class ConsumerGroup:
    """A consumer group of a queue; registered by `ensure_group`.

    Attributes:
        ledger: Of the queue.
        name: Its name.
    """

    ledger: Ledger
    name: str

    @property
    def queue_id(self) -> QueueId:
        """Which version of which queue."""
        return self.ledger.queue_id

    def read(self, *, every_waiting: bool = False) -> GroupState:
        """Read the state. Two reads of one partition.

        They are not of one moment, which is good enough for a plan that removes no waiting rows.
        With ``every_waiting`` they are, by serial reads, and a third that tells whether to try
        again.

        Args:
            every_waiting: Read all waiting rows instead of the first ones.

        Raises:
            QueueStateError: The group is not registered.
            ContentionError: Waiting ranges came and went again and again.
        """
        if not every_waiting:
            return self._with_waiting(self._read_slots(), limit=_WAITING_READ, serial=False)
        for _ in attempts():
            state = self._with_waiting(self._read_slots(serial=True), limit=None, serial=True)
            # I7: a range that went from waiting to a slot between the reads would be in neither.
            if self._read_head().waiting_version == state.head.waiting_version:
                return state
        raise ContentionError(f"{self}: its waiting messages change too fast to be counted")

    def read_opened(self, known: Group) -> GroupState | None:
        """Read all of the state of this registration; None if it has none. Four reads."""
        # I7: first the registration that the state belongs to; a later read finds no earlier one.
        if known.registered_as not in self.read_registrations(serial=True):
            return None
        try:
            return self.read(every_waiting=True)
        except QueueStateError:
            return None

    def read_registrations(self, *, serial: bool = False) -> dict[int, UUID]:
        """To which registration the state belongs, and its token. At most one. One read."""
        rows = self.read_rows(Slice(kinds=("registration",)), serial=serial).rows
        return dict(map(_registration_of, rows))

    def open_state(self, known: Group) -> None:
        """Make the state of a registration, or remove that of an earlier one. One LWT."""
        registrations = self.read_registrations(serial=True)
        for number in registrations:
            if number < known.registered_as:
                self.remove_state(number)
        if not registrations:
            begun = Insert(HEAD, new_head(known.starts_at), if_absent=True)
            key = registration_key(known.registered_as)
            self.try_cas([begun, Insert(key, {"lease": uuid4()}, if_absent=True)])

    def remove_state(self, registered_as: int) -> bool | None:
        """Remove the state of one registration, and of no other. One LWT; see `try_cas`."""
        rest = [DeleteBelow(kind, NO_END) for kind in ("head", "slot", "waiting")]
        return self.try_cas([Delete(registration_key(registered_as)), *rest])

    def lease(self, request: LeaseRequest, known: GroupState | None = None) -> Lease:
        """Ack what the reader has finished, and lease the next. One LWT, two reads.

        One serial read more if what has waited is handed out again; if order is strict, or with
        ``max_in_flight``, the first of the two reads is serial instead. No LWT if there is nothing
        to ack and nothing to deliver. Where delayed messages come first, two more reads for some
        hundred blocks of them, and an LWT that steps over them; where there is nothing but what
        the batch before releases without a delay, an attempt more. Every attempt has a token of
        its own, so that one which goes in late, after its answer was lost, leaves a lease that
        no reader mistakes for its own, and that runs out.

        Args:
            request: What to ack and what to lease.
            known: The group as it probably is, of which no read is needed then; see `apply`. One
                LWT more if it is not so any more.

        Raises:
            ContentionError: Lost to other readers again and again.
            QueueStateError: The group is not registered.
        """
        lease = self._try_to_lease(request, known)
        while lease.asks_for_more:
            # Whatever was acked, is: only what comes next is asked for again.
            again = replace(request, token=uuid4(), receipt_acks={})
            lease = self._try_to_lease(again).following(lease)
        return lease

    def _try_to_lease(self, request: LeaseRequest, known: GroupState | None = None) -> Lease:
        # What others have leased is not known here, and so not stale.
        if known is not None and holds_all(known, request.receipt_acks):
            batch = self._attempt(request, known)
            if batch is not None:
                return batch
        for attempt in attempts():
            token = uuid4() if attempt or known is not None else request.token
            # If order is strict, the lowest row counts, not the one that is due first.
            limit = None if request.strict_fifo else _WAITING_READ
            # What moves from slot to slot is in none of them, if a read has repaired only one.
            slots = self._read_slots(serial=request.is_exclusive)
            state = self._with_waiting(slots, limit=limit, serial=False)
            if (batch := self._attempt(replace(request, token=token), state)) is not None:
                return batch
        raise ContentionError(
            f"{self}: lost the race for messages again and again; too many readers for such small "
            "batches? raise maxMessagesPerTrigger or use fewer readers"
        )

    def _attempt(self, request: LeaseRequest, state: GroupState) -> Lease | None:
        """Lease from this state; None if it is too old."""
        blocks = self._blocks_ahead(state, request)
        if blocks is None:
            return None
        lease = plan_lease(state, request, blocks)
        removes_waiting = any(isinstance(op, Delete) for op in lease.ops)
        if removes_waiting and not state.of_one_moment:
            # I5: a row that the first read missed must not be left where nobody looks.
            state = self._with_waiting(state, limit=_WAITING_READ, serial=True)
            lease = plan_lease(state, request, blocks)
        if not lease.ops or self.carry_out(lease.ops, went_in=partial(is_leased, lease)):
            return lease
        return None

    def _blocks_ahead(self, state: GroupState, request: LeaseRequest) -> list[LedgerBlock] | None:
        """The first blocks from the pointer on, if they matter; None if the state is too old."""
        pointer = state.head.pointer
        if not request.needs_blocks(pointer):
            return []
        fresh = Range(pointer, request.stop)
        try:
            return self.ledger.locate(fresh, limit=_BLOCKS_READ)
        except InvariantError:
            # Settled by others and trimmed since the pointer was read, or really missing.
            if self._read_head().pointer == pointer:
                raise
            return None

    def extend(self, lease: UUID, leased: Sequence[LeasedSlot], *, by: timedelta) -> bool:
        """Let a lease run until ``by`` from now on. One LWT; False if this process has lost it.

        A restarted query takes up its lease under the same token, and counts one delivery more:
        from then on the process before it changes nothing here. An unknown outcome counts as
        success: whichever it is, the next extension tells.

        Args:
            lease: The token.
            leased: What was handed out to this process under that token.
            by: For how long from now on.
        """
        until = slot_values(due_at=ServerNow(by))
        ops = []
        for each in leased:
            ours = (When("lease", "=", lease), When("deliveries", "=", each.deliveries))
            ops.append(Update(slot_key(each.slot), until, when=ours))
        try:
            return not ops or self.cas(ops)
        except OutcomeUnknownError:
            return True

    def release(self, lease: UUID, leased: Sequence[LeasedSlot]) -> int:
        """Make what this process still holds due at once, for any reader. One LWT, two reads.

        The token stays in the slots, so that the same query takes them again if it comes first.

        Args:
            lease: The token.
            leased: What was handed out to this process under that token.

        Returns:
            Messages released; not those that a restarted query has taken up meanwhile.
        """
        slots = self.read().held_by(lease)
        counts = {(slot.number, slot.deliveries): slot.monotons.count for slot in slots}
        ours = [each for each in leased if (each.slot, each.deliveries) in counts]
        released = self.extend(lease, ours, by=timedelta(0))
        return sum(counts[each.slot, each.deliveries] for each in ours) if released else 0

    def is_taken_up(self, lease: UUID, leased: Sequence[LeasedSlot]) -> bool:
        """Whether another process has taken up this lease, as a restarted query does. One read.

        Args:
            lease: The token.
            leased: What was handed out to this process under that token.
        """
        rows = self.read_rows(Slice(kinds=("slot",))).rows
        counts = {slot.number: slot.deliveries for slot in slots_of(rows) if slot.lease == lease}
        return any(counts.get(each.slot, 0) > each.deliveries for each in leased)

    def take_again(self, request: LeaseRequest) -> tuple[LeasedSlot, ...]:
        """Take up a lease that this process did not make: a batch that Spark replays. One LWT.

        Args:
            request: Its ``held`` is the token of the lease; see `plan_replay`.

        Returns:
            What the token holds, handed out once more (I8); not what others took meanwhile.

        Raises:
            ContentionError: Lost to others again and again.
        """
        for _ in attempts():
            token = uuid4()
            plan = plan_replay(self.read(), replace(request, token=token))
            went_in = partial(is_taken_up, token)
            if not plan.ops or self.carry_out(plan.ops, went_in=went_in):
                return plan.leased
        raise ContentionError(f"{self}: could not take up the lease of a batch again")

    def remove_dead(self, dead: Waiting) -> bool:
        """Remove dead messages. One LWT and two or three reads; False if someone else did.

        Their copies must be visible in the dead-letter queue before (I9).
        """
        return self._change_dead(dead, plan_remove_dead)

    def defer_dead(self, dead: Waiting, *, by: timedelta) -> bool:
        """Have dead messages dead-lettered later, at the same cost; False if it failed."""
        return self._change_dead(dead, partial(plan_defer_dead, by=by))

    def settle(
        self,
        lease: UUID,
        settlement: Settlement,
        *,
        deliveries: int | None = None,
        with_batch: bool = False,
    ) -> Settled:
        """Settle messages of a lease, all at once. One LWT and two reads, whatever the number.

        The rest of the lease stays as it is. Nobody can settle rejected messages any more; the
        caller dead-letters them.

        Args:
            lease: The token that holds them.
            settlement: What is to become of which.
            deliveries: Which delivery of a batch: once a restarted query has taken the batch up,
                what is asked for an earlier one is stale. What is held beyond its batch is reached
                all the same. None: whichever it is.
            with_batch: Only record it for messages of the batch in hand: the LWT that acks the
                batch carries it out, and a replay of the batch drops it. For a message that is
                named again, what is recorded last counts. Acks cost no LWT then, unless they take
                something back. What is held beyond its batch is settled at once all the same.

        Raises:
            ContentionError: Lost to others again and again.
            QueueStateError: There is no such group.
        """
        for _ in attempts():
            token = uuid4()
            plan = plan_settle(
                self.read(), lease, settlement, token, deliveries=deliveries, with_batch=with_batch
            )
            went_in = partial(is_settled, plan, lease, token)
            if not plan.ops or self.carry_out(plan.ops, went_in=went_in):
                reached = plan.reached
                return Settled(reached.count, settlement.named - reached, plan.dead)
        raise ContentionError(f"{self}: lost the race to settle messages again and again")

    def _change_dead(
        self, dead: Waiting, plan: Callable[[GroupState, Waiting], tuple[Op, ...]]
    ) -> bool:
        state = self._with_waiting(self._read_slots(), limit=_WAITING_READ, serial=True)
        # After a seek, the row of that key may have other messages.
        if dead not in state.waiting and (state.all_waiting or not self.has_waiting(dead)):
            return False
        ops = plan(state, dead)
        return bool(ops) and self.carry_out(ops, went_in=partial(self._is_gone, dead))

    def __str__(self) -> str:
        return f"group {self.name!r} of queue {self.queue_id}"

    def read_rows(self, which: Slice, *, serial: bool = False) -> Rows:
        """Read rows of the state. One read; see `Store.read_rows`."""
        partition = partition_of_group(self.queue_id, self.name)
        return self.ledger.store.read_rows(partition, which, serial=serial)

    def _read_slots(self, *, serial: bool = False) -> GroupState:
        """The state without what waits. One read; serially if a plain one finds no group."""
        which = Slice(kinds=("head", "slot"))
        rows = self.read_rows(which, serial=serial)
        if not rows.rows or rows.now is None or rows.rows[0]["kind"] != HEAD[0]:
            if not serial:
                # It may be one that only the next serial read completes.
                return self._read_slots(serial=True)
            raise QueueStateError(f"{self} does not exist; a reader of the group creates it")
        head, slots = head_of(rows.rows[0]), slots_of(rows.rows)
        return GroupState(head, slots, (), rows.now, of_one_moment=serial, ahead=rows.ahead)

    def _with_waiting(self, state: GroupState, *, limit: int | None, serial: bool) -> GroupState:
        """The same with what waits, read after it. One read.

        Of one moment, if either is serial: a plain read misses nothing that a serial one before it
        has shown, and what comes later changes the head.
        """
        due = Slice(kinds=("waiting",), start=state.head.waiting_from, limit=limit)
        waiting = waiting_of(self.read_rows(due, serial=serial).rows)
        complete = limit is None or len(waiting) < limit
        one_moment = serial or state.of_one_moment
        return replace(state, waiting=waiting, all_waiting=complete, of_one_moment=one_moment)

    def _read_head(self) -> Head:
        heads = self.read_rows(Slice(row=HEAD), serial=True).rows
        if not heads:
            raise QueueStateError(f"{self} was deleted")
        return head_of(heads[0])

    def has_waiting(self, waiting: Waiting) -> bool:
        """Whether this very row is still there. One serial read."""
        row = Slice(row=waiting_key(waiting.due, waiting.monotons.start))
        found = waiting_of(self.read_rows(row, serial=True).rows)
        return found == (waiting,)

    def _is_gone(self, waiting: Waiting, *_: object) -> bool:
        # No row has our token. Two reports of one removal are better than none.
        row = Slice(row=waiting_key(waiting.due, waiting.monotons.start))
        return not self.read_rows(row, serial=True).rows

    def cas(self, ops: Sequence[Op]) -> bool:
        """Change the state. One LWT; see `Store.cas`."""
        return self.ledger.store.cas(partition_of_group(self.queue_id, self.name), ops)

    def try_cas(self, ops: Sequence[Op]) -> bool | None:
        """The same; None if its outcome is not known, and the caller has to read it back."""
        try:
            return self.cas(ops)
        except OutcomeUnknownError:
            return None

    def carry_out(
        self, ops: Sequence[Op], *, went_in: Callable[[Sequence[Slot], datetime | None], bool]
    ) -> bool:
        """Change the state by one LWT; False if it has changed meanwhile.

        Args:
            ops: What to change.
            went_in: Tells from the slots, and the server's time, whether it did; for a serial
                read, if the answer is lost.
        """
        try:
            return self.cas(ops)
        except OutcomeUnknownError:
            slots = Slice(kinds=("slot",))
            found = self.read_rows(slots, serial=True)
            applied = went_in(slots_of(found.rows), found.now)
            logger.warning(
                "the answer to a lease was lost; it %s",
                "went in" if applied else "was not applied",
                extra={"action": LEASE_RESOLVED, "queue": self.queue_id, "group": self.name},
            )
            return applied


def registration_key(registered_as: int) -> RowKey:
    """The row of a group state that says to which registration it belongs."""
    return ("registration", registered_as, 0)


@decoded
def _registration_of(row: Row) -> tuple[int, UUID]:
    demand(row, "lease")
    return int(str(row["ordinal"])), UUID(str(row["lease"]))
