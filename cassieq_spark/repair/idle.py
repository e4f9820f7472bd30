"""Finding the queues with nothing to finalise, in as few reads as will do."""

from __future__ import annotations

from cassieq_spark.delivery.registration import registration_key
from cassieq_spark.delivery.state import HEAD, slots_of
from cassieq_spark.delivery.state import head_of as group_head_of
from cassieq_spark.ledger.state import Group, LedgerHead, block_of, group_of, head_of, hold_of
from cassieq_spark.model import QueueId
from cassieq_spark.store.protocol import (
    Slice,
    Store,
    partition_of_delivery,
    partition_of_ledger,
)


def has_nothing_to_finalise(store: Store, queue_id: QueueId) -> bool:
    """Whether one group is still owed ``finalised``, and no sweep has left anything undone.

    Three plain reads for a queue in which nothing happens, two if it has no group. True is no
    more than a reason to look again at the next run, so none of the reads must be serial: what
    they miss is late, never lost.
    """
    ledger = partition_of_ledger(queue_id)
    rows = store.read_rows(ledger, Slice(kinds=("head", "group", "hold"))).rows
    heads = [head_of(row) for row in rows if row["kind"] == "head"]
    if not heads:
        return False
    (head,) = heads
    groups = [group_of(row) for row in rows if row["kind"] == "group"]
    is_held = any(hold_of(row).position <= head.finalised for row in rows if row["kind"] == "hold")
    waits = is_held or not groups or any(_is_owed(store, queue_id, each, head) for each in groups)
    return waits and not _is_unfinished(store, queue_id, head)


def _is_owed(store: Store, queue_id: QueueId, group: Group, head: LedgerHead) -> bool:
    """Whether this group keeps ``finalised`` where it is; False may mean that it is not known."""
    which = Slice(kinds=("head", "registration", "slot"))
    rows = store.read_rows(partition_of_delivery(queue_id, group.name), which).rows
    keys = {(row["kind"], row["ordinal"], row["position"]): row for row in rows}
    if HEAD not in keys or registration_key(group.registered_as) not in keys:
        return False
    starts = [slot.monotons.start for slot in slots_of(rows) if slot.monotons]
    return min([group_head_of(keys[HEAD]).pointer, *starts]) <= head.finalised


def _is_unfinished(store: Store, queue_id: QueueId, head: LedgerHead) -> bool:
    """Whether a row is left of a block that is settled: its buckets may be left as well."""
    which = Slice(kinds=("block",), start=head.trimmed, limit=1)
    rows = store.read_rows(partition_of_ledger(queue_id), which).rows
    return any(block_of(row).monotons.stop <= head.finalised for row in rows)
