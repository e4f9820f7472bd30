"""Spark's rim of the views: what is known about a queue, as rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql.datasource import DataSourceReader, InputPartition

from cassieq_spark.settings import SourceOptions
from cassieq_spark.spark.source.view_rows import read_view
from cassieq_spark.store import open_store


class ViewReader(DataSourceReader):
    """Reads a view in one task, anew for every action; leases nothing."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options

    def partitions(self) -> list[InputPartition]:
        """One: a view is small."""
        return [InputPartition(0)]

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        """On an executor: the rows of the view."""
        del partition
        return read_view(open_store(self._options.connection), self._options)
