from __future__ import annotations

from tests.support.cassandra_store import cassandra_store, connection

# A keyspace of its own: the contract writes rows that are no queues.
__all__ = ["cassandra_store", "connection"]
