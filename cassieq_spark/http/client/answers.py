"""Parses answers of the gateway into the objects that `Client` returns."""

from __future__ import annotations

import json
import re
from base64 import b64decode
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import wraps
from typing import Any, TypeVar

import httpx

from cassieq_spark.consumer.message import Message, StoredMessage
from cassieq_spark.dead_letters.letters import DeadLetterGroup
from cassieq_spark.dead_letters.purge import PurgeReport
from cassieq_spark.dead_letters.redrive import RedriveReport
from cassieq_spark.dead_letters.stopped import Stopped
from cassieq_spark.display import Displayed, Listing, ObjectView
from cassieq_spark.errors import (
    CassieqError,
    DeletedError,
    NotFoundError,
    NotYetError,
    QueueStateError,
)
from cassieq_spark.groups.history import HistoryEvent, event_of_plain
from cassieq_spark.http import TEXT
from cassieq_spark.model import Position, Positions, QueueDefinition, QueueId, Range, Ranges
from cassieq_spark.queues.stats import GroupStats, QueueStats, group_from_http
from cassieq_spark.schedules import Schedule, ScheduleProgress
from cassieq_spark.schedules.plain import progress_of_plain, schedule_of_plain
from cassieq_spark.settings.queue import settings_from_http

T = TypeVar("T")

#: The error text of a call on a closed queue.
CLOSED = "this queue is closed: make another one"

_MISSING, _CONFLICT = 404, 409
_BY_REASON: dict[str, type[NotFoundError]] = {"NotYet": NotYetError, "Deleted": DeletedError}


class HttpError(CassieqError):
    """The gateway refused a request, or failed.

    Attributes:
        status: The status code; 0 without an answer. With 0 and 504 the outcome is unknown.
    """

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.status = status


class HttpStateError(HttpError, QueueStateError):
    """The queue or the group is not in the state that the request needs: status 409."""


@dataclass(frozen=True, slots=True, repr=False)
class HttpSurvey(Displayed):
    """The dead letters of a queue, in groups.

    Attributes:
        queue_id: The id of the dead-letter queue's version; empty if there are no dead letters.
        groups: The selected dead letters, by origin and reason.
    """

    queue_id: str
    groups: tuple[DeadLetterGroup, ...]

    @property
    def monotons(self) -> Ranges:
        """The positions of the letters in the dead-letter queue."""
        return Ranges.union(group.monotons for group in self.groups)

    def _view(self) -> ObjectView:
        facts = {"dead letters": self.monotons.count}
        return ObjectView("surveys", self.queue_id, facts, parts=self.groups)


def checked(answer: httpx.Response) -> httpx.Response:
    """Return the answer if it reports success.

    Raises:
        NotFoundError: The queue, group or message does not exist.
        HttpStateError: The queue or the group is not in the state that the request needs.
        HttpError: The gateway refused, or failed.
    """
    status = answer.status_code
    if answer.is_success:
        return answer
    if answer.has_redirect_location:
        to = answer.headers["Location"][:200]
        raise HttpError(f"{status}: the URL leads on to {to}: give the URL of the gateway", status)
    told = _told(answer)
    message = told.get("message", answer.text[:200])
    if status == _MISSING:
        raise _BY_REASON.get(str(told.get("reason")), NotFoundError)(message)
    raise (HttpStateError if status == _CONFLICT else HttpError)(f"{status}: {message}", status)


def from_gateway(read: Callable[[httpx.Response], T]) -> Callable[[httpx.Response], T]:
    """Make a parser of answers raise errors of `checked`, and `HttpError` if it fails itself."""

    @wraps(read)
    def parse(answer: httpx.Response) -> T:
        try:
            return read(checked(answer))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise HttpError(
                f"{answer.status_code}: the answer does not come from a gateway of this release; "
                "check the URL",
                answer.status_code,
            ) from error

    return parse


@from_gateway
def nothing(_: httpx.Response) -> None:
    """Check an answer that has no result."""


@from_gateway
def is_created(answer: httpx.Response) -> bool:
    """True if the queue was created; False if it already existed."""
    return answer.status_code == httpx.codes.CREATED


def is_deleted(answer: httpx.Response) -> bool:
    """True if the group was deleted; False if it did not exist."""
    if answer.status_code == _MISSING and _told(answer).get("group"):
        return False
    checked(answer)
    return True


def replaced_of(answer: httpx.Response) -> list[str]:
    """The receipt of a message that was to be replaced, if the receipt is stale; else empty."""
    if answer.status_code == _CONFLICT and (stale := _told(answer).get("stale")):
        return list(stale)
    checked(answer)
    return []


def field_of(name: str, kind: type[T]) -> Callable[[httpx.Response], T]:
    """Make a parser of one field of an answer, which must have this type."""

    @from_gateway
    def read(answer: httpx.Response) -> T:
        value = answer.json()[name]
        if not isinstance(value, kind):
            raise TypeError(name)
        return value

    return read


@from_gateway
def position_of(answer: httpx.Response) -> Position | None:
    """The position of a message that was put; None if its idempotency key was used before."""
    found = answer.json()
    if found["monoton"] is None:
        return None
    # A gateway of an earlier release sends the monoton only.
    return Position(
        found["monoton"],
        partition=found.get("partition", 0),
        version=found.get("version", 1),
        is_repeat=found.get("repeated", False),
    )


@from_gateway
def put_at(answer: httpx.Response) -> Position:
    """The position of a message that was put now."""
    found = answer.json()
    return Position(found["monoton"], partition=found["partition"], version=found["version"])


def schedule_of(queue: str) -> Callable[[httpx.Response], Schedule]:
    """Read the schedule of an answer."""
    return from_gateway(lambda answer: schedule_of_plain(queue, _snake(answer.json())))


def schedules_of(queue: str) -> Callable[[httpx.Response], list[ScheduleProgress]]:
    """Read the schedules of an answer, and how far they are."""
    return from_gateway(
        lambda answer: Listing(progress_of_plain(queue, _snake(each)) for each in answer.json())
    )


def progress_of(queue: str) -> Callable[[httpx.Response], ScheduleProgress]:
    """Read the schedule of an answer, and how far it is."""
    return from_gateway(lambda answer: progress_of_plain(queue, _snake(answer.json())))


def _snake(values: Mapping[str, Any]) -> dict[str, Any]:
    """The values of an answer by the names that Python has."""
    return {re.sub("[A-Z]", lambda it: f"_{it[0].lower()}", key): values[key] for key in values}


@from_gateway
def positions_of(answer: httpx.Response) -> Range | Positions | None:
    """The positions of messages that were put together; None if the messages were put before."""
    found = answer.json()
    if "partitions" in found:
        parts = found["partitions"].items()
        return Positions({int(at): Range(each["start"], each["stop"]) for at, each in parts})
    return None if found["start"] is None else Range(found["start"], found["stop"])


def messages_of(queue: str, group: str) -> Callable[[httpx.Response], list[Message]]:
    """Make a parser of messages that are leased for a group, each in a line of JSON."""

    @from_gateway
    def read(answer: httpx.Response) -> list[Message]:
        # An answer without messages, 204, has no lines.
        lines = answer.content.splitlines()
        return Listing(_message_of(queue, group, json.loads(each)) for each in lines)

    return read


def stored_of(queue: str) -> Callable[[httpx.Response], StoredMessage]:
    """Make a parser of one stored message."""
    return from_gateway(lambda answer: _stored_of(queue, answer.json()))


def all_stored_of(queue: str) -> Callable[[httpx.Response], list[StoredMessage]]:
    """Make a parser of several stored messages."""
    return from_gateway(lambda answer: Listing(_stored_of(queue, each) for each in answer.json()))


@from_gateway
def stats_of(answer: httpx.Response) -> QueueStats:
    """The counts of a queue."""
    return _stats_of(answer.json())


@from_gateway
def groups_of(answer: httpx.Response) -> list[GroupStats]:
    """The groups of a queue."""
    return Listing(map(group_from_http, answer.json()))


@from_gateway
def definition_of(answer: httpx.Response) -> QueueDefinition:
    """The definition of a queue, with the newest version of its schema only."""
    found = answer.json()
    return QueueDefinition(
        name=found["queueName"],
        version=found["version"],
        created_at=_instant(found["createdAt"]),
        **settings_from_http(found),
    )


@from_gateway
def stopped_of(answer: httpx.Response) -> list[Stopped]:
    """The dead messages at which a group has stopped."""
    return [
        Stopped(
            each["partition"],
            Ranges.parse(each["monotons"]),
            each["deliveries"],
            each["reason"],
            _instant(each["lastDeliveredAt"]),
        )
        for each in answer.json()
    ]


@from_gateway
def history_of(answer: httpx.Response) -> list[HistoryEvent]:
    """The history of a message."""
    return Listing(map(event_of_plain, answer.json()))


@from_gateway
def survey_of(answer: httpx.Response) -> HttpSurvey:
    """The dead letters of a queue."""
    found = answer.json()
    groups = tuple(
        DeadLetterGroup(
            each["originQueue"],
            each["originGroup"],
            each["reason"],
            Ranges.parse(each["monotons"]),
            _instant(each["first"]),
            _instant(each["last"]),
        )
        for each in found
    )
    return HttpSurvey(found[0]["queueId"] if found else "", groups)


@from_gateway
def redriven_of(answer: httpx.Response) -> RedriveReport:
    """The number of redriven dead letters, by queue."""
    found = answer.json()
    return RedriveReport(found["queues"], found["missed"], is_stopped=False)


@from_gateway
def purged_of(answer: httpx.Response) -> PurgeReport:
    """The number of purged dead letters."""
    found = answer.json()
    return PurgeReport(found["purged"], found["missed"], is_stopped=False)


def _told(answer: httpx.Response) -> Mapping[str, Any]:
    """The body of an error; empty if the error does not come from a gateway."""
    try:
        told = answer.json()
    except ValueError:
        return {}
    return told if isinstance(told, dict) else {}


def _stored_of(queue: str, found: Mapping[str, Any]) -> StoredMessage:
    value = _decoded(found["message"], found["encoding"])
    key = None if found["key"] is None else _decoded(found["key"], found["keyEncoding"])
    published_at = datetime.fromisoformat(found["publishedAt"])
    monoton, headers, partition = found["monoton"], found["headers"], found["partition"]
    return StoredMessage(queue, monoton, key, value, headers, published_at, partition=partition)


def _message_of(queue: str, group: str, found: Mapping[str, Any]) -> Message:
    stored = _stored_of(queue, found)
    return Message(
        queue,
        stored.monoton,
        stored.key,
        stored.value,
        stored.headers,
        stored.published_at,
        group,
        found["deliveryCount"],
        found["popReceipt"],
        datetime.fromisoformat(found["leaseUntil"]),
        partition=stored.partition,
    )


def _stats_of(found: Mapping[str, Any]) -> QueueStats:
    return QueueStats(
        QueueId(found["id"]),
        found["finalised"],
        found["next"],
        tuple(map(group_from_http, found["groups"])),
        tuple(map(_stats_of, found.get("partitions", ()))),
    )


def _decoded(text: str, encoding: str) -> bytes:
    return text.encode() if encoding == TEXT else b64decode(text)


def _instant(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)
