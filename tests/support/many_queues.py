"""Thousands of queues in a store in memory, in no time: copies of the rows of one."""

from __future__ import annotations

from dataclasses import replace

from cassieq_spark.client import Client
from cassieq_spark.store.memory import MemoryStore
from cassieq_spark.store.tables import Table


def many_queues(store: MemoryStore, count: int) -> None:
    """Create ``queue-00000`` and so on, each without a message and with a group."""
    client = Client.from_store(store)
    client.create_queue("queue-00000", max_deliveries=0)
    client.create_group("queue-00000", "workers")
    own = {key: rows for key, rows in store._rows.items() if "queue-00000" in key.key[0]}
    for number in range(1, count):
        name = f"queue-{number:05d}"
        for partition, rows in own.items():
            first = partition.key[0].replace("queue-00000", name)
            key = replace(partition, key=(first, *partition.key[1:]))
            is_row_of_queue = partition.table is Table.QUEUE
            store._rows[key] = {
                row: {**values, "name": name} if is_row_of_queue else dict(values)
                for row, values in rows.items()
            }
