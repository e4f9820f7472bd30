"""Decides what a store is: subclass `StoreContract` and give it a fixture ``store``.

    class TestMyStore(StoreContract):
        @pytest.fixture
        def store(self):
            return MyStore()

Every test uses queue ids of its own, so one store serves all of them, also one that others use at
the same time. For readable failures call
``pytest.register_assert_rewrite("cassieq_spark.testing.conformance")`` in ``conftest.py``.
"""

from __future__ import annotations

from cassieq_spark.testing.conformance.chunks import ChunkContract
from cassieq_spark.testing.conformance.clock import ClockContract
from cassieq_spark.testing.conformance.conditions import ConditionContract
from cassieq_spark.testing.conformance.operations import OperationContract
from cassieq_spark.testing.conformance.races import RaceContract
from cassieq_spark.testing.conformance.slices import SliceContract
from cassieq_spark.testing.conformance.timed_rows import TimedRowContract


class StoreContract(
    ConditionContract,
    OperationContract,
    ClockContract,
    SliceContract,
    ChunkContract,
    RaceContract,
    TimedRowContract,
):
    """All that a `Store` must do."""


__all__ = ["StoreContract"]
