"""kombu's transport without Celery, with queues that it makes and with queues that it is told."""

from __future__ import annotations

import json
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
    "dead poison",
]


@pytest.mark.parametrize("predefined", [False, True], ids=["made by kombu", "predefined"])
def test_messages_are_settled_and_kept_in_order(
    predefined: bool, environment: dict[str, str], sqs: Any, tmp_path: Path
):
    dead = sqs.create_queue(QueueName="dead")["QueueUrl"]
    arn = sqs.get_queue_attributes(QueueUrl=dead, AttributeNames=["QueueArn"])["Attributes"]
    policy = {"deadLetterTargetArn": arn["QueueArn"], "maxReceiveCount": "2"}
    given = {"RedrivePolicy": json.dumps(policy), "VisibilityTimeout": "1"}
    urls = {
        "dead": dead,
        "fragile": sqs.create_queue(QueueName="fragile", Attributes=given)["QueueUrl"],
    }
    if predefined:
        fifo = {"FifoQueue": "true"}
        payments = sqs.create_queue(QueueName="payments.fifo", Attributes=fifo)
        urls["payments.fifo"] = payments["QueueUrl"]
        urls["orders"] = sqs.create_queue(QueueName="orders")["QueueUrl"]

    environment["PREDEFINED"] = json.dumps(urls if predefined else {})
    said = output_of([sys.executable, PROGRAM], tmp_path, environment)

    assert said == SAYS
    found = sqs.list_queues()["QueueUrls"]
    assert len(found) == 4
    assert {counts(sqs, url) for url in found} == {(0, 0, 0)}
