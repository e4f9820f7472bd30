from __future__ import annotations

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from cassieq_spark.errors import OptionError
from cassieq_spark.settings import SourceOptions
from cassieq_spark.spark.source.columns import Columns
from cassieq_spark.spark.source.offsets import initial_offset
from cassieq_spark.spark.source.stream import MessageStreamReader


def test_all_there_is_at_once_is_refused_before_the_store_is_opened():
    """Only trigger(once=True) asks for it, and then nothing acks the batch."""
    reader = MessageStreamReader(SourceOptions(queue="q", group="g"), Columns(None))

    with pytest.raises(OptionError, match=r"use trigger\(availableNow=True\)"):
        reader.latestOffset(initial_offset("q", "g"), ReadAllAvailable())
