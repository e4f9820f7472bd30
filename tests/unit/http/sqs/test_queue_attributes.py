from __future__ import annotations

import json

import pytest

from cassieq_spark.http.sqs.addresses import QueueAddress
from cassieq_spark.http.sqs.errors import (
    InvalidAttributeName,
    InvalidAttributeValue,
    InvalidParameterValue,
    SqsError,
)
from cassieq_spark.http.sqs.queue_attributes import (
    RedriveAllowPolicy,
    RedrivePolicy,
    asked_for,
    changed_attributes,
    first_difference,
    new_attributes,
    with_defaults,
)

DEAD = "arn:aws:sqs:eu-central-1:acme:dead"
FIFO = {"FifoQueue": "true"}
NUMBERS = [
    ("DelaySeconds", 0, 900),
    ("MaximumMessageSize", 1_024, 1_048_576),
    ("MessageRetentionPeriod", 60, 1_209_600),
    ("ReceiveMessageWaitTimeSeconds", 0, 20),
    ("VisibilityTimeout", 0, 43_200),
]


@pytest.mark.parametrize(("name", "least", "most"), NUMBERS)
def test_numbers_are_bounded(name, least, most):
    for value in (least, most):
        assert new_attributes({name: str(value)}) == {name: str(value)}
    for other in (str(least - 1), str(most + 1), "", "x", "1.0", " 60", "²", "9" * 5_000):
        with pytest.raises(InvalidAttributeValue) as caught:
            new_attributes({name: other})
        assert str(caught.value) == f"Invalid value for the parameter {name}."


def test_numbers_are_stored_in_one_form():
    assert new_attributes({"VisibilityTimeout": "0060"}) == {"VisibilityTimeout": "60"}


def test_a_standard_queue_has_the_defaults_of_aws():
    assert with_defaults({}) == {
        "DelaySeconds": "0",
        "MaximumMessageSize": "1048576",
        "MessageRetentionPeriod": "345600",
        "ReceiveMessageWaitTimeSeconds": "0",
        "VisibilityTimeout": "30",
        "SqsManagedSseEnabled": "false",
    }


def test_a_fifo_queue_has_the_defaults_of_aws():
    found = with_defaults({**FIFO, "VisibilityTimeout": "5"})

    assert {name: found[name] for name in found if name not in with_defaults({})} == {
        "FifoQueue": "true",
        "ContentBasedDeduplication": "false",
        "DeduplicationScope": "queue",
        "FifoThroughputLimit": "perQueue",
    }
    assert found["VisibilityTimeout"] == "5"


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"FifoQueue": "false"}, "Unknown Attribute FifoQueue."),
        (
            {"ContentBasedDeduplication": "true"},
            "Unknown Attribute ContentBasedDeduplication.",
        ),
        (
            {"DeduplicationScope": "queue"},
            "You can specify the DeduplicationScope only when FifoQueue is set to true.",
        ),
        (
            {"FifoThroughputLimit": "perQueue"},
            "You can specify the FifoThroughputLimit only when FifoQueue is set to true.",
        ),
        ({"QueueArn": DEAD}, "Unknown Attribute QueueArn."),
        ({"ApproximateNumberOfMessages": "1"}, "Unknown Attribute ApproximateNumberOfMessages."),
        ({"delaySeconds": "1"}, "Unknown Attribute delaySeconds."),
        ({"All": "1"}, "Unknown Attribute All."),
    ],
)
def test_other_attributes_of_a_standard_queue_are_refused(given, why):
    for refused in (lambda: new_attributes(given), lambda: changed_attributes(given, {})):
        with pytest.raises(InvalidAttributeName) as caught:
            refused()
        assert str(caught.value) == why


@pytest.mark.parametrize(
    "given",
    [
        {"ContentBasedDeduplication": "TRUE"},
        {"DeduplicationScope": "messageGroup", "FifoThroughputLimit": "perMessageGroupId"},
        {"DeduplicationScope": "messageGroup", "FifoThroughputLimit": "perQueue"},
    ],
)
def test_attributes_of_a_fifo_queue_are_taken(given):
    taken = new_attributes({**FIFO, **given})

    assert taken == {**FIFO, **given} | {
        name: value.lower() for name, value in given.items() if value == "TRUE"
    }


@pytest.mark.parametrize(
    "given",
    [
        {"ContentBasedDeduplication": "yes"},
        {"DeduplicationScope": "group"},
        {"FifoThroughputLimit": "perMessageGroupId"},
        {"DeduplicationScope": "queue", "FifoThroughputLimit": "perMessageGroupId"},
    ],
)
def test_other_values_of_a_fifo_queue_are_refused(given):
    with pytest.raises(InvalidAttributeValue):
        new_attributes({**FIFO, **given})


def test_what_is_set_must_fit_what_is_stored():
    stored = {**FIFO, "DeduplicationScope": "messageGroup", "FifoThroughputLimit": "perQueue"}

    changed_attributes({"FifoThroughputLimit": "perMessageGroupId"}, stored)

    stored["DeduplicationScope"] = "queue"
    with pytest.raises(InvalidAttributeValue, match="needs the DeduplicationScope messageGroup"):
        changed_attributes({"FifoThroughputLimit": "perMessageGroupId"}, stored)


def test_the_scope_of_deduplication_ids_cannot_be_changed():
    given = {"DeduplicationScope": "queue"}

    assert changed_attributes(given, FIFO) == given
    with pytest.raises(InvalidAttributeValue, match="cannot be changed later"):
        changed_attributes(given, {**FIFO, "DeduplicationScope": "messageGroup"})


def test_the_type_of_a_queue_cannot_be_changed():
    assert changed_attributes({"FifoQueue": "true"}, FIFO) == FIFO
    with pytest.raises(InvalidAttributeValue) as caught:
        changed_attributes({"FifoQueue": "false"}, FIFO)
    assert str(caught.value) == (
        "Invalid value for the parameter FifoQueue. Reason: Modifying queue type is not supported."
    )
    with pytest.raises(InvalidAttributeName, match=r"Unknown Attribute FifoQueue\."):
        changed_attributes({"FifoQueue": "true"}, {})


def test_an_empty_text_takes_a_policy_away():
    given = {"Policy": "", "RedrivePolicy": "", "RedriveAllowPolicy": ""}

    assert changed_attributes(given, {}) == dict.fromkeys(given)
    assert new_attributes(given) == {}


def test_a_key_of_kms_is_refused_as_nothing_would_be_encrypted_with_it():
    assert new_attributes({"KmsMasterKeyId": "", "KmsDataKeyReusePeriodSeconds": "300"}) == {}
    with pytest.raises(InvalidAttributeValue, match="KmsMasterKeyId"):
        new_attributes({"KmsMasterKeyId": "alias/aws/sqs"})


def test_attributes_are_filtered_by_name():
    attributes = {"QueueArn": DEAD, "DelaySeconds": "0"}

    assert asked_for(["All"], attributes) == attributes
    assert asked_for(["QueueArn", "Policy"], attributes) == {"QueueArn": DEAD}
    assert asked_for([], attributes) == {}
    with pytest.raises(InvalidAttributeName) as caught:
        asked_for(["All", "Foobar"], attributes)
    assert str(caught.value) == "Unknown Attribute Foobar."


def test_an_existing_queue_is_compared_by_what_is_given():
    stored = {"VisibilityTimeout": "60"}

    assert first_difference({}, stored) is None
    assert first_difference({"VisibilityTimeout": "60", "DelaySeconds": "0"}, stored) is None
    assert first_difference({"VisibilityTimeout": "30"}, stored) == "VisibilityTimeout"
    assert first_difference({"Policy": "{}"}, stored) == "Policy"
    assert first_difference(FIFO, stored) == "FifoQueue"
    assert first_difference({}, FIFO) == "FifoQueue"


@pytest.mark.parametrize("most", [1, 1_000, "3", "999"])
def test_a_redrive_policy_has_a_number_or_a_text(most):
    text = json.dumps({"deadLetterTargetArn": DEAD, "maxReceiveCount": most})

    assert RedrivePolicy.parse(text) == (QueueAddress("acme", "dead"), int(most))
    assert new_attributes({"RedrivePolicy": text}) == {"RedrivePolicy": text}


@pytest.mark.parametrize(
    ("policy", "why"),
    [
        ("{", "Redrive policy is not a valid JSON map."),
        ("[]", "Redrive policy is not a valid JSON map."),
        ("[" * 16_384, "Redrive policy is not a valid JSON map."),
        ("[" * 16_385, "Redrive policy is longer than 16384 characters."),
        ("{}", "does not contain mandatory attribute: deadLetterTargetArn."),
        ({"maxReceiveCount": 3}, "does not contain mandatory attribute: deadLetterTargetArn."),
        ({"deadLetterTargetArn": DEAD}, "does not contain mandatory attribute: maxReceiveCount."),
        ({"deadLetterTargetArn": DEAD, "maxReceiveCount": 0}, "maxReceiveCount: 0, valid values"),
        (
            {"deadLetterTargetArn": DEAD, "maxReceiveCount": 1_001},
            "from 1 to 1000 both inclusive.",
        ),
        ({"deadLetterTargetArn": DEAD, "maxReceiveCount": "x"}, "from 1 to 1000 both inclusive."),
        ({"deadLetterTargetArn": DEAD, "maxReceiveCount": 1.5}, "from 1 to 1000 both inclusive."),
        ({"deadLetterTargetArn": DEAD, "maxReceiveCount": True}, "from 1 to 1000 both inclusive."),
        (
            {"deadLetterTargetArn": "dead", "maxReceiveCount": 3},
            "Invalid value for deadLetterTargetArn.",
        ),
        (
            {"deadLetterTargetArn": [DEAD], "maxReceiveCount": 3},
            "Invalid value for deadLetterTargetArn.",
        ),
    ],
)
def test_other_redrive_policies_are_refused(policy, why):
    text = policy if isinstance(policy, str) else json.dumps(policy)

    for parse in (RedrivePolicy.parse, lambda it: new_attributes({"RedrivePolicy": it})):
        with pytest.raises(InvalidParameterValue) as caught:
            parse(text)
        assert why in str(caught.value)


def test_a_redrive_allow_policy_says_which_queues_may_use_the_queue():
    orders, other = QueueAddress("acme", "orders"), QueueAddress("acme", "other")
    some = {
        "redrivePermission": "byQueue",
        "sourceQueueArns": ["arn:aws:sqs:us-east-1:acme:orders"],
    }

    def allowed(policy):
        parsed = RedriveAllowPolicy.parse(json.dumps(policy))
        return [each for each in (orders, other) if parsed.allows(each)]

    assert allowed({"redrivePermission": "allowAll"}) == [orders, other]
    assert allowed({"redrivePermission": "denyAll"}) == []
    assert allowed(some) == [orders]
    assert RedriveAllowPolicy().allows(orders)


@pytest.mark.parametrize(
    "policy",
    [
        "{",
        {},
        {"redrivePermission": "all"},
        {"redrivePermission": ["allowAll"]},
        {"redrivePermission": "byQueue"},
        {"redrivePermission": "byQueue", "sourceQueueArns": []},
        {"redrivePermission": "byQueue", "sourceQueueArns": "orders"},
        {"redrivePermission": "byQueue", "sourceQueueArns": [1]},
        {"redrivePermission": "byQueue", "sourceQueueArns": [DEAD] * 11},
        {"redrivePermission": "allowAll", "sourceQueueArns": [DEAD]},
    ],
)
def test_other_redrive_allow_policies_are_refused(policy):
    text = policy if isinstance(policy, str) else json.dumps(policy)

    with pytest.raises(SqsError):
        new_attributes({"RedriveAllowPolicy": text})


def test_a_policy_is_a_json_object():
    assert new_attributes({"Policy": '{"Version":"2008-10-17"}'})
    with pytest.raises(InvalidParameterValue, match="Policy is not a valid JSON map"):
        new_attributes({"Policy": "allow"})
