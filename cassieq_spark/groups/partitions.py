"""A consumer group in all partitions of its queue: each has a registration and a state of it."""

from __future__ import annotations

from collections.abc import Sequence

from cassieq_spark.arguments import check_count
from cassieq_spark.errors import OptionError
from cassieq_spark.groups.group import ConsumerGroup
from cassieq_spark.groups.registration import check_unleased, create_group, delete_group
from cassieq_spark.groups.seek import seek_group
from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.model import validate_name
from cassieq_spark.parallel import in_parallel
from cassieq_spark.settings.position import StartingPosition


def create_groups(ledgers: Sequence[Ledger], name: str, position: StartingPosition) -> None:
    """Make a group in each partition; what a call that broke off has made stays.

    Args:
        ledgers: Of each partition of the queue.
        name: Name of the group.
        position: Where it begins.

    Raises:
        OptionError: The name can't be one; or a monoton, in a queue with several partitions.
        ExistsError: There is such a group in all partitions.
        CassieqError: See `create_group`.
    """
    validate_name("group", name)
    check_for_all(ledgers, position)
    there = [ledger for ledger in ledgers if ledger.read_group(name, serial=True) is not None]
    missing = [ledger for ledger in ledgers if ledger not in there]
    for ledger in missing or ledgers:
        create_group(ConsumerGroup(ledger, name), position)


def seek_groups(
    ledgers: Sequence[Ledger],
    name: str,
    position: StartingPosition,
    *,
    partition: int | None = None,
    force: bool = False,
) -> int:
    """Move a group in each partition, or in one.

    Args:
        ledgers: Of each partition of the queue.
        name: Name of the group.
        position: Where it continues.
        partition: In which partition only; None: in all of them.
        force: Also if readers hold messages.

    Returns:
        The monoton from which it continues; of several partitions, added up.

    Raises:
        OptionError: A monoton, in a queue with several partitions.
        CassieqError: See `seek_group`; if readers hold messages of one partition, none is moved.
    """
    if partition is not None:
        check_count("partition", partition, least=0, most=len(ledgers) - 1)
        ledgers = [ledgers[partition]]
    check_for_all(ledgers, position)
    if len(ledgers) > 1 and not force:
        for ledger in ledgers:
            check_unleased(ledger, group=name)

    def seek(ledger: Ledger) -> int:
        return seek_group(ConsumerGroup(ledger, name), position, force=force)

    return sum(in_parallel(seek, ledgers))


def delete_groups(ledgers: Sequence[Ledger], name: str, *, force: bool = False) -> bool:
    """Remove a group from each partition.

    Args:
        ledgers: Of each partition of the queue.
        name: Name of the group.
        force: Also if readers hold messages.

    Returns:
        False: there was none.

    Raises:
        CassieqError: See `delete_group`; if readers hold messages of one partition, it is removed
            from none.
    """
    if len(ledgers) > 1 and not force:
        for ledger in ledgers:
            check_unleased(ledger, group=name)

    def delete(ledger: Ledger) -> bool:
        return delete_group(ConsumerGroup(ledger, name), force=force)

    return any(in_parallel(delete, ledgers))


def check_for_all(ledgers: Sequence[Ledger], position: StartingPosition) -> None:
    """Refuse a monoton as the position of several partitions.

    Raises:
        OptionError: It is one, and there are several.
    """
    if len(ledgers) > 1 and isinstance(position, int):
        raise OptionError(
            f"the queue has {len(ledgers)} partitions, each with monotons of its own, so "
            f"{position} is no position in it: give earliest, latest, or an instant, or name a "
            "partition"
        )
