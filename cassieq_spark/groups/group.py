"""A consumer group: lease, extend, release and settle, each by one compare-and-set."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from uuid import UUID, uuid4

from cassieq_spark.arguments import abridged
from cassieq_spark.backoff import Backoff, attempts
from cassieq_spark.errors import (
    ContentionError,
    InvariantError,
    LeaseLostError,
    OutcomeUnknownError,
    QueueStateError,
    StoreError,
    in_doubt,
)
from cassieq_spark.groups.changes import Changes
from cassieq_spark.groups.deliveries import too_often
from cassieq_spark.groups.lanes import Window
from cassieq_spark.groups.lease import Lease, LeasedSlot, LeaseRequest, was_taken_up
from cassieq_spark.groups.plan import plan_replay
from cassieq_spark.groups.rounds import (
    Blocks,
    Change,
    LanesAhead,
    Leasing,
    Round,
    Rounds,
    Settling,
    plan_round,
)
from cassieq_spark.groups.settle import Settled, plan_keep_whole, was_settled
from cassieq_spark.groups.state import (
    HEAD,
    GroupState,
    Head,
    Settlement,
    Slot,
    Waiting,
    create_state,
    encode_attempt,
    head_of,
    holder_values,
    registration_key,
    registration_of,
    slot_key,
    slot_values,
    slots_of,
    still_held,
    waiting_of,
)
from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.ledger.state import Group
from cassieq_spark.model import NO_END, QueueId, Range
from cassieq_spark.store.protocol import (
    Delete,
    DeleteBelow,
    Op,
    Rows,
    ServerNow,
    Slice,
    Update,
    partition_of_group,
)

logger = logging.getLogger(__name__)

#: An answer was lost, and a serial read resolved it.
LEASE_RESOLVED = "lease.resolved"

#: How many waiting rows a reader reads; it leases one of them per batch.
_WAITING_READ = 100
#: How many blocks a reader reads beyond the pointer, where blocks matter.
_BLOCKS_READ = 500
#: No lanes, as the state that was read is older than the messages beyond its pointer.
_STALE = Window(-1, ())


@dataclass(frozen=True, slots=True)
class ConsumerGroup:
    """A consumer group of a queue; `ensure_group` registers it.

    Attributes:
        ledger: The ledger of the queue, or of a partition of it.
        name: The name of the group.
        rounds: Shares LWTs among the threads that use the group.
    """

    ledger: Ledger
    name: str
    rounds: Rounds = field(default_factory=Rounds, compare=False, repr=False)

    @property
    def queue_id(self) -> QueueId:
        """The id of the queue."""
        return self.ledger.queue_id

    @property
    def log_fields(self) -> dict[str, str]:
        """The fields that each log record about this group has in ``extra``."""
        return {"queue": self.queue_id, "group": self.name}

    def read(self, *, every_waiting: bool = False) -> GroupState:
        """Read the state. Two reads of one partition.

        The two reads are not one consistent snapshot. A plan that removes no waiting rows needs
        none.

        Args:
            every_waiting: Read all waiting rows instead of the first ones, as one consistent
                snapshot, by serial reads. One read more, which shows whether the rows have changed
                meanwhile.

        Raises:
            QueueStateError: The group is not registered.
            ContentionError: The waiting rows changed during every attempt.
        """
        if not every_waiting:
            return self._with_waiting(self._read_slots(), limit=_WAITING_READ, serial=False)
        for _ in attempts():
            state = self._with_waiting(self._read_slots(serial=True), limit=None, serial=True)
            # I7: messages that moved from a waiting row to a slot meanwhile would be in neither.
            if self._read_head().waiting_version == state.head.waiting_version:
                return state
        raise ContentionError(f"{self}: its waiting messages change too fast to be counted")

    def read_opened(self, known: Group) -> GroupState | None:
        """Read the whole state of this registration; None if it has none. Four reads."""
        # I7: the registration first; a later read finds no state of an earlier one.
        if known.registered_as not in self.read_registrations(serial=True):
            return None
        try:
            return self.read(every_waiting=True)
        except QueueStateError:
            return None

    def read_registrations(self, *, serial: bool = False) -> dict[int, UUID]:
        """The number and token of the registration that has the state; empty if none. One read."""
        rows = self.read_rows(Slice(kinds=("registration",)), serial=serial).rows
        return dict(map(registration_of, rows))

    def open_state(self, known: Group) -> None:
        """Create the state of a registration, or remove that of an earlier one. One LWT."""
        registrations = self.read_registrations(serial=True)
        for number in registrations:
            if number < known.registered_as:
                self.remove_state(number)
        if not registrations:
            self.try_cas(create_state(known.registered_as, uuid4(), known.starts_at))

    def remove_state(self, registered_as: int) -> bool | None:
        """Remove the state of one registration, and of no other. One LWT; see `try_cas`."""
        rest = [DeleteBelow(kind, NO_END) for kind in ("head", "slot", "waiting")]
        return self.try_cas([Delete(registration_key(registered_as)), *rest])

    def lease(
        self,
        request: LeaseRequest,
        known: GroupState | None = None,
        ahead: LanesAhead | None = None,
    ) -> Lease:
        """Ack what the reader has finished, and lease the next messages. One LWT, two reads.

        No LWT if there is nothing to ack and nothing to lease. More reads and LWTs where needed:

        - With strict order or ``max_in_flight``, the first read is serial.
        - One serial read more if a waiting row is leased.
        - Two reads more per LWT if blocks matter (`LeaseRequest.needs_blocks`).
        - One attempt more after an LWT that only stepped over delayed messages, or whose batch
          released messages without a delay.

        Every attempt has a token of its own. If an attempt is applied late, after its answer was
        lost, no reader takes its lease as its own, and the lease runs out.

        Args:
            known: The group as it probably is; saves the reads. One LWT more if it has changed.
            ahead: Reads the lanes of messages, in a queue ordered by key, for receivers that
                settle one by one; None: a held message holds up all messages behind it.

        Raises:
            ContentionError: Other readers won every attempt; nothing has changed.
            OutcomeUnknownError: An answer was lost, and no read showed the outcome.
            QueueStateError: The group is not registered.
        """
        lease = self._lease_once(request, known, ahead)
        while lease.asks_for_more:
            # The acks are done, whatever the next attempt finds.
            again = replace(request, token=uuid4(), receipt_acks={})
            lease = self._lease_once(again, None, ahead).following(lease)
        return lease

    def _lease_once(
        self, request: LeaseRequest, known: GroupState | None, ahead: LanesAhead | None
    ) -> Lease:
        lease = self._share(Leasing(request, known, ahead, token=request.token))
        assert isinstance(lease, Lease)  # noqa: S101 (that is what it asks for)
        return lease

    def _share(self, change: Change) -> Lease | Settled:
        """Carry out a change, in one LWT with those of other threads, if there are any."""
        where = (self.queue_id, self.name)
        return self.rounds.share(where, change, self._carry_out_round, self._was_carried_out)

    def _carry_out_round(self, changes: Sequence[Change], backoff: Backoff) -> Round:
        doubtful: list[Round] = []
        with in_doubt(self, doubtful):
            return self._try_again_and_again(changes, backoff, doubtful)

    def _try_again_and_again(
        self, changes: Sequence[Change], backoff: Backoff, doubtful: list[Round]
    ) -> Round:
        """Carry out changes; ``doubtful`` gets each attempt whose answer was lost."""
        for attempt, state in enumerate(self._states(changes, backoff)):
            if late := _applied_late(doubtful, state):
                for each in changes:
                    each.round = late
                return late
            for each in changes if attempt else ():
                each.renew()
            window = self._window_for(changes, state)
            blocks = self._blocks_for(changes, state, window)
            if blocks is None or window is _STALE:
                continue
            planned = plan_round(state, changes, blocks, window)
            if attempt == 0 and _is_in_vain(changes, planned):
                # Others may have settled what holds it up since the state was known.
                continue
            removes_waiting = any(isinstance(op, Delete) for op in planned.ops)
            if removes_waiting and not state.of_one_moment:
                # I5: a row that the first read missed must not be left where nobody looks.
                whole = self._with_waiting(state, limit=_WAITING_READ, serial=True)
                planned = plan_round(whole, changes, blocks, window)
            for each in changes:
                each.round = planned
            if not planned.ops or self._carry_out_or_doubt(planned, doubtful):
                return planned
        names = sorted({slot.by for slot in state.slots if slot.by and slot.monotons})
        others = f". Messages are held by: {abridged(names)}" if names else ""
        raise ContentionError(f"{self}: {changes[0].lost}{others}")

    def _carry_out_or_doubt(self, planned: Round, doubtful: list[Round]) -> bool:
        """Carry out a round, and add it to the doubtful ones if its answer was lost."""

        def was_applied(slots: Sequence[Slot], now: datetime | None) -> bool:
            doubtful.append(planned)
            return planned.was_applied(slots, now)

        return self.carry_out(planned.ops, was_applied)

    def _was_carried_out(self, planned: Round) -> bool:
        """True if a round was carried out by a thread that was interrupted. One serial read."""
        with in_doubt(self, planned.ops):
            found = self.read_rows(Slice(kinds=("slot",)), serial=True)
        return bool(planned.ops) and planned.was_applied(slots_of(found.rows), found.now)

    def _states(self, changes: Sequence[Change], backoff: Backoff) -> Iterator[GroupState]:
        """The known state, if it suffices, and then states as read, until attempts run out."""
        requests = [each.request for each in changes if isinstance(each, Leasing)]
        alone = changes[0] if len(changes) == 1 else None
        # Messages that others have leased are in no known slot, but their receipts are not stale.
        if isinstance(alone, Leasing) and alone.known_if_enough:
            yield alone.known_if_enough
        for _ in backoff.attempts():
            # A read that repairs one of two slots would find a message that moves in neither.
            slots = self._read_slots(serial=any(each.is_exclusive for each in requests))
            # In strict order the lowest row counts, not the one that is due first.
            limit = None if any(each.strict_fifo for each in requests) else _WAITING_READ
            yield self._with_waiting(slots, limit=limit, serial=False)

    def _blocks_for(
        self, changes: Sequence[Change], state: GroupState, window: Window | None
    ) -> Blocks | None:
        """The first blocks from the pointer on, if they matter; None if the state is stale.

        Blocks do not matter to a lease that goes by a window.
        """
        pointer = state.head.pointer
        leasing = [each for each in changes if isinstance(each, Leasing)]
        requests = [each.request for each in leasing if window is None or each.ahead is None]
        stops = [each.stop for each in requests if each.needs_blocks(pointer)]
        if not stops:
            return ()
        try:
            return self.ledger.locate(Range(pointer, max(stops)), limit=_BLOCKS_READ)
        except InvariantError as error:
            # Others may have settled them since the pointer was read, and the repair trimmed them.
            return error if self._read_head().pointer == pointer else None

    def _window_for(self, changes: Sequence[Change], state: GroupState) -> Window | None:
        """The lanes of the first messages from the pointer on, for all changes that need them.

        If the lanes can't be read, the partition counts as one lane: acks go on, and the first
        message is leased. Each failed read of that message counts as a delivery, so it dies in the
        end.

        Returns:
            `_STALE` if the state is older than the messages; None if the lanes do not matter, or
            can't be read.
        """
        leasing = [each for each in changes if isinstance(each, Leasing)]
        wants = [each for each in leasing if each.ahead and each.request.max_messages != 0]
        ahead = wants[0].ahead if wants else None
        if ahead is None:
            return None
        counts = [each.request.max_messages for each in wants]
        most = None if None in counts else sum(count or 0 for count in counts)
        pointer = state.head.pointer
        try:
            return ahead(state, replace(wants[0].request, max_messages=most))
        except (InvariantError, LeaseLostError):
            # Others may have settled them since the pointer was read: they are trimmed.
            return None if self._read_head().pointer == pointer else _STALE
        except StoreError:
            return None

    def extend(self, lease: UUID, leased: Sequence[LeasedSlot], *, by: timedelta) -> bool:
        """Let a lease run for ``by`` from now on. One LWT; False if this process has lost it.

        A restarted query takes up its lease under the same token, and counts one delivery more:
        from then on the process before it changes nothing here. An unknown outcome counts as
        success: the next extension resolves it.

        Args:
            leased: The messages that this process leased under that token.
        """
        until = slot_values(due_at=ServerNow(by))
        ops = []
        for each in leased:
            ours = still_held(lease, each.deliveries)
            ops.append(Update(slot_key(each.slot), until, when=ours))
        try:
            return not ops or self.cas(ops)
        except OutcomeUnknownError:
            return True

    def lease_again(self, request: LeaseRequest) -> Lease | None:
        """Lease the messages of an earlier request of the same attempt anew, for as long.

        One serial read, which also sees a lease whose answer was lost, and one LWT if there are
        such messages. Messages that are settled, or were extended one by one, are left out. The
        receipts of the earlier request are stale then: if that request fails or is cancelled
        later, it cannot give back what this request has got.

        Args:
            request: It has the attempt's name, and how long the lease lasts.

        Returns:
            None if the attempt holds nothing.

        Raises:
            ContentionError: Competing changes won every attempt.
        """
        name = request.attempt or ""
        for _ in attempts():
            state, token = self._read_slots(serial=True), uuid4()
            mine = [slot for slot in state.slots if slot.is_held_by_attempt(name, state.now)]
            # Two at the same moment may have got a lease each.
            slots = [slot for slot in mine if slot.lease == mine[0].lease]
            if not slots:
                return None
            held = slot_values(
                lease=token,
                due_at=ServerNow(request.lease or timedelta(0)),
                attempt=encode_attempt(token, name),
            ) | holder_values(token, request.by)
            ops = [
                Update(slot_key(it.number), held, when=still_held(it.lease, it.deliveries))
                for it in slots
            ]
            if self.carry_out(ops, partial(was_taken_up, token)):
                leased = tuple(
                    LeasedSlot(it.number, it.monotons, it.deliveries, it.first_at) for it in slots
                )
                request = replace(request, token=token)
                return Lease(request, state, (), leased, state.head.pointer)
        raise ContentionError(f"{self}: could not take up an earlier receive of the attempt again")

    def release(self, lease: UUID, leased: Sequence[LeasedSlot]) -> int:
        """Make messages that this process still holds due at once. One LWT, two reads.

        The token stays in the slots, so that the same query takes them up if it comes first.

        Returns:
            How many were released, without those that a restarted query has taken up meanwhile.
        """
        slots = self.read().held_by(lease)
        counts = {(slot.number, slot.deliveries): slot.monotons.count for slot in slots}
        ours = [each for each in leased if (each.slot, each.deliveries) in counts]
        released = self.extend(lease, ours, by=timedelta(0))
        return sum(counts[each.slot, each.deliveries] for each in ours) if released else 0

    def is_taken_up(self, lease: UUID, leased: Sequence[LeasedSlot]) -> bool:
        """True if another process has taken up this lease, as a restarted query does. One read."""
        rows = self.read_rows(Slice(kinds=("slot",))).rows
        counts = {slot.number: slot.deliveries for slot in slots_of(rows) if slot.lease == lease}
        return any(counts.get(each.slot, 0) > each.deliveries for each in leased)

    def take_again(self, request: LeaseRequest) -> tuple[LeasedSlot, ...]:
        """Take up a lease that this process did not make: a batch that Spark replays. One LWT.

        Args:
            request: Its ``held`` is the token of the lease; see `plan_replay`.

        Returns:
            The messages that the token still holds, handed out once more (I8).

        Raises:
            ContentionError: Competing changes won every attempt.
        """
        tried: list[Lease] = []
        for _ in attempts():
            state = self.read()
            # I8: an attempt may be applied after a read has shown that it was not.
            if late := next((it for it in tried if was_taken_up(it.token, state.slots)), None):
                return late.leased
            plan = plan_replay(state, replace(request, token=uuid4()))
            if not plan.ops or self.carry_out(plan.ops, partial(was_taken_up, plan.token)):
                return plan.leased
            tried.append(plan)
        raise ContentionError(f"{self}: could not take up the lease of a batch again")

    def remove_dead(self, dead: Waiting) -> bool:
        """Remove dead messages. One LWT and two or three reads; False if another process did it.

        The copies of the messages must be visible in the dead-letter queue before (I9).

        Raises:
            ContentionError: Competing changes won every attempt; the messages are still there.
        """
        return self._replace_dead(dead, lambda _: None)

    def retry_dead(self, dead: Waiting) -> bool:
        """Deliver dead messages again. Costs the same as `remove_dead`.

        The deliveries are counted anew (I8). Returns False if another process was faster, and
        raises what `remove_dead` raises.
        """
        return self._replace_dead(
            dead,
            lambda state: Waiting(
                max(state.due_in(), dead.due + 1),
                dead.monotons,
                deliveries=0,
                by_receipts=True,
                lanes=dead.lanes,
            ),
        )

    def mark_dead(self, row: Waiting) -> Waiting | None:
        """Mark waiting messages that were handed out too often as dead, with the reason.

        So every process sees that they are dead, whatever the limit of deliveries is. Costs the
        same as `remove_dead`.

        Returns:
            The new row; None if another process was faster.
        """
        marked = row

        def mark(state: GroupState) -> Waiting:
            nonlocal marked
            due = max(state.due_in(), row.due + 1)
            marked = replace(row, due=due, reason=too_often(row.deliveries))
            return marked

        return marked if self._replace_dead(row, mark) else None

    def defer_dead(self, dead: Waiting, *, by: timedelta) -> bool:
        """Dead-letter dead messages later, so that they do not hide the messages behind them.

        One LWT and two or three reads; False if another process took them, or if they are already
        due later by the server's clock. Raises what `remove_dead` raises.
        """
        return self._replace_dead(dead, lambda state: replace(dead, due=state.due_in(by)))

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
            deliveries: Which delivery of a batch; None: any. Once a restarted query has taken the
                batch up, settlements of an earlier delivery are stale, except for messages that
                are held beyond their batch.
            with_batch: For messages of the running batch, only record the settlement: the LWT that
                acks the batch carries it out, and a replay of the batch drops it. For a message
                that is named again, the last record counts. Acks then cost no LWT, unless they
                change a record. Messages that are held beyond their batch are settled at once all
                the same.

        Raises:
            ContentionError: Competing changes won every attempt; nothing has changed.
            OutcomeUnknownError: An answer was lost, and no read showed the outcome.
            QueueStateError: There is no such group.
            TooLargeError: The messages of the batch have more different delays and reasons,
                together with those already recorded, than one LWT carries out; nothing has
                changed.
        """
        settled = self._share(Settling(lease, settlement, deliveries, with_batch))
        assert isinstance(settled, Settled)  # noqa: S101 (that is what it asks for)
        return settled

    def keep_whole(self, lease: UUID) -> bool:
        """Make replays of a batch hand out all of it, as its sink has published it and skips it.

        One LWT and two reads; no LWT if the batch is marked already, or the lease is over.

        Returns:
            True if the lease was found, and is marked now.

        Raises:
            ContentionError: Competing changes won every attempt.
            QueueStateError: There is no such group.
        """
        for _ in attempts():
            state = self.read()
            plan = plan_keep_whole(state, lease)
            if not plan.ops or self.carry_out(plan.ops, partial(was_settled, plan, lease)):
                return any(slot.monotons for slot in state.held_by(lease))
        raise ContentionError(f"{self}: lost the race to mark a batch again and again")

    def _replace_dead(
        self, dead: Waiting, replacement: Callable[[GroupState], Waiting | None]
    ) -> bool:
        for _ in attempts():
            state = self._with_waiting(self._read_slots(), limit=_WAITING_READ, serial=True)
            # After a seek, the row of that key may have other messages.
            if dead not in state.waiting and (state.all_waiting or not self.has_waiting(dead)):
                return False
            changes = Changes(state)
            changes.remove_waiting(dead)
            if (instead := replacement(state)) is not None:
                # Under the key of the row that is deleted, the new row would be deleted with it.
                if instead.due <= dead.due:
                    return False
                changes.add_waiting(instead)
            # No row has our token. If the answer is lost, two reports of a removal beat none.
            if self.carry_out(changes.ops(), lambda *_: not self.has_waiting(dead)):
                return True
        raise ContentionError(f"{self}: lost the race to take dead messages away again and again")

    def __str__(self) -> str:
        return f"group {self.name!r} of queue {self.queue_id}"

    def read_rows(self, which: Slice, *, serial: bool = False) -> Rows:
        """Read rows of the state. One read; see `Store.read_rows`."""
        partition = partition_of_group(self.queue_id, self.name)
        return self.ledger.store.read_rows(partition, which, serial=serial)

    def _read_slots(self, *, serial: bool = False) -> GroupState:
        """The state without waiting rows. One read; a serial one more if that finds no group."""
        which = Slice(kinds=("head", "slot"))
        rows = self.read_rows(which, serial=serial)
        if not rows.rows or rows.now is None or rows.rows[0]["kind"] != HEAD[0]:
            if not serial:
                # A serial read completes the creation of the group, if it is in flight.
                return self._read_slots(serial=True)
            raise QueueStateError(f"{self} does not exist; a reader of the group creates it")
        head, slots = head_of(rows.rows[0]), slots_of(rows.rows)
        return GroupState(head, slots, (), rows.now, of_one_moment=serial, ahead=rows.ahead)

    def _with_waiting(self, state: GroupState, *, limit: int | None, serial: bool) -> GroupState:
        """The state with waiting rows, read after it. One read.

        The state is one consistent snapshot if either read is serial: a plain read misses nothing
        that a serial read has shown before, and later changes of waiting rows change the head.
        """
        rows = Slice(kinds=("waiting",), start=state.head.waiting_from, limit=limit)
        waiting = waiting_of(self.read_rows(rows, serial=serial).rows)
        complete = limit is None or len(waiting) < limit
        one_moment = serial or state.of_one_moment
        return replace(state, waiting=waiting, all_waiting=complete, of_one_moment=one_moment)

    def _read_head(self) -> Head:
        heads = self.read_rows(Slice(row=HEAD), serial=True).rows
        if not heads:
            raise QueueStateError(f"{self} was deleted")
        return head_of(heads[0])

    def has_waiting(self, waiting: Waiting) -> bool:
        """True if this row is still there, unchanged. One serial read."""
        return waiting_of(self.read_rows(Slice(row=waiting.key), serial=True).rows) == (waiting,)

    def cas(self, ops: Sequence[Op]) -> bool:
        """Change the state. One LWT; see `Store.cas`."""
        return self.ledger.store.cas(partition_of_group(self.queue_id, self.name), ops)

    def try_cas(self, ops: Sequence[Op]) -> bool | None:
        """Call `cas`; None if the outcome is unknown, and the caller must read the state."""
        try:
            return self.cas(ops)
        except OutcomeUnknownError:
            return None

    def carry_out(
        self, ops: Sequence[Op], was_applied: Callable[[Sequence[Slot], datetime | None], bool]
    ) -> bool:
        """Change the state. One LWT; False if others have changed it meanwhile.

        If the answer is lost, one serial read of the slots resolves the outcome.

        Args:
            was_applied: Decides from the slots, and the server's time, whether ``ops`` were
                applied.

        Raises:
            OutcomeUnknownError: The answer is lost, and Cassandra does not answer the read either.
        """
        try:
            return self.cas(ops)
        except OutcomeUnknownError:
            with in_doubt(self, ops):
                found = self.read_rows(Slice(kinds=("slot",)), serial=True)
                applied = was_applied(slots_of(found.rows), found.now)
            logger.warning(
                "the answer to a change of %s was lost; the change was %s",
                self,
                "applied" if applied else "not applied",
                extra={"action": LEASE_RESOLVED, **self.log_fields},
            )
            return applied


def _applied_late(doubtful: Iterable[Round], state: GroupState) -> Round | None:
    """The round that was applied after a read had shown that it was not, if there is one.

    A request may wait anywhere on its way to the servers, for longer than its sender waits.
    """
    return next((it for it in doubtful if it.was_applied(state.slots, state.now)), None)


def _is_in_vain(changes: Sequence[Change], planned: Round) -> bool:
    """True if a lease by a known state leases nothing, although messages are wanted."""
    (change,) = changes if len(changes) == 1 else (None,)
    if not isinstance(change, Leasing) or not (change.ahead and change.known_if_enough):
        return False
    plan = planned.plans[change]
    return isinstance(plan, Lease) and not plan.leased and change.request.max_messages != 0
