"""Counts the messages that a move of a group to another position would affect. Reads only."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import astuple, dataclass

from cassieq_spark.arguments import check_count
from cassieq_spark.errors import QueueStateError
from cassieq_spark.groups.group import ConsumerGroup
from cassieq_spark.groups.partitions import check_for_all
from cassieq_spark.groups.state import GroupState
from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.ledger.state import LedgerHead
from cassieq_spark.model import Range, Ranges
from cassieq_spark.parallel import in_parallel
from cassieq_spark.queues.record import open_ledgers
from cassieq_spark.queues.stats import backlog_of
from cassieq_spark.settings.position import StartingPosition
from cassieq_spark.store.protocol import Store


@dataclass(frozen=True, slots=True)
class Move:
    """The effect of moving a group, in one queue partition or in several, in numbers of messages.

    Attributes:
        position: The monoton from which the group would continue; the sum over several partitions.
        again: Messages that would be delivered again, although the group has settled them.
        skipped: Messages that would count as settled, although the group is owed them.
        owed: Messages that the group would be owed afterwards.
        leased: Messages that readers hold now; the group is then moved only by force.
    """

    position: int = 0
    again: int = 0
    skipped: int = 0
    owed: int = 0
    leased: int = 0


def read_move(
    store: Store,
    queue: str,
    group: str,
    position: StartingPosition,
    *,
    partition: int | None = None,
) -> Move:
    """Compute what `Client.seek_group` would do with the same arguments.

    One read; and per partition five, four of them serial, and one or two more for an instant or if
    messages are delayed.

    Raises:
        QueueStateError: The queue or the group does not exist, or the position is deleted.
        OptionError: The position is a monoton, and there are several partitions.
    """
    ledgers = open_ledgers(store, queue)
    if partition is not None:
        check_count("partition", partition, least=0, most=len(ledgers) - 1)
        ledgers = [ledgers[partition]]
    check_for_all(ledgers, position)

    def read(ledger: Ledger) -> Move:
        # The state before the head: so nothing of the state is beyond the head.
        state = ConsumerGroup(ledger, group).read(every_waiting=True)
        return plan_move(ledger, state, ledger.read_head(), position)

    return sum_of_moves(in_parallel(read, ledgers))


def plan_move(
    ledger: Ledger, state: GroupState, head: LedgerHead, position: StartingPosition
) -> Move:
    """Compute what moving a group would do in a partition, whose state and head were just read.

    Raises:
        QueueStateError: There is no such position, or its messages are deleted.
    """
    target = ledger.find_position(head, position)
    if target < head.finalised:
        raise QueueStateError(
            f"messages {Range(target, head.finalised)} are settled by every group and deleted; "
            f"the group can go back to {head.finalised} (earliest) at most"
        )
    backlog = backlog_of(ledger, state, head)
    kinds = (backlog.leased, backlog.due, backlog.waiting, backlog.dead, backlog.fresh)
    now_owed = Ranges.union(kinds)
    then_owed = Ranges.of(Range(target, max(target, head.next)))
    return Move(
        position=target,
        again=(then_owed - now_owed).count,
        skipped=(now_owed - then_owed).count,
        owed=then_owed.count,
        leased=backlog.leased.count,
    )


def sum_of_moves(parts: Iterable[Move]) -> Move:
    """The effect of the moves of several partitions together."""
    return Move(*map(sum, zip(astuple(Move()), *map(astuple, parts), strict=True)))
