"""AWS's own client is the oracle: what it sends is what we read, and it reads what we answer."""

from __future__ import annotations

import json
from email.utils import parsedate_to_datetime
from typing import Any

import pytest
from botocore.exceptions import ClientError
from botocore.session import Session

from cassieq_spark.http.sqs import errors
from cassieq_spark.http.sqs.addresses import QueueAddress
from cassieq_spark.http.sqs.errors import QueueDoesNotExist, SqsError
from cassieq_spark.http.sqs.operations import OPERATIONS
from tests.support.sqs import ENDPOINT, REQUEST_ID, URL

ARN = "arn:aws:sqs:eu-central-1:acme:orders"
TEXT = {"DataType": "String", "StringValue": "ä & <b>\r\n\t\U0001f600"}
NUMBER = {"DataType": "Number.int", "StringValue": "-12.5e3"}
BYTES = {"DataType": "Binary.png", "BinaryValue": b"\x00\xff\r\n"}
TRACE = {"AWSTraceHeader": {"DataType": "String", "StringValue": "Root=1-5759e988"}}
MESSAGE = {
    "MessageBody": " body + %20 & = <b>\r\n\U0001f600 ",
    "DelaySeconds": 0,
    "MessageAttributes": {"text": TEXT, "number.of": NUMBER, "bytes": BYTES},
    "MessageSystemAttributes": TRACE,
    "MessageDeduplicationId": "once!",
    "MessageGroupId": "group-1",
}
FAILED = {"Id": "b", "SenderFault": True, "Code": "InvalidParameterValue", "Message": "bad <\r"}
DONE = {"Successful": [{"Id": "a"}], "Failed": [FAILED]}
OF_QUEUE = {"QueueUrl": URL}

#: By operation: an input with every parameter, and an output with every member.
EXAMPLES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "AddPermission": (
        {
            **OF_QUEUE,
            "Label": "others",
            "AWSAccountIds": ["111111111111", "other"],
            "Actions": ["SendMessage", "*"],
        },
        {},
    ),
    "CancelMessageMoveTask": ({"TaskHandle": "h=="}, {"ApproximateNumberOfMessagesMoved": 7}),
    "ChangeMessageVisibility": ({**OF_QUEUE, "ReceiptHandle": "r", "VisibilityTimeout": 0}, {}),
    "ChangeMessageVisibilityBatch": (
        {
            **OF_QUEUE,
            "Entries": [
                {"Id": "a", "ReceiptHandle": "r/1+=", "VisibilityTimeout": 43_200},
                {"Id": "b", "ReceiptHandle": "r2", "VisibilityTimeout": 0},
            ],
        },
        DONE,
    ),
    "CreateQueue": (
        {
            "QueueName": "orders",
            "Attributes": {"DelaySeconds": "5", "VisibilityTimeout": "60"},
            "tags": {"team": "ä", "empty": ""},
        },
        {"QueueUrl": URL},
    ),
    "DeleteMessage": ({**OF_QUEUE, "ReceiptHandle": "r/1+="}, {}),
    "DeleteMessageBatch": (
        {**OF_QUEUE, "Entries": [{"Id": str(n), "ReceiptHandle": f"r{n}"} for n in range(10)]},
        DONE,
    ),
    "DeleteQueue": (OF_QUEUE, {}),
    "GetQueueAttributes": (
        {**OF_QUEUE, "AttributeNames": ["QueueArn", "All"]},
        {"Attributes": {"QueueArn": ARN, "RedrivePolicy": '{"maxReceiveCount": "3"}'}},
    ),
    "GetQueueUrl": (
        {"QueueName": "orders", "QueueOwnerAWSAccountId": "acme"},
        {"QueueUrl": URL},
    ),
    "ListDeadLetterSourceQueues": (
        {**OF_QUEUE, "NextToken": "t", "MaxResults": 1_000},
        {"queueUrls": [URL, URL + "2"], "NextToken": "u"},
    ),
    "ListMessageMoveTasks": (
        {"SourceArn": ARN, "MaxResults": 10},
        {
            "Results": [
                {
                    "TaskHandle": "h",
                    "Status": "RUNNING",
                    "SourceArn": ARN,
                    "DestinationArn": ARN + "2",
                    "MaxNumberOfMessagesPerSecond": 500,
                    "ApproximateNumberOfMessagesMoved": 1,
                    "ApproximateNumberOfMessagesToMove": 2,
                    "FailureReason": "none",
                    "StartedTimestamp": 1_795_000_000_000,
                },
                {"Status": "COMPLETED", "SourceArn": ARN},
            ]
        },
    ),
    "ListQueueTags": (OF_QUEUE, {"Tags": {"team": "ä", "empty": ""}}),
    "ListQueues": (
        {"QueueNamePrefix": "or", "NextToken": "t", "MaxResults": 1},
        {"QueueUrls": [URL], "NextToken": "u"},
    ),
    "PurgeQueue": (OF_QUEUE, {}),
    "ReceiveMessage": (
        {
            **OF_QUEUE,
            "AttributeNames": ["All"],
            "MessageSystemAttributeNames": ["SenderId", "SentTimestamp"],
            "MessageAttributeNames": ["All", "foo.*"],
            "MaxNumberOfMessages": 10,
            "VisibilityTimeout": 43_200,
            "WaitTimeSeconds": 20,
            "ReceiveRequestAttemptId": "again",
        },
        {
            "Messages": [
                {
                    "MessageId": f"m{n}",
                    "ReceiptHandle": "r/1+=",
                    "MD5OfBody": "5d41402abc4b2a76b9719d911017c592",
                    "Body": MESSAGE["MessageBody"],
                    "Attributes": {"SenderId": "acme", "SentTimestamp": "1795000000000"},
                    "MD5OfMessageAttributes": "8cbe4db156db8a94db8b801b7addb984",
                    "MessageAttributes": {"text": TEXT, "number.of": NUMBER, "bytes": BYTES},
                }
                for n in range(10)
            ]
        },
    ),
    "RemovePermission": ({**OF_QUEUE, "Label": "others"}, {}),
    "SendMessage": (
        {**OF_QUEUE, **MESSAGE},
        {
            "MessageId": "m",
            "MD5OfMessageBody": "5d41402abc4b2a76b9719d911017c592",
            "MD5OfMessageAttributes": "8cbe4db156db8a94db8b801b7addb984",
            "MD5OfMessageSystemAttributes": "8cbe4db156db8a94db8b801b7addb984",
            "SequenceNumber": "00000000000000000001",
        },
    ),
    "SendMessageBatch": (
        {**OF_QUEUE, "Entries": [{**MESSAGE, "Id": f"m_{n}-"} for n in range(10)]},
        {
            "Successful": [{"Id": "a", "MessageId": "m", "MD5OfMessageBody": "5d"}],
            "Failed": [FAILED],
        },
    ),
    "SetQueueAttributes": ({**OF_QUEUE, "Attributes": {"Policy": ""}}, {}),
    "StartMessageMoveTask": (
        {"SourceArn": ARN, "DestinationArn": ARN, "MaxNumberOfMessagesPerSecond": 500},
        {"TaskHandle": "h"},
    ),
    "TagQueue": ({**OF_QUEUE, "Tags": {"team": "ä", "x": "="}}, {}),
    "UntagQueue": ({**OF_QUEUE, "TagKeys": ["team", "x"]}, {}),
}
ERRORS = [
    each
    for each in vars(errors).values()
    if isinstance(each, type) and issubclass(each, SqsError) and each is not SqsError
]


def send(client, operation: str, given: dict[str, Any]) -> dict[str, Any]:
    method = client.meta.method_to_api_mapping
    names = {api: python for python, api in method.items()}
    return getattr(client, names[operation])(**given)


@pytest.fixture(scope="module")
def service():
    return Session().get_service_model("sqs")


def test_the_operations_are_those_of_aws(service):
    assert set(OPERATIONS) == set(service.operation_names) == set(EXAMPLES)


@pytest.mark.parametrize("name", OPERATIONS)
def test_inputs_have_the_parameters_of_aws(name, service):
    model = service.operation_model(name)

    ours = OPERATIONS[name]

    assert set(ours.input.model_fields) == set(model.input_shape.members)
    assert ours.has_output == (model.output_shape is not None)


@pytest.mark.parametrize("name", OPERATIONS)
def test_examples_have_every_parameter_and_every_member(name, service):
    model, (given, output) = service.operation_model(name), EXAMPLES[name]

    assert set(given) == set(model.input_shape.members)
    assert set(output) == set(model.output_shape.members if model.output_shape else ())


@pytest.mark.parametrize("name", OPERATIONS)
def test_what_the_client_of_aws_sends_is_read(name, client, door):
    given, _ = EXAMPLES[name]

    send(client, name, given)

    call = door.calls[0]
    assert call.operation.name == name
    assert call.input.model_dump(exclude_none=True) == given
    assert call.queue == (QueueAddress("acme", "orders") if "QueueUrl" in given else None)


@pytest.mark.parametrize("name", OPERATIONS)
def test_the_client_of_aws_reads_what_is_answered(name, client, door):
    given, door.answer = EXAMPLES[name]

    answer = send(client, name, given)

    metadata = answer.pop("ResponseMetadata")
    assert answer == door.answer
    assert (metadata["HTTPStatusCode"], metadata["RequestId"]) == (200, REQUEST_ID)


@pytest.mark.parametrize("name", OPERATIONS)
def test_answers_say_what_time_it_is(name, client, door):
    send(client, name, EXAMPLES[name][0])

    # Clients whose clock is wrong sign again by it.
    assert (
        abs(parsedate_to_datetime(door.answers[0].headers["Date"]) - door.claims[0].at).seconds
        < 60
    )


@pytest.mark.parametrize(
    ("name", "empty"),
    [
        ("ReceiveMessage", {"Messages": []}),
        ("ListQueues", {"QueueUrls": []}),
        ("ListQueueTags", {"Tags": {}}),
    ],
)
def test_an_empty_list_is_left_out(name, empty, client, door):
    door.answer = empty

    answer = send(client, name, EXAMPLES[name][0])

    assert set(answer) == {"ResponseMetadata"}


def test_a_batch_of_which_no_entry_failed_has_no_failures(client, door):
    door.answer = {"Successful": [{"Id": "a"}], "Failed": []}

    answer = send(client, "DeleteMessageBatch", EXAMPLES["DeleteMessageBatch"][0])

    assert answer.keys() == {"Successful", "ResponseMetadata"}


@pytest.mark.parametrize("kind", ERRORS)
def test_the_client_of_aws_knows_the_error(kind, protocol, client, door, service):
    door.answer = kind("why & <what>\x07")

    with pytest.raises(ClientError) as caught:
        client.delete_queue(QueueUrl=URL)

    found = caught.value.response
    text = (
        door.answer.message
        if protocol == "json"
        else door.answer.query_message.replace("\x07", "\ufffd")
    )
    assert found["Error"]["Code"] == kind.code
    assert found["Error"]["Message"] == text
    assert found["Error"]["Type"] == ("Sender" if kind.status < 500 else "Receiver")
    assert found["ResponseMetadata"]["HTTPStatusCode"] == kind.status
    modelled = {each.name for each in service.error_shapes}
    # As programs catch it: client.exceptions.QueueDoesNotExist.
    assert type(caught.value).__name__ == (kind.shape if kind.shape in modelled else "ClientError")


def test_errors_have_the_shapes_of_aws(service):
    modelled = {each.name for each in service.error_shapes if not each.name.startswith("Kms")}

    # Of old; their reasons are others today.
    assert modelled - {kind.shape for kind in ERRORS} == {"InvalidIdFormat", "InvalidSecurity"}


def test_the_text_of_a_missing_queue_differs_by_protocol(protocol, client, door):
    door.answer = QueueDoesNotExist()

    with pytest.raises(client.exceptions.QueueDoesNotExist) as caught:
        client.delete_queue(QueueUrl=URL)

    end = " for this wsdl version." if protocol == "query" else "."
    assert caught.value.response["Error"]["Message"] == "The specified queue does not exist" + end


def test_an_error_has_no_type_in_a_header_by_which_java_would_not_know_it(client, door):
    door.answer = QueueDoesNotExist()

    with pytest.raises(ClientError):
        client.delete_queue(QueueUrl=URL)

    assert "x-amzn-errortype" not in {each.lower() for each in door.answers[0].headers}


def test_every_error_of_the_tree_says_status_and_code():
    tree = (errors.__doc__ or "").split("\n\n")[1].splitlines()[1:]

    named = [tuple(line[4:].split()) for line in tree]

    assert named == [(each.__name__, str(each.status), each.code) for each in ERRORS]


def test_an_operation_without_output_answers_in_json_with_nothing_whatever_is_accepted(
    client_of, door
):
    client_of("json", door).purge_queue(QueueUrl=URL)

    assert door.answers[0].body == b""
    assert door.answers[0].headers["Content-Type"] == "application/x-amz-json-1.0"


def test_timestamps_are_whole_numbers(client_of, door):
    given, door.answer = EXAMPLES["ListMessageMoveTasks"]

    client_of("json", door).list_message_move_tasks(**given)

    assert b'"StartedTimestamp":1795000000000' in door.answers[0].body


def test_json_is_of_the_shapes_namespace(client_of, door):
    door.answer = QueueDoesNotExist()

    with pytest.raises(ClientError):
        client_of("json", door).purge_queue(QueueUrl=URL)

    assert json.loads(door.answers[0].body)["__type"] == "com.amazonaws.sqs#QueueDoesNotExist"


def test_urls_are_made_of_the_host_that_the_client_knows():
    assert QueueAddress("acme", "orders").url(ENDPOINT) == URL
