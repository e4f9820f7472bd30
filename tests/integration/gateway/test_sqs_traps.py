"""Traps of SQS's protocol into which other servers have fallen, by their numbers.

Each class is a trap that users of goaws, ElasticMQ, LocalStack, moto or kombu have reported. Of
trap 14, what a test can see is here: that many long polls and many receivers are answered. How
much processor time and memory they take, `make bench-gateway` measures.
"""

from __future__ import annotations

import hashlib
import json
import socket
import time
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from http.client import HTTPResponse
from typing import Any

import pytest

from tests.integration.gateway.test_sqs import Sqs, client_of, made, protocol, refused, sqs
from tests.support.gateway import PATIENCE, Account
from tests.support.raw_sqs import (
    NAMESPACE,
    Raw,
    Signer,
    Told,
    connected,
    host_of,
    raw_form,
    raw_json,
    send,
)
from tests.support.sqs import close
from tests.support.sqs_scenarios import digest

__all__ = ["client_of", "protocol", "sqs"]

FIRST = "AWS.SimpleQueueService."
RAW = {"json": raw_json, "query": raw_form}


def asked(account: Account, raw: Raw) -> Told:
    """What the door answers to a request that is signed as it should be."""
    return send(account.url, Signer.of(account).signed(raw, host_of(account.url)))


def told(account: Account, protocol: str, operation: str, given: Mapping[str, Any]) -> Told:
    return asked(account, RAW[protocol](operation, given))


def release(sqs: Sqs, url: str, message: Mapping[str, Any]) -> None:
    """Let a message that is held be visible at once."""
    sqs.client.change_message_visibility(
        QueueUrl=url, ReceiptHandle=message["ReceiptHandle"], VisibilityTimeout=0
    )


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline


def number(value: str, data_type: str = "Number") -> dict[str, str]:
    return {"DataType": data_type, "StringValue": value}


class Test01BothProtocols:
    """goaws#279, elasticmq#812, localstack#10821: one protocol only, or only at one path."""

    @pytest.mark.parametrize("path", ["/", "/{account}/orders"])
    def test_a_message_is_sent_to_the_root_and_to_the_path_of_the_queue(
        self, sqs: Sqs, protocol: str, path: str
    ):
        account, url = sqs.account, sqs.create()
        raw = RAW[protocol]("SendMessage", {"QueueUrl": url, "MessageBody": "hello"})

        answer = asked(account, replace(raw, path=path.format(account=account.name).encode()))

        assert answer.status == 200
        assert sqs.bodies(url) == ["hello"]

    def test_the_path_names_the_queue_if_nothing_else_does(self, sqs: Sqs, protocol: str):
        url = sqs.create()
        raw = RAW[protocol]("SendMessage", {"MessageBody": "hello"})

        path = f"/{sqs.account.name}/orders".encode()

        assert asked(sqs.account, replace(raw, path=path)).status == 200
        assert sqs.bodies(url) == ["hello"]


class Test02QueueUrls:
    """localstack#708, kombu#852, ministack#1152: queue URLs with another host."""

    def test_a_url_begins_with_the_host_that_the_client_has_asked(self, sqs: Sqs, protocol: str):
        raw = RAW[protocol]("CreateQueue", {"QueueName": "orders"})
        raw = raw.with_headers(host=b"queues.example:99")
        signed = Signer.of(sqs.account).signed(
            replace(raw, headers=tuple(each for each in raw.headers if each[0] != b"host")),
            "queues.example:99",
        )

        answer = send(sqs.account.url, signed.with_headers(host=b"queues.example:99"))

        assert f"http://queues.example:99/{sqs.account.name}/orders" in answer.body.decode()

    @pytest.mark.parametrize("begin", ["https://sqs.eu-central-1.amazonaws.com", "http://x:1/y"])
    def test_a_url_with_another_host_names_the_same_queue(
        self, sqs: Sqs, protocol: str, begin: str
    ):
        url = sqs.create()
        there = f"{begin}/{sqs.account.name}/orders"

        answer = told(
            sqs.account, protocol, "SendMessage", {"QueueUrl": there, "MessageBody": "hello"}
        )

        assert answer.status == 200
        assert sqs.bodies(url) == ["hello"]


class Test03ReceiptHandles:
    """elasticmq#2: the handle of an earlier receive deletes what another receiver holds."""

    def test_an_earlier_handle_deletes_nothing_that_is_held_by_a_later_one(self, sqs: Sqs):
        url = sqs.create()
        sqs.send(url)

        (first,) = sqs.receive(url)
        release(sqs, url, first)
        (second,) = sqs.receive(url, WaitTimeSeconds=10)
        sqs.delete(url, first)

        assert first["ReceiptHandle"] != second["ReceiptHandle"]
        assert first["ReceiptHandle"] != first["MessageId"] == second["MessageId"]
        assert sqs.counts(url) == (0, 1, 0)
        sqs.delete(url, second)
        assert sqs.counts(url) == (0, 0, 0)


class Test04Deletes:
    """elasticmq#324, localstack#4470: any text is a handle; the second deletion fails."""

    @pytest.mark.parametrize("handle", ["x", "a b", "é", "0" * 1_000])
    def test_what_is_no_handle_is_refused(self, sqs: Sqs, handle: str):
        url = sqs.create()
        given = {"QueueUrl": url, "ReceiptHandle": handle}

        assert refused(sqs.client.delete_message, **given)[0] == "ReceiptHandleIsInvalid"
        given["VisibilityTimeout"] = 5
        code, _ = refused(sqs.client.change_message_visibility, **given)
        assert code == "ReceiptHandleIsInvalid"

    def test_the_id_of_a_message_is_no_handle(self, sqs: Sqs):
        url = sqs.create()
        given = {"QueueUrl": url, "ReceiptHandle": sqs.send(url)["MessageId"]}

        assert refused(sqs.client.delete_message, **given)[0] == "ReceiptHandleIsInvalid"
        assert sqs.bodies(url) == ["hello"]

    def test_a_message_is_deleted_twice(self, sqs: Sqs):
        url = sqs.create()
        sqs.send(url)
        (message,) = sqs.receive(url)

        sqs.delete(url, message)
        sqs.delete(url, message)

        assert sqs.counts(url) == (0, 0, 0)

    def test_a_message_is_deleted_after_its_visibility_timeout(self, sqs: Sqs):
        url = sqs.create()
        sqs.send(url)
        (message,) = sqs.receive(url, VisibilityTimeout=1)
        until(lambda: sqs.counts(url) == (1, 0, 0))

        sqs.delete(url, message)

        assert sqs.counts(url) == (0, 0, 0)


class Test05LongPolls:
    """elasticmq#81, #315: a long poll does not see that a message has become visible."""

    def test_a_message_that_is_released_ends_a_long_poll(self, sqs: Sqs):
        url = sqs.create(VisibilityTimeout="600")
        sqs.send(url)
        (held,) = sqs.receive(url)

        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(sqs.receive, url, WaitTimeSeconds=20)
            release(sqs, url, held)
            (message,) = waiting.result(PATIENCE)

        assert message["MessageId"] == held["MessageId"]


class Test06Digests:
    """elasticmq#13, #289, #827, #947, floci#141: the digest of attributes is wrong or missing."""

    @pytest.mark.parametrize(
        "attributes",
        [
            {"a": number("1")},
            {"a": number("1.50", "Number.price")},
            {"b": {"DataType": "Binary", "BinaryValue": b"\x00\xff"}},
            {"b": {"DataType": "Binary.png", "BinaryValue": b"x"}, "a": number("ü", "String.é")},
            {"Z": number("1"), "a": number("2"), "_": number("3")},
        ],
        ids=str,
    )
    def test_a_digest_is_over_names_full_types_and_values_in_order(
        self, sqs: Sqs, attributes: dict[str, Any]
    ):
        url = sqs.create()

        sent = sqs.send(url, MessageAttributes=attributes)
        (message,) = sqs.receive(url)

        expected = digest(attributes)
        assert sent["MD5OfMessageAttributes"] == expected
        assert message["MD5OfMessageAttributes"] == expected
        assert message["MessageAttributes"] == attributes

    def test_it_is_over_those_that_are_received(self, sqs: Sqs):
        url = sqs.create()
        attributes = {name: number("1") for name in ("a", "b.c", "b.d")}
        sqs.send(url, MessageAttributes=attributes)

        (message,) = sqs.receive(url, MessageAttributeNames=["b.*"])

        del attributes["a"]
        assert message["MessageAttributes"] == attributes
        assert message["MD5OfMessageAttributes"] == digest(attributes)

    def test_there_is_none_without_attributes(self, sqs: Sqs):
        url = sqs.create()

        sent = sqs.send(url, "Grüße")
        (message,) = sqs.receive(url)

        assert sent["MD5OfMessageBody"] == hashlib.md5("Grüße".encode()).hexdigest()
        digests = {"MD5OfMessageAttributes", "MD5OfMessageSystemAttributes"}
        assert not digests & (sent.keys() | message.keys())
        assert "MessageAttributes" not in message

    def test_that_of_system_attributes_is_one_of_its_own(self, sqs: Sqs):
        url, trace = sqs.create(), {"AWSTraceHeader": number("Root=1-5-0", "String")}

        sent = sqs.send(url, MessageSystemAttributes=trace)
        (message,) = sqs.receive(url)

        assert sent["MD5OfMessageSystemAttributes"] == digest(trace)
        assert "MD5OfMessageAttributes" not in sent
        assert message["Attributes"]["AWSTraceHeader"] == "Root=1-5-0"


class Test07Emptiness:
    """elasticmq#373, goaws#190: attributes and bodies that are empty are taken."""

    @pytest.mark.parametrize("kind", ["String", "Number", "Binary", "String.custom"])
    def test_an_attribute_without_a_value_is_refused(self, sqs: Sqs, kind: str):
        url = sqs.create()
        name = "BinaryValue" if kind == "Binary" else "StringValue"
        empty = b"" if kind == "Binary" else ""

        code, text = refused(
            sqs.client.send_message,
            QueueUrl=url,
            MessageBody="x",
            MessageAttributes={"a": {"DataType": kind, name: empty}},
        )

        assert code == "InvalidParameterValue"
        assert "must contain a non-empty" in text

    def test_an_empty_body_is_refused(self, sqs: Sqs):
        code, text = refused(sqs.client.send_message, QueueUrl=sqs.create(), MessageBody="")

        assert code == "MissingParameter"
        assert text == "The request must contain the parameter MessageBody."


class Test08EmptyAnswers:
    """elasticmq#1027, async-aws#1746: a client that accepts JSON gets no empty answer."""

    @pytest.mark.parametrize("accept", [b"application/json", b"text/html", b"*/*;q=0"])
    def test_an_operation_without_an_output_is_answered_whatever_is_accepted(
        self, sqs: Sqs, protocol: str, accept: bytes
    ):
        raw = RAW[protocol]("DeleteQueue", {"QueueUrl": sqs.create()})

        answer = asked(sqs.account, raw.with_headers(accept=accept))

        assert answer.status == 200
        assert (answer.body == b"") == (protocol == "json")


class Test09Waits:
    """localstack#5824, #6118, moto#891: a receive waits for more, or until the timeout."""

    def test_a_receive_of_more_than_there_is_returns_at_once(self, sqs: Sqs):
        url = sqs.create()
        sqs.send(url)

        began = time.monotonic()
        found = sqs.bodies(url, 10, WaitTimeSeconds=20)

        assert found == ["hello"]
        assert time.monotonic() - began < 15

    def test_a_receive_waits_no_longer_than_it_says_for_what_is_held(self, sqs: Sqs):
        url = sqs.create(VisibilityTimeout="600", ReceiveMessageWaitTimeSeconds="20")
        sqs.send(url)
        sqs.receive(url)

        began = time.monotonic()
        found = sqs.receive(url, WaitTimeSeconds=1)

        assert found == []
        assert 1 <= time.monotonic() - began < 15


class Test10Groups:
    """localstack#4287, #6766, #10107, #12457: groups of FIFO queues that are held."""

    @pytest.fixture
    def url(self, sqs: Sqs) -> str:
        return sqs.fifo(ContentBasedDeduplication="true")

    def test_of_two_receives_at_once_only_one_gets_the_group(self, sqs: Sqs, url: str):
        for body in "abc":
            sqs.send(url, body, MessageGroupId="g")

        with ThreadPoolExecutor(4) as pool:
            found = list(pool.map(lambda _: sqs.bodies(url, 1), range(4)))

        assert sorted(found) == [[], [], [], ["a"]]

    def test_a_group_goes_on_when_what_was_held_of_it_is_deleted(self, sqs: Sqs, url: str):
        for body in "abc":
            sqs.send(url, body, MessageGroupId="g")

        first, second = sqs.receive(url, 2)
        sqs.delete(url, first)
        assert sqs.bodies(url) == []
        sqs.delete(url, second)

        assert sqs.bodies(url) == ["c"]

    def test_after_a_release_and_after_a_timeout_the_order_is_as_before(self, sqs: Sqs, url: str):
        for body in "abc":
            sqs.send(url, body, MessageGroupId="g")

        (first,) = sqs.receive(url, 1)
        release(sqs, url, first)
        (again,) = sqs.receive(url, 1, VisibilityTimeout=1, WaitTimeSeconds=10)
        found = sqs.bodies(url, 10, WaitTimeSeconds=20)

        assert again["Body"] == "a"
        assert found
        assert found == ["a", "b", "c"][: len(found)]


class Test11Deduplication:
    """elasticmq#354, localstack#6460, #10460, floci#901: ids are forgotten, or of no scope."""

    def test_an_id_is_remembered_when_its_message_is_deleted(self, sqs: Sqs):
        url = sqs.fifo()
        given = {"MessageGroupId": "g", "MessageDeduplicationId": "1"}
        first = sqs.send(url, "a", **given)
        (message,) = sqs.receive(url)
        sqs.delete(url, message)

        again = sqs.send(url, "b", **given)

        assert again["MessageId"] == first["MessageId"]
        assert again["SequenceNumber"] == first["SequenceNumber"]
        assert sqs.receive(url) == []

    @pytest.mark.parametrize(("scope", "bodies"), [("queue", ["a"]), ("messageGroup", ["a", "b"])])
    def test_an_id_is_one_of_its_scope(self, sqs: Sqs, scope: str, bodies: list[str]):
        url = sqs.fifo(DeduplicationScope=scope)

        for group in "ab":
            sqs.send(url, group, MessageGroupId=group, MessageDeduplicationId="1")

        found: list[str] = []
        for wait in (10, 1):
            found += sqs.bodies(url, WaitTimeSeconds=wait)
        assert sorted(found) == bodies

    def test_the_digest_of_the_body_is_the_id_and_one_that_is_given_wins(self, sqs: Sqs):
        url = sqs.fifo(ContentBasedDeduplication="true")

        first = sqs.send(url, "x", MessageGroupId="g")
        again = sqs.send(url, "x", MessageGroupId="g", MessageAttributes={"a": number("1")})
        other = sqs.send(url, "x", MessageGroupId="g", MessageDeduplicationId="1")

        assert first["MessageId"] == again["MessageId"] != other["MessageId"]
        found = sqs.receive(url)
        ids = [each["Attributes"].get("MessageDeduplicationId") for each in found]
        assert ids == [hashlib.sha256(b"x").hexdigest(), "1"]


class Test12DeadLetters:
    """localstack#2107, #8234, #10425, elasticmq#921: when messages die, and what they keep."""

    @pytest.mark.parametrize("most", [2, "2"], ids=["number", "text"])
    def test_a_message_dies_at_the_receive_that_would_be_one_too_many(
        self, sqs: Sqs, most: object
    ):
        dead = sqs.create("dead")
        policy = {"deadLetterTargetArn": sqs.arn("dead"), "maxReceiveCount": most}
        url = sqs.create(RedrivePolicy=json.dumps(policy))
        attributes = {"a": number("1")}
        sent = sqs.send(url, MessageAttributes=attributes)

        for count in ("1", "2"):
            (message,) = sqs.receive(url, WaitTimeSeconds=10)
            assert message["Attributes"]["ApproximateReceiveCount"] == count
            release(sqs, url, message)
        assert sqs.receive(url) == []
        (letter,) = sqs.receive(dead, WaitTimeSeconds=10)

        assert letter["MessageAttributes"] == attributes
        assert letter["MD5OfMessageAttributes"] == sent["MD5OfMessageAttributes"]
        told = letter["Attributes"]
        assert told["DeadLetterQueueSourceArn"] == sqs.arn("orders")
        assert told["SenderId"] == sqs.account.name
        assert told["ApproximateReceiveCount"] == "3", "receives of all queues count"
        first = message["Attributes"]["ApproximateFirstReceiveTimestamp"]
        assert told["ApproximateFirstReceiveTimestamp"] == first
        assert told["SentTimestamp"] == message["Attributes"]["SentTimestamp"]
        assert letter["MessageId"] == sent["MessageId"]

    @pytest.mark.parametrize("scope", ["queue", "messageGroup"])
    def test_a_fifo_letter_keeps_its_id_which_takes_the_place_of_its_deduplication_id(
        self, sqs: Sqs, scope: str
    ):
        dead = sqs.fifo("dead.fifo")
        policy = {"deadLetterTargetArn": sqs.arn("dead.fifo"), "maxReceiveCount": 1}
        url = sqs.fifo(RedrivePolicy=json.dumps(policy), DeduplicationScope=scope)
        given = {"MessageGroupId": "g", "MessageDeduplicationId": "1"}
        sent = sqs.send(url, **given)["MessageId"]

        (message,) = sqs.receive(url, WaitTimeSeconds=10)
        release(sqs, url, message)
        assert sqs.receive(url) == []
        (letter,) = sqs.receive(dead, WaitTimeSeconds=10)

        assert message["Attributes"]["MessageDeduplicationId"] == "1"
        assert letter["MessageId"] == sent
        assert letter["Attributes"]["MessageDeduplicationId"] == sent

    def test_a_letter_that_dies_again_keeps_its_id_and_one_that_goes_back_has_another(
        self, sqs: Sqs
    ):
        worst = sqs.create("worst")
        policy = {"deadLetterTargetArn": sqs.arn("worst"), "maxReceiveCount": 1}
        dead = sqs.create("dead", RedrivePolicy=json.dumps(policy))
        policy["deadLetterTargetArn"] = sqs.arn("dead")
        url = sqs.create(RedrivePolicy=json.dumps(policy))
        sent = sqs.send(url)["MessageId"]

        def after_death(message: Mapping[str, Any], queue: str, into: str) -> dict[str, Any]:
            release(sqs, queue, message)
            assert sqs.receive(queue) == []
            (letter,) = sqs.receive(into, WaitTimeSeconds=10)
            return letter

        (message,) = sqs.receive(url)
        letter = after_death(message, url, dead)
        again = after_death(letter, dead, worst)
        release(sqs, worst, again)
        sqs.client.start_message_move_task(
            SourceArn=sqs.arn("worst"), DestinationArn=sqs.arn("orders")
        )
        (back,) = sqs.receive(url, WaitTimeSeconds=20)
        anew = after_death(back, url, dead)

        assert letter["MessageId"] == again["MessageId"] == sent
        assert back["MessageId"] == anew["MessageId"] != sent


class Test13GroupIds:
    """localstack#5236, #6107: a group id is asked for, or refused, in the wrong queue."""

    def test_a_standard_queue_takes_a_message_with_a_group_and_one_without(self, sqs: Sqs):
        url = sqs.create()

        sqs.send(url, "a", MessageGroupId="g")
        sqs.send(url, "b")

        found = {each["Body"]: each["Attributes"] for each in sqs.receive(url)}
        assert found["a"]["MessageGroupId"] == "g"
        assert "MessageGroupId" not in found["b"]
        assert not any("SequenceNumber" in each for each in found.values())

    def test_a_fifo_queue_takes_none_without(self, sqs: Sqs):
        url = sqs.fifo(ContentBasedDeduplication="true")

        assert refused(sqs.client.send_message, QueueUrl=url, MessageBody="x") == (
            "MissingParameter",
            "The request must contain the parameter MessageGroupId.",
        )

    def test_a_standard_queue_takes_no_deduplication_id(self, sqs: Sqs):
        url = sqs.create()

        code, text = refused(
            sqs.client.send_message, QueueUrl=url, MessageBody="x", MessageDeduplicationId="1"
        )

        assert (code, "not valid for this queue type" in text) == ("InvalidParameterValue", True)


class Test14Many:
    """localstack#4386, #5690, #7101: many long polls, receivers and messages."""

    def test_many_long_polls_hold_up_no_send_and_each_message_ends_one(
        self, account: Account, client_of: Callable[..., Any], protocol: str
    ):
        polls = 40
        clients = [made(client_of, protocol, account) for _ in range(polls)]
        url = Sqs(clients[0], account).create(ReceiveMessageWaitTimeSeconds="20")

        with ThreadPoolExecutor(polls) as pool:
            waiting = [pool.submit(Sqs(each, account).bodies, url, 1) for each in clients]
            sender = Sqs(made(client_of, protocol, account), account)
            for count in range(polls):
                sender.send(url, str(count))
            found = [body for each in waiting for body in each.result(PATIENCE)]

        for each in (*clients, sender.client):
            close(each)
        assert sorted(found, key=int) == [str(count) for count in range(polls)]

    def test_many_receivers_get_each_message_once_and_no_error(
        self, account: Account, client_of: Callable[..., Any], protocol: str
    ):
        receivers, messages = 30, 600
        clients = [made(client_of, protocol, account) for _ in range(receivers)]
        first = Sqs(clients[0], account)
        url = first.create(VisibilityTimeout="600")
        for begin in range(0, messages, 10):
            entries = [{"Id": str(n), "MessageBody": str(begin + n)} for n in range(10)]
            assert "Failed" not in first.client.send_message_batch(QueueUrl=url, Entries=entries)

        def all_of(client: Any) -> list[str]:
            found: list[str] = []
            while bodies := Sqs(client, account).bodies(url):
                found += bodies
            return found

        with ThreadPoolExecutor(receivers) as pool:
            got = Counter(body for found in pool.map(all_of, clients) for body in found)

        # One that found nothing while others asked may have ended early.
        got.update(all_of(clients[0]))
        for each in clients:
            close(each)
        assert got == Counter(str(count) for count in range(messages))


class Test15Xml:
    """elasticmq#574, localstack#4287: white space, repeated names, and characters of XML."""

    def test_a_receive_that_finds_nothing_has_an_element_without_white_space(self, sqs: Sqs):
        url = sqs.create()

        answer = told(sqs.account, "query", "ReceiveMessage", {"QueueUrl": url})

        assert b"<ReceiveMessageResult/>" in answer.body

    def test_each_attribute_is_there_once_if_it_is_asked_for_twice(self, sqs: Sqs):
        url = sqs.create()
        sqs.send(url)
        names = ["All", "SentTimestamp", "SentTimestamp", "SenderId"]

        given = {"QueueUrl": url, "AttributeNames": names}
        answer = told(sqs.account, "query", "ReceiveMessage", given)

        assert answer.body.count(b"<Name>SentTimestamp</Name>") == 1
        assert answer.body.count(b"<Name>SenderId</Name>") == 1

    def test_line_ends_are_received_as_they_were_sent(self, sqs: Sqs):
        url, text = sqs.create(), "a\rb\r\nc\n\t<&>\"' ]]>"

        sqs.send(url, text, MessageAttributes={"a": number("\r\n", "String")})

        (message,) = sqs.receive(url)
        assert message["Body"] == text
        assert message["MessageAttributes"]["a"]["StringValue"] == "\r\n"

    @pytest.mark.parametrize("text", ["\x00", "a\x0bb", "\x1f", "\ufffe"])
    def test_a_character_that_xml_does_not_have_is_refused(
        self, sqs: Sqs, protocol: str, text: str
    ):
        given = {"QueueUrl": sqs.create(), "MessageBody": text}

        answer = told(sqs.account, protocol, "SendMessage", given)

        assert (answer.status, answer.code) == (400, "InvalidMessageContents")


class Test16Times:
    """localstack#52: times with a point or an exponent."""

    def test_times_of_messages_are_whole_milliseconds_and_those_of_queues_seconds(
        self, sqs: Sqs, protocol: str
    ):
        url = sqs.create()
        sqs.send(url)

        (message,) = sqs.receive(url)

        now = time.time()
        for name in ("SentTimestamp", "ApproximateFirstReceiveTimestamp"):
            text = message["Attributes"][name]
            assert text.isdecimal()
            assert abs(int(text) / 1000 - now) < 600
        found = sqs.attributes(url)
        for name in ("CreatedTimestamp", "LastModifiedTimestamp"):
            assert found[name].isdecimal()
            assert abs(int(found[name]) - now) < 600


class Test17Errors:
    """moto: a header because of which the SDK for Java does not know the exception."""

    def test_an_error_has_the_shape_in_its_body_and_the_old_code_in_a_header(self, sqs: Sqs):
        answer = told(sqs.account, "json", "GetQueueUrl", {"QueueName": "nobody"})

        assert answer.status == 400
        assert answer.json["__type"] == "com.amazonaws.sqs#QueueDoesNotExist"
        assert answer.headers["x-amzn-query-error"] == f"{FIRST}NonExistentQueue;Sender"
        assert "x-amzn-errortype" not in answer.headers

    def test_in_the_query_protocol_it_has_the_old_code(self, sqs: Sqs):
        answer = told(sqs.account, "query", "GetQueueUrl", {"QueueName": "nobody"})

        assert (answer.status, answer.code) == (400, f"{FIRST}NonExistentQueue")
        assert f'<ErrorResponse xmlns="{NAMESPACE[1:-1]}"><Error><Type>Sender' in (
            answer.body.decode()
        )


class Test18Bounds:
    """elasticmq#761: numbers out of range are taken, or refused by other texts."""

    @pytest.mark.parametrize(
        ("given", "text"),
        [
            ({"WaitTimeSeconds": 21}, "Must be >= 0 and <= 20, if provided."),
            ({"WaitTimeSeconds": -1}, "Must be >= 0 and <= 20, if provided."),
            ({"MaxNumberOfMessages": 0}, "Must be between 1 and 10, if provided."),
            ({"MaxNumberOfMessages": 11}, "Must be between 1 and 10, if provided."),
            ({"VisibilityTimeout": 43_201}, "Must be >= 0 and <= 43200, if provided."),
        ],
    )
    def test_a_number_that_is_out_of_range_is_refused_by_the_text_of_aws(
        self, sqs: Sqs, given: dict[str, int], text: str
    ):
        code, said = refused(sqs.client.receive_message, QueueUrl=sqs.create(), **given)

        ((name, value),) = given.items()
        assert code == "InvalidParameterValue"
        assert said == f"Value {value} for parameter {name} is invalid. Reason: {text}"

    def test_a_message_is_held_for_twelve_hours_in_all(self, sqs: Sqs):
        url = sqs.create()
        sqs.send(url)
        (message,) = sqs.receive(url)
        given = {"QueueUrl": url, "ReceiptHandle": message["ReceiptHandle"]}
        change = sqs.client.change_message_visibility

        change(**given, VisibilityTimeout=42_000)
        again = refused(change, **given, VisibilityTimeout=43_200)
        pop_receipt, _, received = message["ReceiptHandle"].rpartition(".")
        given["ReceiptHandle"] = f"{pop_receipt}.{int(received) - 2_000_000}"
        later = refused(change, **given, VisibilityTimeout=42_000)

        for code, text in (again, later):
            assert code == "InvalidParameterValue"
            assert text.endswith("beyond the limit [43200 seconds]")
        for handle in (pop_receipt, f"{pop_receipt}.", f"{pop_receipt}.x"):
            given["ReceiptHandle"] = handle
            assert refused(change, **given, VisibilityTimeout=1)[0] == "ReceiptHandleIsInvalid"

    def test_the_greatest_numbers_are_taken(self, sqs: Sqs):
        url = sqs.create()
        sqs.send(url)

        (message,) = sqs.receive(url, WaitTimeSeconds=20, VisibilityTimeout=43_200)

        assert message["Body"] == "hello"


class Test19Requests:
    """celery#9868, and what SDKs do when they repeat: requests as they arrive."""

    def test_a_request_with_a_signature_that_was_there_before_is_carried_out(
        self, sqs: Sqs, protocol: str
    ):
        account, url = sqs.account, sqs.create()
        raw = RAW[protocol]("SendMessage", {"QueueUrl": url, "MessageBody": "hello"})
        signed = Signer.of(account).signed(raw, host_of(account.url))

        answers = [send(account.url, signed).status for _ in range(2)]

        assert answers == [200, 200]
        assert sqs.bodies(url) == ["hello", "hello"]

    def test_a_client_that_waits_to_be_asked_for_its_body_is_asked(self, sqs: Sqs, protocol: str):
        account, url = sqs.account, sqs.create()
        raw = RAW[protocol]("SendMessage", {"QueueUrl": url, "MessageBody": "hello"})
        signed = Signer.of(account).signed(raw, host_of(account.url))

        with connected(account.url, signed.with_headers(expect=b"100-continue")) as connection:
            assert until_asked(connection).startswith(b"HTTP/1.1 100")
            connection.sendall(signed.body)
            answer = HTTPResponse(connection)
            answer.begin()

        assert answer.status == 200
        assert sqs.bodies(url) == ["hello"]

    def test_a_presigned_get_is_carried_out(self, sqs: Sqs):
        account, url = sqs.account, sqs.create()
        sqs.send(url)
        raw = Raw("GET", f"/{account.name}/orders".encode(), b"Action=ReceiveMessage")

        answer = send(account.url, Signer.of(account).presigned(raw, host_of(account.url)))

        assert answer.status == 200
        assert b"<Body>hello</Body>" in answer.body

    def test_a_key_that_was_encoded_twice_is_a_wrong_signature(
        self, sqs: Sqs, client_of: Callable[..., Any], protocol: str
    ):
        encoded = replace(sqs.account, key=sqs.account.key.replace(sqs.account.key[0], "%2B"))
        client = made(client_of, protocol, encoded)

        code, _ = refused(client.list_queues)
        close(client)

        assert code in {"SignatureDoesNotMatch", "InvalidSignatureException"}


def until_asked(connection: socket.socket) -> bytes:
    """The interim answer by which a server asks for the body."""
    said = b""
    while not said.endswith(b"\r\n\r\n"):
        said += connection.recv(1)
    return said


class Test20AMinute:
    """sqs-consumer: what can be done once a minute only; and names that are used again."""

    def test_a_queue_is_purged_once_a_minute(self, sqs: Sqs):
        url = sqs.create()

        sqs.client.purge_queue(QueueUrl=url)

        assert refused(sqs.client.purge_queue, QueueUrl=url) == (
            f"{FIRST}PurgeQueueInProgress",
            "Only one PurgeQueue operation on orders is allowed every 60 seconds.",
        )

    def test_a_name_is_used_again_at_once_and_old_handles_delete_nothing(self, sqs: Sqs):
        url = sqs.create()
        sqs.send(url, "old")
        (old,) = sqs.receive(url)

        sqs.client.delete_queue(QueueUrl=url)
        assert sqs.create() == url
        sqs.send(url, "new")
        (new,) = sqs.receive(url)
        sqs.delete(url, old)

        assert new["Body"] == "new"
        assert new["MessageId"] != old["MessageId"]
        assert sqs.counts(url) == (0, 1, 0)
