"""Message move tasks: what is kept of each, what it is called, and what it is at an instant.

running -> completed | failed | cancelled
running and to be cancelled: cancelling; cancelled if nobody runs it any more
"""

from __future__ import annotations

import json
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterable
from datetime import timedelta
from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from cassieq_spark.http.sqs.addresses import QueueAddress, address_in_arn
from cassieq_spark.http.sqs.errors import InvalidParameterValue, ResourceNotFound
from cassieq_spark.http.sqs.outputs import TaskEntry

RUNNING, CANCELLING = "RUNNING", "CANCELLING"
COMPLETED, FAILED, CANCELLED = "COMPLETED", "FAILED", "CANCELLED"
ACTIVE = frozenset({RUNNING, CANCELLING})

#: A task is abandoned if its runner has written nothing for so long.
ABANDONED_AFTER = timedelta(seconds=60)
#: Tasks of a queue that are kept, the running one included.
MOST_KEPT = 10
#: Most messages that a task may move in a second, if it is limited.
FASTEST = 500
#: Why a task has failed that meets a message of which nothing says where it was.
NO_SOURCE = "CouldNotDetermineMessageSource"

_ID = re.compile(r"[0-9a-f]{32}")
_LONGEST_REASON = 300


class MoveTask(BaseModel):
    """A message move task; instants are in milliseconds since 1970.

    Attributes:
        id: 32 hexadecimal digits.
        runner: The id of who runs it; somebody else may take it over.
        started: When it was started; it moves no messages that came later.
        beat: When its runner wrote last.
        to_move: Messages that were there when it was started.
        moved: Messages that it has moved.
        status: As its runner has written it.
        destination: The queue to which the messages go, without the account; None: each goes to
            where it came from.
        rate: Most messages a second; None: as many as it can.
        reason: Why it has failed.
    """

    model_config = ConfigDict(strict=True, extra="ignore", frozen=True)

    id: str
    runner: str
    started: int
    beat: int
    to_move: int
    moved: int = 0
    status: str = RUNNING
    destination: str | None = None
    rate: Annotated[int | None, Field(ge=1, le=FASTEST)] = None
    reason: str | None = None

    @property
    def text(self) -> str:
        """The task as an attribute of the queue holds it."""
        return self.model_dump_json(exclude_none=True)

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """The task that an attribute holds; None if it holds none."""
        try:
            return cls.model_validate_json(text)
        except ValidationError:
            return None

    def after(self, count: int, status: str = RUNNING, reason: str | None = None) -> Self:
        """The task after it has moved more messages."""
        moved = self.moved + count
        return self.model_copy(update={"moved": moved, "status": status, "reason": reason})

    def failed(self, reason: str) -> Self:
        """The task after it has failed."""
        return self.after(0, FAILED, reason[:_LONGEST_REASON])

    def is_abandoned(self, now: int) -> bool:
        """True if it is to run, and nobody seems to run it."""
        after = ABANDONED_AFTER // timedelta(milliseconds=1)
        return self.status == RUNNING and now - self.beat > after

    def status_at(self, now: int, *, is_to_end: bool) -> str:
        """What it is; ``is_to_end``: whether somebody has cancelled it."""
        if self.status != RUNNING or not is_to_end:
            return self.status
        return CANCELLED if self.is_abandoned(now) else CANCELLING

    def entry(self, source: QueueAddress, region: str, status: str) -> TaskEntry:
        """The task as ListMessageMoveTasks shows it."""
        entry: TaskEntry = {
            "Status": status,
            "SourceArn": source.arn(region),
            "StartedTimestamp": self.started,
            "ApproximateNumberOfMessagesMoved": self.moved,
            "ApproximateNumberOfMessagesToMove": self.to_move,
        }
        if status == RUNNING:
            entry["TaskHandle"] = handle_of(self.id, source.arn(region))
        if self.destination is not None:
            entry["DestinationArn"] = QueueAddress(source.account, self.destination).arn(region)
        if self.rate is not None:
            entry["MaxNumberOfMessagesPerSecond"] = self.rate
        if self.reason is not None:
            entry["FailureReason"] = self.reason
        return entry


def newest(tasks: Iterable[MoveTask]) -> list[MoveTask]:
    """Tasks, the newest first."""
    return sorted(tasks, key=lambda each: (each.started, each.id), reverse=True)


def handle_of(task: str, arn: str) -> str:
    """The handle of a task of the queue of an ARN."""
    return urlsafe_b64encode(json.dumps({"taskId": task, "sourceArn": arn}).encode()).decode()


def task_of(handle: str) -> tuple[str, QueueAddress]:
    """The id and the queue of the task of a handle.

    Raises:
        InvalidParameterValue: It is no such handle.
        ResourceNotFound: There can be no such task.
    """
    try:
        found = json.loads(urlsafe_b64decode(handle))
    except (ValueError, RecursionError):
        found = None
    names = ("taskId", "sourceArn")
    if not (isinstance(found, dict) and all(isinstance(found.get(name), str) for name in names)):
        raise InvalidParameterValue.of(handle, "TaskHandle", "It is no handle of a task.")
    if not _ID.fullmatch(found["taskId"]):
        raise ResourceNotFound
    return found["taskId"], address_in_arn("TaskHandle", found["sourceArn"])
