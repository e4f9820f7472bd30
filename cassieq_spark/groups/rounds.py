"""Rounds: threads of a process that change the same group share compare-and-sets.

Each thread asks for a change, to lease or to settle. A round plans the changes of all waiting
threads, as if one came after the other, and carries them out by one LWT.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import Enum, auto
from queue import SimpleQueue
from typing import Any, ClassVar, Self
from uuid import UUID, uuid4

from cassieq_spark.backoff import Backoff
from cassieq_spark.combining import Caller, Combining, Turn
from cassieq_spark.errors import CassieqError, InvariantError
from cassieq_spark.groups.changes import Changes, merge_ops, state_after
from cassieq_spark.groups.lanes import Window
from cassieq_spark.groups.lease import Lease, LeaseRequest, spare_token, was_leased
from cassieq_spark.groups.plan import plan_lease
from cassieq_spark.groups.settle import (
    Settled,
    SettlePlan,
    holds_all,
    plan_settle,
    was_settled,
)
from cassieq_spark.groups.state import (
    GroupState,
    Settlement,
    Slot,
    emptied,
    slot_values,
    token_in,
)
from cassieq_spark.model import LedgerBlock, QueueId
from cassieq_spark.store.protocol import Insert, Op, Update

#: A round has at most this many changes, and about this many bytes; Cassandra takes 16 MiB.
MOST_TOGETHER, MOST_BYTES = 64, 1 << 20

#: How much shorter each change makes the pauses where processes compete; see `Backoff`. Half of
#: the races may be lost: a reader that pauses for longer leaves Cassandra idle.
_SHORTER = 0.8

#: The first blocks from the pointer on, or why they can't be found.
Blocks = Sequence[LedgerBlock] | InvariantError
#: Reads the lanes of the first messages from the pointer of a group on, for a lease.
LanesAhead = Callable[[GroupState, LeaseRequest], Window]


class Rest(Enum):
    """Why a change has no plan in a round."""

    #: The round was full; ask for it again.
    LEFT = auto()


@dataclass(slots=True, eq=False)
class Change(Caller, ABC):
    """A change that one thread asks for.

    Attributes:
        token: A token that only this attempt writes.
        round: The last round that may have carried the change out.
    """

    token: UUID = field(default_factory=uuid4, kw_only=True)
    round: Round | None = field(default=None, kw_only=True)

    #: The message of the error if the change was not carried out.
    lost: ClassVar[str]

    @property
    def is_alone(self) -> bool:
        """True if no other change may be in its round."""
        return False

    def renew(self) -> None:
        """Give the next attempt a token of its own, as this attempt may be applied late."""
        self.token = uuid4()

    def again(self) -> Self:
        """A copy of the change, for the next attempt."""
        return replace(
            self,
            taken_by=None,
            is_over=False,
            outcome=SimpleQueue(),
            token=uuid4(),
            round=None,
        )

    @property
    def competes(self) -> bool:
        """True if this change alters what the changes of others depend on."""
        return True

    @abstractmethod
    def plan(self, state: GroupState, blocks: Blocks, window: Window | None) -> Any:
        """Plan the change, given the state before it; see `plan_lease`."""

    @abstractmethod
    def outcome_of(self, plan: Any, *, is_shared: bool) -> Lease | Settled:
        """The result that the thread gets once ``plan`` was carried out."""

    @property
    def tokens(self) -> set[UUID]:
        """The tokens that only this attempt writes."""
        return {self.token}

    @abstractmethod
    def holds(self, plan: Any) -> bool:
        """True if a slot has a token of the plan until its lease ends."""

    @abstractmethod
    def was_applied(self, plan: Any, slots: Sequence[Slot], now: datetime | None) -> bool:
        """True if ``plan``, whose answer was lost, was applied."""


@dataclass(slots=True, eq=False)
class Leasing(Change):
    """A change that acks, and leases the next messages; see `plan_lease`.

    Attributes:
        request: What the reader has finished and wants.
        known: The group as it probably is; None: to be read.
        ahead: Reads the lanes of messages; None: the partition is one lane, if it has an order.
    """

    request: LeaseRequest
    known: GroupState | None = None
    ahead: LanesAhead | None = None

    lost: ClassVar[str] = (
        "lost the race for messages again and again; too many readers for such small batches? "
        "raise maxMessagesPerTrigger or use fewer readers"
    )

    @property
    def known_if_enough(self) -> GroupState | None:
        """The known state, if it has all messages that the acks name."""
        known = self.known
        return known if known and holds_all(known, self.request.receipt_acks) else None

    @property
    def is_alone(self) -> bool:
        """True if the lease depends on all messages that others hold, or has a limit of bytes.

        With lanes, the lease depends only on the messages of its own lanes. How many messages fit
        into a limit of bytes is computed for one request.
        """
        is_free = self.ahead is not None and self.request.max_bytes is None
        return self.request.is_exclusive and not is_free

    @property
    def tokens(self) -> set[UUID]:
        """The tokens that the lease writes; see `Change.tokens`."""
        return {self.token, spare_token(self.token)}

    def plan(self, state: GroupState, blocks: Blocks, window: Window | None) -> Lease:
        """Plan the lease; see `plan_lease`."""
        own = None if self.ahead is None else window
        needs = own is None and self.request.needs_blocks(state.head.pointer)
        if needs and isinstance(blocks, InvariantError):
            raise blocks
        beyond = () if isinstance(blocks, InvariantError) or not needs else blocks
        return plan_lease(state, replace(self.request, token=self.token), beyond, own)

    def outcome_of(self, plan: Lease, *, is_shared: bool) -> Lease:
        """The lease, after it was carried out; see `Change.outcome_of`."""
        return replace(plan, is_shared=True) if is_shared else plan

    def holds(self, plan: Lease) -> bool:
        """True if a slot has the token of the lease; see `Change.holds`."""
        return bool(plan.leased)

    def was_applied(self, plan: Lease, slots: Sequence[Slot], now: datetime | None) -> bool:
        """True if the lease was applied; see `was_leased`."""
        return was_leased(plan, slots, now)


@dataclass(slots=True, eq=False)
class Settling(Change):
    """A change that settles messages of a lease; see `ConsumerGroup.settle`."""

    lease: UUID
    settlement: Settlement
    deliveries: int | None = None
    with_batch: bool = False

    lost: ClassVar[str] = "lost the race to settle messages again and again"

    @property
    def competes(self) -> bool:
        """False if the change only acks: nothing that others do depends on an ack."""
        return self.settlement != Settlement(acked=self.settlement.acked)

    def plan(self, state: GroupState, blocks: Blocks, window: Window | None) -> SettlePlan:
        """Plan the settlement; see `plan_settle`."""
        del blocks, window
        return plan_settle(
            state,
            self.lease,
            self.settlement,
            self.token,
            deliveries=self.deliveries,
            with_batch=self.with_batch,
        )

    def outcome_of(self, plan: SettlePlan, *, is_shared: bool) -> Settled:
        """The settlement, after it was carried out; see `Change.outcome_of`."""
        del is_shared
        reached = plan.reached
        return Settled(reached.count, self.settlement.named - reached, plan.dead)

    def holds(self, plan: SettlePlan) -> bool:
        """False: a settlement holds no message."""
        del plan
        return False

    def was_applied(self, plan: SettlePlan, slots: Sequence[Slot], now: datetime | None) -> bool:
        """True if the settlement was applied; see `was_settled`."""
        return was_settled(plan, self.lease, slots, now)


@dataclass(frozen=True, slots=True)
class Round:
    """The outcome of carrying out ``ops``, for several threads.

    Attributes:
        ops: The operations.
        plans: The plan of each change, or why there is none.
        tokens: The tokens that only this attempt writes.
    """

    ops: tuple[Op, ...]
    plans: Mapping[Change, Any]
    tokens: frozenset[UUID]

    def outcome_of(self, change: Change) -> Lease | Settled | CassieqError | Rest:
        """The result of a thread's change, after ``ops`` were applied."""
        plan = self.plans.get(change, Rest.LEFT)
        if isinstance(plan, CassieqError | Rest):
            return plan
        return change.outcome_of(plan, is_shared=len(self.plans) > 1)

    def was_applied(self, slots: Sequence[Slot], now: datetime | None) -> bool:
        """True if ``ops`` were applied, although the answer was lost."""
        plans = [
            (change, plan)
            for change, plan in self.plans.items()
            if not isinstance(plan, CassieqError) and plan.ops
        ]
        if any(slot.lease in self.tokens for slot in slots):
            return True
        if any(change.holds(plan) for change, plan in plans):
            return False
        return all(change.was_applied(plan, slots, now) for change, plan in plans)


def plan_round(
    state: GroupState,
    changes: Sequence[Change],
    blocks: Blocks = (),
    window: Window | None = None,
) -> Round:
    """Plan changes, one after the other, as many as fit.

    Args:
        state: The group as read, with all that each of the changes needs.
        changes: The changes, in order; at least one.
        blocks: The first blocks from the pointer on, if one of the changes needs them.
        window: The lanes of the first messages from the pointer on, if a change needs them.
    """
    plans: dict[Change, Any] = {}
    ops: tuple[Op, ...] = ()
    for change in changes:
        if _bytes_of(ops) > MOST_BYTES:
            break
        try:
            plan = plans[change] = change.plan(state, blocks, window)
        except CassieqError as error:
            plans[change] = error
        else:
            state, ops = state_after(state, plan.ops), merge_ops(ops, plan.ops)
    tokens = frozenset[UUID]().union(*(change.tokens for change in plans))
    if len(plans) > 1:
        ops = _with_token(state, ops, tokens)
    return Round(ops, plans, tokens)


def _with_token(state: GroupState, ops: tuple[Op, ...], tokens: frozenset[UUID]) -> tuple[Op, ...]:
    """Make sure that a slot has a token of the round: later changes may have overwritten it."""
    written = {
        token_in(op.values)
        for op in ops
        if isinstance(op, Insert | Update) and op.row[0] == "slot"
    }
    if not written or written & tokens:
        return ops
    more = Changes(state)
    more.fill_slot(emptied(min(tokens)) | slot_values(deliveries=0))
    return merge_ops(ops, more.ops())


def _bytes_of(ops: Sequence[Op]) -> int:
    values = (op.values.values() for op in ops if isinstance(op, Insert | Update))
    return sum(len(value) for each in values for value in each if isinstance(value, str))


class Rounds:
    """Shares LWTs among the threads of a process that change the same group.

    Safe across a fork. A thread carries its change out at once, unless another thread is changing
    the group; then it waits, and one of the waiting threads carries out the changes of all.

    Processes still compete. A process that has lost a race waits a moment before its next
    changes (see `Backoff`); the threads that come meanwhile share the LWT.

    If a thread is interrupted while it carries out changes of others, each of these checks whether
    its own change was carried out, and repeats it if not.
    """

    def __init__(self) -> None:
        self._combining: Combining[Change] = Combining()

    def share(
        self,
        group: tuple[QueueId, str],
        mine: Change,
        carry_out: Callable[[Sequence[Change], Backoff], Round],
        was_carried_out: Callable[[Round], bool],
    ) -> Lease | Settled:
        """Carry out a change, with those of other threads.

        Args:
            group: The queue's id and the name of the group.
            mine: The change of this thread.
            carry_out: Carries out changes by one LWT.
            was_carried_out: Finds out, by a serial read, whether a round was carried out.

        Raises:
            CassieqError: See `ConsumerGroup.lease` and `settle`.
        """

        def lead() -> Any:
            def work(backoff: Backoff) -> Any:
                changes = self._combining.take(group, mine, _fit)
                return _told(changes, lambda: carry_out(changes, backoff))

            if not mine.competes:
                return work(Backoff())
            with self._combining.paced(group, shorter=_SHORTER) as backoff:
                return work(backoff)

        while True:
            outcome = self._combining.run(group, mine, lead)
            if outcome is Turn.UNKNOWN and mine.round and was_carried_out(mine.round):
                outcome = mine.round.outcome_of(mine)
            if isinstance(outcome, CassieqError):
                raise outcome
            if isinstance(outcome, Lease | Settled):
                return outcome
            mine = mine.again()


def _told(changes: Sequence[Change], carry_out: Callable[[], Round]) -> Any:
    """Carry out changes; give each other thread its outcome, and return that of the first one."""
    others = changes[1:]
    try:
        done = carry_out()
        for each in others:
            each.outcome.put(done.outcome_of(each))
    except BaseException as error:
        for each in others:
            each.outcome.put(error if isinstance(error, Exception) else Turn.UNKNOWN)
        raise
    return done.outcome_of(changes[0])


def _fit(changes: Sequence[Change], more: Change) -> bool:
    """True if all of these changes fit into one round."""
    is_alone = more.is_alone or any(each.is_alone for each in changes)
    return not is_alone and len(changes) < MOST_TOGETHER
