"""Settles messages by their receipts, with one LWT per lease."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar
from uuid import UUID

from cassieq_spark.arguments import check_choice, shown
from cassieq_spark.arrow.receipts import Receipt, receipt_prefix
from cassieq_spark.consumer.consumer import Consumer
from cassieq_spark.consumer.message import Message
from cassieq_spark.errors import CassieqError, MessageError, OutcomeUnknownError, StoreError
from cassieq_spark.groups.rounds import Rounds
from cassieq_spark.groups.settle import Settled
from cassieq_spark.groups.state import Settlement
from cassieq_spark.model import QueueId, Range, Ranges, name_of, partition_of_id
from cassieq_spark.queues import read_queue
from cassieq_spark.settings.verbs import VERBS
from cassieq_spark.store.protocol import Store

_ADVICE = "give a message that was received, or its receipt (Message.receipt)"

K = TypeVar("K")


@dataclass(frozen=True, slots=True)
class Action:
    """A way to settle messages, with its argument.

    Attributes:
        kind: The name of a verb: ack, release, extend or reject.
        value: The delay of a release, the new duration of the lease, or the reason of a rejection.

    Raises:
        OptionError: The kind is unknown, the duration is out of range, or the reason is empty.
    """

    kind: str
    value: timedelta | str | None = None

    def __post_init__(self) -> None:
        check_choice("kind", self.kind, VERBS)
        object.__setattr__(self, "value", VERBS[self.kind].check(self.value))

    def settlement_of(self, monotons: Ranges) -> Settlement:
        """The settlement of messages of one lease."""
        verb = VERBS[self.kind]
        settled: Any = monotons if verb.parameter is None else {self.value: monotons}
        return Settlement(**{verb.done: settled})


@dataclass(frozen=True, slots=True)
class SettleResult:
    """The outcome of settling. Messages whose receipts are neither stale nor failed are settled.

    Attributes:
        stale: The receipts that were stale: settled before, or not under their lease any more.
        failed: Why receipts were not settled, at least not for certain; settling these again is
            safe.
    """

    stale: list[str]
    failed: Mapping[str, CassieqError]


@dataclass(frozen=True, slots=True)
class LeaseKey:
    """One lease of one group, or one delivery of a query's batch. See `Receipt`."""

    queue_id: QueueId
    group: str
    lease: UUID
    deliveries: int | None = None

    @classmethod
    def of(cls, receipt: Receipt) -> LeaseKey:
        """The lease of a receipt."""
        return cls(receipt.queue_id, receipt.group, receipt.lease, receipt.deliveries)

    @property
    def queue(self) -> str:
        """Name of the queue."""
        return name_of(self.queue_id)

    def receipts(self, monotons: Ranges) -> list[str]:
        """The receipts of these messages, in order."""
        prefix = receipt_prefix(self.queue_id, self.group, self.lease, self.deliveries)
        return [f"{prefix}{each}" for part in monotons for each in range(part.start, part.stop)]


def by_lease(items: Iterable[object]) -> dict[LeaseKey, Ranges]:
    """Group messages, or their receipts, by lease.

    Raises:
        MessageError: An item is neither a message nor a receipt.
    """
    receipts = (Receipt.parse(_receipt_of(item), advice=_ADVICE) for item in items)
    return monotons_by(LeaseKey.of, receipts)


def monotons_by(key_of: Callable[[Receipt], K], receipts: Iterable[Receipt]) -> dict[K, Ranges]:
    """Group the monotons of receipts by a key of each receipt."""
    ranges: defaultdict[K, list[Range]] = defaultdict(list)
    for each in receipts:
        ranges[key_of(each)].append(Range(each.monoton, each.monoton + 1))
    return {key: Ranges.of(*parts) for key, parts in ranges.items()}


def settle_each(
    store: Store,
    leases: Mapping[LeaseKey, Ranges],
    settle: Callable[[Consumer, LeaseKey, Ranges], Settled],
    rounds: Rounds | None = None,
    name: str | None = None,
) -> list[str]:
    """Settle one lease after the other; if a lease fails, the others are still settled.

    Threads with the same ``rounds`` share LWTs. The history of messages has the ``name``.

    Returns:
        The receipts that were stale: settled before, or not under their lease any more.

    Raises:
        QueueStateError: A queue does not exist, and nothing is settled; or a group does not exist,
            and messages of other groups are settled.
        OutcomeUnknownError: Cassandra failed, and some of the messages may be settled.
        StoreError: Cassandra failed; nothing is settled.
    """
    outcome = settle_apart(store, leases, settle, rounds, name)
    errors = list(dict.fromkeys(outcome.failed.values()))
    if errors:
        settled = sum(monotons.count for monotons in leases.values())
        settled -= len(outcome.stale) + len(outcome.failed)
        error = error_of_parts(errors, partly=settled > 0)
        for other in errors:
            if other not in {error, error.__cause__}:
                error.add_note(f"and of another lease: {other}")
        raise error
    return outcome.stale


def error_of_parts(errors: Sequence[Exception], *, partly: bool) -> Exception:
    """Choose the error of a call: among several, an unknown outcome comes first.

    If a part of the call is done, Cassandra's error makes the outcome unknown: a program that took
    the call for not done, and repeated it, would take the receipts of the done part for stale.

    Args:
        errors: The errors of the parts that failed; at least one.
        partly: True if another part is done.
    """
    unknown = [each for each in errors if isinstance(each, OutcomeUnknownError)]
    first = (unknown or errors)[0]
    if not partly or unknown or not isinstance(first, StoreError):
        return first
    error = OutcomeUnknownError(f"a part of it is done: {first}")
    error.__cause__ = first
    return error


def settle_apart(
    store: Store,
    leases: Mapping[LeaseKey, Ranges],
    settle: Callable[[Consumer, LeaseKey, Ranges], Settled],
    rounds: Rounds | None = None,
    name: str | None = None,
) -> SettleResult:
    """Settle one lease after the other, as `settle_each` does, but return the errors of leases.

    Raises:
        CassieqError: A queue does not exist, or could not be read; nothing is settled.
    """
    queues = {name: read_queue(store, name) for name in sorted({key.queue for key in leases})}
    stale: list[str] = []
    failed: dict[str, CassieqError] = {}
    for key, monotons in leases.items():
        queue = partition_of_id(queues[key.queue], key.queue_id)
        if queue is None:
            # The queue was created again: leases of the earlier version are over.
            stale += key.receipts(monotons)
            continue
        try:
            consumer = Consumer(store, queue, key.group, rounds=rounds, name=name)
            stale += key.receipts(settle(consumer, key, monotons).stale)
        except CassieqError as error:
            failed |= dict.fromkeys(key.receipts(monotons), error)
    return SettleResult(stale, failed)


def settle_all(
    store: Store,
    leases: Mapping[LeaseKey, Ranges],
    settlement_of: Callable[[Ranges], Settlement],
    rounds: Rounds | None = None,
    name: str | None = None,
) -> list[str]:
    """Settle all messages in the same way; see `settle_each`.

    One read per queue, and one LWT and two reads per lease.
    """
    return settle_each(store, leases, settling(settlement_of), rounds, name)


def settling(
    settlement_of: Callable[[Ranges], Settlement],
) -> Callable[[Consumer, LeaseKey, Ranges], Settled]:
    """Make `settle_each` or `settle_apart` settle all messages in the same way."""

    def settle(consumer: Consumer, key: LeaseKey, monotons: Ranges) -> Settled:
        asked = settlement_of(monotons)
        return consumer.settle(key.lease, asked, deliveries=key.deliveries)

    return settle


def _receipt_of(item: object) -> str:
    if isinstance(item, Message):
        return item.receipt
    if isinstance(item, str):
        return item
    raise MessageError(
        f"a message or its receipt is needed, not {shown(item)}; give several as "
        "arguments of their own: client.ack(*messages)"
    )
