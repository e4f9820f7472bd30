"""Attributes of SQS as settings and attributes of a queue, and back.

An attribute for which the queue has a setting is kept in the setting, so that a change by another
interface is a change for SQS, too. All other attributes are attributes of the queue, under names
that begin with ``sqs.``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from types import MappingProxyType
from typing import Any

from cassieq_spark.http.accounts import full_name, own_name
from cassieq_spark.http.sqs.addresses import QueueAddress
from cassieq_spark.http.sqs.errors import InvalidParameterValue
from cassieq_spark.http.sqs.queue_attributes import (
    FIFO,
    REDRIVE,
    SCOPE,
    SETTABLE,
    SUFFIX,
    RedrivePolicy,
    valid_attributes,
    with_defaults,
)
from cassieq_spark.model import Order, QueueDefinition, UniquePer

PREFIX = "sqs."
TAG = "sqs.tag."
#: Prefixes of the attributes of a message move task, before its id: its record, and its
#: cancellation.
TASK, TO_END = "sqs.move.", "sqs.move-to-end."
#: When SQS last changed the attributes, and purged the queue, in milliseconds since 1970.
MODIFIED, PURGED = "sqs.changed-at", "sqs.purged-at"
#: Partitions of a FIFO queue whose unique ids are unique per message group.
GROUP_PARTITIONS = 16
#: How long a FIFO queue remembers deduplication ids.
DEDUPLICATION = timedelta(minutes=5)

#: An instant as text, in milliseconds since 1970.
MILLISECONDS = re.compile("[0-9]{1,15}")

_OURS = (TAG, TASK, TO_END, MODIFIED, PURGED)
#: Attributes of SQS that only settings of the queue hold.
_IN_SETTINGS = (REDRIVE, FIFO, SCOPE)
_SECOND = timedelta(seconds=1)
_RETENTION = "MessageRetentionPeriod"
_DURATIONS = {
    "VisibilityTimeout": "lease",
    "DelaySeconds": "delay",
    _RETENTION: "expire_after",
}


@dataclass(frozen=True)
class KnownQueue:
    """A queue as it was read.

    Attributes:
        definition: Its definition.
        attributes: Its attributes; see `Client.attributes`.
    """

    definition: QueueDefinition
    attributes: dict[str, str]

    @cached_property
    def in_effect(self) -> Mapping[str, str]:
        """The attributes of SQS by which messages are sent and received, with defaults.

        Computed once for all requests that use what was read.
        """
        return MappingProxyType(with_defaults(attributes_held(self)))


def settings_of(attributes: Mapping[str, str | None]) -> dict[str, Any]:
    """The settings of a queue that attributes change, in the form for `Client.alter_queue`.

    >>> settings_of({"DelaySeconds": "0", "MaximumMessageSize": "1024"})
    {'delay': datetime.timedelta(0)}
    """
    settings: dict[str, Any] = {
        setting: timedelta(seconds=int(value))
        for name, setting in _DURATIONS.items()
        if (value := attributes.get(name)) is not None
    }
    if "lease" in settings:
        # No lease of a queue is shorter; `visibility_of` handles 0.
        settings["lease"] = max(_SECOND, settings["lease"])
    if REDRIVE in attributes:
        policy = attributes[REDRIVE]
        if policy is None:
            settings |= {"max_deliveries": 0, "drop_dead": True}
        else:
            target, most = RedrivePolicy.parse(policy)
            name = full_name(target.account, target.queue)
            settings |= {"max_deliveries": most, "dead_letter_queue": name}
    return settings


def settings_of_new(attributes: Mapping[str, str]) -> dict[str, Any]:
    """The settings of a new queue, in the form for `Client.create_queue`."""
    given = with_defaults(attributes)
    settings = {name: it for name, it in settings_of(given).items() if it}
    settings = {"max_deliveries": 0} | settings
    if given.get(FIFO) == "true":
        is_per_group = given[SCOPE] == "messageGroup"
        settings |= {
            "order": Order.KEY,
            "deduplicate": DEDUPLICATION,
            "unique_per": "key" if is_per_group else "queue",
            "partitions": GROUP_PARTITIONS if is_per_group else 1,
        }
    return settings


def attributes_of(known: KnownQueue, arn: str) -> dict[str, str]:
    """All attributes of a queue, except the counts of its messages.

    Args:
        known: The queue.
        arn: Its ARN; the ARN of its dead-letter queue gets the same region.
    """
    queue = known.definition
    found = with_defaults(attributes_held(known))
    found["VisibilityTimeout"] = str(_seconds(visibility_of(known)))
    found["DelaySeconds"] = str(_seconds(queue.delay or timedelta(0)))
    # If messages never expire, SQS is shown its longest retention.
    never = timedelta(seconds=SETTABLE[_RETENTION].most)
    found[_RETENTION] = str(_seconds(queue.expire_after or never))
    if queue.dead_letter_queue is not None:
        own = own_name(queue.dead_letter_queue)
        policy = {
            "deadLetterTargetArn": f"{arn.rpartition(':')[0]}:{own}",
            "maxReceiveCount": queue.max_deliveries,
        }
        found[REDRIVE] = json.dumps(policy, separators=(",", ":"))
    created = 0 if queue.created_at is None else int(queue.created_at.timestamp())
    changed = held_time(known, MODIFIED)
    found["CreatedTimestamp"] = str(created)
    found["LastModifiedTimestamp"] = str(created if changed is None else changed // 1000)
    found["QueueArn"] = arn
    return found


def attributes_held(known: KnownQueue) -> dict[str, str]:
    """The attributes that are stored as such, and the attributes of the type of the queue."""
    held = valid_attributes(
        {
            name.removeprefix(PREFIX): value
            for name, value in known.attributes.items()
            if name.startswith(PREFIX) and not name.startswith(_OURS)
        }
    )
    for name in _IN_SETTINGS:
        held.pop(name, None)
    if is_fifo(known.definition):
        is_per_queue = known.definition.unique_per is UniquePer.QUEUE
        held |= {FIFO: "true", SCOPE: "queue" if is_per_queue else "messageGroup"}
    return held


def visibility_of(known: KnownQueue) -> timedelta:
    """The default visibility timeout of a queue; only an attribute can hold 0."""
    is_none = known.attributes.get(f"{PREFIX}VisibilityTimeout") == "0"
    is_shortest = known.definition.lease == _SECOND
    return timedelta(0) if is_none and is_shortest else known.definition.lease


def is_fifo(queue: QueueDefinition) -> bool:
    """True for a FIFO queue: its name has the suffix, and the queue is ordered by key."""
    return queue.order is Order.KEY and queue.name.endswith(SUFFIX)


def stored_as(changes: Mapping[str, str | None], now: datetime) -> dict[str, str | None]:
    """The changes with which `Client.set_attributes` stores these attributes of SQS."""
    changed: dict[str, str | None] = {MODIFIED: milliseconds(now)}
    return changed | {
        PREFIX + name: value for name, value in changes.items() if name not in _IN_SETTINGS
    }


def tags_of(known: KnownQueue) -> dict[str, str]:
    """The tags of a queue."""
    return {
        name.removeprefix(TAG): value
        for name, value in known.attributes.items()
        if name.startswith(TAG)
    }


def check_target(policy: str, source: QueueAddress) -> RedrivePolicy:
    """The redrive policy of a queue, which must name a queue of the same account and type.

    Raises:
        InvalidParameterValue: The policy names a queue of another account or type.
    """
    parsed = RedrivePolicy.parse(policy)
    reason = ""
    if parsed.target == source:
        reason = "A queue cannot be its own dead-letter queue."
    elif parsed.target.account != source.account:
        reason = "Dead-letter queue must be in the same account as the source."
    elif parsed.target.queue.endswith(SUFFIX) != source.queue.endswith(SUFFIX):
        reason = "Dead-letter queue must be same type of queue as the source."
    if reason:
        raise InvalidParameterValue.of(policy, REDRIVE, reason)
    return parsed


def held_time(known: KnownQueue, name: str) -> int | None:
    """The instant in an attribute, in milliseconds since 1970; None if it has no instant."""
    text = known.attributes.get(name, "")
    return int(text) if MILLISECONDS.fullmatch(text) else None


def milliseconds(at: datetime) -> str:
    """Write an instant as SQS sends it: milliseconds since 1970."""
    return str(int(at.timestamp() * 1000))


def _seconds(time: timedelta) -> int:
    return int(time.total_seconds())
