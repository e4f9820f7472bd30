from __future__ import annotations

import pytest
from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import StructType

from cassieq_spark.errors import OptionError
from cassieq_spark.settings import SourceOptions
from cassieq_spark.spark.datasource import CassieqDataSource
from cassieq_spark.spark.source.columns import Columns
from cassieq_spark.spark.source.offsets import initial_offset
from cassieq_spark.spark.source.stream import MessageStreamReader


def test_all_there_is_at_once_is_refused_before_the_store_is_opened():
    """Only trigger(once=True) asks for it, and then nothing acks the batch."""
    reader = MessageStreamReader(SourceOptions(queue="q", group="g"), Columns(None))

    with pytest.raises(OptionError, match=r"use trigger\(availableNow=True\)"):
        reader.latestOffset(initial_offset("q", "g"), ReadAllAvailable())


def test_an_error_is_told_by_the_first_call_as_spark_calls_stop_of_a_reader_that_it_has_not_got():
    reader = CassieqDataSource({"queue": "q", "maxMessages": "5"}).streamReader(StructType())

    with pytest.raises(OptionError, match="option 'group' is missing"):
        reader.getDefaultReadLimit()
    with pytest.raises(OptionError, match="option 'group' is missing"):
        reader.initialOffset()
    with pytest.raises(OptionError, match="option 'group' is missing"):
        reader.latestOffset({}, ReadAllAvailable())
    with pytest.raises(OptionError, match="option 'group' is missing"):
        reader.read(InputPartition(0))
    reader.stop()
