"""A durable work queue on Apache Cassandra for Spark."""

from __future__ import annotations

__version__ = "0.1.0"
