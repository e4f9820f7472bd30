"""Each thread of a group is told what happened to its messages, also if the LWT fails."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from cassieq_spark.backoff import Backoff
from cassieq_spark.errors import CassieqError, NotAppliedError, OutcomeUnknownError
from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.model import PendingBlock, Range
from cassieq_spark.producer.group_commit import GroupCommit, _Commit, _Turn
from cassieq_spark.producer.publisher import Written, publish_written
from cassieq_spark.store.memory import MemoryStore
from cassieq_spark.testing.faults import Fault, FaultyStore
from tests.support.builders import BEGUN_AT, make_pending, make_queue

HOUR = timedelta(hours=1)
#: The blocks of each thread: how many messages, and whether it began before the fence.
WRITES = st.lists(
    st.tuples(st.lists(st.integers(0, 3), min_size=1, max_size=3), st.booleans()),
    min_size=1,
    max_size=5,
)
FAULTS = st.lists(st.none() | st.sampled_from(Fault), max_size=2)


@given(writes=WRITES, faults=FAULTS, fails_after=st.none() | st.integers(0, 4))
def test_each_is_told_what_became_of_its_messages(
    writes: list[tuple[list[int], bool]], faults: list[Fault | None], fails_after: int | None
):
    memory = MemoryStore()
    queue_id = make_queue(memory, [2]).queue_id
    ledger = Ledger(memory, queue_id)
    if any(is_late for _, is_late in writes):
        ledger.raise_fence(ledger.read_head(), BEGUN_AT + HOUR)
    pending = [
        tuple(make_pending(counts, BEGUN_AT + (0 if is_late else 2) * HOUR))
        for counts, is_late in writes
    ]
    store = _Troubled(memory, faults)
    if fails_after is not None:
        store.interrupt(_fail, after=fails_after)

    told = _publish_together(store, [[Written(queue_id, blocks=each)] for each in pending])

    store.calm()
    while store.late:
        store.arrive()
    found = _published(ledger)
    for blocks, outcome in zip(pending, told, strict=True):
        places = [found.get(each.block) for each in blocks if each.count]
        if isinstance(outcome, Range):
            assert places == _follow(outcome, blocks)
        elif isinstance(outcome, OutcomeUnknownError):
            assert all(places) or not any(places)
        else:
            assert not any(places)
    # Without trouble, only those that began before the fence are refused.
    if not any(faults) and fails_after is None:
        assert [isinstance(each, Range) for each in told] == [
            not is_late or not any(counts) for counts, is_late in writes
        ]


class _Troubled(FaultyStore):
    """Meets these faults, one with each compare-and-set."""

    def __init__(self, memory: MemoryStore, faults: Sequence[Fault | None]) -> None:
        super().__init__(memory)
        self._faults = list(faults)

    def cas(self, *args, **named) -> bool:
        self.fault = self._faults.pop(0) if self._faults else None
        return super().cas(*args, **named)


def _fail() -> None:
    raise NotAppliedError("too few replicas")


def _publish_together(
    store: FaultyStore, writes: Sequence[Sequence[Written]]
) -> list[Range | CassieqError]:
    """As if all but the first had waited for it; those without messages never wait."""
    commits = GroupCommit(store)
    group = [_Commit(written, written[0].queue_id) for written in writes]
    together = [commit for commit in group if commit.messages]
    if together:
        try:
            together[0].outcome.put(commits._publish(together, Backoff()))
        except CassieqError as error:
            together[0].outcome.put(error)
    told: list[Range | CassieqError] = []
    for commit in group:
        outcome = commit.outcome.get_nowait() if commit.messages else _Turn.ALONE
        try:
            if outcome is _Turn.ALONE:
                outcome = publish_written(store, commit.written)
            told.append(outcome if isinstance(outcome, CassieqError) else outcome.monotons)
        except CassieqError as error:
            told.append(error)
    return told


def _published(ledger: Ledger) -> dict[object, Range]:
    blocks = ledger.read_blocks()
    return {each.block: each.monotons for each in blocks}


def _follow(monotons: Range, blocks: Sequence[PendingBlock]) -> list[Range]:
    """The blocks one after the other, from the first of these monotons to the last."""
    found, start = [], monotons.start
    for each in blocks:
        if each.count:
            found.append(Range(start, start + each.count))
            start += each.count
    assert start == monotons.stop
    return found
