"""The wire of SQS: what AWS's client sends, and what a stranger sends."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote, urlencode
from xml.etree import ElementTree as ET

import pytest
from botocore.auth import SigV4Auth, SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from hypothesis import example, given
from hypothesis import strategies as st

from cassieq_spark.http.sqs import texts
from cassieq_spark.http.sqs.errors import InternalFailure, SqsError
from cassieq_spark.http.sqs.message_attributes import (
    RESERVED,
    Attribute,
    Extras,
    digest_of,
    from_headers,
    outputs_of,
    selected,
    size_of,
    to_headers,
)
from cassieq_spark.http.sqs.operations import OPERATIONS
from cassieq_spark.http.sqs.query_protocol import protocol_of
from cassieq_spark.http.sqs.queue_attributes import (
    SETTABLE,
    RedriveAllowPolicy,
    RedrivePolicy,
    changed_attributes,
    new_attributes,
)
from cassieq_spark.http.sqs.signature import claim_of
from cassieq_spark.http.sqs.wire import Received, Stamp
from tests.support.sqs import (
    ENDPOINT,
    KEY_ID,
    PROTOCOLS,
    SECRET,
    URL,
    Door,
    clients,
    digest,
    received,
)

CLIENT_OF = clients()
STAMP = Stamp("1", datetime(2026, 11, 27, tzinfo=UTC))
NAMESPACE = "{http://queue.amazonaws.com/doc/2012-11-05/}"
#: What XML 1.0 has.
XML = st.characters(codec="utf-8").filter(texts.is_xml)
NAMES = st.from_regex(r"[A-Za-z0-9_-]([A-Za-z0-9_.-]{0,20}[A-Za-z0-9_-])?", fullmatch=True).filter(
    lambda name: ".." not in name and not name.lower().startswith(("aws.", "amazon.", "cassieq."))
)
LABELS = st.sampled_from(["", ".int", ".ä", ".a.b"])
VALUES = st.one_of(
    st.tuples(LABELS, st.text(XML, min_size=1, max_size=20)).map(
        lambda it: Attribute("String" + it[0], it[1])
    ),
    st.tuples(LABELS, st.integers() | st.decimals(allow_nan=False, allow_infinity=False)).map(
        lambda it: Attribute("Number" + it[0], str(it[1]))
    ),
    st.tuples(LABELS, st.binary(min_size=1, max_size=20)).map(
        lambda it: Attribute("Binary" + it[0], it[1])
    ),
)
ATTRIBUTES = st.dictionaries(NAMES, VALUES, max_size=10)
BODIES = st.text(XML, min_size=1, max_size=40)
IDS = st.none() | st.from_regex(r"[!-~]{1,128}", fullmatch=True)


def sent(
    protocol: str, body: str, attributes: dict[str, Attribute], **more: Any
) -> tuple[Door, Any]:
    """What the client sends with a message, as it is read."""
    door = Door()
    client = clients_by(protocol, door)
    client.send_message(
        QueueUrl=URL,
        MessageBody=body,
        MessageAttributes=outputs_of(attributes),
        **{name: value for name, value in more.items() if value is not None},
    )
    return door, door.calls[0].input.contents()


MADE: dict[str, tuple[Any, list[Door]]] = {}


def clients_by(protocol: str, door: Door) -> Any:
    """A client is expensive: each protocol has one, whose requests the newest door answers."""
    if protocol not in MADE:
        doors = [door]

        class Newest(Door):
            def send(self, request, **given):
                return doors[-1].send(request, **given)

        MADE[protocol] = CLIENT_OF(protocol, Newest()), doors
    client, doors = MADE[protocol]
    doors[:] = [door]
    return client


@given(
    protocol=st.sampled_from(PROTOCOLS),
    body=BODIES,
    attributes=ATTRIBUTES,
    group=IDS,
    once=IDS,
    delay=st.none() | st.integers(0, 900),
)
def test_every_message_arrives_as_it_is_sent(  # noqa: PLR0913, PLR0917 (the parts of a message)
    protocol, body, attributes, group, once, delay
):
    _, contents = sent(
        protocol,
        body,
        attributes,
        MessageGroupId=group,
        MessageDeduplicationId=once,
        DelaySeconds=delay,
    )

    assert (contents.body.decode(), contents.attributes) == (body, attributes)
    assert (contents.group, contents.deduplication_id, contents.delay) == (group, once, delay)
    assert contents.size == len(body.encode()) + size_of(attributes)


@given(protocol=st.sampled_from(PROTOCOLS), body=BODIES, attributes=ATTRIBUTES)
@example(protocol="query", body="\r\n \r", attributes={"a": Attribute("String", "\r\n")})
@example(protocol="query", body=" ", attributes={"a": Attribute("String", " ")})
def test_every_message_is_received_as_it_is_answered(protocol, body, attributes):
    message = {"MessageId": "m", "ReceiptHandle": "r", "MD5OfBody": "5", "Body": body}
    if attributes:
        message["MessageAttributes"] = outputs_of(attributes)
    door = Door(answer={"Messages": [message]})

    answer = clients_by(protocol, door).receive_message(QueueUrl=URL)

    assert answer["Messages"] == [message]


@given(attributes=ATTRIBUTES, sender=IDS, trace=st.none() | BODIES, once=IDS)
def test_headers_hold_all_of_a_message(attributes, sender, trace, once):
    extras = Extras(sender=sender, trace=trace, deduplication_id=once)

    headers = to_headers(attributes, extras)

    assert from_headers(headers) == (attributes, extras)
    assert set(headers) - set(attributes) <= {RESERVED}
    assert all(
        headers[name] == each.value for name, each in attributes.items() if not each.is_binary
    )


@given(
    headers=st.dictionaries(st.text(max_size=10), st.none() | st.text(max_size=10), max_size=4),
    reserved=st.none()
    | st.text(max_size=20)
    | st.dictionaries(
        st.sampled_from(["types", "sender", "trace", "dedup", "x"]),
        st.none()
        | st.integers()
        | st.text()
        | st.lists(st.text())
        | st.dictionaries(
            st.text(max_size=10),
            st.none() | st.sampled_from(["Binary", "Number", "", "x", "\ud800", "String.\ud800"]),
            max_size=3,
        ),
    ).map(json.dumps),
)
def test_headers_that_other_programs_write_are_read(headers, reserved):
    attributes, extras = from_headers({**headers, RESERVED: reserved})

    own = {
        texts.with_xml_characters(name)
        for name, value in headers.items()
        if value is not None and not name.startswith("cassieq.")
    }
    assert set(attributes) == own
    assert isinstance(extras, Extras)
    assert bool(digest_of(attributes)) == bool(attributes)
    told = [extras.sender, extras.trace, extras.deduplication_id, *attributes]
    told += [part for each in attributes.values() for part in each if isinstance(part, str)]
    assert all(texts.is_xml(each) for each in told if each is not None)
    assert selected(attributes, ["All"]) == attributes


@given(st.dictionaries(NAMES, VALUES, min_size=2, max_size=4))
def test_every_part_of_an_attribute_is_in_the_digest(attributes):
    digests = {digest_of(attributes)}
    for name, each in attributes.items():
        rest = {other: attributes[other] for other in attributes if other != name}
        digests |= {
            digest_of(rest),
            digest_of({**rest, name: each._replace(type=each.type + "x")}),
            digest_of({**rest, name: each._replace(value=each.value * 2)}),
            digest_of({**rest, name + "x-": each}),
        }

    assert len(digests) == 1 + 4 * len(attributes)
    assert digest_of(dict(reversed(attributes.items()))) == digest_of(attributes)


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=8,
)
MEMBERS = sorted(
    {name for each in OPERATIONS.values() for name in each.input.model_fields}
    | {"Id", "MessageBody", "DataType", "StringValue", "BinaryValue", "StringListValues"}
)
#: Values that come near to what is expected.
NEAR = st.one_of(
    JSON_VALUES,
    st.sampled_from([URL, "arn:aws:sqs:r:acme:orders", "a", "-1", "11", "99999999999999999999"]),
    st.lists(
        st.dictionaries(
            st.sampled_from(MEMBERS), JSON_VALUES | st.sampled_from([URL, "a"]), max_size=5
        ),
        max_size=3,
    ),
    st.dictionaries(
        st.text(max_size=5), st.dictionaries(st.sampled_from(MEMBERS), JSON_VALUES), max_size=3
    ),
)
JSON_BODIES = st.one_of(
    st.binary(max_size=60),
    JSON_VALUES.map(lambda it: json.dumps(it).encode()),
    st.dictionaries(st.sampled_from(MEMBERS), NEAR, max_size=8).map(
        lambda it: json.dumps(it).encode()
    ),
)


def answered(request: Received, body: bytes) -> Any:
    """The answer to a request; whatever is sent, it is an answer."""
    protocol = protocol_of(request)
    try:
        call = protocol.decode(request, body)
        if call.operation.name == "SendMessage":
            call.input.contents()
        answer = protocol.encode(call.operation, {}, STAMP)
    except SqsError as error:
        answer = protocol.refuse(error, STAMP)
    assert answer.status < 500
    assert all((name + value).isprintable() for name, value in answer.headers.items())
    return answer


@given(name=st.sampled_from(sorted(OPERATIONS)) | st.text(max_size=10), body=JSON_BODIES)
def test_a_strangers_json_has_an_answer_of_sqs(name, body):
    target = b"AmazonSQS." + name.encode(errors="replace")

    answer = answered(Received("POST", b"/", b"", [(b"x-amz-target", target)]), body)

    assert isinstance(json.loads(answer.body or b"{}"), dict)


FORM = Received("POST", b"/", b"", [])
PARTS = st.sampled_from(
    [*MEMBERS, "Attribute", "AttributeName", "MessageAttribute", "Tag", "TagKey", "Name", "Value"]
    + [f"{each}RequestEntry" for each in ("SendMessageBatch", "DeleteMessageBatch")]
    + ["1", "2", "0", "-1", "", "01", "9999999", "ä"]
)
FORMS = st.one_of(
    st.binary(max_size=60),
    st.lists(
        st.tuples(st.lists(PARTS, min_size=1, max_size=8).map(".".join), st.text(max_size=5)),
        max_size=8,
    ).map(lambda it: urlencode(it).encode()),
)


@given(
    name=st.sampled_from(sorted(OPERATIONS)) | st.text(max_size=10),
    form=FORMS,
    in_url=st.booleans(),
)
def test_a_strangers_form_has_an_answer_of_sqs(name, form, in_url):
    form = f"Action={quote(name, errors='replace')}&".encode() + form
    query, body = (form, b"") if in_url else (b"", form)

    answer = answered(Received("POST", b"/acme/orders", query, []), body)

    assert ET.fromstring(answer.body).tag.startswith(NAMESPACE)


@given(value=st.text(st.characters(codec="utf-8")), safe=st.sampled_from(["", "=%;/?\n\r \t~"]))
@example(value="=\n=\r\n==%3D% \t", safe="=\n\r \t")
def test_every_text_of_a_form_is_read_as_it_was_sent(value, safe):
    form = "Action=ListQueues&QueueNamePrefix=" + quote(value, safe.replace("%", ""))

    call = protocol_of(FORM).decode(FORM, form.encode())

    assert call.input.QueueNamePrefix == value


@given(st.binary(max_size=20) | st.text().map(str.encode))
@example("\ufffe\uffff\x00\x1f\t\n\r ".encode() + b"\xed\xa0\x80\xe2\x82\x00\xe2\x82")
def test_bytes_are_text_with_marks_where_they_are_not(value):
    text = "".join(
        each if texts.is_xml(each) else "\ufffd" for each in value.decode(errors="replace")
    )

    assert texts.text_of(value) == text
    assert texts.with_xml_characters(value.decode(errors="replace")) == text


@given(text=st.text(), path=st.binary(max_size=30), url=st.text(max_size=30))
def test_whatever_an_answer_says_is_xml(text, path, url):
    for protocol in PROTOCOLS:
        headers = [(b"x-amz-target", b"AmazonSQS.DeleteQueue")] if protocol == "json" else []
        request = Received("POST", path, b"", headers)
        json_body = json.dumps({"QueueUrl": url}).encode()
        form = b"Action=DeleteQueue&QueueUrl=" + quote(url, errors="replace").encode()
        answer = answered(request, json_body if headers else form)
        refused = protocol_of(request).refuse(InternalFailure(text), STAMP)

        for each in (answer, refused):
            parsed = json.loads(each.body or b"{}") if headers else ET.fromstring(each.body)
            assert parsed is not None


@given(
    values=st.dictionaries(
        st.sampled_from(sorted(SETTABLE)) | st.text(max_size=5),
        st.text(max_size=10)
        | st.integers(-10, 2_000_000).map(str)
        | st.sampled_from(["true", "false", "queue", "perMessageGroupId"])
        | JSON_VALUES.map(json.dumps),
        max_size=4,
    )
)
def test_attributes_of_queues_are_taken_or_refused(values):
    try:
        taken = new_attributes(values)
    except SqsError:
        return
    # What is stored is valid, and changes nothing if it is set again.
    assert new_attributes(taken) == taken
    assert changed_attributes(taken, taken) == taken


@given(policy=st.text(max_size=20) | JSON_VALUES.map(json.dumps))
@pytest.mark.parametrize("kind", [RedrivePolicy, RedriveAllowPolicy])
def test_no_policy_fails_otherwise_than_by_an_error_of_sqs(kind, policy):
    with pytest.raises(SqsError):
        kind.parse(policy)


@given(st.integers(1, 1_000), st.booleans())
def test_a_redrive_policy_has_a_number_or_the_same_as_text(most, as_text):
    policy = {
        "deadLetterTargetArn": "arn:aws:sqs:us-east-1:acme:dead",
        "maxReceiveCount": str(most) if as_text else most,
    }

    parsed = RedrivePolicy.parse(json.dumps(policy))

    assert (parsed.target.queue, parsed.most) == ("dead", most)


@given(
    method=st.sampled_from(["GET", "POST"]),
    path=st.lists(st.text(alphabet="aA0-._~%&+=:@!$'()*,;/", min_size=0, max_size=8), max_size=4),
    query=st.lists(st.tuples(st.text(max_size=5), st.text(max_size=5)), max_size=4),
    body=st.binary(max_size=20),
    value=st.text(alphabet=st.characters(min_codepoint=32, max_codepoint=126), max_size=10),
    expires=st.sampled_from([None, 60]),
)
def test_whatever_botocore_signs_is_taken(  # noqa: PLR0913, PLR0917 (the parts of a request)
    method, path, query, body, value, expires
):
    request = AWSRequest(
        method,
        ENDPOINT + "/" + "/".join(path).replace("%", "%25"),
        headers={"x-amz-meta": value},
        params=dict(query),
        # Of a URL, botocore signs no body.
        data=body if expires is None else b"",
    )
    signer = SigV4Auth if expires is None else SigV4QueryAuth
    more = {} if expires is None else {"expires": expires}
    signer(Credentials(KEY_ID, SECRET), "sqs", "any", **more).add_auth(request)

    arrived, sent = received(request.prepare())

    claim_of(arrived, datetime.now(UTC)).signer([SECRET], digest(sent))


@given(
    authorization=st.one_of(
        st.binary(max_size=200),
        st.text(alphabet="AWS4-HMACSHA256 Credential=,SignedHeadersSignature/;", max_size=300).map(
            str.encode
        ),
    ),
    query=st.binary(max_size=100),
    date=st.binary(max_size=20),
)
def test_no_signature_fails_otherwise_than_by_an_error_of_sqs(authorization, query, date):
    headers = [(b"host", b"h"), (b"authorization", authorization), (b"x-amz-date", date)]

    with pytest.raises(SqsError):
        claim_of(Received("POST", b"/", query, headers), datetime.now(UTC))
