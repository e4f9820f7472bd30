"""Queues that are watched: a store in memory that can go away, in whole or for one queue."""

from __future__ import annotations

from collections.abc import Sequence

from cassieq_spark.errors import CassieqError
from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.ledger.publish import publish
from cassieq_spark.model import QueueDefinition
from cassieq_spark.queues import create_queue
from cassieq_spark.store.protocol import EVERYTHING, Partition, Row, Rows, Slice, Store
from cassieq_spark.store.tables import Table
from cassieq_spark.testing.stores import WrappedStore
from tests.support.builders import (
    LEASE,
    make_group,
    make_pending,
    make_request,
)


class AilingStore(WrappedStore):
    """Answers nothing while `away` is set, nor what is of a partition key in `broken`."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.away: CassieqError | None = None
        self.broken: dict[str, CassieqError] = {}

    def read_rows(
        self, partition: Partition, which: Slice = EVERYTHING, *, serial: bool = False
    ) -> Rows:
        error = self.away or self.broken.get(partition.key[0])
        if error is not None:
            raise error
        return super().read_rows(partition, which, serial=serial)

    def scan(self, table: Table, kinds: Sequence[str] = ()) -> list[Row]:
        if self.away is not None:
            raise self.away
        return list(super().scan(table, kinds))


def make_busy_queue(store: Store, name: str = "orders") -> QueueDefinition:
    """Ten messages; a reader of group ``g`` has settled three and holds two."""
    queue = create_queue(store, name, lease=LEASE)
    publish(Ledger(store, queue.queue_id), make_pending([10]))
    group = make_group(store, queue.queue_id)
    done = group.lease(make_request(stop=10, max_messages=3)).token
    group.lease(make_request(held=done, stop=10, max_messages=2))
    return queue
