"""A consumer group in all partitions of its queue, each with a registration and a state."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from cassieq_spark.arguments import check_count
from cassieq_spark.errors import NotFoundError, OptionError
from cassieq_spark.groups.group import ConsumerGroup
from cassieq_spark.groups.registration import (
    check_start,
    check_unleased,
    create_group,
    delete_group,
    ensure_group,
)
from cassieq_spark.groups.seek import seek_group
from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.model import name_of, validate_name
from cassieq_spark.parallel import in_parallel
from cassieq_spark.settings.position import StartingPosition

#: The consumer group in which dead letters are redriven and purged. No reader may have it: what it
#: has settled counts as redriven or purged, so its reader could discard dead letters without the
#: right to.
ADMIN_GROUP = "cassieq-dead"


def create_groups(ledgers: Sequence[Ledger], name: str, position: StartingPosition) -> None:
    """Create a group in each partition that has none.

    If the call breaks off, repeat it: it raises `ExistsError` if all partitions have the group by
    then.

    Raises:
        OptionError: The name is not valid or reserved, or the position is a monoton and there are
            several partitions.
        ExistsError: All partitions have a group of this name.
        CassieqError: See `create_group`.
    """
    validate_name("group", name)
    _check_free(name)
    check_for_all(ledgers, position)
    missing = [ledger for ledger in ledgers if ledger.read_group(name, serial=True) is None]
    _check_starts(missing, name, position)
    for ledger in missing or ledgers:
        create_group(ConsumerGroup(ledger, name), position)


def ensure_groups(
    ledgers: Sequence[Ledger],
    name: str,
    *,
    make_group: bool,
    starting: StartingPosition = "earliest",
    fail_on_data_loss: bool = True,
) -> list[int | None]:
    """Create a group in each partition that has none.

    A group is owed only messages of partitions that know it: so a reader calls this before it
    leases from any partition. The first partition comes first, then the others in parallel; see
    `ensure_group`. If the call breaks off in between, the next reader completes the group, from
    its own position on. So this function first checks that the group can begin in all of them.

    Args:
        make_group: True to create a group that the first partition does not have; one read more. A
            group that the first partition has and others lack, because its creation broke off, is
            completed in any case.
        starting: Where the group begins. An instant takes some reads more per partition.
        fail_on_data_loss: True to refuse a position from which on messages are deleted.

    Returns:
        For each partition the first monoton that the group is owed; None if the group is new
        there.

    Raises:
        OptionError: The name is reserved, or the position is a monoton and there are several
            partitions.
        NotFoundError: The first partition has no such group, and it is not to be created.
        QueueStateError: The queue was purged or deleted, or the group can't begin there in some
            partition.
        ContentionError: Competing changes won every attempt.
    """
    _check_free(name)
    check_for_all(ledgers, starting)
    first, *others = ledgers
    if not make_group and first.read_group(name) is None:
        raise NotFoundError(
            f"queue {name_of(first.queue_id)!r} has no group {name!r}, and this call does "
            "not create it: create it first"
        )
    if fail_on_data_loss:
        _check_starts(ledgers, name, starting)

    def ensure(ledger: Ledger) -> int | None:
        return ensure_group(
            ConsumerGroup(ledger, name), starting=starting, fail_on_data_loss=fail_on_data_loss
        )

    return [ensure(first), *in_parallel(ensure, others)]


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
        partition: The only partition in which to move it; None: all of them.

    Returns:
        The monoton from which it continues; the sum over several partitions.

    Raises:
        OptionError: The position is a monoton and there are several partitions.
        CassieqError: See `seek_group`; if readers hold messages of one partition, none is moved.
    """
    if partition is not None:
        check_count("partition", partition, least=0, most=len(ledgers) - 1)
        ledgers = [ledgers[partition]]
    check_for_all(ledgers, position)
    _check_all_unleased(ledgers, name, force=force)

    def seek(ledger: Ledger) -> int:
        return seek_group(ConsumerGroup(ledger, name), position, force=force)

    return sum(in_parallel(seek, ledgers))


def delete_groups(ledgers: Sequence[Ledger], name: str, *, force: bool = False) -> bool:
    """Delete a group in each partition, the first one first: then no reader completes it again.

    If the call breaks off, it must be repeated.

    Returns:
        False if there was no such group.

    Raises:
        CassieqError: See `delete_group`; if readers hold messages of one partition, the group is
            deleted in none.
    """
    _check_all_unleased(ledgers, name, force=force)

    def delete(ledger: Ledger) -> bool:
        return delete_group(ConsumerGroup(ledger, name), force=force)

    first, *others = ledgers
    return any([delete(first), *in_parallel(delete, others)])


def check_for_all(ledgers: Sequence[Ledger], position: StartingPosition) -> None:
    """Refuse a monoton as the position in several partitions.

    Raises:
        OptionError: The position is a monoton, and there are several partitions.
    """
    if len(ledgers) > 1 and isinstance(position, int):
        raise OptionError(
            f"the queue has {len(ledgers)} partitions, each with monotons of its own, so "
            f"{position} is no position in it: give earliest, latest, or an instant, or name a "
            "partition"
        )


def _check_free(name: str) -> None:
    """Refuse the group that `redrive` and `purge` read in, and no other reader may."""
    if name == ADMIN_GROUP:
        raise OptionError(
            f"group {name!r} is reserved: it says which dead letters were redriven or purged; "
            "choose another name"
        )


def _check_starts(ledgers: Sequence[Ledger], name: str, starting: StartingPosition) -> None:
    """If there are several partitions, check all of them before the first gets the group.

    Only an instant can be refused: messages after it may be deleted already.
    """
    if len(ledgers) > 1 and isinstance(starting, datetime):
        in_parallel(lambda ledger: check_start(ConsumerGroup(ledger, name), starting), ledgers)


def _check_all_unleased(ledgers: Sequence[Ledger], name: str, *, force: bool) -> None:
    """If there are several partitions, check all of them before the first is changed."""
    if len(ledgers) > 1 and not force:
        for ledger in ledgers:
            check_unleased(ledger, group=name)
