from __future__ import annotations

from tests.support.cassandra_store import cassandra_store, connection
from tests.support.spark_session import queue, spark

__all__ = ["cassandra_store", "connection", "queue", "spark"]
