from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from decimal import Decimal

import pytest

from cassieq_spark.client import Client
from cassieq_spark.producer.new_message import NewMessage
from cassieq_spark.store.memory import MemoryStore
from tests.unit.console.visitor import Visitor, visiting

SCHEMA = "vendor string not null, fare decimal(10,2)"


@pytest.fixture
def store() -> MemoryStore:
    """Queues with something of all that pages show."""
    store = MemoryStore()
    client = Client.from_store(store)
    client.create_queue("orders", lease=timedelta(minutes=5), max_deliveries=2)
    client.put_many(
        "orders",
        [NewMessage(f'{{"order": {number}}}', f"key-{number % 3}") for number in range(20)],
    )
    client.ack(*client.receive("orders", "billing", max=4))
    client.receive("orders", "billing", max=3)
    client.reject(*client.receive("orders", "shipping", max=2), reason="no such address")
    client.create_queue("clicks", partitions=3, order="key")
    client.put_many("clicks", [NewMessage(b"x", f"v{number}") for number in range(30)])
    client.create_group("clicks", "sessions")
    client.receive("clicks", "sessions", max=2)
    client.create_queue("trips", schema=SCHEMA)
    client.put_many("trips", [{"vendor": "CMT", "fare": Decimal("7.50")}, {"vendor": "VTS"}])
    client.create_queue("empty", max_deliveries=0)
    client.create_schedule("orders", "nightly", '{"day": "{{date}}"}', cron="0 3 * * *")
    client.create_schedule("orders", "beat", "tick", every=timedelta(minutes=5))
    client.pause_schedule("orders", "beat")
    return store


@pytest.fixture
def visitor(store: MemoryStore) -> Iterator[Visitor]:
    """Somebody who may only look."""
    with visiting(store, title="production") as visitor:
        visitor.look()
        yield visitor


@pytest.fixture
def operator(store: MemoryStore) -> Iterator[Visitor]:
    """Somebody who may change queues."""
    with visiting(store, allow_changes=True) as visitor:
        visitor.look()
        yield visitor
