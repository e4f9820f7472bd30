"""AWS's own client, in both protocols, against a gateway."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest
from botocore.exceptions import ClientError

from cassieq_spark.http.accounts import Right
from cassieq_spark.http.sqs.message_attributes import Attribute, digest_of
from tests.support.gateway import HTTP, Account, RunningGateway, key_with
from tests.support.raw_sqs import Signer, host_of, raw_form, raw_json, send
from tests.support.sqs import PROTOCOLS, clients, close

REGION = "eu-central-1"


@dataclass
class Sqs:
    """A client of an account, which asks in one protocol."""

    client: Any
    account: Account

    def create(self, name: str = "orders", **attributes: str) -> str:
        """Create a queue, and return its URL."""
        return self.client.create_queue(QueueName=name, Attributes=attributes)["QueueUrl"]

    def fifo(self, name: str = "orders.fifo", **attributes: str) -> str:
        return self.create(name, FifoQueue="true", **attributes)

    def send(self, url: str, body: str = "hello", **more: Any) -> dict[str, Any]:
        return self.client.send_message(QueueUrl=url, MessageBody=body, **more)

    def receive(self, url: str, most: int = 10, **more: Any) -> list[dict[str, Any]]:
        more = {"AttributeNames": ["All"], "MessageAttributeNames": ["All"]} | more
        answer = self.client.receive_message(QueueUrl=url, MaxNumberOfMessages=most, **more)
        found = answer.get("Messages", [])
        assert found or "Messages" not in answer, "AWS sends no empty list"
        for each in found:
            assert each["MD5OfBody"] == hashlib.md5(each["Body"].encode()).hexdigest()
        return found

    def bodies(self, url: str, most: int = 10, **more: Any) -> list[str]:
        return [each["Body"] for each in self.receive(url, most, **more)]

    def delete(self, url: str, message: dict[str, Any]) -> None:
        self.client.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])

    def attributes(self, url: str, *names: str) -> dict[str, str]:
        answer = self.client.get_queue_attributes(
            QueueUrl=url, AttributeNames=list(names) or ["All"]
        )
        return answer.get("Attributes", {})

    def counts(self, url: str) -> tuple[int, int, int]:
        """Messages that are visible, in flight and delayed."""
        found = self.attributes(url)
        begin = "ApproximateNumberOfMessages"
        return tuple(int(found[begin + end]) for end in ("", "NotVisible", "Delayed"))  # type: ignore[return-value]

    def arn(self, name: str) -> str:
        return f"arn:aws:sqs:{REGION}:{self.account.name}:{name}"


@pytest.fixture(scope="session")
def client_of() -> Callable[..., Any]:
    return clients()


@pytest.fixture(params=PROTOCOLS)
def protocol(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def sqs(protocol: str, account: Account, client_of: Callable[..., Any]) -> Iterator[Sqs]:
    client = made(client_of, protocol, account)
    yield Sqs(client, account)
    close(client)


def made(
    client_of: Callable[..., Any], protocol: str, account: Account, key: str | None = None
) -> Any:
    return client_of(
        protocol,
        endpoint_url=account.url,
        aws_access_key_id=account.name if key is None else f"{account.name}:{key}",
        aws_secret_access_key=account.key,
    )


def refused(call: Callable[..., Any], **given: Any) -> tuple[str, str]:
    """The code and the text by which AWS's client fails."""
    with pytest.raises(ClientError) as caught:
        call(**given)
    error = caught.value.response["Error"]
    return error["Code"], error["Message"]


def test_what_is_sent_is_received_and_deleted(sqs: Sqs):
    url = sqs.create()
    attributes = {
        "lang": {"DataType": "String", "StringValue": "é"},
        "count": {"DataType": "Number.int", "StringValue": "7"},
        "blob": {"DataType": "Binary", "BinaryValue": b"\xff\x00"},
    }

    sent = sqs.send(url, "Grüße\r\n<&>", MessageAttributes=attributes)
    (message,) = sqs.receive(url)
    sqs.delete(url, message)

    assert message["Body"] == "Grüße\r\n<&>"
    assert message["MessageId"] == sent["MessageId"]
    assert message["MessageAttributes"] == attributes
    assert message["MD5OfMessageAttributes"] == sent["MD5OfMessageAttributes"]
    told = message["Attributes"]
    assert (told["ApproximateReceiveCount"], told["SenderId"]) == ("1", sqs.account.name)
    assert int(told["SentTimestamp"]) > 1_700_000_000_000
    assert "MessageGroupId" not in told
    assert sqs.counts(url) == (0, 0, 0)
    sqs.delete(url, message)


def test_a_queue_is_found_by_its_name_and_named_by_its_url(sqs: Sqs):
    url = sqs.create("a-queue_1")

    assert url == f"{sqs.account.url}/{sqs.account.name}/a-queue_1"
    assert sqs.client.get_queue_url(QueueName="a-queue_1")["QueueUrl"] == url
    code, _ = refused(sqs.client.get_queue_url, QueueName="nobody")
    assert code == "AWS.SimpleQueueService.NonExistentQueue"
    assert sqs.create("a-queue_1") == url
    assert refused(
        sqs.client.create_queue, QueueName="a-queue_1", Attributes={"DelaySeconds": "5"}
    ) == (
        "QueueAlreadyExists",
        (
            "A queue already exists with the same name and a different value for attribute "
            "DelaySeconds"
        ),
    )


def test_queues_are_listed_page_by_page(sqs: Sqs):
    assert "QueueUrls" not in sqs.client.list_queues()
    urls = [sqs.create(f"q{number}") for number in range(5)]
    sqs.create("other")

    first = sqs.client.list_queues(QueueNamePrefix="q", MaxResults=3)
    rest = sqs.client.list_queues(QueueNamePrefix="q", MaxResults=3, NextToken=first["NextToken"])

    assert (first["QueueUrls"], rest["QueueUrls"]) == (urls[:3], urls[3:])
    assert "NextToken" not in rest
    assert len(sqs.client.list_queues()["QueueUrls"]) == 6


def test_attributes_are_those_of_the_queue_whichever_door_changes_them(sqs: Sqs):
    url = sqs.create(VisibilityTimeout="60", MaximumMessageSize="2048")
    before = sqs.attributes(url)

    sqs.client.set_queue_attributes(QueueUrl=url, Attributes={"DelaySeconds": "5"})
    with sqs.account.queue("orders") as queue:
        queue.alter(expire_after=queue.definition().lease)
    after = sqs.attributes(url)

    assert before["VisibilityTimeout"] == "60"
    assert before["MessageRetentionPeriod"] == "345600"
    assert before["QueueArn"] == sqs.arn("orders")
    assert int(before["CreatedTimestamp"]) > 1_700_000_000
    changed = {name for name in after if after[name] != before[name]}
    assert changed - {"LastModifiedTimestamp"} == {"DelaySeconds", "MessageRetentionPeriod"}
    assert (after["DelaySeconds"], after["MessageRetentionPeriod"]) == ("5", "60")
    assert sqs.attributes(url, "QueueArn") == {"QueueArn": sqs.arn("orders")}
    code, text = refused(sqs.client.get_queue_attributes, QueueUrl=url, AttributeNames=["Nothing"])
    assert (code, text) == ("InvalidAttributeName", "Unknown Attribute Nothing.")


def test_tags_and_permissions_are_kept(sqs: Sqs):
    url = sqs.create()
    assert "Tags" not in sqs.client.list_queue_tags(QueueUrl=url)

    sqs.client.tag_queue(QueueUrl=url, Tags={"Team": "payments", "tier": ""})
    sqs.client.untag_queue(QueueUrl=url, TagKeys=["tier", "none"])
    sqs.client.add_permission(
        QueueUrl=url, Label="let", AWSAccountIds=["1"], Actions=["SendMessage"]
    )

    assert sqs.client.list_queue_tags(QueueUrl=url)["Tags"] == {"Team": "payments"}
    (statement,) = json.loads(sqs.attributes(url)["Policy"])["Statement"]
    assert (statement["Sid"], statement["Action"]) == ("let", "SQS:SendMessage")
    again = {"Label": "let", "AWSAccountIds": ["1"], "Actions": ["*"]}
    code, text = refused(sqs.client.add_permission, QueueUrl=url, **again)
    assert (code, "Already exists" in text) == ("InvalidParameterValue", True)
    two = {"AWSAccountIds": ["1", "2"], "Actions": ["SendMessage", "ReceiveMessage"]}
    sqs.client.add_permission(QueueUrl=url, Label="two", **two)
    _, both = json.loads(sqs.attributes(url)["Policy"])["Statement"]
    assert both["Action"] == ["SQS:SendMessage", "SQS:ReceiveMessage"]
    assert both["Principal"] == {"AWS": ["arn:aws:iam::1:root", "arn:aws:iam::2:root"]}
    for label in ("let", "two"):
        sqs.client.remove_permission(QueueUrl=url, Label=label)
    assert "Policy" not in sqs.attributes(url)
    assert refused(sqs.client.remove_permission, QueueUrl=url, Label="let") == (
        "InvalidParameterValue",
        "Value let for parameter Label is invalid. Reason: can't find label.",
    )
    many = {"Label": "many", "AWSAccountIds": ["1" * 12] * 1_000, "Actions": ["*"]}
    code, _ = refused(sqs.client.add_permission, QueueUrl=url, **many)
    assert code == "OverLimit"


def test_of_a_batch_each_entry_succeeds_or_fails_by_itself(sqs: Sqs):
    url = sqs.create(MaximumMessageSize="1024")
    entries = [
        {"Id": "a", "MessageBody": "a"},
        {"Id": "b", "MessageBody": "b" * 1025},
        {"Id": "c", "MessageBody": "c", "DelaySeconds": 900},
    ]

    sent = sqs.client.send_message_batch(QueueUrl=url, Entries=entries)
    (message,) = sqs.receive(url)
    handles = [message["ReceiptHandle"], "none"]
    deleted = sqs.client.delete_message_batch(
        QueueUrl=url,
        Entries=[{"Id": str(at), "ReceiptHandle": each} for at, each in enumerate(handles)],
    )

    assert [each["Id"] for each in sent["Successful"]] == ["a", "c"]
    assert [(each["Id"], each["Code"]) for each in sent["Failed"]] == [
        ("b", "InvalidParameterValue")
    ]
    assert message["Body"] == "a"
    assert [each["Id"] for each in deleted["Successful"]] == ["0"]
    assert [each["Code"] for each in deleted["Failed"]] == ["ReceiptHandleIsInvalid"]
    assert sqs.counts(url) == (0, 0, 1)


def test_a_message_is_invisible_for_as_long_as_it_is_said(sqs: Sqs):
    url = sqs.create()
    sqs.send(url)
    (first,) = sqs.receive(url, VisibilityTimeout=600)
    assert sqs.counts(url) == (0, 1, 0)
    assert sqs.receive(url) == []

    change = sqs.client.change_message_visibility
    change(QueueUrl=url, ReceiptHandle=first["ReceiptHandle"], VisibilityTimeout=0)
    (second,) = sqs.receive(url, WaitTimeSeconds=10)

    assert second["Attributes"]["ApproximateReceiveCount"] == "2"
    sqs.delete(url, second)
    code, _ = refused(
        change, QueueUrl=url, ReceiptHandle=second["ReceiptHandle"], VisibilityTimeout=9
    )
    assert code == "AWS.SimpleQueueService.MessageNotInflight"


def test_a_long_poll_gets_what_is_sent_meanwhile(sqs: Sqs):
    url = sqs.create(ReceiveMessageWaitTimeSeconds="20")

    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(sqs.receive, url)
        sqs.send(url)
        (message,) = waiting.result(60)

    assert message["Body"] == "hello"


def test_a_delay_of_the_queue_holds_for_what_does_not_say_another_one(sqs: Sqs):
    url = sqs.create(DelaySeconds="900")

    sqs.send(url, "later")
    sqs.send(url, "now", DelaySeconds=0)

    assert sqs.bodies(url, WaitTimeSeconds=10) == ["now"]
    assert sqs.counts(url) == (0, 1, 1)


def test_a_message_that_was_received_too_often_goes_to_the_dead_letter_queue(sqs: Sqs):
    dead = sqs.create("dead")
    policy = {"deadLetterTargetArn": sqs.arn("dead"), "maxReceiveCount": "2"}
    url = sqs.create(RedrivePolicy=json.dumps(policy))
    sqs.send(url, MessageAttributes={"a": {"DataType": "Number", "StringValue": "1"}})

    for _ in range(2):
        (message,) = sqs.receive(url, WaitTimeSeconds=10)
        sqs.client.change_message_visibility(
            QueueUrl=url, ReceiptHandle=message["ReceiptHandle"], VisibilityTimeout=0
        )
    assert sqs.receive(url) == []
    (letter,) = sqs.receive(dead, WaitTimeSeconds=10)

    assert letter["Attributes"]["DeadLetterQueueSourceArn"] == sqs.arn("orders")
    assert letter["MessageAttributes"]["a"]["DataType"] == "Number"
    sources = sqs.client.list_dead_letter_source_queues(QueueUrl=dead)
    assert sources["queueUrls"] == [url]
    held = json.loads(sqs.attributes(url)["RedrivePolicy"])
    assert held == {"deadLetterTargetArn": sqs.arn("dead"), "maxReceiveCount": 2}
    sqs.client.set_queue_attributes(QueueUrl=url, Attributes={"RedrivePolicy": ""})
    assert "RedrivePolicy" not in sqs.attributes(url)
    for target, reason in (
        ("dead", "Invalid value for deadLetterTargetArn."),
        (sqs.arn("orders"), "A queue cannot be its own dead-letter queue."),
    ):
        wrong = json.dumps(policy | {"deadLetterTargetArn": target})
        given = {"QueueUrl": url, "Attributes": {"RedrivePolicy": wrong}}
        assert refused(sqs.client.set_queue_attributes, **given) == (
            "InvalidParameterValue",
            f"Value {wrong} for parameter RedrivePolicy is invalid. Reason: {reason}",
        )
    missing = json.dumps(policy | {"deadLetterTargetArn": sqs.arn("none")})
    code, text = refused(
        sqs.client.set_queue_attributes, QueueUrl=url, Attributes={"RedrivePolicy": missing}
    )
    assert (code, "Dead letter target does not exist" in text) == ("InvalidParameterValue", True)


def test_a_purge_deletes_what_is_held_too_and_only_once_a_minute(sqs: Sqs):
    url = sqs.create()
    sqs.send(url)
    sqs.send(url)
    (held,) = sqs.receive(url, 1)

    sqs.client.purge_queue(QueueUrl=url)

    assert sqs.counts(url) == (0, 0, 0)
    assert sqs.receive(url) == []
    sqs.delete(url, held)
    code, _ = refused(sqs.client.purge_queue, QueueUrl=url)
    assert code == "AWS.SimpleQueueService.PurgeQueueInProgress"


def test_a_queue_that_is_deleted_is_gone(sqs: Sqs):
    url = sqs.create()

    sqs.client.delete_queue(QueueUrl=url)

    code, _ = refused(sqs.client.send_message, QueueUrl=url, MessageBody="x")
    assert code == "AWS.SimpleQueueService.NonExistentQueue"


class TestFifo:
    """Queues with message groups and deduplication."""

    def test_a_group_that_is_held_holds_up_no_other(self, sqs: Sqs):
        url = sqs.fifo(ContentBasedDeduplication="true")
        for body in ("a1", "a2", "b1", "a3"):
            sqs.send(url, body, MessageGroupId=body[0])

        (first,) = sqs.receive(url, 1)
        others = sqs.bodies(url)

        assert (first["Body"], others) == ("a1", ["b1"])
        assert first["Attributes"]["MessageGroupId"] == "a"
        sqs.delete(url, first)
        then = sqs.bodies(url)
        assert then
        assert then == ["a2", "a3"][: len(then)]

    def test_a_message_with_an_id_that_was_sent_before_is_the_first_one(self, sqs: Sqs):
        url = sqs.fifo()

        first = sqs.send(url, "a", MessageGroupId="g", MessageDeduplicationId="1")
        again = sqs.send(url, "b", MessageGroupId="g", MessageDeduplicationId="1")
        other = sqs.send(url, "c", MessageGroupId="h", MessageDeduplicationId="2")

        assert again["MessageId"] == first["MessageId"]
        assert again["SequenceNumber"] == first["SequenceNumber"] < other["SequenceNumber"]
        assert sqs.bodies(url) == ["a", "c"]

    def test_of_a_queue_that_deduplicates_by_group_ids_are_those_of_a_group(self, sqs: Sqs):
        url = sqs.fifo(DeduplicationScope="messageGroup", FifoThroughputLimit="perMessageGroupId")

        for group in "ghg":
            sqs.send(url, group, MessageGroupId=group, MessageDeduplicationId="1")

        found = [*sqs.receive(url, WaitTimeSeconds=10), *sqs.receive(url, WaitTimeSeconds=1)]
        assert sorted(each["Body"] for each in found) == ["g", "h"]
        assert sqs.attributes(url)["DeduplicationScope"] == "messageGroup"

    def test_a_receive_that_is_repeated_under_its_id_gets_the_same_messages(self, sqs: Sqs):
        url = sqs.fifo(ContentBasedDeduplication="true")
        for body in "abc":
            sqs.send(url, body, MessageGroupId=body)

        first = sqs.bodies(url, 2, ReceiveRequestAttemptId="one")
        again = sqs.receive(url, 2, ReceiveRequestAttemptId="one")

        assert [each["Body"] for each in again] == first == ["a", "b"]
        assert {each["Attributes"]["ApproximateReceiveCount"] for each in again} == {"1"}
        assert sqs.bodies(url) == ["c"]

    @pytest.mark.parametrize(
        ("given", "code", "words"),
        [
            ({}, "MissingParameter", "MessageGroupId"),
            ({"MessageGroupId": "g"}, "InvalidParameterValue", "ContentBasedDeduplication"),
            (
                {"MessageGroupId": "g", "MessageDeduplicationId": "1", "DelaySeconds": 5},
                "InvalidParameterValue",
                "DelaySeconds",
            ),
        ],
    )
    def test_what_a_message_lacks_is_said(
        self, sqs: Sqs, given: dict[str, Any], code: str, words: str
    ):
        url = sqs.fifo()

        found, text = refused(sqs.client.send_message, QueueUrl=url, MessageBody="x", **given)

        assert found == code
        assert words in text

    @pytest.mark.parametrize(
        ("lacks", "text"),
        [
            ("MessageGroupId", "The request must contain the parameter MessageGroupId."),
            (
                "MessageDeduplicationId",
                (
                    "The queue should either have ContentBasedDeduplication enabled or "
                    "MessageDeduplicationId provided explicitly"
                ),
            ),
        ],
    )
    def test_a_batch_with_a_message_that_lacks_an_id_is_refused_as_a_whole(
        self, sqs: Sqs, lacks: str, text: str
    ):
        url = sqs.fifo()
        entries = [
            {
                "Id": name,
                "MessageBody": name,
                "MessageGroupId": "g",
                "MessageDeduplicationId": name,
            }
            for name in "ab"
        ]
        del entries[1][lacks]

        found = refused(sqs.client.send_message_batch, QueueUrl=url, Entries=entries)

        assert found == ("InvalidParameterValue", text)
        assert sqs.counts(url) == (0, 0, 0)

    def test_the_scope_of_its_ids_is_not_changed_later(self, sqs: Sqs):
        url = sqs.fifo()
        change = sqs.client.set_queue_attributes
        given = {"DeduplicationScope": "messageGroup", "FifoThroughputLimit": "perMessageGroupId"}

        code, text = refused(change, QueueUrl=url, Attributes=given)
        change(QueueUrl=url, Attributes={"DeduplicationScope": "queue", "DelaySeconds": "1"})

        assert code == "InvalidAttributeValue"
        assert text.startswith("Invalid value for the parameter DeduplicationScope. Reason:")
        found = sqs.attributes(url)
        assert (found["DeduplicationScope"], found["FifoThroughputLimit"]) == ("queue", "perQueue")
        assert found["DelaySeconds"] == "1"

    def test_a_batch_keeps_its_order_also_after_another_door_has_purged_the_queue(self, sqs: Sqs):
        url = sqs.fifo()
        sqs.send(url, "before", MessageGroupId="g", MessageDeduplicationId="x")
        with sqs.account.queue("orders.fifo", order="key", drop_dead=True) as queue:
            queue.purge(force=True)
        entries = [
            {
                "Id": str(number),
                "MessageBody": str(number),
                "MessageGroupId": "g",
                "MessageDeduplicationId": str(number),
            }
            for number in range(10)
        ]

        sent = sqs.client.send_message_batch(QueueUrl=url, Entries=entries)

        assert [each["Id"] for each in sent["Successful"]] == list("0123456789")
        assert sqs.bodies(url) == list("0123456789")

    def test_dead_messages_go_to_a_fifo_queue(self, sqs: Sqs):
        dead = sqs.fifo("dead.fifo")
        policy = {"deadLetterTargetArn": sqs.arn("dead.fifo"), "maxReceiveCount": 1}
        url = sqs.fifo(RedrivePolicy=json.dumps(policy))
        for number in range(2):
            sqs.send(url, "x", MessageGroupId="g", MessageDeduplicationId=str(number))

        for message in sqs.receive(url):
            change = {"ReceiptHandle": message["ReceiptHandle"], "VisibilityTimeout": 0}
            sqs.client.change_message_visibility(QueueUrl=url, **change)
        assert sqs.receive(url) == []
        letters = sqs.receive(dead, WaitTimeSeconds=10)

        assert [each["Attributes"]["MessageGroupId"] for each in letters] == ["g", "g"]
        code, text = refused(
            sqs.client.create_queue,
            QueueName="standard",
            Attributes={"RedrivePolicy": json.dumps(policy)},
        )
        assert (code, "same type" in text) == ("InvalidParameterValue", True)

    def test_it_is_said_by_the_name_too(self, sqs: Sqs):
        code, text = refused(
            sqs.client.create_queue, QueueName="orders", Attributes={"FifoQueue": "true"}
        )

        assert code == "InvalidParameterValue"
        assert ".fifo" in text


class TestOneQueueEveryDoor:
    """The same queue by SQS, by HTTP and by the client."""

    def test_what_one_door_puts_the_other_gets(self, sqs: Sqs):
        url = sqs.create()
        sqs.send(
            url, "by sqs", MessageAttributes={"n": {"DataType": "Number", "StringValue": "1"}}
        )

        with sqs.account.queue("orders") as queue:
            (by_http,) = queue.receive("default")
            queue.ack(by_http)
            queue.put("by http", key="k", headers={"lang": "en"})
        (by_sqs,) = sqs.receive(url)

        assert (by_http.value, by_http.headers["n"]) == (b"by sqs", "1")
        assert by_sqs["Body"] == "by http"
        assert by_sqs["Attributes"]["MessageGroupId"] == "k"
        assert by_sqs["MessageAttributes"]["lang"]["StringValue"] == "en"

    def test_a_queue_that_another_door_has_made_is_as_good(self, sqs: Sqs):
        settings = {"max_deliveries": 0, "expire_after": timedelta(days=4)}
        with sqs.account.queue("orders", lease=timedelta(seconds=30), **settings) as queue:
            queue.create_group("default")
            queue.put("hello")

        assert sqs.bodies(sqs.create()) == ["hello"]

    @pytest.mark.parametrize(
        "held",
        [{"sender": "\ud800"}, {"types": {"h": "\ud800"}}, {"types": {"h": "Binary.\ud800"}}],
    )
    def test_headers_that_another_door_has_spoilt_hold_up_nothing(
        self, sqs: Sqs, held: dict[str, Any]
    ):
        url = sqs.create()
        headers = {"X-Cassieq-Headers": json.dumps({"aws.sqs": json.dumps(held), "h": "\0"})}
        told = sqs.account.ask("POST", "/orders/messages", content=b"hello", headers=headers)
        assert told.status_code == 201

        (message,) = sqs.receive(url)

        attribute = {"DataType": "String", "StringValue": "\ufffd"}
        assert message["MessageAttributes"] == {"h": attribute}
        assert message["MD5OfMessageAttributes"] == digest_of(
            {"h": Attribute(*attribute.values())}
        )

    def test_a_large_answer_arrives(self, sqs: Sqs):
        url = sqs.create()
        bodies = [letter * 1_000_000 for letter in "abc"]
        for body in bodies:
            sqs.send(url, body)

        assert sqs.bodies(url) == bodies

    def test_a_queue_with_columns_takes_and_gives_json_objects(self, sqs: Sqs):
        sqs.account.queue("trips", schema="vendor string, fare double", drop_dead=True).close()
        url = sqs.client.get_queue_url(QueueName="trips")["QueueUrl"]

        sqs.send(url, '{"vendor": "a", "fare": 1.5}')

        assert [json.loads(each) for each in sqs.bodies(url)] == [{"vendor": "a", "fare": 1.5}]
        code, text = refused(sqs.client.send_message, QueueUrl=url, MessageBody="hello")
        assert code == "InvalidParameterValue"
        assert "JSON" in text

    def test_a_consumer_group_that_nobody_has_made_is_no_queue(self, sqs: Sqs):
        url = sqs.create()
        sqs.send(url)
        of_group = {"QueueUrl": f"{url}~billing"}
        missing = "AWS.SimpleQueueService.NonExistentQueue"

        for call, given in (
            (sqs.client.get_queue_url, {"QueueName": "orders~billing"}),
            (sqs.client.get_queue_attributes, {**of_group, "AttributeNames": ["QueueArn"]}),
            (sqs.client.get_queue_attributes, {**of_group, "AttributeNames": ["All"]}),
            (sqs.client.receive_message, of_group),
        ):
            assert refused(call, **given)[0] == missing
        with sqs.account.queue("orders") as queue:
            queue.create_group("billing")

        assert (
            sqs.client.get_queue_url(QueueName="orders~billing")["QueueUrl"]
            == (of_group["QueueUrl"])
        )
        assert sqs.attributes(f"{url}~billing", "QueueArn") == {
            "QueueArn": sqs.arn("orders~billing")
        }

    def test_a_consumer_group_is_a_queue_of_its_own(self, sqs: Sqs):
        url = sqs.create()
        with sqs.account.queue("orders") as queue:
            queue.create_group("billing")
        sqs.send(url)

        assert sqs.bodies(url) == sqs.bodies(f"{url}~billing") == ["hello"]
        assert sqs.counts(f"{url}~billing") == (0, 1, 0)
        code, _ = refused(sqs.client.delete_queue, QueueUrl=f"{url}~billing")
        assert code == "AWS.SimpleQueueService.UnsupportedOperation"

    @pytest.mark.parametrize("text", ["", "x", "[]", "9" * 5000, "-1", "{}", '{"Statement": 1}'])
    def test_attributes_that_another_door_has_spoilt_are_as_good_as_none(
        self, sqs: Sqs, text: str
    ):
        url = sqs.create()
        names = ("MaximumMessageSize", "ReceiveMessageWaitTimeSeconds", "Policy", "changed-at")
        names += ("RedriveAllowPolicy", "purged-at", "VisibilityTimeout", "Nothing", "FifoQueue")
        with sqs.account.queue("orders") as queue:
            queue.set_attributes({f"sqs.{name}": text for name in names})

        sqs.send(url)

        assert sqs.bodies(url) == ["hello"]
        found = sqs.attributes(url)
        assert (found["MaximumMessageSize"], found["VisibilityTimeout"]) == ("1048576", "30")
        assert not {"Nothing", "FifoQueue"} & found.keys()
        sqs.client.add_permission(
            QueueUrl=url, Label="let", AWSAccountIds=["1"], Actions=["SendMessage"]
        )
        sqs.client.purge_queue(QueueUrl=url)


class TestWhoMay:
    """Signatures and rights."""

    def test_a_key_is_named_with_its_account(
        self, gateway: RunningGateway, sqs: Sqs, client_of: Callable[..., Any], protocol: str
    ):
        url = sqs.create()
        reader = key_with(gateway, sqs.account, "reader", Right.READ_MESSAGE)
        client = made(client_of, protocol, reader, "reader")

        assert "Messages" not in client.receive_message(QueueUrl=url)
        code, text = refused(client.send_message, QueueUrl=url, MessageBody="x")
        assert (code, "PutMessage" in text) == ("AccessDenied", True) or code == (
            "AccessDeniedException"
        )
        close(client)

    def test_who_may_only_create_queues_changes_none(
        self, gateway: RunningGateway, sqs: Sqs, client_of: Callable[..., Any], protocol: str
    ):
        url = sqs.create()
        maker = key_with(gateway, sqs.account, "maker", Right.CREATE_QUEUE)
        keeper = key_with(gateway, sqs.account, "keeper", Right.DELETE_QUEUE)
        policy = json.dumps({"deadLetterTargetArn": sqs.arn("orders2"), "maxReceiveCount": 1})

        client = made(client_of, protocol, maker, "maker")
        client.create_queue(QueueName="orders2")
        given = {"QueueUrl": url, "Attributes": {"MessageRetentionPeriod": "60"}}
        assert refused(client.set_queue_attributes, **given)[0].startswith("AccessDenied")
        assert refused(client.tag_queue, QueueUrl=url, Tags={"a": "b"})[0].startswith("Access")
        close(client)
        client = made(client_of, protocol, keeper, "keeper")
        client.set_queue_attributes(**given)
        given["Attributes"] = {"RedrivePolicy": policy}
        assert refused(client.set_queue_attributes, **given)[0].startswith("AccessDenied")
        close(client)

    def test_a_stranger_learns_nothing(
        self, sqs: Sqs, client_of: Callable[..., Any], protocol: str
    ):
        url = sqs.create()
        wrong = Account(sqs.account.url, sqs.account.name, "0" * 40)
        nobody = Account(sqs.account.url, f"x{uuid4().hex[:8]}", "0" * 40)

        told = set()
        for account in (wrong, nobody):
            client = made(client_of, protocol, account)
            told.add(refused(client.get_queue_url, QueueName="orders"))
            close(client)

        assert len(told) == 1
        assert HTTP.post(url, content="Action=ReceiveMessage").status_code == 403

    def test_the_queue_of_another_account_is_out_of_reach(
        self, gateway: RunningGateway, sqs: Sqs, client_of: Callable[..., Any], protocol: str
    ):
        url = sqs.create()
        client = made(client_of, protocol, gateway.account())

        name = sqs.account.name
        for there in (url, url + "none"):
            code, text = refused(client.receive_message, QueueUrl=there)
            assert code in {"AccessDenied", "AccessDeniedException"}
            assert f"{name} is not the account of this key" in text
            owned = {"QueueName": there.rpartition("/")[2], "QueueOwnerAWSAccountId": name}
            assert refused(client.get_queue_url, **owned) == (
                "AWS.SimpleQueueService.NonExistentQueue",
                "The specified queue does not exist or you do not have access to it.",
            )
            entries = [{"Id": "a", "ReceiptHandle": "x"}]
            code, _ = refused(client.delete_message_batch, QueueUrl=there, Entries=entries)
            assert code in {"AccessDenied", "AccessDeniedException"}
        close(client)

    def test_a_wrong_signature_takes_as_long_whether_or_not_there_is_such_an_account(
        self, sqs: Sqs
    ):
        raw, host = raw_json("ListQueues", {}), host_of(sqs.account.url)
        sqs.client.list_queues()

        for name in (sqs.account.name, f"x{uuid4().hex[:8]}"):
            signed = Signer(name, "guessed").signed(raw, host)
            began = time.monotonic()
            assert send(sqs.account.url, signed).code == "InvalidSignatureException"
            assert time.monotonic() - began >= 0.1

    def test_a_presigned_url_asks_without_a_body_and_no_cache_keeps_the_answer(
        self, account: Account
    ):
        raw = replace(
            raw_form("ListQueues", {}), method="GET", body=b"", query=b"Action=ListQueues"
        )
        signed = Signer.of(account).presigned(raw, host_of(account.url))

        told = send(account.url, signed)

        assert (told.status, told.code) == (200, "")
        assert told.headers["cache-control"] == "no-store"
        assert told.headers["x-content-type-options"] == "nosniff"


def test_a_body_that_is_too_large_closes_the_connection(account: Account):
    signed = "AWS4-HMAC-SHA256 Credential=a/20261128/r/sqs/aws4_request, SignedHeaders=host, "
    now = datetime.now(UTC)
    headers = {
        "Authorization": signed.replace("20261128", f"{now:%Y%m%d}") + "Signature=" + "0" * 64,
        "X-Amz-Date": f"{now:%Y%m%dT%H%M%SZ}",
    }
    headers["Authorization"] = headers["Authorization"].replace("=host", "=host;x-amz-date")

    answer = HTTP.post(account.url, headers=headers, content=b"x" * (7 << 20) + b"x")

    assert (answer.status_code, answer.headers["Connection"]) == (413, "close")


def test_the_requests_of_the_gateway_itself_are_served_as_before(account: Account):
    assert account.ask("POST", "", json={"queueName": "orders"}).status_code == 201
    assert account.ask("POST", "/orders/messages", content=b"x").status_code == 201
    assert HTTP.get(f"{account.url}/health").status_code == 200
