"""Receipts: texts that name one delivered message under one lease."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Self
from uuid import UUID

from cassieq_spark.arguments import MOST
from cassieq_spark.display import Displayed, ObjectView
from cassieq_spark.errors import MessageError
from cassieq_spark.model import QueueId, id_of, name_of, parts_of_id, validate_name


@dataclass(frozen=True, slots=True, repr=False)
class Receipt(Displayed):
    """The receipt of one message, by which it is settled while its lease holds it.

    Attributes:
        queue_id: The queue.
        group: The consumer group.
        lease: The token of the lease.
        monoton: The monoton of the message.
        deliveries: The delivery count of the message, if it is of a query's batch: a restarted
            query takes its batch up again under the same token. None for a client's message,
            whose lease is handed out once.
    """

    queue_id: QueueId
    group: str
    lease: UUID
    monoton: int
    deliveries: int | None = None

    @classmethod
    def parse(cls, text: str, *, advice: str = "take the receipt of a received message") -> Self:
        """Read a receipt.

        Args:
            text: The text that should be a receipt.
            advice: Where the caller finds a receipt; for the error.

        Raises:
            MessageError: The text is not a receipt.
        """
        try:
            queue_id, group, lease, monoton = text.split("/")
            token, dot, count = lease.partition(".")
            deliveries = int(count) if dot else None
            receipt = cls(QueueId(queue_id), group, UUID(token), int(monoton), deliveries)
            is_possible = 0 <= receipt.monoton < MOST and (deliveries is None or deliveries > 0)
            # Python reads numbers that we never write: with a sign, with a space.
            is_ours = str(receipt) == text and _is_ours(queue_id, group)
        except ValueError as error:
            raise _refusal(text, advice) from error
        if not is_ours or not is_possible:
            raise _refusal(text, advice)
        return receipt

    @property
    def queue(self) -> str:
        """Name of the queue."""
        return name_of(self.queue_id)

    def __str__(self) -> str:
        prefix = receipt_prefix(self.queue_id, self.group, self.lease, self.deliveries)
        return f"{prefix}{self.monoton}"

    def _view(self) -> ObjectView:
        facts = {
            "monoton": str(self.monoton),
            "lease": str(self.lease),
            "deliveries": self.deliveries,
        }
        return ObjectView("receipts", f"{self.queue_id}, group {self.group}", facts)


def receipt_prefix(
    queue_id: QueueId, group: str, lease: UUID, deliveries: int | None = None
) -> str:
    """The beginning of all receipts of one lease and delivery; the monoton follows."""
    count = "" if deliveries is None else f".{deliveries}"
    return f"{queue_id}/{group}/{lease}{count}/"


def _refusal(text: str, advice: str) -> MessageError:
    return MessageError(f"{text[:100]!a} is not a receipt; {advice}")


@lru_cache(maxsize=1024)
def _is_ours(queue_id: str, group: str) -> bool:
    """True if the names of queue and group are valid; cached, as a lease has many receipts."""
    name, version, partition = parts_of_id(queue_id)
    validate_name("queue", name)
    validate_name("group", group)
    return queue_id == id_of(name, version, partition)
