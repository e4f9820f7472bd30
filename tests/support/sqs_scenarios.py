"""Each operation of SQS as its documentation tells it, for any server that has these operations.

A scenario asks a server through AWS's client, and says of each answer what it is to be. What
differs is noted by name, and the scenario goes on: a server may be wrong in one thing.
"""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from botocore.exceptions import ClientError

TYPES = ("standard", "fifo")
PATIENCE = 60
ID, HANDLE, MD5, NUMBER = "an id", "a handle", "a digest", "a sequence number"
TIME, SENDER, TASK = "a time", "a sender", "a task"
_OPAQUE = {
    "MessageId": ID,
    "ReceiptHandle": HANDLE,
    "SequenceNumber": NUMBER,
    "SenderId": SENDER,
    "TaskHandle": TASK,
    "NextToken": "a token",
}
_DATES = re.compile(r".*Timestamp")
_DIGITS = re.compile(r"\d{10,14}")
PREFIX = "AWS.SimpleQueueService."
MISSING_QUEUE = f"{PREFIX}NonExistentQueue"

Scenario = Callable[["Scene"], None]
SCENARIOS: dict[str, Scenario] = {}


def scenario(of: Scenario) -> Scenario:
    """Register the scenario of an operation, whose name is that of the function."""
    SCENARIOS["".join(part.capitalize() for part in of.__name__.split("_"))] = of
    return of


def md5(text: str) -> str:
    return hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()


def digest(attributes: Mapping[str, Mapping[str, Any]]) -> str:
    """The digest of attributes by AWS's developer guide, without a line of the door."""
    data = b""
    for name in sorted(attributes):
        kind = attributes[name]["DataType"]
        value = attributes[name].get("BinaryValue")
        flag = b"\x01" if value is None else b"\x02"
        value = attributes[name]["StringValue"].encode() if value is None else value
        for part in (name.encode(), kind.encode()):
            data += len(part).to_bytes(4, "big") + part
        data += flag + len(value).to_bytes(4, "big") + value
    return hashlib.md5(data, usedforsecurity=False).hexdigest()


@dataclass
class Scene:
    """A server, and what it has answered otherwise than expected.

    Attributes:
        client: AWS's client.
        account: The account, which queue URLs and ARNs name.
        is_fifo: True if the queues are FIFO queues.
        differences: What was found and expected, by what it was.
    """

    client: Any
    account: str
    is_fifo: bool
    differences: dict[str, tuple[Any, Any]] = field(default_factory=dict)
    _sent: int = 0

    @property
    def only_fifo(self) -> dict[str, Any]:
        """What an answer to a send has only of a FIFO queue."""
        return {"SequenceNumber": NUMBER} if self.is_fifo else {}

    def name(self, name: str) -> str:
        return f"{name}.fifo" if self.is_fifo else name

    def arn(self, name: str) -> str:
        return f"arn:aws:sqs:eu-central-1:{self.account}:{self.name(name)}"

    def create(self, name: str = "orders", **attributes: str) -> str:
        """Create a queue of the type, and return its URL."""
        if self.is_fifo:
            attributes = {"FifoQueue": "true", **attributes}
        made = self.client.create_queue(QueueName=self.name(name), Attributes=attributes)
        return str(made["QueueUrl"])

    def message(self, body: str = "hello", group: str = "g") -> dict[str, Any]:
        """The parameters of a message, which no other one is a duplicate of."""
        self._sent += 1
        given: dict[str, Any] = {"MessageBody": body}
        if self.is_fifo:
            given |= {"MessageGroupId": group, "MessageDeduplicationId": str(self._sent)}
        return given

    def send(self, url: str, body: str = "hello", group: str = "g", **more: Any) -> dict[str, Any]:
        sent = self.client.send_message(QueueUrl=url, **self.message(body, group), **more)
        return dict(sent)

    def receive(self, url: str, most: int = 10, **more: Any) -> list[dict[str, Any]]:
        answer = self.client.receive_message(QueueUrl=url, MaxNumberOfMessages=most, **more)
        return list(answer.get("Messages", []))

    def bodies(self, url: str, **more: Any) -> list[str]:
        return [each["Body"] for each in self.receive(url, **more)]

    def held(self, url: str, body: str = "hello") -> dict[str, Any]:
        """A message that is sent and received."""
        self.send(url, body)
        (message,) = self.receive(url)
        return message

    def attributes(self, url: str, *names: str) -> dict[str, str]:
        answer = self.client.get_queue_attributes(
            QueueUrl=url, AttributeNames=list(names) or ["All"]
        )
        return dict(answer.get("Attributes", {}))

    def counts(self, url: str) -> tuple[int, int, int]:
        """Messages that are visible, in flight and delayed."""
        begin = "ApproximateNumberOfMessages"
        names = [begin + end for end in ("", "NotVisible", "Delayed")]
        found = self.attributes(url, *names)
        visible, held, delayed = (int(found[name]) for name in names)
        return visible, held, delayed

    def see(self, what: str, found: Any, expected: Any) -> None:
        """Note what was found, if something else is expected."""
        found = self.plain(found)
        if found != expected:
            self.differences[what] = (found, expected)

    def refuses(self, what: str, code: str, call: Callable[..., Any], **given: Any) -> None:
        """Note it if a call does not fail by a code."""
        try:
            call(**given)
        except ClientError as error:
            self.see(what, error.response["Error"]["Code"], code)
        else:
            self.see(what, "no error", code)

    def answers(self, what: str, expected: Any, call: Callable[..., Any], **given: Any) -> None:
        """Note it if a call answers otherwise, or fails."""
        try:
            found = call(**given)
        except ClientError as error:
            found = error.response["Error"]["Code"]
        self.see(what, found, expected)

    def plain(self, found: Any, name: str = "") -> Any:
        """An answer without what differs from one time, account or server to another."""
        if isinstance(found, Mapping):
            return {
                key: self.plain(value, key)
                for key, value in found.items()
                if key != "ResponseMetadata"
            }
        if isinstance(found, list):
            return [self.plain(each, name) for each in found]
        if name in _OPAQUE and found:
            return _OPAQUE[name]
        if _DATES.fullmatch(name) and _DIGITS.fullmatch(str(found)):
            return TIME
        if isinstance(found, str):
            endpoint = str(self.client.meta.endpoint_url)
            return found.replace(endpoint, "").replace(self.account, "me")
        return found


def _policy(scene: Scene, most: int = 1) -> str:
    return json.dumps({"deadLetterTargetArn": scene.arn("dead"), "maxReceiveCount": most})


def _die(scene: Scene, url: str, *bodies: str) -> None:
    """Let messages be received once too often."""
    for body in bodies:
        message = scene.held(url, body)
        scene.client.change_message_visibility(
            QueueUrl=url, ReceiptHandle=message["ReceiptHandle"], VisibilityTimeout=0
        )
        # The receive that finds it is over its limit.
        scene.receive(url, WaitTimeSeconds=1)


def _with_dead_letters(scene: Scene) -> tuple[str, str]:
    """A queue whose messages die at once, and its dead-letter queue."""
    dead = scene.create("dead")
    return scene.create(RedrivePolicy=_policy(scene)), dead


@scenario
def add_permission(scene: Scene) -> None:
    url, call = scene.create(), scene.client.add_permission
    given = {"QueueUrl": url, "Label": "let", "AWSAccountIds": ["123456789012"]}
    scene.see("answer", call(**given, Actions=["SendMessage"]), {})
    (statement,) = json.loads(scene.attributes(url, "Policy")["Policy"])["Statement"]
    scene.see("effect", (statement["Sid"], statement["Effect"]), ("let", "Allow"))
    scene.see("resource", statement["Resource"], scene.plain(scene.arn("orders")))
    code = "InvalidParameterValue"
    scene.refuses("the same label", code, call, **given, Actions=["SendMessage"])
    given["Label"] = "other"
    scene.refuses("an unknown action", code, call, **given, Actions=["Fly"])
    scene.refuses("no actions", "MissingParameter", call, **given, Actions=[])
    many = ["SendMessage"] * 8
    scene.refuses("too many actions", "OverLimit", call, **given, Actions=many)


@scenario
def remove_permission(scene: Scene) -> None:
    url, call = scene.create(), scene.client.remove_permission
    scene.client.add_permission(
        QueueUrl=url, Label="let", AWSAccountIds=["123456789012"], Actions=["*"]
    )
    code = "InvalidParameterValue"
    scene.refuses("an unknown label", code, call, QueueUrl=url, Label="none")
    scene.see("answer", call(QueueUrl=url, Label="let"), {})
    scene.see("no policy is left", "Policy" in scene.attributes(url), expected=False)


@scenario
def create_queue(scene: Scene) -> None:
    call, name = scene.client.create_queue, scene.name("orders")
    given = {"FifoQueue": "true"} if scene.is_fifo else {}
    asked = {"QueueName": name, "Attributes": {**given, "VisibilityTimeout": "60"}}
    scene.see("answer", call(**asked, tags={"a": "b"}), {"QueueUrl": f"/me/{name}"})
    scene.see("the same again", call(**asked), {"QueueUrl": f"/me/{name}"})
    url = call(**asked)["QueueUrl"]
    scene.see("tags", scene.client.list_queue_tags(QueueUrl=url), {"Tags": {"a": "b"}})
    asked["Attributes"]["VisibilityTimeout"] = "61"
    scene.refuses("another attribute", "QueueAlreadyExists", call, **asked)
    bad = {"QueueName": scene.name("a b"), "Attributes": given}
    scene.refuses("a bad name", "InvalidParameterValue", call, **bad)
    bad["QueueName"] = scene.name("a" * 81)
    scene.refuses("a long name", "InvalidParameterValue", call, **bad)
    bad = {"QueueName": scene.name("other"), "Attributes": {**given, "Fly": "1"}}
    scene.refuses("an unknown attribute", "InvalidAttributeName", call, **bad)
    bad["Attributes"] = {**given, "DelaySeconds": "901"}
    scene.refuses("a value out of range", "InvalidAttributeValue", call, **bad)
    wrong = {} if scene.is_fifo else {"FifoQueue": "true"}
    bad = {"QueueName": scene.name("other"), "Attributes": wrong}
    scene.refuses("a name of the other type", "InvalidParameterValue", call, **bad)


@scenario
def get_queue_url(scene: Scene) -> None:
    scene.create()
    call, name = scene.client.get_queue_url, scene.name("orders")
    scene.see("answer", call(QueueName=name), {"QueueUrl": f"/me/{name}"})
    owned = call(QueueName=name, QueueOwnerAWSAccountId=scene.account)
    scene.see("with its owner", owned, {"QueueUrl": f"/me/{name}"})
    scene.refuses("a missing queue", MISSING_QUEUE, call, QueueName=scene.name("none"))


@scenario
def list_queues(scene: Scene) -> None:
    call = scene.client.list_queues
    scene.see("none", call(), {})
    names = [f"q{number}" for number in range(3)]
    for name in (*names, "other"):
        scene.create(name)
    urls = [f"/me/{scene.name(name)}" for name in names]
    found = call(QueueNamePrefix="q")
    scene.see("of a prefix", {"QueueUrls": sorted(found["QueueUrls"])}["QueueUrls"], urls)
    scene.see("no token without a limit", "NextToken" in found, expected=False)
    first = call(QueueNamePrefix="q", MaxResults=2)
    scene.see("a page", len(first["QueueUrls"]), 2)
    rest = call(QueueNamePrefix="q", MaxResults=2, NextToken=first.get("NextToken", ""))
    scene.see("all pages", sorted(first["QueueUrls"] + rest["QueueUrls"]), urls)
    scene.see("the last page", "NextToken" in rest, expected=False)
    scene.refuses("too many results", "InvalidParameterValue", call, MaxResults=1001)


@scenario
def delete_queue(scene: Scene) -> None:
    url, call = scene.create(), scene.client.delete_queue
    scene.held(url)
    scene.see("answer", call(QueueUrl=url), {})
    scene.refuses(
        "a send", MISSING_QUEUE, scene.client.send_message, QueueUrl=url, MessageBody="x"
    )
    scene.answers("again", {}, call, QueueUrl=url)


@scenario
def get_queue_attributes(scene: Scene) -> None:
    url, call = scene.create(VisibilityTimeout="45"), scene.client.get_queue_attributes
    scene.see("no names", call(QueueUrl=url), {})
    arn = {"Attributes": {"QueueArn": scene.plain(scene.arn("orders"))}}
    scene.see("one name", call(QueueUrl=url, AttributeNames=["QueueArn"]), arn)
    only_fifo = {
        "ContentBasedDeduplication": "false",
        "DeduplicationScope": "queue",
        "FifoQueue": "true",
        "FifoThroughputLimit": "perQueue",
    }
    expected = {
        "ApproximateNumberOfMessages": "0",
        "ApproximateNumberOfMessagesDelayed": "0",
        "ApproximateNumberOfMessagesNotVisible": "0",
        "CreatedTimestamp": TIME,
        "DelaySeconds": "0",
        "LastModifiedTimestamp": TIME,
        "MaximumMessageSize": "1048576",
        "MessageRetentionPeriod": "345600",
        "QueueArn": scene.plain(scene.arn("orders")),
        "ReceiveMessageWaitTimeSeconds": "0",
        "VisibilityTimeout": "45",
        **(only_fifo if scene.is_fifo else {}),
    }
    found = scene.attributes(url)
    scene.see("encryption", found.pop("SqsManagedSseEnabled", None) in {"true", "false"}, True)
    scene.see("all names", found, expected)
    scene.held(url)
    scene.send(url, group="other")
    scene.see("counts", scene.counts(url), (1, 1, 0))
    scene.refuses(
        "an unknown name", "InvalidAttributeName", call, QueueUrl=url, AttributeNames=["Fly"]
    )
    missing = {"QueueUrl": f"{url}none", "AttributeNames": ["All"]}
    scene.refuses("a missing queue", MISSING_QUEUE, call, **missing)


@scenario
def set_queue_attributes(scene: Scene) -> None:
    url, call = scene.create(), scene.client.set_queue_attributes
    names = ["DelaySeconds", "VisibilityTimeout"]
    scene.see("answer", call(QueueUrl=url, Attributes={"VisibilityTimeout": "7"}), {})
    expected = {"DelaySeconds": "0", "VisibilityTimeout": "7"}
    scene.see("values", scene.attributes(url, *names), expected)
    wrong = {"VisibilityTimeout": "43201"}
    scene.refuses("out of range", "InvalidAttributeValue", call, QueueUrl=url, Attributes=wrong)
    scene.refuses("unknown", "InvalidAttributeName", call, QueueUrl=url, Attributes={"Fly": "1"})
    only_fifo = {"ContentBasedDeduplication": "true"}
    if scene.is_fifo:
        scene.see("content", call(QueueUrl=url, Attributes=only_fifo), {})
        type_of = {"FifoQueue": "false"}
        scene.refuses("type", "InvalidAttributeValue", call, QueueUrl=url, Attributes=type_of)
    else:
        scene.refuses("content", "InvalidAttributeName", call, QueueUrl=url, Attributes=only_fifo)
    scene.create("dead")
    call(QueueUrl=url, Attributes={"RedrivePolicy": _policy(scene, 3)})
    told = json.loads(scene.attributes(url)["RedrivePolicy"])
    policy = {"deadLetterTargetArn": scene.plain(scene.arn("dead")), "maxReceiveCount": 3}
    scene.see("redrive policy", told, policy)
    call(QueueUrl=url, Attributes={"RedrivePolicy": ""})
    scene.see("no redrive policy", "RedrivePolicy" in scene.attributes(url), expected=False)


@scenario
def tag_queue(scene: Scene) -> None:
    url, call = scene.create(), scene.client.tag_queue
    scene.see("answer", call(QueueUrl=url, Tags={"Team": "a", "tier": ""}), {})
    call(QueueUrl=url, Tags={"Team": "b", "team": "c"})
    expected = {"Tags": {"Team": "b", "tier": "", "team": "c"}}
    scene.see("tags", scene.client.list_queue_tags(QueueUrl=url), expected)
    many = {str(number): "x" for number in range(48)}
    scene.refuses("too many", "InvalidParameterValue", call, QueueUrl=url, Tags=many)
    scene.refuses("a missing queue", MISSING_QUEUE, call, QueueUrl=f"{url}none", Tags={"a": "b"})


@scenario
def untag_queue(scene: Scene) -> None:
    url, call = scene.create(), scene.client.untag_queue
    scene.client.tag_queue(QueueUrl=url, Tags={"a": "1", "b": "2"})
    scene.see("answer", call(QueueUrl=url, TagKeys=["a", "none"]), {})
    scene.see("what is left", scene.client.list_queue_tags(QueueUrl=url), {"Tags": {"b": "2"}})
    scene.refuses("a missing queue", MISSING_QUEUE, call, QueueUrl=f"{url}none", TagKeys=["a"])


@scenario
def list_queue_tags(scene: Scene) -> None:
    url, call = scene.create(), scene.client.list_queue_tags
    scene.see("none", call(QueueUrl=url), {})
    scene.client.tag_queue(QueueUrl=url, Tags={"a": "ü"})
    scene.see("answer", call(QueueUrl=url), {"Tags": {"a": "ü"}})
    scene.refuses("a missing queue", MISSING_QUEUE, call, QueueUrl=f"{url}none")


@scenario
def list_dead_letter_source_queues(scene: Scene) -> None:
    call = scene.client.list_dead_letter_source_queues
    dead = scene.create("dead")
    scene.see("none", call(QueueUrl=dead).get("queueUrls", []), [])
    scene.create(RedrivePolicy=_policy(scene))
    scene.create("other")
    scene.see("answer", call(QueueUrl=dead), {"queueUrls": [f"/me/{scene.name('orders')}"]})
    scene.refuses("a missing queue", MISSING_QUEUE, call, QueueUrl=f"{dead}none")


@scenario
def purge_queue(scene: Scene) -> None:
    url, call = scene.create(), scene.client.purge_queue
    scene.held(url)
    scene.send(url, group="other")
    scene.see("answer", call(QueueUrl=url), {})
    scene.see("counts", scene.counts(url), (0, 0, 0))
    scene.refuses("again", f"{PREFIX}PurgeQueueInProgress", call, QueueUrl=url)
    scene.refuses("a missing queue", MISSING_QUEUE, call, QueueUrl=f"{url}none")


@scenario
def send_message(scene: Scene) -> None:
    url, call = scene.create(MaximumMessageSize="1024"), scene.client.send_message
    attributes = {
        "n": {"DataType": "Number", "StringValue": "1"},
        "b": {"DataType": "Binary.x", "BinaryValue": b"\xff"},
    }
    sent = call(QueueUrl=url, **scene.message(), MessageAttributes=attributes)
    scene.see(
        "answer",
        sent,
        {
            "MessageId": ID,
            "MD5OfMessageBody": md5("hello"),
            "MD5OfMessageAttributes": digest(attributes),
            **scene.only_fifo,
        },
    )
    plain = {"MessageId": ID, "MD5OfMessageBody": md5("é")}
    scene.see("without attributes", scene.send(url, "é"), plain | scene.only_fifo)
    scene.refuses("an empty body", "MissingParameter", call, QueueUrl=url, **scene.message(""))
    scene.refuses(
        "a character", "InvalidMessageContents", call, QueueUrl=url, **scene.message("\ufffe")
    )
    long = scene.message("x" * 1025)
    scene.refuses("a long body", "InvalidParameterValue", call, QueueUrl=url, **long)
    late = scene.message() | {"DelaySeconds": 901}
    scene.refuses("a long delay", "InvalidParameterValue", call, QueueUrl=url, **late)
    empty = scene.message() | {"MessageAttributes": {"a": {"DataType": "String"}}}
    scene.refuses("an empty attribute", "InvalidParameterValue", call, QueueUrl=url, **empty)
    scene.refuses("a missing queue", MISSING_QUEUE, call, QueueUrl=f"{url}x", **scene.message())
    if not scene.is_fifo:
        given = {"QueueUrl": url, "MessageBody": "x", "MessageDeduplicationId": "1"}
        scene.refuses("a deduplication id", "InvalidParameterValue", call, **given)
        scene.see("delayed", scene.send(url, "é", DelaySeconds=900), plain)
        scene.see("counts", scene.counts(url), (2, 0, 1))
        return
    again = {"MessageGroupId": "g", "MessageDeduplicationId": "again", "MessageBody": "x"}
    first, second = call(QueueUrl=url, **again), call(QueueUrl=url, **again)
    same = [first[each] == second[each] for each in ("MessageId", "SequenceNumber")]
    scene.see("a duplicate", same, [True, True])
    scene.refuses("no group", "MissingParameter", call, QueueUrl=url, MessageBody="x")
    only_group = {"QueueUrl": url, "MessageBody": "x", "MessageGroupId": "g"}
    scene.refuses("no deduplication id", "InvalidParameterValue", call, **only_group)
    delayed = scene.message() | {"DelaySeconds": 5}
    scene.refuses("a delay", "InvalidParameterValue", call, QueueUrl=url, **delayed)


@scenario
def send_message_batch(scene: Scene) -> None:
    url, call = scene.create(MaximumMessageSize="1024"), scene.client.send_message_batch
    bodies = {"a": "one", "b": "x" * 1025, "c": "two"}
    entries = [{"Id": name, **scene.message(body)} for name, body in bodies.items()]
    answer = call(QueueUrl=url, Entries=entries)
    sent = [
        {"Id": name, "MessageId": ID, "MD5OfMessageBody": md5(bodies[name]), **scene.only_fifo}
        for name in "ac"
    ]
    scene.see("what was sent", answer.get("Successful"), sent)
    (failed,) = answer.get("Failed", [{}])
    failed.pop("Message", None)
    expected = {"Id": "b", "SenderFault": True, "Code": "InvalidParameterValue"}
    scene.see("what was not", failed, expected)
    found = scene.bodies(url)
    scene.see("what is there", found if scene.is_fifo else sorted(found), ["one", "two"])
    _refuses_batches(scene, call, url, lambda name: {"Id": name, **scene.message()})
    large = [{"Id": str(number), **scene.message("x" * 300_000)} for number in range(4)]
    scene.refuses(
        "a large batch", f"{PREFIX}BatchRequestTooLong", call, QueueUrl=url, Entries=large
    )


def _refuses_batches(
    scene: Scene, call: Callable[..., Any], url: str, entry: Callable[[str], dict[str, Any]]
) -> None:
    wrong = {
        "EmptyBatchRequest": [],
        "TooManyEntriesInBatchRequest": [entry(str(number)) for number in range(11)],
        "BatchEntryIdsNotDistinct": [entry("a"), entry("a")],
        "InvalidBatchEntryId": [entry("a b")],
    }
    for code, entries in wrong.items():
        scene.refuses(code, PREFIX + code, call, QueueUrl=url, Entries=entries)
    missing = {"QueueUrl": f"{url}none", "Entries": [entry("a")]}
    scene.refuses("a missing queue", MISSING_QUEUE, call, **missing)


@scenario
def receive_message(scene: Scene) -> None:
    url, call = scene.create(VisibilityTimeout="600"), scene.client.receive_message
    scene.see("none", call(QueueUrl=url), {})
    attributes = {
        "a.b": {"DataType": "String", "StringValue": "x"},
        "c": {"DataType": "Number.int", "StringValue": "1"},
    }
    scene.send(url, "one", MessageAttributes=attributes)
    scene.send(url, "two", group="other")
    scene.send(url, "three")
    first = call(QueueUrl=url, MessageSystemAttributeNames=["All"], MessageAttributeNames=["a.*"])
    system = {
        "ApproximateFirstReceiveTimestamp": TIME,
        "ApproximateReceiveCount": "1",
        "SenderId": SENDER,
        "SentTimestamp": TIME,
    }
    if scene.is_fifo:
        system |= {
            "MessageDeduplicationId": "1",
            "MessageGroupId": "g",
            "SequenceNumber": NUMBER,
        }
    message = {
        "MessageId": ID,
        "ReceiptHandle": HANDLE,
        "MD5OfBody": md5("one"),
        "Body": "one",
        "Attributes": system,
        "MD5OfMessageAttributes": digest({"a.b": attributes["a.b"]}),
        "MessageAttributes": {"a.b": attributes["a.b"]},
    }
    scene.see("one message", first, {"Messages": [message]})
    plain = ["Body", "MD5OfBody", "MessageId", "ReceiptHandle"]
    others = scene.receive(url)
    # The group of the first one is held.
    left = ["two"] if scene.is_fifo else ["two", "three"]
    scene.see("the others", [each["Body"] for each in others], left)
    scene.see("without names", sorted(others[0]) if others else [], plain)
    scene.see("nothing is left", scene.bodies(url), [])
    one = {"QueueUrl": url, "AttributeNames": ["SentTimestamp"]}
    scene.client.change_message_visibility(
        QueueUrl=url, ReceiptHandle=first["Messages"][0]["ReceiptHandle"], VisibilityTimeout=0
    )
    again = call(**one, WaitTimeSeconds=10)
    told = [each["Attributes"] for each in again.get("Messages", [])]
    scene.see("one name", told, [{"SentTimestamp": TIME}])
    code = "InvalidParameterValue"
    for name, value in {
        "MaxNumberOfMessages": 11,
        "WaitTimeSeconds": 21,
        "VisibilityTimeout": 43_201,
    }.items():
        scene.refuses(name, code, call, QueueUrl=url, **{name: value})
    scene.refuses("no messages", code, call, QueueUrl=url, MaxNumberOfMessages=0)
    scene.refuses("a missing queue", MISSING_QUEUE, call, QueueUrl=f"{url}none")
    if scene.is_fifo:
        scene.send(url, "new", group="new")
        named = {"QueueUrl": url, "ReceiveRequestAttemptId": "one", "MaxNumberOfMessages": 10}
        seen = [call(**named).get("Messages", []) for _ in range(2)]
        ids = [[each["MessageId"] for each in messages] for messages in seen]
        scene.see("the same attempt", ids[0] == ids[1] != [], expected=True)


@scenario
def delete_message(scene: Scene) -> None:
    url, call = scene.create(), scene.client.delete_message
    message = scene.held(url)
    given = {"QueueUrl": url, "ReceiptHandle": message["ReceiptHandle"]}
    scene.see("answer", call(**given), {})
    scene.see("counts", scene.counts(url), (0, 0, 0))
    scene.answers("again", {}, call, **given)
    scene.refuses("no handle", "ReceiptHandleIsInvalid", call, QueueUrl=url, ReceiptHandle="none")
    scene.refuses("an empty handle", "MissingParameter", call, QueueUrl=url, ReceiptHandle="")
    given["QueueUrl"] = f"{url}none"
    scene.refuses("a missing queue", MISSING_QUEUE, call, **given)


@scenario
def delete_message_batch(scene: Scene) -> None:
    url, call = scene.create(), scene.client.delete_message_batch
    handle = scene.held(url)["ReceiptHandle"]
    entries = [{"Id": "a", "ReceiptHandle": handle}, {"Id": "b", "ReceiptHandle": "none"}]
    answer = call(QueueUrl=url, Entries=entries)
    scene.see("what was deleted", answer.get("Successful"), [{"Id": "a"}])
    failed = [{**each, "Message": ""} for each in answer.get("Failed", [])]
    code = {"Code": "ReceiptHandleIsInvalid", "SenderFault": True, "Message": ""}
    scene.see("what was not", failed, [{"Id": "b", **code}])
    scene.see("counts", scene.counts(url), (0, 0, 0))
    entry = {"ReceiptHandle": handle}
    _refuses_batches(scene, call, url, lambda name: {"Id": name, **entry})


@scenario
def change_message_visibility(scene: Scene) -> None:
    url, call = scene.create(), scene.client.change_message_visibility
    given = {"QueueUrl": url, "ReceiptHandle": scene.held(url)["ReceiptHandle"]}
    scene.see("answer", call(**given, VisibilityTimeout=600), {})
    scene.see("held", scene.counts(url), (0, 1, 0))
    scene.see("released", call(**given, VisibilityTimeout=0), {})
    (message,) = scene.receive(url, WaitTimeSeconds=10, AttributeNames=["All"])
    scene.see("receives", message["Attributes"]["ApproximateReceiveCount"], "2")
    code = "InvalidParameterValue"
    scene.refuses("a long time", code, call, **given, VisibilityTimeout=43_201)
    # Some of the twelve hours are over.
    scene.refuses("all of the time again", code, call, **given, VisibilityTimeout=43_200)
    wrong = {"QueueUrl": url, "ReceiptHandle": "none", "VisibilityTimeout": 1}
    scene.refuses("no handle", "ReceiptHandleIsInvalid", call, **wrong)
    handle = message["ReceiptHandle"]
    scene.client.delete_message(QueueUrl=url, ReceiptHandle=handle)
    gone = {"QueueUrl": url, "ReceiptHandle": handle, "VisibilityTimeout": 1}
    scene.refuses("a deleted message", f"{PREFIX}MessageNotInflight", call, **gone)
    gone["QueueUrl"] = f"{url}none"
    scene.refuses("a missing queue", MISSING_QUEUE, call, **gone)


@scenario
def change_message_visibility_batch(scene: Scene) -> None:
    url, call = scene.create(), scene.client.change_message_visibility_batch
    handle = scene.held(url)["ReceiptHandle"]
    given = {"a": (handle, 600), "b": ("none", 600), "c": (handle, 43_201)}
    entries = [
        {"Id": name, "ReceiptHandle": text, "VisibilityTimeout": seconds}
        for name, (text, seconds) in given.items()
    ]
    answer = call(QueueUrl=url, Entries=entries)
    scene.see("what was changed", answer.get("Successful"), [{"Id": "a"}])
    failed = {each["Id"]: each["Code"] for each in answer.get("Failed", [])}
    codes = {"b": "ReceiptHandleIsInvalid", "c": "InvalidParameterValue"}
    scene.see("what was not", failed, codes)
    scene.see("counts", scene.counts(url), (0, 1, 0))
    entry = {"ReceiptHandle": handle, "VisibilityTimeout": 1}
    _refuses_batches(scene, call, url, lambda name: {"Id": name, **entry})


def _tasks(scene: Scene) -> list[dict[str, Any]]:
    answer = scene.client.list_message_move_tasks(SourceArn=scene.arn("dead"), MaxResults=10)
    return list(answer.get("Results", []))


def _ended(scene: Scene) -> dict[str, Any]:
    """The newest task when it has ended."""
    deadline = time.monotonic() + PATIENCE
    while (task := _tasks(scene)[0])["Status"] in {"RUNNING", "CANCELLING"}:
        assert time.monotonic() < deadline, task
    return task


@scenario
def start_message_move_task(scene: Scene) -> None:
    url, _ = _with_dead_letters(scene)
    _die(scene, url, "one")
    call, arn = scene.client.start_message_move_task, scene.arn("dead")
    scene.see("answer", call(SourceArn=arn), {"TaskHandle": TASK})
    scene.see("status", _ended(scene)["Status"], "COMPLETED")
    scene.see("what came back", scene.bodies(url, WaitTimeSeconds=10), ["one"])
    code = "InvalidParameterValue"
    scene.refuses("no dead-letter queue", code, call, SourceArn=scene.arn("orders"))
    missing = scene.arn("none")
    scene.refuses("a missing queue", "ResourceNotFoundException", call, SourceArn=missing)
    scene.refuses("the same queue", code, call, SourceArn=arn, DestinationArn=arn)
    too_fast = {"SourceArn": arn, "MaxNumberOfMessagesPerSecond": 501}
    scene.refuses("too fast", code, call, **too_fast)


@scenario
def list_message_move_tasks(scene: Scene) -> None:
    url, _ = _with_dead_letters(scene)
    _die(scene, url, "one")
    call, arn = scene.client.list_message_move_tasks, scene.arn("dead")
    scene.see("none", call(SourceArn=arn), {})
    scene.client.start_message_move_task(SourceArn=arn)
    expected = {
        "Status": "COMPLETED",
        "SourceArn": scene.plain(arn),
        "ApproximateNumberOfMessagesMoved": 1,
        "ApproximateNumberOfMessagesToMove": 1,
        "StartedTimestamp": TIME,
    }
    scene.see("a task", _ended(scene), expected)
    missing = scene.arn("none")
    scene.refuses("a missing queue", "ResourceNotFoundException", call, SourceArn=missing)
    scene.refuses("too many", "InvalidParameterValue", call, SourceArn=arn, MaxResults=11)


@scenario
def cancel_message_move_task(scene: Scene) -> None:
    url, _ = _with_dead_letters(scene)
    _die(scene, url, "one", "two", "three")
    call, arn = scene.client.cancel_message_move_task, scene.arn("dead")
    start = scene.client.start_message_move_task
    handle = start(SourceArn=arn, MaxNumberOfMessagesPerSecond=1)["TaskHandle"]
    scene.see("a slow task", _tasks(scene)[0]["Status"], "RUNNING")
    scene.refuses("a second task", "InvalidParameterValue", start, SourceArn=arn)
    moved = call(TaskHandle=handle)["ApproximateNumberOfMessagesMoved"]
    scene.see("what was moved", 0 <= moved < 3, expected=True)
    scene.see("status", _ended(scene)["Status"], "CANCELLED")
    scene.refuses("again", "InvalidParameterValue", call, TaskHandle=handle)
    scene.refuses("no handle", "InvalidParameterValue", call, TaskHandle="none")
