from __future__ import annotations

from typing import Any

import pytest

from cassieq_spark.http.sqs.contents import Contents
from cassieq_spark.http.sqs.errors import (
    InvalidMessageContents,
    InvalidParameterValue,
    MissingRequiredParameter,
    SqsError,
)
from cassieq_spark.http.sqs.inputs import NewMessage
from cassieq_spark.http.sqs.message_attributes import RESERVED, Attribute

TEXT = {"DataType": "String", "StringValue": "x"}
TRACE = {"AWSTraceHeader": {"DataType": "String", "StringValue": "Root=1-5759e988"}}


def contents_of(**given: Any) -> Contents:
    return NewMessage.model_validate({"MessageBody": "x", **given}).contents()


def test_an_empty_body_is_refused():
    with pytest.raises(MissingRequiredParameter) as caught:
        contents_of(MessageBody="")

    assert str(caught.value) == "The request must contain the parameter MessageBody."


@pytest.mark.parametrize("body", ["\x00", "a\x1f", "\x0b", "\ufffe", "\uffff", "\ud800"])
def test_characters_that_xml_has_not_are_refused(body):
    with pytest.raises(InvalidMessageContents, match="Invalid characters found"):
        contents_of(MessageBody=body)


@pytest.mark.parametrize("body", ["\t\n\r", "\ud7ff\ue000\ufffd\U0010ffff", "\x7f\x85"])
def test_all_characters_of_xml_are_taken(body):
    assert contents_of(MessageBody=body).body == body.encode()


@pytest.mark.parametrize("delay", [-1, 901])
def test_a_delay_is_a_quarter_of_an_hour_at_most(delay):
    with pytest.raises(InvalidParameterValue) as caught:
        contents_of(DelaySeconds=delay)

    assert str(caught.value) == (
        f"Value {delay} for parameter DelaySeconds is invalid. Reason: DelaySeconds must be >= 0 "
        "and <= 900."
    )
    assert contents_of(DelaySeconds=900).delay == 900


@pytest.mark.parametrize("name", ["MessageGroupId", "MessageDeduplicationId"])
@pytest.mark.parametrize("given", ["", "group 123", "x" * 129, "ä", "a\n"])
def test_other_ids_are_refused(name, given):
    with pytest.raises(InvalidParameterValue) as caught:
        contents_of(**{name: given})

    assert str(caught.value) == (
        f"Value {given} for parameter {name} is invalid. Reason: {name} can only include "
        "alphanumeric and punctuation characters. 1 to 128 in length."
    )


@pytest.mark.parametrize("lists", [{"StringListValues": ["a"]}, {"BinaryListValues": ["YQ=="]}])
def test_lists_are_refused_as_by_aws(lists):
    with pytest.raises(InvalidParameterValue, match="list values in SendMessage"):
        contents_of(MessageAttributes={"a": {**TEXT, **lists}})


def test_bytes_are_base64():
    with pytest.raises(InvalidParameterValue, match="Base64"):
        contents_of(MessageAttributes={"a": {"DataType": "Binary", "BinaryValue": "%"}})


@pytest.mark.parametrize(
    "system",
    [
        {"SenderId": TEXT},
        {"AWSTraceHeader": {"DataType": "String", "StringValue": ""}},
        {"AWSTraceHeader": {"DataType": "Binary", "BinaryValue": "YQ=="}},
    ],
)
def test_the_trace_header_is_the_only_attribute_of_the_system_to_be_sent(system):
    with pytest.raises(InvalidParameterValue):
        contents_of(MessageSystemAttributes=system)


def test_answers_have_the_digests_that_sdks_check():
    contents = contents_of(
        MessageBody="test",
        MessageAttributes={"timestamp": {"DataType": "Number", "StringValue": "1493147359900"}},
        MessageSystemAttributes={
            "AWSTraceHeader": {
                "DataType": "String",
                "StringValue": "Root=1-5759e988-bd862e3fe1be46a994272793;"
                "Parent=53995c3f42cd8ad8;Sampled=1",
            }
        },
    )

    # As AWS answers.
    assert contents.answer("m", "7") == {
        "MessageId": "m",
        "MD5OfMessageBody": "098f6bcd4621d373cade4e832627b4f6",
        "MD5OfMessageAttributes": "235c5c510d26fb653d073faed50ae77c",
        "MD5OfMessageSystemAttributes": "5ae4d5d7636402d80f4eb6d213245a88",
        "SequenceNumber": "7",
    }


def test_a_message_without_attributes_has_no_other_digests():
    assert contents_of(MessageBody="test").answer("m") == {
        "MessageId": "m",
        "MD5OfMessageBody": "098f6bcd4621d373cade4e832627b4f6",
    }


def test_headers_say_who_sent_the_message():
    contents = contents_of(
        MessageAttributes={"a": TEXT},
        MessageSystemAttributes=TRACE,
        MessageDeduplicationId="once",
    )

    assert contents.headers("acme:owner") == {
        "a": "x",
        RESERVED: '{"sender":"acme:owner","trace":"Root=1-5759e988","dedup":"once"}',
    }


def test_body_names_types_and_values_count_against_the_limit():
    contents = Contents("ä".encode(), {"name": Attribute("Binary", b"123")})

    contents.check_size(15)

    with pytest.raises(InvalidParameterValue) as caught:
        contents.check_size(14)
    assert str(caught.value) == (
        "One or more parameters are invalid. Reason: Message must be shorter than 14 bytes."
    )


STANDARD, FIFO, BY_CONTENT = (False, False), (True, False), (True, True)
GROUP, ONCE = {"MessageGroupId": "g"}, {"MessageDeduplicationId": "d"}


@pytest.mark.parametrize(
    ("queue", "given"),
    [
        (STANDARD, {}),
        (STANDARD, {"DelaySeconds": 5}),
        # For fair queues, since July 2025.
        (STANDARD, GROUP),
        (FIFO, {**GROUP, **ONCE}),
        (FIFO, {**GROUP, **ONCE, "DelaySeconds": 0}),
        (BY_CONTENT, GROUP),
        (BY_CONTENT, {**GROUP, **ONCE}),
    ],
)
def test_a_message_fits_its_type_of_queue(queue, given):
    is_fifo, by_content = queue

    contents_of(**given).check_for(is_fifo=is_fifo, by_content=by_content)


@pytest.mark.parametrize(
    ("queue", "given", "code", "why"),
    [
        (
            STANDARD,
            ONCE,
            "InvalidParameterValue",
            (
                "Value d for parameter MessageDeduplicationId is invalid. Reason: The request "
                "includes a parameter that is not valid for this queue type."
            ),
        ),
        (
            FIFO,
            ONCE,
            "MissingParameter",
            "The request must contain the parameter MessageGroupId.",
        ),
        (
            FIFO,
            GROUP,
            "InvalidParameterValue",
            (
                "The queue should either have ContentBasedDeduplication enabled or "
                "MessageDeduplicationId provided explicitly"
            ),
        ),
        (
            BY_CONTENT,
            {**GROUP, "DelaySeconds": 2},
            "InvalidParameterValue",
            (
                "Value 2 for parameter DelaySeconds is invalid. Reason: The request include "
                "parameter that is not valid for this queue type."
            ),
        ),
    ],
)
def test_a_message_of_another_type_of_queue_is_refused(queue, given, code, why):
    is_fifo, by_content = queue

    with pytest.raises(SqsError) as caught:
        contents_of(**given).check_for(is_fifo=is_fifo, by_content=by_content)

    assert (caught.value.code, str(caught.value)) == (code, why)
