"""What queues hold, each read by itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from cassieq_spark.monitoring.snapshot import (
    SchedulesRead,
    Snapshot,
    read_queue_snapshot,
    read_queues,
)
from cassieq_spark.queues import read_records
from cassieq_spark.store.protocol import Store


def read_snapshot(
    store: Store, names: Sequence[str] = (), *, may_continue: Callable[[], bool] = lambda: True
) -> Snapshot:
    """What reading all queues says, without a survey, without memory and without schedules."""
    begun_at = datetime.now(UTC)
    figures = read_queues(store, read_records(store), names, may_continue, read_queue_snapshot)
    return Snapshot.of(figures, SchedulesRead(), begun_at=begun_at, seconds=0.0)
