"""Fixtures: a keyspace of this test session's own on ``cassandra_node``, and a store on it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol
from uuid import uuid4

import pytest

from cassieq_spark.settings.connection import ConnectionOptions
from cassieq_spark.store import open_store
from cassieq_spark.store.cassandra.schema import apply_schema
from cassieq_spark.store.protocol import Store


class Node(Protocol):
    """What the fixture ``cassandra_node`` gives."""

    contact_points: list[str]
    port: int


@pytest.fixture(scope="session")
def connection(cassandra_node: Node) -> ConnectionOptions:
    """A keyspace with all tables; left behind, as the node is thrown away."""
    options = ConnectionOptions(
        contact_points=tuple(cassandra_node.contact_points),
        port=cassandra_node.port,
        keyspace=f"cassieq_test_{uuid4().hex[:12]}",
    )
    apply_schema(options, {"SimpleStrategy": 1})
    return options


@pytest.fixture(scope="session")
def cassandra_store(connection: ConnectionOptions) -> Iterator[Store]:
    store = open_store(connection)
    yield store
    store.close()
