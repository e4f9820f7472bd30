"""Whatever is lost, no event of the history is wrong, and each missing one is counted."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cassieq_spark import Client
from cassieq_spark.errors import NotAppliedError
from cassieq_spark.groups import history as history_module
from cassieq_spark.groups.history import flush_history
from cassieq_spark.model import Ranges
from cassieq_spark.store.memory import MemoryStore
from cassieq_spark.store.protocol import Partition, RowKey, Value
from cassieq_spark.testing.faults import Fault, FaultyStore
from tests.support.faults import FakeClock
from tests.support.repeatable import repeatable
from trials.chaos import clients as clients_module
from trials.chaos import history as reading_module
from trials.chaos.clients import Clerk
from trials.chaos.history import ends_of, entries_of
from trials.chaos.history_checker import CLOCKS_SECONDS, judge_history

QUEUE, GROUP = "q", "g"
LEASE = timedelta(seconds=10)
HOUR, MINUTE = timedelta(hours=1), timedelta(minutes=1)
MESSAGES = 6
NAMES = ("ann", "bob")
#: Between two steps: longer than the clocks may be off; some leases end meanwhile.
PAUSES = (2 * CLOCKS_SECONDS, 20.0)
#: What the reader did, by the verb of a settlement, and by the kind of an event.
GOT = {"leased": "got", "replayed": "got"}
DONE = {"ack": "acked", "release": "released", "extend": "extended"}
#: What may happen in the middle of a step, besides a lost write: Cassandra refuses a request; or
#: the lease ends, and the other clerk takes a step.
REFUSED, OVERTAKEN = "refused", "overtaken"
#: One thing that was done to one message: who, what, which, and in which step of the test.
Done = tuple[str, str, int, int]

STEPS = st.lists(
    st.tuples(
        st.sampled_from(NAMES),
        st.sampled_from(PAUSES),
        st.none() | st.sampled_from([OVERTAKEN, REFUSED, *Fault]),
        st.integers(0, 15),
        st.booleans(),
    ),
    min_size=1,
    max_size=12,
)
LOST = st.lists(st.booleans(), min_size=1, max_size=8)


class LosingStore(FaultyStore):
    """Has the faults of others; events go past these, and some of them are lost.

    Threads write events, so the store that counts calls must not see them.
    """

    def __init__(self, memory: MemoryStore, lost: Sequence[bool]) -> None:
        super().__init__(memory)
        self._memory, self._lost = memory, lost
        self._turn = threading.Lock()
        self._count = 0
        #: The step of the test, and what the events say that were written.
        self.step = 0
        self.written: set[Done] = set()

    def write_row(
        self,
        partition: Partition,
        row: RowKey,
        values: Mapping[str, Value],
        *,
        timestamp: int,
        ttl: timedelta,
    ) -> None:
        if row[0] != "event":
            super().write_row(partition, row, values, timestamp=timestamp, ttl=ttl)
            return
        with self._turn:
            is_lost = self._lost[self._count % len(self._lost)]
            self._count += 1
        if is_lost:
            raise NotAppliedError("lost")
        self._memory.write_row(partition, row, values, timestamp=timestamp, ttl=ttl)
        did = str(values["reason"])
        for part in Ranges.parse(str(values["ranges"])):
            for monoton in range(part.start, part.stop):
                self.written.add((str(values["holder"]), GOT.get(did, did), monoton, self.step))


class Notes:
    """What a clerk tells, kept in memory."""

    is_calm = is_over = False

    def __init__(self, name: str, store: LosingStore) -> None:
        self.name, self._store = name, store
        self.told: list[dict[str, Any]] = []

    def tell(self, event: str, **more: Any) -> None:
        self.told.append({"event": event, "step": self._store.step, **more})

    def done(self) -> Iterator[Done]:
        """What the clerk certainly did."""
        rows: dict[str, list[int]] = {}
        for event in self.told:
            if event["event"] == "received":
                rows[event["call"]] = [monoton for _, _, monoton, _ in event["messages"]]
                for monoton in rows[event["call"]]:
                    yield self.name, "got", monoton, event["step"]
            elif event["event"] == "settled":
                for nth in event["messages"]:
                    monoton = rows[event["call"]][nth]
                    yield self.name, DONE[event["verb"]], monoton, event["step"]


def patched(clock: FakeClock) -> pytest.MonkeyPatch:
    """Let clerks and the history see this clock, and let nobody wait, die or stand still."""
    patch = repeatable(clock)
    times = SimpleNamespace(time=clock.seconds, monotonic=clock.seconds)
    for module in (history_module, clients_module, reading_module):
        patch.setattr(module, "time", times)
    patch.setattr(clients_module, "_pass", lambda _: None)
    patch.setattr(clients_module, "_WAIT", timedelta(0))
    for name in ("_DEATHS", "_STANDSTILLS"):
        patch.setattr(clients_module, name, 0.0)
    # More of what is rare in a long trial.
    for name, share in (("_RELEASED", 0.3), ("_FORGOTTEN", 0.2), ("_EXTENDED", 0.5)):
        patch.setattr(clients_module, name, share)
    return patch


@given(STEPS, LOST, st.sampled_from(["none", "key"]), st.randoms(use_true_random=False))
def test_no_event_is_wrong_and_what_is_missing_is_counted(
    steps: Sequence[tuple[str, float, Fault | str | None, int, bool]],
    lost: Sequence[bool],
    order: str,
    chance: Any,
):
    clock = FakeClock()
    memory = MemoryStore(clock, here=clock.here)
    store = LosingStore(memory, lost)
    patch = patched(clock)
    try:
        clients = {name: Client.from_store(store, name=name) for name in NAMES}
        clients["ann"].create_queue(QUEUE, order=order, lease=LEASE, history=HOUR)
        clients["ann"].create_group(QUEUE, GROUP)
        clients["ann"].put_many(QUEUE, [str(number) for number in range(MESSAGES)])
        notes = {name: Notes(name, store) for name in NAMES}
        clerks = {
            name: Clerk(
                clients[name], QUEUE, notes[name], GROUP, LEASE.total_seconds(), chance=chance
            )
            for name in NAMES
        }

        def strike(what: Fault | str, name: str) -> None:
            if isinstance(what, Fault):
                store.fault = what
            elif what == REFUSED:
                raise NotAppliedError("overloaded")
            else:
                clock.advance(2 * LEASE)
                next(clerks[each] for each in NAMES if each != name).step()

        for number, (name, pause, what, calls, arrives) in enumerate(steps):
            store.step = number
            clock.advance(timedelta(seconds=pause))
            if what is not None:
                store.interrupt(partial(strike, what, name), after=calls)
            clerks[name].step()
            store.calm()
            if arrives:
                store.arrive()
            flush_history(store, MINUTE)

        verdict = judge_history(
            [*entries_of(memory, QUEUE, GROUP, {})],
            {name: each.told for name, each in notes.items()},
            [],
            group=GROUP,
            ends=ends_of(memory, QUEUE),
        )
    finally:
        patch.undo()
    done = {each for some in notes.values() for each in some.done()}
    assert verdict.history_wrong == 0
    assert verdict.history_missing == len(done - store.written)
