"""Histories of the ledger's head and of the group state, in any order and any trouble."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

from hypothesis import example, given
from hypothesis import strategies as st

from cassieq_spark.errors import ContentionError, OutcomeUnknownError
from cassieq_spark.groups.group import ConsumerGroup
from cassieq_spark.groups.registration import ensure_group
from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.ledger.publish import publish
from cassieq_spark.model import SinkBatch
from cassieq_spark.store.memory import MemoryStore
from cassieq_spark.store.protocol import EVERYTHING, Partition, Rows, Slice
from cassieq_spark.testing.faults import Fault
from cassieq_spark.testing.stores import WrappedStore
from tests.property.interleavings.schedule import read
from tests.property.interleavings.stage import Stage, Trouble
from tests.support.builders import (
    LEASE,
    make_pending,
    make_queue,
    make_request,
)
from tests.support.faults import FakeClock
from tests.support.linearizability import Violation
from tests.support.recorded import RecordingStore, find_violations
from tests.support.repeatable import repeatable

TURNS = st.lists(
    st.builds("{}{}".format, st.sampled_from("abcn"), st.integers(1, 9)), max_size=16
).map(" ".join)
#: While a commit is on one replica, plain reads of several rows have no order, and need none.
LINEAR = [fault for fault in Fault if fault is not Fault.REACHED_ONE]
TROUBLES = st.none() | st.builds(
    Trouble, st.sampled_from("abc"), st.sampled_from([None, *LINEAR]), st.integers(0, 2)
)


class ForgetfulStore(WrappedStore):
    """Answers some reads as it would have answered the same read before."""

    def __init__(self, store: MemoryStore) -> None:
        super().__init__(store)
        self._before: dict[object, Rows] = {}

    def read_rows(
        self, partition: Partition, which: Slice = EVERYTHING, *, serial: bool = False
    ) -> Rows:
        now = super().read_rows(partition, which, serial=serial)
        return self._before.setdefault((partition, which, serial), now)


def play(
    turns: str,
    trouble: Trouble | None,
    around: Callable[[MemoryStore], MemoryStore | WrappedStore] = lambda memory: memory,
) -> dict[Partition, Violation]:
    """Two publishers and a reader, each of them twice; what has no order in their histories."""
    clock = FakeClock()
    patch = repeatable(clock)
    stage, memory = Stage(clock), MemoryStore(clock)
    try:
        numbers = count()
        # All of them write into one book; each has a store of its own that stops it.
        book = RecordingStore(memory, lambda: next(numbers))
        queue_id = make_queue(book, [2]).queue_id
        ensure_group(ConsumerGroup(Ledger(book, queue_id), "g"), starting="earliest")
        shared = around(memory)
        for name in "abc":
            store = book.also_for(stage.process(name).store_around(shared))

            def act(store: RecordingStore = store, name: str = name) -> None:
                held = None
                for number in range(2):
                    try:
                        if name == "c":
                            stop = Ledger(store, queue_id).read_head().next
                            request = make_request(
                                held=held, max_messages=2, stop=stop, lease=LEASE
                            )
                            held = ConsumerGroup(Ledger(store, queue_id), "g").lease(request).token
                        else:
                            batch = SinkBatch("app:a", number) if name == "b" else None
                            pending = make_pending([1], clock.now)
                            publish(Ledger(store, queue_id), pending, batch=batch)
                    except (ContentionError, OutcomeUnknownError):
                        continue

            stage.let(name, act)
        stage.play(trouble, lambda: None).run(read(turns))
        return find_violations(book.histories)
    finally:
        stage.close()
        patch.undo()


@given(turns=TURNS, trouble=TROUBLES)
@example(turns="a2 b3 a9", trouble=Trouble("a", Fault.REQUEST_LATE))
def test_every_history_has_an_order(turns: str, trouble: Trouble | None):
    assert play(turns, trouble) == {}


def test_a_store_that_forgets_is_found_out():
    found = play("a9 b9 c9", None, ForgetfulStore)

    assert {partition.table for partition in found} == {"ledger", "group_state"}
