"""The name that Spark's discovery looks for; everything is in `cassieq_spark`."""

from __future__ import annotations

from cassieq_spark.spark.datasource import CassieqDataSource as DefaultSource

__all__ = ["DefaultSource"]
