"""The command `aws` of AWS: what it prints, and how it fails."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.sqs.conftest import PATH, output_of, run
from tests.support.gateway import ADMIN, HTTP, Account, running_on_memory

Aws = Callable[..., Any]


def command(environment: dict[str, str], *words: str) -> list[str]:
    """``aws sqs`` of version 1, which ignores the variable for regions that AWS has."""
    return ["aws", "sqs", *words, "--endpoint-url", environment["AWS_ENDPOINT_URL_SQS"]]


@pytest.fixture
def aws(environment: dict[str, str], tmp_path: Path) -> Aws:
    """Runs ``aws sqs`` with these words, and reads the JSON that it prints, if it prints any."""

    def ask(*words: str) -> Any:
        printed = "".join(output_of(command(environment, *words), tmp_path, environment))
        return json.loads(printed) if printed else None

    return ask


def test_a_message_is_sent_hidden_shown_and_deleted(aws: Aws):
    url = aws("create-queue", "--queue-name", "orders")["QueueUrl"]
    queue = ("--queue-url", url)
    attributes = {"lang": {"DataType": "String", "StringValue": "é"}}
    given = ("--message-attributes", json.dumps(attributes))

    sent = aws("send-message", *queue, "--message-body", "Grüße", *given)
    wanted = ("--wait-time-seconds", "20", "--message-attribute-names", "All")
    (message,) = aws("receive-message", *queue, *wanted)["Messages"]
    handle = ("--receipt-handle", message["ReceiptHandle"])
    assert aws("receive-message", *queue) is None
    assert aws("change-message-visibility", *queue, *handle, "--visibility-timeout", "0") is None
    counted = ("--attribute-names", "ApproximateReceiveCount")
    (again,) = aws("receive-message", *queue, "--wait-time-seconds", "20", *counted)["Messages"]
    handle = ("--receipt-handle", again["ReceiptHandle"])
    assert aws("delete-message", *queue, *handle) is None

    assert (message["Body"], message["MessageAttributes"]) == ("Grüße", attributes)
    digest = hashlib.md5("Grüße".encode()).hexdigest()
    assert (sent["MessageId"], sent["MD5OfMessageBody"]) == (message["MessageId"], digest)
    assert again["Attributes"] == {"ApproximateReceiveCount": "2"}
    told = aws("get-queue-attributes", *queue, "--attribute-names", "All")["Attributes"]
    assert told["ApproximateNumberOfMessages"] == told["ApproximateNumberOfMessagesNotVisible"]
    assert told["ApproximateNumberOfMessages"] == "0"
    assert told["QueueArn"].split(":")[-1] == "orders"
    assert aws("delete-queue", *queue) is None
    assert "QueueUrls" not in (aws("list-queues") or {})


def test_batches_say_what_was_refused(aws: Aws):
    url = aws("create-queue", "--queue-name", "orders")["QueueUrl"]
    queue = ("--queue-url", url)
    entries = [
        {"Id": "a", "MessageBody": "one"},
        {"Id": "b", "MessageBody": "two", "DelaySeconds": 901},
        {"Id": "c", "MessageBody": "three"},
    ]

    sent = aws("send-message-batch", *queue, "--entries", json.dumps(entries))
    found = aws("receive-message", *queue, "--max-number-of-messages", "10")["Messages"]
    deleted = aws(
        "delete-message-batch",
        *queue,
        "--entries",
        *(f"Id={each['Body']},ReceiptHandle={each['ReceiptHandle']}" for each in found),
    )

    assert [each["Id"] for each in sent["Successful"]] == ["a", "c"]
    (failed,) = sent["Failed"]
    assert (failed["Id"], failed["SenderFault"]) == ("b", True)
    assert {each["Body"] for each in found} == {"one", "three"}
    assert {each["Id"] for each in deleted["Successful"]} == {"one", "three"}


def test_a_fifo_queue_its_tags_and_settings_and_a_purge(aws: Aws):
    given = "FifoQueue=true,ContentBasedDeduplication=true,VisibilityTimeout=45"
    named = ("--queue-name", "payments.fifo", "--attributes", given, "--tags", "team=shop")
    queue = ("--queue-url", aws("create-queue", *named)["QueueUrl"])
    group = ("--message-group-id", "ada")

    first = aws("send-message", *queue, "--message-body", "5", *group)
    second = aws("send-message", *queue, "--message-body", "5", *group)
    aws("set-queue-attributes", *queue, "--attributes", "VisibilityTimeout=60")
    aws("tag-queue", *queue, "--tags", "tier=one")
    aws("untag-queue", *queue, "--tag-keys", "team")
    names = ("--attribute-names", "VisibilityTimeout", "ApproximateNumberOfMessages")
    before = aws("get-queue-attributes", *queue, *names)["Attributes"]
    purged = aws("purge-queue", *queue)
    after = aws("get-queue-attributes", *queue, *names)["Attributes"]

    assert first["SequenceNumber"] == second["SequenceNumber"]
    assert aws("list-queue-tags", *queue)["Tags"] == {"tier": "one"}
    assert before == {"VisibilityTimeout": "60", "ApproximateNumberOfMessages": "1"}
    assert purged is None
    assert after["ApproximateNumberOfMessages"] == "0"
    assert aws("list-queues", "--queue-name-prefix", "pay")["QueueUrls"] == [queue[1]]


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (
            ["get-queue-url", "--queue-name", "nobody"],
            "AWS.SimpleQueueService.NonExistentQueue",
            "The specified queue does not exist.",
        ),
        (
            ["receive-message", "--queue-url", "https://sqs.example/nobody/orders"],
            "AccessDenied",
            "",
        ),
        (
            ["create-queue", "--queue-name", "a b"],
            "InvalidParameterValue",
            "Can only include alphanumeric characters, hyphens, or underscores.",
        ),
    ],
)
def test_what_fails_ends_with_an_exit_code_and_the_text_of_sqs(
    words: list[str], code: str, text: str, environment: dict[str, str], tmp_path: Path
):
    done = run(command(environment, *words), tmp_path, environment)

    assert (done.returncode, done.stdout) == (255, "")
    assert f"An error occurred ({code}) when calling the " in done.stderr
    assert text in done.stderr


def test_another_secret_is_refused(environment: dict[str, str], tmp_path: Path):
    other = environment | {"AWS_SECRET_ACCESS_KEY": "another"}

    done = run(command(other, "list-queues"), tmp_path, other)

    assert done.returncode == 255
    assert "(SignatureDoesNotMatch)" in done.stderr


def test_a_task_moves_messages_back_from_their_dead_letter_queue(aws: Aws):
    dead = ("--queue-url", aws("create-queue", "--queue-name", "dead")["QueueUrl"])
    asked = aws("get-queue-attributes", *dead, "--attribute-names", "QueueArn")
    arn = asked["Attributes"]["QueueArn"]
    policy = json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": "1"})
    given = json.dumps({"RedrivePolicy": policy, "VisibilityTimeout": "1"})
    made = aws("create-queue", "--queue-name", "orders", "--attributes", given)
    orders = ("--queue-url", made["QueueUrl"])
    longest = ("--wait-time-seconds", "20")
    aws("send-message", *orders, "--message-body", "poison")
    aws("receive-message", *orders, *longest)
    aws("receive-message", *orders, "--wait-time-seconds", "3")

    started = aws("start-message-move-task", "--source-arn", arn)
    (message,) = aws("receive-message", *orders, *longest)["Messages"]

    assert message["Body"] == "poison"
    (task,) = aws("list-message-move-tasks", "--source-arn", arn)["Results"]
    assert task["SourceArn"] == arn
    assert started["TaskHandle"]


def test_a_gateway_without_signatures_serves_unsigned_commands(tmp_path: Path):
    with running_on_memory(tmp_path / "log", "sqs_unsigned=dev") as gateway:
        made = HTTP.post(f"{gateway.url}/admin/api/v1/accounts", headers=ADMIN, content='"dev"')
        assert made.status_code == 201
        without = Account(gateway.url, "nobody", "none").aws | {"PATH": PATH}
        words = ("create-queue", "--queue-name", "orders", "--no-sign-request")
        printed = "".join(output_of(command(without, *words), tmp_path, without))

    assert json.loads(printed)["QueueUrl"] == f"{gateway.url}/dev/orders"
