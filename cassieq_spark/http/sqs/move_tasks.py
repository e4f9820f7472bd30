"""Message move tasks: their record, their handle, and their status at an instant.

running -> completed | failed | cancelled

A running task that is to be cancelled is cancelling, or cancelled if nobody runs it any more.
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

#: A task is abandoned if its runner has written nothing for this long.
ABANDONED_AFTER = timedelta(seconds=60)
#: Most tasks of a queue that are kept, including the running one.
MOST_KEPT = 10
#: The highest rate, in messages per second, to which a task can be limited.
FASTEST = 500
#: The failure reason of a task that meets a message whose source queue is unknown.
NO_SOURCE = "CouldNotDetermineMessageSource"

_ID = re.compile(r"[0-9a-f]{32}")
_LONGEST_REASON = 300


class MoveTask(BaseModel):
    """A message move task; instants are in milliseconds since 1970.

    Attributes:
        id: 32 hexadecimal digits.
        runner: The id of the process that runs the task; another process may take it over.
        started: When the task was started; it moves no messages that came later.
        beat: When its runner last wrote.
        to_move: The number of messages in the queue when the task was started.
        moved: The number of messages that the task has moved.
        status: The status that its runner wrote last.
        destination: The queue to which the messages go, without the account; None: each goes back
            to its source.
        rate: Most messages per second; None: no limit.
        reason: Why the task has failed.
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
        """Encode the task as the text of an attribute of the queue."""
        return self.model_dump_json(exclude_none=True)

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """Decode the text of an attribute; None if the text is not a task."""
        try:
            return cls.model_validate_json(text)
        except ValidationError:
            return None

    def after(self, count: int, status: str = RUNNING, reason: str | None = None) -> Self:
        """The task after it has moved ``count`` more messages."""
        moved = self.moved + count
        return self.model_copy(update={"moved": moved, "status": status, "reason": reason})

    def failed(self, reason: str) -> Self:
        """The task after it has failed."""
        return self.after(0, FAILED, reason[:_LONGEST_REASON])

    def is_abandoned(self, now: int) -> bool:
        """True if the task is to run, but nobody seems to run it."""
        after = ABANDONED_AFTER // timedelta(milliseconds=1)
        return self.status == RUNNING and now - self.beat > after

    def status_at(self, now: int, *, is_to_end: bool) -> str:
        """The status of the task at ``now``; ``is_to_end``: True if the task was cancelled."""
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
    """Sort tasks, newest first."""
    return sorted(tasks, key=lambda each: (each.started, each.id), reverse=True)


def handle_of(task: str, arn: str) -> str:
    """The handle of a task, given its id and the ARN of its queue."""
    return urlsafe_b64encode(json.dumps({"taskId": task, "sourceArn": arn}).encode()).decode()


def task_of(handle: str) -> tuple[str, QueueAddress]:
    """The id and the queue of the task that a handle names.

    Raises:
        InvalidParameterValue: The text is not the handle of a task.
        ResourceNotFound: No task can have the id in the handle.
    """
    try:
        found = json.loads(urlsafe_b64decode(handle))
    except (ValueError, RecursionError):
        found = None
    names = ("taskId", "sourceArn")
    if not (isinstance(found, dict) and all(isinstance(found.get(name), str) for name in names)):
        raise InvalidParameterValue("Value for parameter TaskHandle is invalid.")
    if not _ID.fullmatch(found["taskId"]):
        raise ResourceNotFound
    return found["taskId"], address_in_arn("TaskHandle", found["sourceArn"])
