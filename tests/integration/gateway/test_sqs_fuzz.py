"""Whatever a client of SQS sends, the answer is one of SQS: an error that AWS knows, no 500."""

from __future__ import annotations

import copy
import json
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple
from urllib.parse import quote
from xml.etree import ElementTree as ET

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from cassieq_spark.http.sqs import inputs
from cassieq_spark.http.sqs.move_tasks import handle_of
from cassieq_spark.http.sqs.operations import OPERATIONS, Operation
from cassieq_spark.http.sqs.queue_attributes import COMPUTED, SETTABLE
from tests.support.gateway import Account, RunningGateway, running_on_memory
from tests.support.raw_sqs import (
    FORM_TYPE,
    JSON_TYPE,
    NAMESPACE,
    REGION,
    Raw,
    Signer,
    Told,
    errors,
    host_of,
    long_ago,
    raw_form,
    raw_json,
    send,
)
from tests.support.sqs import PROTOCOLS

#: How many in all; ``make fuzz-gateway`` has more.
REQUESTS = int(os.environ.get("CASSIEQ_FUZZ_REQUESTS", "690"))
EXAMPLES = -(-REQUESTS // (len(OPERATIONS) * len(PROTOCOLS)))

#: What no answer says: how the gateway is built.
LEAKS = re.compile(
    r"Traceback|cassieq_spark|pydantic|object at 0x|validation error|instance of|"
    r"(?:Type|Value|Key|Attribute|Index|Recursion|Unicode\w*|Assertion|Option|NotFound|State|"
    r"Invariant|Schema|Store|Message|Exists|Refused)Error\b(?!Entry)"
)
NAMES = {each.shape for each in errors()} | {each.code for each in errors()}
OF_SIGNATURES = {
    "IncompleteSignature",
    "IncompleteSignatureException",
    "InvalidSignatureException",
    "MissingAuthenticationToken",
    "MissingAuthenticationTokenException",
    "RequestExpired",
    "SignatureDoesNotMatch",
}
ENTRIES = {
    "SendMessageBatch": inputs.SendMessageBatchEntry,
    "DeleteMessageBatch": inputs.DeleteMessageBatchEntry,
    "ChangeMessageVisibilityBatch": inputs.ChangeMessageVisibilityBatchEntry,
}


class There(NamedTuple):
    """What is there: a gateway, an account with queues, and a receipt handle."""

    account: Account
    other: Account
    handle: str

    def url(self, queue: str) -> str:
        return f"{self.account.url}/{self.account.name}/{queue}"

    def arn(self, queue: str) -> str:
        return f"arn:aws:sqs:{REGION}:{self.account.name}:{queue}"

    def ask(self, operation: str, **given: Any) -> Any:
        """Send a request that is as it should be."""
        told = self.sent(raw_json(operation, given))
        assert told.status == 200, told
        return told.json

    def sent(self, raw: Raw) -> Told:
        url = self.account.url
        return send(url, Signer.of(self.account).signed(raw, host_of(url)))


@pytest.fixture(scope="module")
def there(tmp_path_factory: pytest.TempPathFactory) -> Iterator[There]:
    # A wait that is accepted lasts as long, if the queue is empty.
    log = tmp_path_factory.mktemp("fuzz") / "log"
    with running_on_memory(log, "wait=0.05") as gateway:
        yield filled(gateway)
        assert gateway.stop() == 0


def filled(gateway: RunningGateway) -> There:
    bare = There(gateway.account(), gateway.account(), "")
    bare.ask("CreateQueue", QueueName="dead")
    typed = {"queueName": "typed", "schema": "a string, n array<int>", "dropDead": True}
    assert bare.account.ask("POST", json=typed).status_code == 201
    return bare._replace(handle=handle_in(bare))


def handle_in(there: There) -> str:
    """A receipt handle of a queue, which is made if there is none."""
    url = there.ask("CreateQueue", QueueName="orders")["QueueUrl"]
    fifo = {"FifoQueue": "true", "ContentBasedDeduplication": "true"}
    there.ask("CreateQueue", QueueName="orders.fifo", Attributes=fifo)
    there.ask("SendMessage", QueueUrl=url, MessageBody="hello", DelaySeconds=0)
    for _ in range(100):
        found = there.ask("ReceiveMessage", QueueUrl=url, VisibilityTimeout=600)
        if found:
            return str(found["Messages"][0]["ReceiptHandle"])
    raise AssertionError("the message did not arrive")


TEXTS = st.text(max_size=8) | st.sampled_from(
    ["a", "x" * 81, "a\0b", "\ufffe", "ä€😀", "\r\n", "~"]
)
NUMBERS = st.integers(-1, 11) | st.sampled_from([900, 43_200, 43_201, 10**18, 10**30, -(10**19)])
ODD = st.one_of(
    st.none(),
    st.booleans(),
    NUMBERS,
    TEXTS,
    st.floats(),
    st.just("1" + "0" * 4_400),
    st.just([[[[[[{}]]]]]]),
    st.lists(TEXTS, max_size=3),
    st.dictionaries(TEXTS, TEXTS, max_size=3),
)
ATTRIBUTE = st.fixed_dictionaries(
    {
        "DataType": st.sampled_from(
            ["String", "Number", "Number.int", "Binary", "Other", "String.ä"]
        )
    },
    optional={"StringValue": TEXTS | st.just("17"), "BinaryValue": st.just("AAE=") | TEXTS},
)
#: Of a queue with columns, or nearly so.
BODIES = ["hello", '{"a": "x", "n": [1]}', '{"n": [1e999, NaN]}', "[" * 5_000, '{"a": "\\ud800"}']
POLICY = {"Statement": [{"Sid": "a"}]}


def members(there: There) -> dict[str, st.SearchStrategy[Any]]:
    """Values for the members of inputs, by name; most of them are valid."""
    urls = [there.url(each) for each in ("orders", "orders.fifo", "orders~default", "typed")]
    urls += [there.url("none"), there.url("a~b")]
    urls += [f"{there.account.url}/{there.other.name}/orders", "/", "http://[", "x" * 3_000]
    arns = [there.arn(each) for each in ("dead", "orders", "orders.fifo", "none", "dead~x")]
    arns += [f"arn:aws:sqs:::{there.other.name}", "arn:aws:sqs:r:a:b", "arn"]
    redrive = st.fixed_dictionaries(
        {"deadLetterTargetArn": st.sampled_from(arns), "maxReceiveCount": NUMBERS | TEXTS}
    )
    allow = st.fixed_dictionaries(
        {"redrivePermission": st.sampled_from(["allowAll", "denyAll", "byQueue", "x"])},
        optional={"sourceQueueArns": st.lists(st.sampled_from(arns), max_size=2)},
    )
    policies = (redrive | allow | st.just(POLICY)).map(json.dumps)
    attributes = st.dictionaries(
        st.sampled_from(sorted({*SETTABLE} - {"FifoQueue"})) | TEXTS,
        st.sampled_from(["0", "1", "60", "1024", "true", "false", "queue", ""]) | policies | TEXTS,
        max_size=3,
    )
    tags = st.dictionaries(TEXTS, TEXTS, max_size=3)
    texts = st.lists(st.sampled_from(["All", "*", "a.*", "SenderId"]) | TEXTS, max_size=3)
    ids = st.sampled_from(["g", "1"]) | TEXTS
    return {
        "AWSAccountIds": st.lists(ids, max_size=3),
        "Actions": st.lists(st.sampled_from(["*", "SendMessage"]) | TEXTS, max_size=8),
        "AttributeNames": st.lists(
            st.sampled_from(["All", *COMPUTED, *SETTABLE]) | TEXTS, max_size=3
        ),
        "Attributes": attributes,
        "DelaySeconds": NUMBERS,
        "DestinationArn": st.sampled_from(arns),
        "Id": st.sampled_from(["a", "b", "c", "d"]),
        "Label": ids,
        "MaxNumberOfMessages": NUMBERS,
        "MaxNumberOfMessagesPerSecond": NUMBERS,
        "MaxResults": NUMBERS,
        "MessageAttributeNames": texts,
        "MessageAttributes": st.dictionaries(TEXTS | ids, ATTRIBUTE, max_size=3),
        "MessageBody": st.sampled_from(BODIES) | TEXTS,
        "MessageDeduplicationId": ids,
        "MessageGroupId": ids,
        "MessageSystemAttributeNames": texts,
        "MessageSystemAttributes": st.dictionaries(
            st.just("AWSTraceHeader") | TEXTS, ATTRIBUTE, max_size=1
        ),
        "NextToken": st.sampled_from(["b3JkZXJz", "/w==", "x"]) | TEXTS,
        "QueueName": st.sampled_from(["orders", "dead", "new", "new.fifo"]) | TEXTS,
        "QueueNamePrefix": TEXTS,
        "QueueOwnerAWSAccountId": st.sampled_from([there.account.name, there.other.name]) | TEXTS,
        "QueueUrl": st.sampled_from(urls),
        "ReceiptHandle": st.just(there.handle) | st.just(there.handle[:-9]) | TEXTS,
        "ReceiveRequestAttemptId": ids,
        "SourceArn": st.sampled_from(arns),
        "TagKeys": st.lists(ids, max_size=3),
        "Tags": tags,
        "TaskHandle": st.sampled_from(arns).map(lambda arn: handle_of("a" * 32, arn)) | TEXTS,
        "VisibilityTimeout": NUMBERS,
        "WaitTimeSeconds": NUMBERS,
        "tags": tags,
    }


def inputs_of(operation: Operation, known: dict[str, st.SearchStrategy[Any]]) -> Any:
    """Inputs of an operation, most of which are valid."""
    entry = ENTRIES.get(operation.name)
    if entry is not None:
        known = known | {"Entries": st.lists(of_model(entry, known), max_size=11)}
    return of_model(operation.input, known)


def of_model(model: type[inputs.Input], known: dict[str, st.SearchStrategy[Any]]) -> Any:
    must = {name for name, each in model.model_fields.items() if each.is_required()}
    must |= {"QueueUrl", "Entries"} & model.model_fields.keys()
    return st.fixed_dictionaries(
        {name: known[name] for name in must},
        optional={name: known[name] for name in model.model_fields if name not in must},
    )


def altered(draw: Callable[..., Any], value: Any) -> Any:
    """A value with something somewhere that is not what belongs there."""
    at = value
    while isinstance(at, dict | list) and at:
        place = draw(st.sampled_from(sorted(at) if isinstance(at, dict) else range(len(at))))
        inner = at[place]
        if not (isinstance(inner, dict | list) and inner) or draw(st.booleans()):
            if isinstance(at, dict) and draw(st.booleans()):
                del at[place]
            else:
                at[place] = draw(ODD)
            break
        at = inner
    if isinstance(value, dict) and draw(st.booleans()):
        value[draw(TEXTS)] = draw(ODD)
    return value


def spoiled(draw: Callable[..., Any], body: bytes) -> bytes:
    """A body with bytes that are not what belongs there."""
    at = draw(st.integers(0, max(0, len(body) - 1)))
    begin, end = body[:at], body[at:]
    kinds: list[bytes] = [
        begin,
        begin + bytes([end[0] ^ (1 << draw(st.integers(0, 7)))]) + end[1:] if end else b"",
        begin + draw(st.binary(max_size=4)) + end,
        begin + b'"\\ud800"' + end,
        body.replace(b"{", b'{"QueueUrl":"a","QueueUrl":1,"QueueName":NaN,', 1),
        b"[" * 5_000 + body,
        b'{"a":' * 1_500 + b"1" + b"}" * 1_500,
        body.replace(b".1.", b".999999999."),
        body.replace(b".1", b".0").replace(b".2", b".00"),
        body.replace(b".1", b".1.1.1.1.1.1.1"),
        body.replace(b".1", b".%D9%A3"),
        body + b"&Entry.999999999.Id=a&Attribute.-1.Name=a&Attribute=1",
        body + b"".join(b"&Tag.%d.Key=a" % number for number in range(2_100)),
        body + b"".join(b"&Attribute.%d.Name=%d" % (each, each) for each in range(900)),
        body + b"&%FF=%C3%28&%=%zz&a%00b=1&=&&",
        b"",
    ]
    return draw(st.sampled_from(kinds))


@st.composite
def requests(draw: Callable[..., Any], operation: Operation, protocol: str, there: There) -> Raw:
    """Requests of an operation, unsigned."""
    name, is_json = operation.name, protocol == "json"
    value = draw(inputs_of(operation, members(there)))
    if draw(st.booleans()):
        value = altered(draw, copy.deepcopy(value))
    raw = raw_json(name, value) if is_json else raw_form(name, value)
    if draw(st.integers(0, 2)) == 0:
        raw = replace(raw, body=spoiled(draw, raw.body))
    if draw(st.integers(0, 3)) == 0:
        raw = replace(raw, path=draw(PATHS).replace(b"ACCOUNT", there.account.name.encode()))
    if draw(st.integers(0, 5)) == 0:
        raw = raw.with_headers(content_type=draw(TYPES))
    if is_json and draw(st.integers(0, 5)) == 0:
        raw = raw.with_headers(x_amz_target=draw(TARGETS))
    if not is_json and draw(st.integers(0, 5)) == 0 and len(raw.body) < 8_000:
        # What a URL cannot have, the parser of HTTP refuses.
        query = quote(raw.body, "=&%+.").encode()
        # Without an action, a GET is not of SQS.
        methods = ["GET", "POST"] if b"Action=" in query else ["POST"]
        raw = replace(raw, method=draw(st.sampled_from(methods)), query=query, body=b"")
    return raw


PATHS = st.one_of(
    st.sampled_from([b"/ACCOUNT/orders", b"/ACCOUNT/orders/", b"//", b"/ACCOUNT/%00", b"/a/%FF"]),
    st.sampled_from([b"/ACCOUNT/../x", b"/./ACCOUNT/orders", b"/%2e%2e/a", b"/" + b"a" * 3_000]),
    st.text("aA0-._~%&+=:@!$'()*,;/", max_size=12).map(lambda it: b"/" + it.encode()),
)
TYPES = st.sampled_from([b"", JSON_TYPE, FORM_TYPE, b"text/plain", b"application/json", b"\xff"])
TARGETS = st.sampled_from(
    [b"", b"AmazonSQS", b"AmazonSQS.", b"AmazonSQS.Nothing", b"S3.Get", b"AmazonSQS.\xe4", b"."]
)


def badly_signed(draw: Callable[..., Any], raw: Raw, there: There) -> Raw:
    """A request that its account has not signed as it arrives."""
    host = host_of(there.account.url)
    signer = Signer.of(there.account)
    good, in_url = signer.signed(raw, host), signer.presigned(raw, host)
    value = dict(good.headers)[b"authorization"]
    digit = b"1" if value.endswith(b"0") else b"0"
    kinds: list[Raw] = [
        raw,
        good.with_headers(authorization=value[:-1] + digit),
        good.with_headers(authorization=value[: draw(st.integers(0, len(value) - 1))]),
        good.with_headers(authorization=value.replace(b"host;", b"")),
        good.with_headers(authorization=draw(st.text("AWS4-, =;/\t\xe4", max_size=30)).encode()),
        good.with_headers(x_amz_date=b"20260101T000000Z"),
        good.with_headers(x_amz_more=b"not signed"),
        replace(good, body=good.body + b" "),
        replace(good, query=good.query + b"&Action=ListQueues"),
        replace(good, path=good.path + b"/x"),
        replace(good, query=in_url.query),
        replace(in_url, query=in_url.query[:-1] + (b"1" if in_url.query[-1:] == b"0" else b"0")),
        replace(in_url, query=in_url.query + b"&X-Amz-Expires=9"),
        replace(in_url, query=in_url.query.replace(b"X-Amz-Signature", b"X%2DAmz-Signature")),
        replace(in_url, body=in_url.body + b" "),
        signer.presigned(raw, host, draw(st.sampled_from([0, -1, 10**7, "x", "²", "6.0"]))),
        Signer.of(there.account, at=long_ago(seconds=9)).presigned(raw, host, 8),
        Signer.of(there.account, at=long_ago(minutes=16)).signed(raw, host),
        Signer.of(there.account, at=long_ago(minutes=-16)).signed(raw, host),
        Signer.of(there.account, service="s3").signed(raw, host),
        Signer.of(there.account, region="a/b").signed(raw, host),
        Signer.of(there.account, leaves_out=frozenset({"host"})).signed(raw, host),
        Signer(there.account.name, there.other.key).signed(raw, host),
        Signer(f"{there.account.name}:none", there.account.key).signed(raw, host),
        Signer(there.account.name, "none").signed(raw, host),
    ]
    return draw(st.sampled_from(kinds))


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("operation", OPERATIONS.values(), ids=lambda operation: operation.name)
def test_whatever_is_sent_is_answered_as_by_sqs(there: There, operation: Operation, protocol: str):
    there = there._replace(handle=handle_in(there))
    host = host_of(there.account.url)

    @settings(
        max_examples=EXAMPLES,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
        deadline=None,
    )
    @given(raw=requests(operation, protocol, there), kind=st.integers(0, 7), data=st.data())
    def ask(raw: Raw, kind: int, data: st.DataObject) -> None:
        if kind == 0:
            raw = badly_signed(data.draw, raw, there)
        elif kind == 1 and len(raw.query) < 8_000:
            raw = Signer.of(there.account).presigned(raw, host)
        else:
            raw = Signer.of(there.account).signed(raw, host)

        told = send(there.account.url, raw)

        check(raw, told)
        assert kind or told.status != 200
        assert not kind or told.code not in OF_SIGNATURES, told

    ask()

    handle = handle_in(there)
    there.ask("DeleteMessage", QueueUrl=there.url("orders"), ReceiptHandle=handle)


def check(raw: Raw, told: Told) -> None:
    """Check that an answer is one of SQS, in the protocol of its request."""
    text = told.body.decode()
    assert told.status < 500, text
    assert all((name + value).isprintable() for name, value in told.headers.items())
    assert not LEAKS.search(text), text
    if raw.is_json:
        assert isinstance(told.json, dict)
        failed = [each["Code"] for each in told.json.get("Failed", ())]
    else:
        tree = ET.fromstring(text)
        assert tree.tag.startswith(NAMESPACE)
        failed = [
            entry.findtext(f"{NAMESPACE}Code", "")
            for entry in tree.iter(f"{NAMESPACE}BatchResultErrorEntry")
        ]
    assert (told.code in NAMES) == (told.status != 200), text
    assert {*failed} <= NAMES - {"InternalFailure", "ServiceUnavailable"}, text
