"""The identity of a sink's batch: its number, and either its plan or its content.

A micro-batch is the same batch as long as Spark runs it by the same plan, whatever rows a replay
has: Spark's contract is that a sink skips a batch that it already has. Where the plan is not
known, the content decides. Either is stored as text that names its method before the first colon.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum, auto

from cassieq_spark.model import SinkBatch

_PLAN = "plan"


@dataclass(frozen=True, slots=True)
class PlanIdentity:
    """The plan of a micro-batch, as the fingerprint of a `SinkBatch`.

    Attributes:
        digest: A digest of the plan that Spark has logged.
        partitions: The queue partitions to which the rows go, as bits; 0 if there is only one, or
            the rows are not known yet.
        keys: A digest of the keys of the rows, which decide the queue partition of each row.
    """

    digest: str
    partitions: int = 0
    keys: str = ""

    @classmethod
    def of(cls, fingerprint: str | None) -> PlanIdentity | None:
        """Read what `str` writes; None if the fingerprint is of a content, or is None."""
        way, _, rest = (fingerprint or "").partition(":")
        if way != _PLAN:
            return None
        digest, _, dealt = rest.partition(":")
        partitions, _, keys = dealt.partition(":")
        return cls(digest, int(partitions or "0", 16), keys)

    def __str__(self) -> str:
        dealt = f":{self.partitions:x}:{self.keys}" if self.partitions else ""
        return f"{_PLAN}:{self.digest}{dealt}"

    def dealt(self, partitions: Iterable[int], keys: str) -> PlanIdentity:
        """This plan, with the queue partitions and keys of one attempt's rows."""
        return PlanIdentity(self.digest, sum(1 << each for each in set(partitions)), keys)

    def reaches(self, partition: int) -> bool:
        """True if rows go to this queue partition."""
        return bool(self.partitions >> partition & 1)


class Standing(Enum):
    """How a batch relates to the last one that its sink has published."""

    #: A later batch.
    NEW = auto()
    #: The same batch, as far as is known.
    PUBLISHED = auto()
    #: A batch of the same number, with another plan or another content.
    CHANGED = auto()
    #: An earlier batch.
    BEHIND = auto()


def standing_of(batch: SinkBatch, last: SinkBatch | None) -> Standing:
    """Compare a batch with the last one that its sink has published; None if there is none.

    If two batches of one number both have a plan, the plans decide. If only the published batch
    has one, the other is another batch: nothing shows that it is a replay. Contents are compared
    if both are known and computed by the same method; another release may compute them
    differently.
    """
    if last is None or last.batch_id < batch.batch_id:
        return Standing.NEW
    if last.batch_id > batch.batch_id:
        return Standing.BEHIND
    if last.fingerprint is None or batch.fingerprint is None:
        return Standing.PUBLISHED
    plan, last_plan = PlanIdentity.of(batch.fingerprint), PlanIdentity.of(last.fingerprint)
    if last_plan is not None:
        is_same = plan is not None and plan.digest == last_plan.digest
    else:
        is_same = not fingerprints_differ(last.fingerprint, batch.fingerprint)
    return Standing.PUBLISHED if is_same else Standing.CHANGED


def fingerprints_differ(one: str | None, other: str | None) -> bool:
    """True if two contents are known to differ: both were computed, and by the same method."""
    return one is not None and other is not None and one != other and _way(one) == _way(other)


def _way(fingerprint: str) -> str:
    return fingerprint[: fingerprint.find(":") + 1]
