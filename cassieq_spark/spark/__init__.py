"""Spark's edge: source, sink, progress of queries, and what Spark's Python needs.

Importing this package tunes the garbage collector of processes that Spark has started
(`gc_tuning`), and of no other processes.
"""

from __future__ import annotations

from cassieq_spark.spark.gc_tuning import tune_if_of_spark

tune_if_of_spark()
