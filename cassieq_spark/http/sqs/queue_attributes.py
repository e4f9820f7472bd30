"""Attributes of queues: names, bounds, defaults, and the policies that are JSON.

All values are texts, as on the wire. `new_attributes` and `changed_attributes` check the
attributes of a request; `with_defaults` completes stored attributes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple

from cassieq_spark.http.sqs.addresses import QueueAddress, address_in_arn
from cassieq_spark.http.sqs.errors import (
    InvalidAttributeName,
    InvalidAttributeValue,
    InvalidParameterValue,
    SqsError,
)

FIFO = "FifoQueue"
BY_CONTENT = "ContentBasedDeduplication"
SCOPE, THROUGHPUT = "DeduplicationScope", "FifoThroughputLimit"
REDRIVE, REDRIVE_ALLOW, POLICY = "RedrivePolicy", "RedriveAllowPolicy", "Policy"
#: The end of the name of a FIFO queue.
SUFFIX = ".fifo"
#: The attributes that AWS computes, and that no request can set.
COMPUTED = frozenset(
    {
        "ApproximateNumberOfMessages",
        "ApproximateNumberOfMessagesDelayed",
        "ApproximateNumberOfMessagesNotVisible",
        "CreatedTimestamp",
        "LastModifiedTimestamp",
        "QueueArn",
    }
)

_NAME = re.compile(r"[A-Za-z0-9_-]{1,80}")
_LONGEST_NAME = 80
_NUMBER = re.compile(r"[0-9]{1,10}")
_TRUE, _FALSE = "true", "false"
_ALL = "All"
#: Most characters of a policy.
LONGEST_JSON = 1 << 14
_MOST_RECEIVES = 1_000
_MOST_SOURCES = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueAttribute:
    """An attribute that requests can set.

    Attributes:
        default: The value if none is stored; None: the queue then lacks the attribute.
        least: The lowest number; None if the value is no number.
        most: The highest number.
        choices: The only valid values, if there are few.
        of_fifo: True if only FIFO queues have the attribute.
        clears: True if an empty text removes the attribute.
    """

    default: str | None = None
    least: int | None = None
    most: int = 0
    choices: tuple[str, ...] = ()
    of_fifo: bool = False
    clears: bool = False

    def checked(self, name: str, value: str) -> str:
        """Check a value, and return it as it is stored.

        Raises:
            InvalidAttributeValue: The value is not one of the choices, or out of range.
        """
        if self.choices:
            found = next((each for each in self.choices if each.lower() == value.lower()), None)
            if found is None:
                raise InvalidAttributeValue.of(name)
            return found
        if self.least is not None:
            if not _NUMBER.fullmatch(value) or not self.least <= int(value) <= self.most:
                raise InvalidAttributeValue.of(name)
            return str(int(value))
        return value


_BOOL = (_FALSE, _TRUE)

#: The attributes that requests can set.
SETTABLE: Mapping[str, QueueAttribute] = {
    "DelaySeconds": QueueAttribute(default="0", least=0, most=900),
    "MaximumMessageSize": QueueAttribute(default="1048576", least=1_024, most=1_048_576),
    "MessageRetentionPeriod": QueueAttribute(default="345600", least=60, most=1_209_600),
    "ReceiveMessageWaitTimeSeconds": QueueAttribute(default="0", least=0, most=20),
    "VisibilityTimeout": QueueAttribute(default="30", least=0, most=43_200),
    POLICY: QueueAttribute(clears=True),
    REDRIVE: QueueAttribute(clears=True),
    REDRIVE_ALLOW: QueueAttribute(clears=True),
    # Kept for programs that set it; Cassandra's operator chooses how data at rest are encrypted.
    "SqsManagedSseEnabled": QueueAttribute(default=_FALSE, choices=_BOOL),
    FIFO: QueueAttribute(choices=_BOOL, of_fifo=True),
    BY_CONTENT: QueueAttribute(default=_FALSE, choices=_BOOL, of_fifo=True),
    SCOPE: QueueAttribute(default="queue", choices=("queue", "messageGroup"), of_fifo=True),
    THROUGHPUT: QueueAttribute(
        default="perQueue", choices=("perQueue", "perMessageGroupId"), of_fifo=True
    ),
}
#: Attributes of encryption with KMS keys, which no queue here has; an empty key means no key.
_OF_KMS = frozenset({"KmsMasterKeyId", "KmsDataKeyReusePeriodSeconds"})


def check_queue_name(name: str, attributes: Mapping[str, str]) -> None:
    """Check the name of a new queue; the end of the name marks a FIFO queue.

    Raises:
        InvalidParameterValue: The name has a character that is not allowed, is too long, or
            contradicts the attribute FifoQueue.
    """
    if attributes.get(FIFO, "").lower() == _TRUE:
        own = name.removesuffix(SUFFIX)
        if own == name or len(name) > _LONGEST_NAME or not _NAME.fullmatch(own):
            raise InvalidParameterValue(
                "The name of a FIFO queue can only include alphanumeric characters, hyphens, or "
                "underscores, must end with .fifo suffix and be 1 to 80 in length."
            )
    elif not _NAME.fullmatch(name):
        raise InvalidParameterValue(
            "Can only include alphanumeric characters, hyphens, or underscores. 1 to 80 in length"
        )


def new_attributes(given: Mapping[str, str]) -> dict[str, str]:
    """Check the attributes of a new queue, and return those that differ from the defaults.

    Raises:
        InvalidAttributeName: A name is unknown, cannot be set, or is not of this type of queue.
        InvalidAttributeValue: A value is not valid.
        InvalidParameterValue: A policy is not valid.
    """
    is_fifo = given.get(FIFO, "").lower() == _TRUE
    changes = _checked(given, is_fifo=is_fifo)
    attributes = {name: value for name, value in changes.items() if value is not None}
    _check_together(attributes)
    return attributes


def changed_attributes(
    given: Mapping[str, str], stored: Mapping[str, str]
) -> dict[str, str | None]:
    """The attributes of a queue that a request changes; None removes an attribute.

    Raises:
        InvalidAttributeName, InvalidAttributeValue, InvalidParameterValue: See `new_attributes`;
            or the request changes the type of the queue, or the scope of its deduplication ids.
    """
    is_fifo = stored.get(FIFO) == _TRUE
    if is_fifo and given.get(FIFO, _TRUE).lower() != _TRUE:
        raise InvalidAttributeValue.of(FIFO, "Modifying queue type is not supported.")
    changes = _checked(given, is_fifo=is_fifo)
    held = with_defaults(stored)
    if SCOPE in changes and changes[SCOPE] != held[SCOPE]:
        # It is the number of partitions, too, which no queue changes.
        reason = "It is chosen when a queue is created, and cannot be changed later."
        raise InvalidAttributeValue.of(SCOPE, reason)
    _check_together({**stored, **{k: v for k, v in changes.items() if v is not None}})
    return changes


def valid_attributes(stored: Mapping[str, str]) -> dict[str, str]:
    """Select the valid attributes: another interface of the gateway may have stored any text."""
    found: dict[str, str] = {}
    for name, value in stored.items():
        with suppress(SqsError):
            checked = _checked({name: value}, is_fifo=True)
            found |= {each: text for each, text in checked.items() if text is not None}
    return found


def with_defaults(stored: Mapping[str, str]) -> dict[str, str]:
    """The stored attributes of a queue, completed by defaults, without computed ones."""
    is_fifo = stored.get(FIFO) == _TRUE
    defaults = {
        name: each.default
        for name, each in SETTABLE.items()
        if each.default is not None and (is_fifo or not each.of_fifo)
    }
    return {**defaults, **stored}


def first_difference(given: Mapping[str, str], stored: Mapping[str, str]) -> str | None:
    """The first given attribute, already checked, whose value differs in an existing queue."""
    held = with_defaults(stored)
    if (given.get(FIFO) == _TRUE) != (held.get(FIFO) == _TRUE):
        return FIFO
    return next((name for name in sorted(given) if held.get(name) != given[name]), None)


def asked_for(names: Collection[str], attributes: Mapping[str, str]) -> dict[str, str]:
    """The attributes of a queue that a request asks for.

    Raises:
        InvalidAttributeName: SQS has no attribute of this name.
    """
    for name in names:
        if name not in SETTABLE and name not in COMPUTED | _OF_KMS | {_ALL}:
            raise InvalidAttributeName.of(name)
    if _ALL in names:
        return dict(attributes)
    return {name: attributes[name] for name in names if name in attributes}


class RedrivePolicy(NamedTuple):
    """The dead-letter queue for messages that were received too often.

    Attributes:
        target: The dead-letter queue.
        most: How many times a message can be received, from 1 to 1000.
    """

    target: QueueAddress
    most: int

    @classmethod
    def parse(cls, text: str) -> RedrivePolicy:
        """Parse the value of the attribute.

        Raises:
            InvalidParameterValue: The value is not a valid policy.
        """
        policy = _json_of(REDRIVE, text, "Redrive policy")
        for name in ("deadLetterTargetArn", "maxReceiveCount"):
            if not policy.get(name) and policy.get(name) != 0:
                raise _not_valid(
                    REDRIVE, text, f"Redrive policy does not contain mandatory attribute: {name}."
                )
        most = policy["maxReceiveCount"]
        # Programs send a number, or the number as text.
        count = int(most) if _NUMBER.fullmatch(str(most)) and not isinstance(most, bool) else 0
        if not 1 <= count <= _MOST_RECEIVES:
            raise _not_valid(
                REDRIVE,
                text,
                f"Invalid value for maxReceiveCount: {str(most)[:20]}, valid values are from 1 to "
                "1000 both inclusive.",
            )
        try:
            target = _address(REDRIVE, text, policy["deadLetterTargetArn"])
        except InvalidParameterValue:
            raise _not_valid(REDRIVE, text, "Invalid value for deadLetterTargetArn.") from None
        return cls(target, count)


class Permits(Enum):
    """Which queues may use a queue as their dead-letter queue."""

    ALL = "allowAll"
    NONE = "denyAll"
    SOME = "byQueue"


class RedriveAllowPolicy(NamedTuple):
    """Which queues may use a queue as their dead-letter queue.

    Attributes:
        permits: All, none, or some.
        sources: The queues that may, if only some may.
    """

    permits: Permits = Permits.ALL
    sources: frozenset[QueueAddress] = frozenset()

    def allows(self, source: QueueAddress) -> bool:
        """True if ``source`` may use the queue as its dead-letter queue."""
        return self.permits is Permits.ALL or source in self.sources

    @classmethod
    def parse(cls, text: str) -> RedriveAllowPolicy:
        """Parse the value of the attribute.

        Raises:
            InvalidParameterValue: The value is not a valid policy.
        """
        policy = _json_of(REDRIVE_ALLOW, text, "Amazon SQS redrive allow policy")
        named, sources = policy.get("redrivePermission"), policy.get("sourceQueueArns", [])
        permits = next((each for each in Permits if each.value == named), None)
        if permits is None:
            raise _not_valid(REDRIVE_ALLOW, text, "Its redrivePermission is not valid.")
        if not isinstance(sources, list) or len(sources) > _MOST_SOURCES:
            raise _not_valid(
                REDRIVE_ALLOW, text, f"Its sourceQueueArns are a list of at most {_MOST_SOURCES}."
            )
        if bool(sources) != (permits is Permits.SOME):
            raise _not_valid(
                REDRIVE_ALLOW, text, "It has sourceQueueArns with byQueue, and only then."
            )
        found = frozenset(_address(REDRIVE_ALLOW, text, each) for each in sources)
        return cls(permits, found)


def _checked(given: Mapping[str, str], *, is_fifo: bool) -> dict[str, str | None]:
    changes: dict[str, str | None] = {}
    for name, value in given.items():
        if name in _OF_KMS:
            if name == "KmsMasterKeyId" and value:
                raise InvalidAttributeValue.of(name, "Queues are not encrypted with keys of KMS.")
            continue
        known = SETTABLE.get(name)
        if known is None:
            raise InvalidAttributeName.of(name)
        if known.of_fifo and not is_fifo:
            raise _only_fifo(name)
        if known.clears and not value:
            changes[name] = None
            continue
        changes[name] = known.checked(name, value)
        if name in _PARSERS:
            _PARSERS[name](value)
    return changes


def _only_fifo(name: str) -> SqsError:
    if name in {SCOPE, THROUGHPUT}:
        return InvalidAttributeName(
            f"You can specify the {name} only when FifoQueue is set to true."
        )
    return InvalidAttributeName.of(name)


def _check_together(attributes: Mapping[str, str]) -> None:
    if attributes.get(THROUGHPUT) == "perMessageGroupId" and attributes.get(SCOPE) != (
        "messageGroup"
    ):
        raise InvalidAttributeValue.of(
            THROUGHPUT, "perMessageGroupId needs the DeduplicationScope messageGroup."
        )


def _parse_policy(text: str) -> None:
    _json_of(POLICY, text, "Policy")


_PARSERS = {
    POLICY: _parse_policy,
    REDRIVE: RedrivePolicy.parse,
    REDRIVE_ALLOW: RedriveAllowPolicy.parse,
}


def _json_of(name: str, text: str, what: str) -> dict[str, Any]:
    if len(text) > LONGEST_JSON:
        raise _not_valid(name, text, f"{what} is longer than {LONGEST_JSON} characters.")
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise _not_valid(name, text, f"{what} is not a valid JSON map.")
    return found


def _address(name: str, text: str, arn: Any) -> QueueAddress:
    if not isinstance(arn, str):
        raise _not_valid(name, text, "An ARN is text.")
    return address_in_arn(name, arn)


def _not_valid(name: str, text: str, reason: str) -> InvalidParameterValue:
    return InvalidParameterValue.of(text, name, reason)
