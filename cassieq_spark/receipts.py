"""Receipts: text that names one delivered message under one lease. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from cassieq_spark.errors import MessageError
from cassieq_spark.model import QueueId


@dataclass(frozen=True, slots=True)
class Receipt:
    """Whoever shows it may settle the message, while the lease holds it."""

    queue_id: QueueId
    group: str
    lease: UUID
    monoton: int

    @classmethod
    def parse(cls, text: str) -> Receipt:
        """Read a receipt.

        Raises:
            MessageError: It is not one.
        """
        try:
            queue_id, group, lease, monoton = text.split("/")
            receipt = cls(QueueId(queue_id), group, UUID(lease), int(monoton))
        except ValueError as error:
            raise _refusal(text) from error
        # What Python reads as a number is not all that we write: a sign, a space.
        if str(receipt) != text or receipt.monoton < 0:
            raise _refusal(text)
        return receipt

    @property
    def queue(self) -> str:
        """Name of the queue."""
        return self.queue_id.rpartition("@")[0]

    def __str__(self) -> str:
        return receipt_prefix(self.queue_id, self.group, self.lease) + str(self.monoton)


def receipt_prefix(queue_id: QueueId, group: str, lease: UUID) -> str:
    """What all receipts of a lease begin with; the monoton follows."""
    return f"{queue_id}/{group}/{lease}/"


def _refusal(text: str) -> MessageError:
    return MessageError(
        f"{text[:100]!r} is not a receipt; take the column 'receipt' of a stream that is "
        "read with includeReceipts"
    )
