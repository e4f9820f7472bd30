"""The versions of a queue ``q``, followed from one compare-and-set to the next."""

from __future__ import annotations

from uuid import UUID

from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.ledger.state import HEAD, LedgerHead, LedgerStatus, head_of
from cassieq_spark.model import QueueId
from cassieq_spark.queues import QueueRecord, Status, read_record
from cassieq_spark.store.memory import MemoryStore
from cassieq_spark.store.protocol import Partition, Slice, partition_of_ledger
from cassieq_spark.store.tables import Table

#: What the status of a ledger may become.
NEXT_STATUSES = {
    None: {LedgerStatus.OPEN, LedgerStatus.PREPARED},
    LedgerStatus.PREPARED: {LedgerStatus.OPEN, LedgerStatus.PURGED, LedgerStatus.DELETED},
    LedgerStatus.OPEN: {LedgerStatus.PURGED, LedgerStatus.DELETED},
    LedgerStatus.PURGED: set(),
    LedgerStatus.DELETED: set(),
}


class LifecycleModel:
    """Looks at what changes of a queue and its ledgers, and asks whether it may be so.

    Attributes:
        record: The queue's row.
        made_as: The version in which it was made.
        heads: Of all ledgers, by queue id.
        intended: Into which version the writer of each block wanted it to go.
        published: Where each block went in.
    """

    def __init__(self, memory: MemoryStore) -> None:
        self._memory = memory
        self._groups: dict[str, set[str]] = {}
        self.record: QueueRecord | None = None
        self.made_as = 0
        self.heads: dict[str, LedgerHead] = {}
        self.intended: dict[UUID, str] = {}
        self.published: dict[UUID, str] = {}

    def watch(self, partition: Partition) -> None:
        """Check what a compare-and-set on ``partition`` has changed."""
        if partition.table is Table.QUEUE:
            self._watch_queue()
        elif partition.table is Table.LEDGER:
            self._watch_ledger(partition.key[0])

    def _watch_queue(self) -> None:
        old, self.record = self.record, read_record(self._memory, "q")
        assert self.record is not None
        if self.record.status is Status.ACTIVE:
            head = Ledger(self._memory, self.record.definition.queue_id).read_head()
            assert head.status is LedgerStatus.OPEN, "nobody sees a half-made queue"
            for version in range(1, self.record.version):
                assert Ledger(self._memory, QueueId(f"q@{version}")).read_head().is_closed, "I10"
        if old is None:
            self.made_as = self.record.version
            return
        assert self.record.version in (old.version, old.version + 1), "I10"
        assert self.record.retired in (old.retired, old.retired + 1)
        assert self.record.retired <= self.record.obsolete
        if old.is_gone and not self.record.is_gone:
            assert self.record.version == old.version + 1, "I10: made anew under a used id"
            self.made_as = self.record.version

    def _watch_ledger(self, queue_id: str) -> None:
        rows = self._memory.read_rows(partition_of_ledger(QueueId(queue_id)), Slice(row=HEAD)).rows
        assert rows, "I10: a head is never removed"
        old, head = self.heads.get(queue_id), head_of(rows[0])
        groups = {group.name for group in Ledger(self._memory, QueueId(queue_id)).read_groups()}
        self.heads[queue_id] = head
        was = old.status if old else None
        assert head.status == was or head.status in NEXT_STATUSES[was], (was, head.status)
        if old is not None and old.is_closed:
            assert (head.next, head.fence) == (old.next, old.fence), "closed for ever"
            assert head.paused == old.paused
            assert groups <= self._groups[queue_id], "closed for ever"
        self._groups[queue_id] = groups
        for block in Ledger(self._memory, QueueId(queue_id)).read_blocks():
            assert self.intended[block.block] == queue_id, "landed in another version"
            assert self.published.setdefault(block.block, queue_id) == queue_id
