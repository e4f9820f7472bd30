"""Message move tasks by AWS's own client, in both protocols."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import pytest

from cassieq_spark.http.accounts import Right
from tests.integration.gateway.test_sqs import Sqs, client_of, made, protocol, refused, sqs
from tests.support.gateway import PATIENCE, RunningGateway, key_with

__all__ = ["client_of", "protocol", "sqs"]

ACTIVE = {"RUNNING", "CANCELLING"}


@pytest.fixture
def moved(sqs: Sqs) -> Moves:
    return Moves(sqs)


class Moves:
    """A queue and its dead-letter queue."""

    def __init__(self, sqs: Sqs, suffix: str = "") -> None:
        self.sqs, self.client = sqs, sqs.client
        create = sqs.fifo if suffix else sqs.create
        self.dead = create(f"dead{suffix}")
        self.arn = sqs.arn(f"dead{suffix}")
        policy = {"deadLetterTargetArn": self.arn, "maxReceiveCount": 1}
        self.url = create(f"orders{suffix}", RedrivePolicy=json.dumps(policy))

    def die(self, *bodies: str, **more: Any) -> None:
        """Send messages, and let them die."""
        for body in bodies:
            self.sqs.send(self.url, body, **more)
        left = set(bodies)
        while left:
            for each in self.sqs.receive(self.url, WaitTimeSeconds=10):
                left.discard(each["Body"])
                self.client.change_message_visibility(
                    QueueUrl=self.url, ReceiptHandle=each["ReceiptHandle"], VisibilityTimeout=0
                )
        assert self.sqs.receive(self.url) == []

    def start(self, **more: Any) -> str:
        return self.client.start_message_move_task(SourceArn=self.arn, **more)["TaskHandle"]

    def tasks(self, most: int = 10) -> list[dict[str, Any]]:
        answer = self.client.list_message_move_tasks(SourceArn=self.arn, MaxResults=most)
        return answer.get("Results", [])

    def ended(self) -> dict[str, Any]:
        """The newest task when it has ended."""
        deadline = time.monotonic() + PATIENCE
        while (task := self.tasks()[0])["Status"] in ACTIVE:
            assert time.monotonic() < deadline, task
        return task


def test_dead_letters_go_back_to_where_they_were(moved: Moves):
    moved.die("a", "b", MessageAttributes={"n": {"DataType": "Number", "StringValue": "1"}})
    assert moved.tasks() == []

    moved.start()
    task = moved.ended()

    assert task["Status"] == "COMPLETED"
    assert task["ApproximateNumberOfMessagesMoved"] == 2
    assert task["ApproximateNumberOfMessagesToMove"] == 2
    assert (task["SourceArn"], "TaskHandle" in task) == (moved.arn, False)
    assert abs(task["StartedTimestamp"] / 1000 - time.time()) < 600
    found = moved.sqs.receive(moved.url)
    assert sorted(each["Body"] for each in found) == ["a", "b"]
    assert found[0]["MessageAttributes"]["n"]["DataType"] == "Number"
    assert found[0]["Attributes"]["ApproximateReceiveCount"] == "1"
    assert moved.sqs.counts(moved.dead) == (0, 0, 0)


def test_dead_letters_go_to_another_queue_if_it_is_named(moved: Moves):
    moved.die("a")
    other = moved.sqs.create("other")

    moved.start(DestinationArn=moved.sqs.arn("other"))

    assert moved.ended()["DestinationArn"] == moved.sqs.arn("other")
    assert moved.sqs.bodies(other) == ["a"]
    assert moved.sqs.bodies(moved.url) == []


def test_a_task_whose_destination_is_deleted_fails_by_the_code_of_aws(moved: Moves):
    moved.die("a", "b", "c")
    other = moved.sqs.create("other")

    moved.start(DestinationArn=moved.sqs.arn("other"), MaxNumberOfMessagesPerSecond=1)
    moved.client.delete_queue(QueueUrl=other)
    task = moved.ended()

    assert task["Status"] == "FAILED"
    assert task["FailureReason"] == "AWS.SimpleQueueService.NonExistentQueue"


def test_the_order_of_a_group_is_kept(sqs: Sqs):
    moved = Moves(sqs, ".fifo")
    for body in "abc":
        moved.die(body, MessageGroupId="g", MessageDeduplicationId=body)

    moved.start()

    assert moved.ended()["ApproximateNumberOfMessagesMoved"] == 3
    assert sqs.bodies(moved.url) == ["a", "b", "c"]


def test_a_queue_of_several_partitions_takes_no_dead_letters(sqs: Sqs):
    sqs.fifo("dead.fifo", DeduplicationScope="messageGroup")
    policy = {"deadLetterTargetArn": sqs.arn("dead.fifo"), "maxReceiveCount": 1}

    code, text = refused(
        sqs.client.create_queue,
        QueueName="orders.fifo",
        Attributes={"FifoQueue": "true", "RedrivePolicy": json.dumps(policy)},
    )

    assert code == "InvalidParameterValue"
    assert "partitions" in text
    assert "QueueUrls" in sqs.client.list_queues()


def test_a_task_is_slow_if_it_is_to_be_and_can_be_cancelled(moved: Moves):
    moved.die("a", "b", "c", "d")

    handle = moved.start(MaxNumberOfMessagesPerSecond=1)
    (task,) = moved.tasks()
    assert (task["Status"], task["MaxNumberOfMessagesPerSecond"]) == ("RUNNING", 1)
    assert task["TaskHandle"] == handle
    code, text = refused(moved.client.start_message_move_task, SourceArn=moved.arn)
    assert (code, "only one active task" in text.lower()) == ("InvalidParameterValue", True)
    moved.client.cancel_message_move_task(TaskHandle=handle)

    task = moved.ended()
    assert task["Status"] == "CANCELLED"
    assert task["ApproximateNumberOfMessagesMoved"] < 4
    there = len(moved.sqs.receive(moved.url)) + len(moved.sqs.receive(moved.dead))
    assert there == 4
    code, _ = refused(moved.client.cancel_message_move_task, TaskHandle=handle)
    assert code == "InvalidParameterValue"


def test_what_a_reader_of_the_dead_letter_queue_holds_or_has_deleted_stays(moved: Moves):
    moved.die("a", "b", "c")
    deleted, held, *_ = moved.sqs.receive(moved.dead, 2)
    moved.sqs.delete(moved.dead, deleted)

    moved.start()

    assert moved.ended()["ApproximateNumberOfMessagesMoved"] == 1
    (body,) = moved.sqs.bodies(moved.url)
    assert {body, deleted["Body"], held["Body"]} == {"a", "b", "c"}
    assert moved.sqs.counts(moved.dead) == (0, 1, 0)


def test_a_message_of_which_nothing_says_where_it_was_stays(moved: Moves):
    moved.die("a")
    moved.sqs.send(moved.dead, "stranger")

    moved.start()
    task = moved.ended()

    assert (task["Status"], task["FailureReason"]) == ("FAILED", "CouldNotDetermineMessageSource")
    assert task["ApproximateNumberOfMessagesMoved"] == 1
    assert moved.sqs.bodies(moved.url) == ["a"]
    other = moved.sqs.create("other")
    moved.start(DestinationArn=moved.sqs.arn("other"))
    assert moved.ended()["Status"] == "COMPLETED"
    assert moved.sqs.bodies(other) == ["stranger"]
    assert [each["Status"] for each in moved.tasks()] == ["COMPLETED", "FAILED"]
    assert len(moved.tasks(1)) == 1


def test_what_another_door_has_redriven_is_not_moved_again(moved: Moves):
    # As if a gateway had died between the redrive and the deletion.
    moved.die("a", "b")
    assert moved.sqs.account.ask("POST", "/orders/dead/redrive", json={}).json()["redriven"] == 2
    assert moved.sqs.counts(moved.dead) == (2, 0, 0)

    moved.start()

    assert moved.ended()["ApproximateNumberOfMessagesMoved"] == 0
    assert sorted(moved.sqs.bodies(moved.url)) == ["a", "b"]
    assert moved.sqs.counts(moved.dead) == (0, 0, 0)


def test_a_task_whose_gateway_has_died_goes_on_when_it_is_listed(moved: Moves):
    moved.die("a")
    now = int(time.time() * 1000)
    number = "0" * 32
    row = {"id": number, "runner": "dead", "started": now, "beat": now - 61_000, "to_move": 9}
    names = {f"sqs.move.{number}": json.dumps(row | {"moved": 8}), "sqs.move.none": "}"}
    assert (
        moved.sqs.account.ask("PATCH", "/dead/attributes", json={"attributes": names}).status_code
        == 200
    )

    (task,) = moved.tasks()
    assert (task["Status"], task["ApproximateNumberOfMessagesMoved"]) == ("RUNNING", 8)

    assert moved.ended()["ApproximateNumberOfMessagesMoved"] == 9
    assert moved.sqs.bodies(moved.url) == ["a"]


def test_the_last_ten_tasks_are_kept(moved: Moves):
    for _ in range(12):
        moved.start()
        assert moved.ended()["Status"] == "COMPLETED"

    held = moved.sqs.account.ask("GET", "/dead/attributes").json()
    assert sum(name.startswith("sqs.move.") for name in held["attributes"]) == 10
    assert len(moved.tasks()) == 10
    assert not [name for name in moved.sqs.attributes(moved.dead) if "move" in name.lower()]


@pytest.mark.parametrize(
    ("given", "code", "words"),
    [
        ({"SourceArn": "nobody"}, "ResourceNotFoundException", "SourceArn parameter doesn't"),
        ({"SourceArn": "dead~g"}, "AWS.SimpleQueueService.UnsupportedOperation", "consumer group"),
        ({"SourceArn": "orders"}, "InvalidParameterValue", "configured as a Dead Letter Queue"),
        ({"DestinationArn": "nobody"}, "ResourceNotFoundException", "DestinationArn parameter"),
        ({"DestinationArn": "dead"}, "InvalidParameterValue", "cannot be the same"),
        ({"DestinationArn": "f.fifo"}, "InvalidParameterValue", "same queue type"),
    ],
)
def test_what_cannot_be_moved_is_said(moved: Moves, given: dict[str, str], code: str, words: str):
    moved.sqs.fifo("f.fifo")
    arns = {name: moved.sqs.arn(queue) for name, queue in ({"SourceArn": "dead"} | given).items()}

    found, text = refused(moved.client.start_message_move_task, **arns)

    assert found == code
    assert words in text
    assert moved.tasks() == []


def test_a_task_that_is_not_there_cannot_be_cancelled(moved: Moves):
    handle = moved.start()
    moved.ended()
    other = Moves(moved.sqs, ".fifo")
    cancel = moved.client.cancel_message_move_task

    assert refused(cancel, TaskHandle="x") == (
        "InvalidParameterValue",
        "Value for parameter TaskHandle is invalid.",
    )
    altered = handle.replace(handle[:20], other.start()[:20])
    assert refused(cancel, TaskHandle=altered)[0] == "ResourceNotFoundException"


def test_a_key_for_one_queue_moves_nothing_to_another(
    gateway: RunningGateway, moved: Moves, protocol: str, client_of: Callable[..., Any]
):
    moved.die("a")
    limited = key_with(gateway, moved.sqs.account, "limited", Right.REDRIVE_MESSAGE, queue="dead")
    client = made(client_of, protocol, limited, "limited")

    code, _ = refused(client.start_message_move_task, SourceArn=moved.arn)

    assert code in {"AccessDenied", "AccessDeniedException"}
    assert moved.sqs.counts(moved.dead) == (1, 0, 0)
    client.close()
