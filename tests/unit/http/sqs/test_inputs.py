"""Bounds, and the texts of AWS."""

from __future__ import annotations

from typing import Any

import pytest
from botocore.exceptions import ClientError

from cassieq_spark.http.sqs.errors import InvalidParameterValue, SqsError
from cassieq_spark.http.sqs.inputs import LARGEST_MESSAGE
from tests.support.sqs import URL

OF_QUEUE = {"QueueUrl": URL}
TEXT = {"DataType": "String", "StringValue": "x"}


def refused(call, **given: Any) -> tuple[str, str]:
    """Code and text of the error by which a call fails."""
    with pytest.raises(ClientError) as caught:
        call(**given)
    error = caught.value.response["Error"]
    return error["Code"], error["Message"]


@pytest.mark.parametrize(
    ("parameter", "value", "reason"),
    [
        ("MaxNumberOfMessages", 0, "Must be between 1 and 10, if provided."),
        ("MaxNumberOfMessages", 11, "Must be between 1 and 10, if provided."),
        ("WaitTimeSeconds", -1, "Must be >= 0 and <= 20, if provided."),
        ("WaitTimeSeconds", 21, "Must be >= 0 and <= 20, if provided."),
        ("VisibilityTimeout", -1, "Must be >= 0 and <= 43200, if provided."),
        ("VisibilityTimeout", 43_201, "Must be >= 0 and <= 43200, if provided."),
        (
            "ReceiveRequestAttemptId",
            "a b",
            (
                "ReceiveRequestAttemptId can only include alphanumeric and punctuation "
                "characters. 1 to 128 in length."
            ),
        ),
    ],
)
def test_what_a_receive_takes_is_bounded(client, parameter, value, reason):
    found = refused(client.receive_message, **OF_QUEUE, **{parameter: value})

    assert found == (
        "InvalidParameterValue",
        f"Value {value} for parameter {parameter} is invalid. Reason: {reason}",
    )


@pytest.mark.parametrize(
    ("method", "given", "missing"),
    [
        ("send_message", OF_QUEUE, "MessageBody"),
        ("delete_message", OF_QUEUE, "ReceiptHandle"),
        ("delete_message", {**OF_QUEUE, "ReceiptHandle": ""}, "ReceiptHandle"),
        ("change_message_visibility", {**OF_QUEUE, "ReceiptHandle": "r"}, "VisibilityTimeout"),
        ("create_queue", {}, "QueueName"),
        ("get_queue_url", {"QueueName": ""}, "QueueName"),
        ("receive_message", {}, "QueueUrl"),
        ("set_queue_attributes", OF_QUEUE, "Attributes"),
        ("tag_queue", OF_QUEUE, "Tags"),
        ("untag_queue", OF_QUEUE, "TagKeys"),
        ("start_message_move_task", {}, "SourceArn"),
        ("send_message_batch", {**OF_QUEUE, "Entries": [{"Id": "a"}]}, "MessageBody"),
        ("send_message_batch", {**OF_QUEUE, "Entries": [{"MessageBody": "a"}]}, "Id"),
        (
            "send_message",
            {**OF_QUEUE, "MessageBody": "a", "MessageAttributes": {"a": {"StringValue": "b"}}},
            "DataType",
        ),
    ],
)
def test_a_missing_parameter_is_named(client, method, given, missing):
    found = refused(getattr(client, method), **given)

    assert found == ("MissingParameter", f"The request must contain the parameter {missing}.")


@pytest.mark.parametrize(
    ("method", "entry"),
    [
        ("send_message_batch", {"MessageBody": "x"}),
        ("delete_message_batch", {"ReceiptHandle": "r"}),
        ("change_message_visibility_batch", {"ReceiptHandle": "r", "VisibilityTimeout": 1}),
    ],
)
class TestBatches:
    def sent(self, client, method, entry, ids) -> tuple[str, str]:
        entries = [{**entry, "Id": each} for each in ids]
        return refused(getattr(client, method), **OF_QUEUE, Entries=entries)

    def test_ten_entries_are_taken(self, client, door, method, entry):
        ids = [*map(str, range(9)), "a_-" + "Z" * 77]

        getattr(client, method)(**OF_QUEUE, Entries=[{**entry, "Id": each} for each in ids])

        assert [each.Id for each in door.calls[0].input.Entries] == ids

    def test_an_empty_one_is_refused(self, client, method, entry):
        code, text = self.sent(client, method, entry, [])

        assert code == "AWS.SimpleQueueService.EmptyBatchRequest"
        assert text.startswith("There should be at least one ")

    def test_more_than_ten_entries_are_refused(self, client, method, entry):
        assert self.sent(client, method, entry, map(str, range(20))) == (
            "AWS.SimpleQueueService.TooManyEntriesInBatchRequest",
            "Maximum number of entries per request are 10. You have sent 20.",
        )

    @pytest.mark.parametrize("bad", ["", "a b", "ä", "a.b", "x" * 81, "a\n"])
    def test_other_ids_are_refused(self, client, method, entry, bad):
        assert self.sent(client, method, entry, ["a", bad]) == (
            "AWS.SimpleQueueService.InvalidBatchEntryId",
            (
                "A batch entry id can only contain alphanumeric characters, hyphens and "
                "underscores. It can be at most 80 letters long."
            ),
        )

    def test_an_id_that_is_given_twice_is_refused(self, client, method, entry):
        assert self.sent(client, method, entry, ["a", "b", "a"]) == (
            "AWS.SimpleQueueService.BatchEntryIdsNotDistinct",
            "Id a repeated.",
        )


def test_a_batch_has_a_mebibyte_at_most(client, door):
    parts = ["ä" * (LARGEST_MESSAGE // 4), "x" * (LARGEST_MESSAGE // 2 - 10)]
    entries = [{"Id": str(n), "MessageBody": part} for n, part in enumerate(parts)]
    entries[1]["MessageAttributes"] = {"abc": TEXT}

    client.send_message_batch(**OF_QUEUE, Entries=entries)

    assert len(door.calls) == 1
    entries[0]["MessageBody"] += "ä"
    assert refused(client.send_message_batch, **OF_QUEUE, Entries=entries) == (
        "AWS.SimpleQueueService.BatchRequestTooLong",
        "Batch requests cannot be longer than 1048576 bytes. You have sent 1048578 bytes.",
    )


def test_one_bad_message_of_a_batch_does_not_harm_the_others(client, door):
    entries = [
        {"Id": "a", "MessageBody": "x"},
        {"Id": "b", "MessageBody": "\x07"},
        {"Id": "c", "MessageBody": "x", "DelaySeconds": 901},
        {"Id": "d", "MessageBody": "x", "MessageAttributes": {"a b": TEXT}},
        {"Id": "e", "MessageBody": ""},
    ]

    client.send_message_batch(**OF_QUEUE, Entries=entries)

    failed = {}
    for entry in door.calls[0].input.Entries:
        try:
            entry.contents()
        except SqsError as error:
            failed[entry.Id] = entry.failure(error)["Code"]
    assert failed == {
        "b": "InvalidMessageContents",
        "c": "InvalidParameterValue",
        "d": "InvalidParameterValue",
        "e": "MissingParameter",
    }


@pytest.mark.parametrize(
    ("lacks", "by_content", "why"),
    [
        (None, False, None),
        ("MessageDeduplicationId", True, None),
        ("MessageDeduplicationId", False, "MessageDeduplicationId provided explicitly"),
        ("MessageGroupId", True, "must contain the parameter MessageGroupId"),
    ],
)
def test_a_batch_for_a_fifo_queue_has_the_ids_that_it_needs(client, door, lacks, by_content, why):
    entries = [
        {"Id": name, "MessageBody": "x", "MessageGroupId": "g", "MessageDeduplicationId": name}
        for name in "ab"
    ]
    entries[1].pop(lacks, None)
    client.send_message_batch(**OF_QUEUE, Entries=entries)

    batch = door.calls[0].input

    if why is None:
        batch.check_for_fifo(by_content=by_content)
        return
    with pytest.raises(InvalidParameterValue, match=why):
        batch.check_for_fifo(by_content=by_content)


@pytest.mark.parametrize(
    ("name", "attributes"),
    [
        ("orders", {}),
        ("a_B-9" + "x" * 75, {}),
        ("orders.fifo", {"FifoQueue": "true"}),
        ("x" * 75 + ".fifo", {"FifoQueue": "true"}),
    ],
)
def test_valid_names_of_queues_are_taken(client, door, name, attributes):
    client.create_queue(QueueName=name, Attributes=attributes)

    assert door.calls[0].input.QueueName == name


@pytest.mark.parametrize(
    ("name", "attributes"),
    [
        ("a b", {}),
        ("ä", {}),
        ("a.b", {}),
        ("a/b", {}),
        ("a~b", {}),
        ("x" * 81, {}),
        ("orders.fifo", {}),
        ("orders.fifo", {"FifoQueue": "false"}),
        ("orders", {"FifoQueue": "true"}),
        (".fifo", {"FifoQueue": "true"}),
        ("x" * 76 + ".fifo", {"FifoQueue": "true"}),
    ],
)
def test_other_names_of_queues_are_refused(client, name, attributes):
    code, text = refused(client.create_queue, QueueName=name, Attributes=attributes)

    assert code == "InvalidParameterValue"
    assert "an only include alphanumeric characters, hyphens, or underscores" in text


@pytest.mark.parametrize(
    ("method", "given"), [("list_queues", {}), ("list_dead_letter_source_queues", OF_QUEUE)]
)
def test_pages_are_bounded(client, method, given):
    call = getattr(client, method)

    assert refused(call, **given, MaxResults=1_001)[0] == "InvalidParameterValue"
    assert refused(call, **given, MaxResults=0)[0] == "InvalidParameterValue"
    assert refused(call, **given, NextToken="t") == (
        "InvalidParameterValue",
        "MaxResults is a mandatory parameter when you provide a value for NextToken.",
    )


@pytest.mark.parametrize(
    ("tags", "why"),
    [
        ({"": "x"}, "Tag keys must be between 1 and 128 characters in length."),
        ({"x" * 129: "x"}, "Tag keys must be between 1 and 128 characters in length."),
        ({"x": "x" * 257}, "Tag values must be between 0 and 256 characters in length."),
        ({str(n): "x" for n in range(51)}, "Too many tags added: a queue has at most 50."),
    ],
)
def test_tags_are_bounded(client, tags, why):
    assert refused(client.tag_queue, **OF_QUEUE, Tags=tags) == ("InvalidParameterValue", why)
    assert refused(client.create_queue, QueueName="a", tags=tags)[1] == why


@pytest.mark.parametrize(
    ("label", "accounts", "actions", "code"),
    [
        ("a b", ["1"], ["*"], "InvalidParameterValue"),
        ("x" * 81, ["1"], ["*"], "InvalidParameterValue"),
        ("a", [], ["*"], "MissingParameter"),
        ("a", ["1"], [], "MissingParameter"),
        ("a", ["1"], ["CreateQueue"], "InvalidParameterValue"),
        ("a", ["1"], ["*"] * 8, "OverLimit"),
    ],
)
def test_permissions_are_checked(client, label, accounts, actions, code):
    found = refused(
        client.add_permission, **OF_QUEUE, Label=label, AWSAccountIds=accounts, Actions=actions
    )

    assert found[0] == code


@pytest.mark.parametrize(
    "arn", ["orders", "arn:aws:s3:::a", "arn:aws:sqs:r:a", "arn:aws:sqs:r:a b:c"]
)
def test_an_arn_names_a_queue(client, arn):
    code, text = refused(client.start_message_move_task, SourceArn=arn)

    assert code == "InvalidParameterValue"
    assert text.startswith(f"Value {arn} for parameter SourceArn is invalid.")


@pytest.mark.parametrize("rate", [0, 501])
def test_the_rate_of_a_move_is_bounded(client, rate):
    arn = "arn:aws:sqs:eu-central-1:acme:dead"

    found = refused(
        client.start_message_move_task, SourceArn=arn, MaxNumberOfMessagesPerSecond=rate
    )

    assert found[0] == "InvalidParameterValue"


@pytest.mark.parametrize("seconds", [-1, 43_201])
def test_the_visibility_of_an_entry_is_checked_by_itself(client, door, seconds):
    entries = [{"Id": "a", "ReceiptHandle": "r", "VisibilityTimeout": seconds}]

    client.change_message_visibility_batch(**OF_QUEUE, Entries=entries)

    entry = door.calls[0].input.Entries[0]
    with pytest.raises(Exception, match=f"Value {seconds} for parameter VisibilityTimeout"):
        entry.visibility()
    assert (
        refused(
            client.change_message_visibility,
            **OF_QUEUE,
            ReceiptHandle="r",
            VisibilityTimeout=seconds,
        )[0]
        == "InvalidParameterValue"
    )


def test_the_names_of_system_attributes_are_those_of_both_parameters(client, door):
    client.receive_message(
        **OF_QUEUE, AttributeNames=["SenderId"], MessageSystemAttributeNames=["SentTimestamp"]
    )

    assert door.calls[0].input.system_names == {"SenderId", "SentTimestamp"}


def test_a_parameter_that_newer_clients_may_send_is_ignored(client_of, door):
    client = client_of("json", door)
    client.meta.events.register(
        "before-call", lambda params, **_: params.update(body=b'{"Newer":{"a":[1]}}')
    )

    client.list_queues()

    assert door.calls[0].input.model_dump(exclude_none=True) == {}
