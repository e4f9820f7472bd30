"""The tests that every store must pass: subclass `StoreContract` and add a fixture ``store``.

    class TestMyStore(StoreContract):
        @pytest.fixture
        def store(self):
            return MyStore()

Every test uses its own queue ids, so one store serves all tests, even if others use it
concurrently. For readable failures call
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
    """Tests of all that a `Store` must do."""


__all__ = ["StoreContract"]
