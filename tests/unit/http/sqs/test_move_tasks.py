from __future__ import annotations

import pytest

from cassieq_spark.http.sqs.addresses import QueueAddress
from cassieq_spark.http.sqs.errors import InvalidParameterValue, ResourceNotFound
from cassieq_spark.http.sqs.move_tasks import MoveTask, handle_of, newest, task_of

NUMBER = "0123456789abcdef" * 2
ARN = "arn:aws:sqs:eu-central-1:acme:dead"
TASK = MoveTask(id=NUMBER, runner="r", started=1_000, beat=5_000, to_move=3)


def test_a_task_is_what_its_text_says():
    task = TASK.after(2).after(1, "FAILED", "why")

    assert MoveTask.parse(task.text) == task
    assert (task.moved, task.reason) == (3, "why")
    assert len(str(TASK.failed("x" * 1_000).reason)) == 300


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"id": 1}', TASK.text[:-1] + ',"rate":0}', TASK.text[:-1] + "]"]
)
def test_what_is_no_task_is_none(text: str):
    assert MoveTask.parse(text) is None


@pytest.mark.parametrize(
    ("status", "now", "is_to_end", "shown"),
    [
        ("RUNNING", 65_000, False, "RUNNING"),
        ("RUNNING", 65_001, False, "RUNNING"),
        ("RUNNING", 65_000, True, "CANCELLING"),
        ("RUNNING", 65_001, True, "CANCELLED"),
        ("COMPLETED", 65_001, True, "COMPLETED"),
    ],
)
def test_a_task_that_is_to_end_has_ended_when_nobody_runs_it(
    status: str, now: int, is_to_end: bool, shown: str
):
    task = TASK.after(0, status)

    assert task.status_at(now, is_to_end=is_to_end) == shown
    assert task.is_abandoned(now) is (status == "RUNNING" and now > 65_000)


def test_only_a_task_that_runs_shows_its_handle():
    source = QueueAddress("acme", "dead")

    entry = TASK.entry(source, "eu-central-1", "RUNNING")
    ended = TASK.entry(source, "eu-central-1", "CANCELLING")

    assert task_of(entry["TaskHandle"]) == (NUMBER, source)
    assert "TaskHandle" not in ended
    assert {"DestinationArn", "MaxNumberOfMessagesPerSecond", "FailureReason"}.isdisjoint(ended)


def test_the_newest_task_is_first():
    later = TASK.model_copy(update={"started": 2_000})

    assert newest([TASK, later]) == [later, TASK]


@pytest.mark.parametrize("handle", ["", "x", "bnVsbA==", "W10=", handle_of(NUMBER, "arn")])
def test_what_is_no_handle_is_refused(handle: str):
    with pytest.raises(InvalidParameterValue):
        task_of(handle)


def test_a_handle_of_no_task_is_of_none_that_exists():
    with pytest.raises(ResourceNotFound):
        task_of(handle_of("f" * 31, ARN))
