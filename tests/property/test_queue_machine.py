"""The whole queue against a model: publishers, readers, operators, repairs, faults, in any order.

Every compare-and-set that is applied is checked by `machine.model.QueueModel`, also those in the
middle of an operation; what operations return is checked where they are called.
"""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings

from cassieq_spark.consumer import consumer as consumer_module
from tests.property.machine.machine import QueueMachine


@pytest.fixture(autouse=True)
def _our_own_clock_stands_still(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consumer_module, "monotonic", lambda: 0.0)


TestQueue = QueueMachine.TestCase
TestQueue.settings = settings(
    stateful_step_count=60, suppress_health_check=[HealthCheck.too_slow], deadline=None
)
