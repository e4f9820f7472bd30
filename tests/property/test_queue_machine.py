"""The whole queue against a model: publishers, readers, operators, sweeps, faults, in any order.

Every compare-and-set that is applied is checked by `machine.model.QueueModel`, also those in the
middle of an operation; what operations return is checked where they are called.
"""

from __future__ import annotations

from hypothesis import HealthCheck, settings

from tests.property.machine.machine import QueueMachine

TestQueue = QueueMachine.TestCase
TestQueue.settings = settings(
    stateful_step_count=60, suppress_health_check=[HealthCheck.too_slow], deadline=None
)
