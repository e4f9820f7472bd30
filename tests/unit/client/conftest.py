from __future__ import annotations

from collections.abc import Iterator

import pytest

from cassieq_spark import Client
from cassieq_spark.testing.faults import FaultyStore
from cassieq_spark.testing.stores import CountingStore
from tests.support.builders import make_clocked_store
from tests.support.faults import FakeClock


@pytest.fixture
def trouble_and_clock() -> tuple[FaultyStore, FakeClock]:
    memory, clock = make_clocked_store()
    return FaultyStore(memory), clock


@pytest.fixture
def trouble(trouble_and_clock: tuple[FaultyStore, FakeClock]) -> FaultyStore:
    return trouble_and_clock[0]


@pytest.fixture
def clock(trouble_and_clock: tuple[FaultyStore, FakeClock]) -> FakeClock:
    return trouble_and_clock[1]


@pytest.fixture
def store(trouble: FaultyStore) -> CountingStore:
    return CountingStore(trouble)


@pytest.fixture
def client(store: CountingStore) -> Iterator[Client]:
    """A client, and a queue ``q`` whose messages die after three deliveries."""
    with Client.from_store(store) as client:
        client.create_queue("q", max_deliveries=3)
        store.reset()
        yield client
