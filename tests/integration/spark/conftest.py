from __future__ import annotations

from tests.support.spark_session import queue, spark

__all__ = ["queue", "spark"]
