"""Spark's edge: source, sink, progress of queries, and what Spark's Python needs."""

from __future__ import annotations
