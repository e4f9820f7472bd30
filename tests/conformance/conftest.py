from __future__ import annotations

import pytest

from tests.support.cassandra_store import cassandra_store, connection

__all__ = ["cassandra_store", "connection"]

pytest.register_assert_rewrite("cassieq_spark.testing.conformance")
