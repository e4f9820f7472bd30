"""kombu's transport without Celery, with queues that it makes and with queues that it is told."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from tests.sqs.conftest import counts, output_of

PROGRAM = Path(__file__).parent / "programs" / "queues_of_kombu.py"
SAYS = [
    "got {'item': 'Grüße', 'count': 3}",
    "again True",
    "rejected for good",
    "size 2",
    "cleared 0",
    "even [0, 2, 4]",
    "odd [1, 3, 5]",
    "size 0",
]


@pytest.mark.parametrize("predefined", [False, True], ids=["made by kombu", "predefined"])
def test_messages_are_settled_and_kept_in_order(
    predefined: bool, environment: dict[str, str], sqs: Any, tmp_path: Path
):
    if predefined:
        orders = sqs.create_queue(QueueName="orders")
        payments = sqs.create_queue(QueueName="payments.fifo", Attributes={"FifoQueue": "true"})
        environment |= {"ORDERS_URL": orders["QueueUrl"], "PAYMENTS_URL": payments["QueueUrl"]}

    said = output_of([sys.executable, PROGRAM], tmp_path, environment)

    assert said == SAYS
    urls = sqs.list_queues()["QueueUrls"]
    assert len(urls) == 2
    assert {counts(sqs, url) for url in urls} == {(0, 0, 0)}
