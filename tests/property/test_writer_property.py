"""What tasks write, and the driver publishes: however many there are."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cassieq_spark.blocks import times_of_task
from cassieq_spark.ledger.publish import MOST_BLOCKS


@given(st.integers(1, 10_000))
def test_whatever_number_of_tasks_has_delayed_messages_one_publish_takes_them(tasks: int):
    assert sum(map(times_of_task, range(tasks))) <= MOST_BLOCKS
