"""Requests by hand: paths, types of contents, odd forms and limits, in both protocols."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from cassieq_spark.http.sqs.addresses import QueueAddress
from cassieq_spark.http.sqs.errors import (
    InvalidAddress,
    InvalidParameterValue,
    MalformedBody,
    MalformedQueryString,
    MissingAction,
    MissingRequiredParameter,
    QueueDoesNotExist,
    RequestTooLarge,
    SqsError,
    UnknownOperation,
)
from cassieq_spark.http.sqs.json_protocol import JSON
from cassieq_spark.http.sqs.operations import OPERATIONS, Call
from cassieq_spark.http.sqs.query_protocol import QUERY, protocol_of
from cassieq_spark.http.sqs.texts import text_of
from cassieq_spark.http.sqs.wire import Received, Stamp

FORM = (b"content-type", b"application/x-www-form-urlencoded")
STAMP = Stamp("7", datetime(2026, 11, 27, tzinfo=UTC))
ORDERS = QueueAddress("acme", "orders")


def by_json(name: str, body: Any = b"{}", path: bytes = b"/", query: bytes = b"") -> Call:
    headers = [(b"x-amz-target", f"AmazonSQS.{name}".encode())]
    body = body if isinstance(body, bytes) else json.dumps(body).encode()
    return JSON.decode(Received("POST", path, query, headers), body)


def by_query(form: str, path: bytes = b"/", query: bytes = b"") -> Call:
    return QUERY.decode(Received("POST", path, query, [FORM]), form.encode())


@pytest.mark.parametrize(
    ("headers", "protocol"),
    [
        ([(b"x-amz-target", b"AmazonSQS.ListQueues")], JSON),
        ([(b"x-amz-target", b"AmazonSQS.ListQueues"), FORM], JSON),
        ([(b"content-type", b"application/x-amz-json-1.0")], JSON),
        ([(b"content-type", b"Application/X-AMZ-JSON-1.1; charset=utf-8")], JSON),
        ([FORM], QUERY),
        ([], QUERY),
    ],
)
def test_the_headers_say_which_protocol_it_is(headers, protocol):
    assert protocol_of(Received("POST", b"/", b"", headers)) is protocol


@pytest.mark.parametrize(
    ("path", "url", "queue"),
    [
        (b"/", "http://host/acme/orders", ORDERS),
        (b"/other/queue", "http://host/acme/orders", ORDERS),
        (b"/acme/orders", None, ORDERS),
        (b"/acme/orders/", None, ORDERS),
        (b"/acme/orders", "", ORDERS),
        (b"/some/prefix/acme/orders", None, ORDERS),
        (b"/", "https://sqs.eu-central-1.amazonaws.com/acme/orders", ORDERS),
        (b"/", "http://localhost:4566/queue/eu-central-1/acme/orders", ORDERS),
        (b"/", "acme/orders", ORDERS),
        (b"/acme/orders.fifo", None, QueueAddress("acme", "orders.fifo")),
        (b"/acme/orders%7Ebilling", None, QueueAddress("acme", "orders~billing")),
        (b"/", "http://h/000000000000/a_-.~b", QueueAddress("000000000000", "a_-.~b")),
    ],
)
def test_queue_urls_and_paths_name_queues_and_urls_come_first(path, url, queue):
    given = {} if url is None else {"QueueUrl": url}
    parameter = "" if url is None else f"&QueueUrl={url}"

    assert by_json("PurgeQueue", given, path).queue == queue
    assert by_query(f"Action=PurgeQueue{parameter}", path).queue == queue


@pytest.mark.parametrize(
    ("path", "url", "error"),
    [
        (b"/", None, MissingRequiredParameter),
        (b"/orders", None, MissingRequiredParameter),
        (b"/", "orders", InvalidAddress),
        (b"/", "http://host/orders", InvalidAddress),
        (b"/", "http://[host/acme/orders", InvalidAddress),
        (b"/", "http://host/" + "a" * 3_000, InvalidAddress),
        (b"/", "http://host/acme/a b", QueueDoesNotExist),
        (b"/acme/a%00b", None, QueueDoesNotExist),
        (b"/acme/%FF", None, QueueDoesNotExist),
        (b"/ac%2Fme/orders", None, QueueDoesNotExist),
        (b"/" + b"a/" * 9_000, None, QueueDoesNotExist),
    ],
)
def test_other_urls_and_paths_are_refused(path, url, error):
    given = {} if url is None else {"QueueUrl": url}
    parameter = "" if url is None else f"&QueueUrl={url}"

    for call in (
        lambda: by_json("PurgeQueue", given, path),
        lambda: by_query(f"Action=PurgeQueue{parameter}", path),
    ):
        with pytest.raises(error):
            call()


def test_the_address_in_an_error_is_the_one_that_was_sent():
    with pytest.raises(InvalidAddress) as caught:
        by_json("PurgeQueue", {"QueueUrl": "http://host/orders"})

    assert str(caught.value) == "The address http://host/orders is not valid for this endpoint."


def test_an_operation_without_a_queue_ignores_the_path():
    assert by_json("ListQueues", path=b"/acme/orders").queue is None


@pytest.mark.parametrize("target", ["ListQueue", "listQueues", "", "__class__"])
def test_other_operations_are_refused(target):
    with pytest.raises(UnknownOperation, match=f"The action {target} is not valid for this endp"):
        by_json(target)
    with pytest.raises((UnknownOperation, MissingAction)):
        by_query(f"Action={target}")


@pytest.mark.parametrize(
    "headers",
    [[], [(b"content-type", b"application/x-amz-json-1.0")], [(b"x-amz-target", b"")]],
)
def test_a_request_names_an_operation(headers):
    request = Received("POST", b"/", b"", headers)

    with pytest.raises(MissingAction):
        protocol_of(request).decode(request, b"")


def test_the_target_of_another_service_is_refused():
    with pytest.raises(UnknownOperation):
        JSON.decode(Received("POST", b"/", b"", [(b"x-amz-target", b"AmazonSNS.Publish")]), b"{}")


def test_no_body_is_an_empty_object():
    assert by_json("ListQueues", b"").input.model_dump(exclude_none=True) == {}


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b"[]",
        b"null",
        b"\xff",
        b'{"MaxResults":"1"}',
        b'{"MaxResults":1.5}',
        b'{"MaxResults":true}',
        b'{"MaxResults":1e400}',
        b'{"QueueNamePrefix":1}',
        b'{"QueueNamePrefix":"\\ud800"}',
        b'{"QueueNamePrefix":["a"]}',
        b'{"a":' * 1_500 + b"1" + b"}" * 1_500,
    ],
)
def test_json_of_another_kind_is_refused(body):
    with pytest.raises(MalformedBody) as caught:
        by_json("ListQueues", body)

    assert (caught.value.shape, caught.value.status) == ("SerializationException", 400)


def test_null_is_the_absence_of_a_parameter():
    assert by_json("ListQueues", {"MaxResults": None}).input.MaxResults is None
    with pytest.raises(MissingRequiredParameter, match="parameter ReceiptHandle"):
        by_json("DeleteMessage", {"QueueUrl": "h/a/b", "ReceiptHandle": None})


@pytest.mark.parametrize(
    "body",
    [
        b'{"a":[' + b"1," * 500_000 + b"1]}",
        b"[" * 1_000_000,
        b'{"Attributes":{' + b",".join(b'"%d":1' % n for n in range(100_000)) + b"}}",
        b'{"a":"' + b'\\"' * 500_000,
    ],
)
def test_large_json_costs_little(body):
    began = time.process_time()
    with pytest.raises(SqsError):
        by_json("CreateQueue", body)

    # A parser would need much longer for what it is sent there.
    assert time.process_time() - began < 0.5


def test_a_message_may_have_as_many_commas_as_it_likes():
    call = by_json("SendMessage", {"QueueUrl": "h/a/b", "MessageBody": ",[{" * 100_000})

    assert len(call.input.MessageBody) == 300_000


def test_a_form_may_be_in_the_url():
    request = Received("GET", b"/acme/orders", b"Action=ReceiveMessage&WaitTimeSeconds=1", [])

    call = QUERY.decode(request, b"")

    assert (call.input.WaitTimeSeconds, call.queue) == (1, ORDERS)


def test_a_signature_in_the_url_is_no_parameter():
    query = b"X-Amz-Signature=1&X-Amz-Date=2&X-Amz-Date.1=3&Action=ListQueues"

    assert QUERY.decode(Received("GET", b"/", query, []), b"").operation.name == "ListQueues"


def test_old_clients_send_more_than_is_needed():
    form = "Action=ListQueues&Version=2009-02-01&SignatureVersion=4&Timestamp=x&Foo.1.Bar=x"

    assert by_query(form).input.model_dump(exclude_none=True) == {}


def test_a_list_of_one_needs_no_number():
    call = by_query("Action=GetQueueAttributes&AttributeName=All", b"/acme/orders")

    assert call.input.AttributeNames == ["All"]


@pytest.mark.parametrize("name", ["Tags", "Tag"])
def test_tags_go_by_the_name_of_the_list_or_of_its_items(name):
    """SDKs send the first, as that of Java does; AWS documents the second."""
    form = f"Action=TagQueue&{name}.1.Key=team&{name}.1.Value=shop"

    assert by_query(form, b"/acme/orders").input.Tags == {"team": "shop"}


def test_numbers_say_the_order_and_may_have_gaps():
    form = "Action=UntagQueue&TagKey.10=c&TagKey.2=b&TagKey.01=a"

    assert by_query(form, b"/acme/orders").input.TagKeys == ["a", "b", "c"]


def test_a_plus_is_a_space_and_text_is_utf_8():
    call = by_query("Action=ListQueues&QueueNamePrefix=a+%C3%A4%2B")

    assert call.input.QueueNamePrefix == "a ä+"


@pytest.mark.parametrize(
    "form",
    [
        "QueueNamePrefix=%FF",
        "MaxResults=1&MaxResults=1",
        "Attribute.1=x&Attribute.1.Name=y",
        "Attribute=x&Attribute.1.Name=y",
        "Attribute.x.Name=y",
        "Attribute.-1.Name=y",
        "Attribute.1.Value=y",
        "Attribute.1=y",
        "Attribute.1.Name.x=y",
        "Attribute.1.Name=y&Attribute.1.Value.StringValue=x",
        "QueueName.1=x",
        "QueueName=a&Attribute.1.Name=b",
    ],
)
def test_a_contradicting_form_is_refused(form):
    with pytest.raises((MalformedQueryString, MissingRequiredParameter)):
        by_query(f"Action=CreateQueue&{form}")


def test_an_error_names_no_class():
    with pytest.raises(MalformedQueryString) as caught:
        by_query("Action=DeleteMessageBatch&DeleteMessageBatchRequestEntry.1=x", b"/a/b")

    assert str(caught.value) == "Entries.0: Input should be a valid dictionary"


@pytest.mark.parametrize("value", ["x", "", "1.0", "1_0", "²", "9" * 100])
def test_other_numbers_of_a_form_are_refused(value):
    with pytest.raises(InvalidParameterValue, match="for parameter MaxResults is invalid"):
        by_query(f"Action=ListQueues&MaxResults={value}")


@pytest.mark.parametrize("form", ["QueueNamePrefix=%", "QueueNamePrefix=%4", "%zz=1", "%%41=1"])
def test_a_percent_sign_that_escapes_nothing_is_refused(form):
    with pytest.raises(MalformedQueryString, match="percent sign"):
        by_query(f"Action=ListQueues&{form}")


@pytest.mark.parametrize(
    "form",
    [
        "&" * 1_000_000,
        "Attribute." * 100_000,
        "Attribute.1.Name=" + "%41" * 2_400_000,
        "Attribute.1.Name=" + "%C3%A4" * 1_200_000,
        "Attribute.1.Name=" + "%41" * 2_400_000 + "%",
        "a" + ".1" * 500_000 + "=1",
        "&".join(f"Attribute.{n}.Name=x" for n in range(100_000)),
    ],
)
def test_large_forms_cost_little(form):
    began = time.process_time()
    with pytest.raises(SqsError):
        by_query(f"Action=CreateQueue&{form}")

    assert time.process_time() - began < 0.5


def test_a_form_of_too_many_parameters_is_refused():
    with pytest.raises(RequestTooLarge) as caught:
        by_query("&a=1" * 3_000)

    assert caught.value.status == 413


@pytest.mark.parametrize("name", OPERATIONS)
def test_an_empty_result_is_one_tag_without_space(name):
    body = QUERY.encode(OPERATIONS[name], {}, STAMP).body.decode()

    result = f"<{name}Result/>" if OPERATIONS[name].has_output else ""
    assert body == (
        f'<?xml version="1.0"?><{name}Response xmlns="http://queue.amazonaws.com/doc/2012-11-05/">'
        f"{result}<ResponseMetadata><RequestId>7</RequestId></ResponseMetadata></{name}Response>"
    )


def test_a_carriage_return_survives_xml():
    message = {"MessageId": "m", "Body": "a\r\nb\rc", "ReceiptHandle": "r", "MD5OfBody": "5"}

    body = QUERY.encode(OPERATIONS["ReceiveMessage"], {"Messages": [message]}, STAMP).body

    assert b"a&#xD;\nb&#xD;c" in body
    assert ET.fromstring(body).find(".//{*}Body").text == "a\r\nb\rc"


@pytest.mark.parametrize("value", [b"\0" * (4 << 20), b"a\0" * (2 << 20), b"\xff" * (4 << 20)])
def test_a_body_that_is_no_text_costs_little(value):
    began = time.process_time()

    QUERY.encode(OPERATIONS["ListQueueTags"], {"Tags": {"a": text_of(value)}}, STAMP)

    assert time.process_time() - began < 0.5


def test_an_error_in_xml_is_that_of_aws():
    answer = QUERY.refuse(QueueDoesNotExist(), STAMP)

    assert answer.status == 400
    assert answer.headers == {
        "Content-Type": "text/xml",
        "Date": "Fri, 27 Nov 2026 00:00:00 GMT",
        "x-amzn-RequestId": "7",
    }
    assert answer.body.decode() == (
        '<?xml version="1.0"?><ErrorResponse xmlns="http://queue.amazonaws.com/doc/2012-11-05/">'
        "<Error><Type>Sender</Type><Code>AWS.SimpleQueueService.NonExistentQueue</Code><Message>"
        "The specified queue does not exist for this wsdl version.</Message><Detail/></Error>"
        "<RequestId>7</RequestId></ErrorResponse>"
    )


def test_an_answer_in_json_is_utf_8():
    answer = JSON.encode(OPERATIONS["ListQueueTags"], {"Tags": {"k": "\ufffd" * 1_000}}, STAMP)

    assert len(answer.body) < 3_100
    assert json.loads(answer.body) == {"Tags": {"k": "\ufffd" * 1_000}}


def test_an_error_in_json_is_that_of_aws():
    answer = JSON.refuse(QueueDoesNotExist(), STAMP)

    assert answer.status == 400
    assert answer.headers == {
        "Content-Type": "application/x-amz-json-1.0",
        "Date": "Fri, 27 Nov 2026 00:00:00 GMT",
        "x-amzn-RequestId": "7",
        "x-amzn-query-error": "AWS.SimpleQueueService.NonExistentQueue;Sender",
    }
    assert json.loads(answer.body) == {
        "__type": "com.amazonaws.sqs#QueueDoesNotExist",
        "message": "The specified queue does not exist.",
    }
