"""Whoever repeats a call that may be repeated is told the truth, whatever was not answered.

An error that lets a gateway answer 503 promises that nothing was changed: `HttpQueue` and programs
repeat such a call. If the first call was carried out all the same, the second one reports its own
receipts as stale, publishes a message twice, or counts a delivery that nobody has got.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any, Self

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cassieq_spark import Client, Message, backoff
from cassieq_spark.arrow.receipts import Receipt
from cassieq_spark.client import LeaseRequest
from cassieq_spark.errors import NotAppliedError, OutcomeUnknownError, StoreError
from cassieq_spark.http.accounts.account import full_name
from cassieq_spark.http.client import HttpError
from cassieq_spark.store.memory import MemoryStore
from cassieq_spark.store.protocol import EVERYTHING, Partition, Rows, Slice
from cassieq_spark.testing.faults import Fault, FaultyStore
from tests.support.gateway import InProcess

QUEUE = full_name("acme", "q")
MESSAGES = 4
#: The status codes of errors: the call may be repeated; it may have been carried out.
REPEAT, UNKNOWN = 503, 504


class Unanswered(FaultyStore):
    """A store that does not answer some reads.

    Attributes:
        silent: For each of the next reads, whether it gets no answer; all others get one.
    """

    silent: Iterator[bool] = iter(())

    def read_rows(
        self, partition: Partition, which: Slice = EVERYTHING, *, serial: bool = False
    ) -> Rows:
        if next(self.silent, False):
            raise NotAppliedError(f"read of {partition}: no answer")
        return super().read_rows(partition, which, serial=serial)


class Scene:
    """A queue of four messages, which a client has received; and one more, which waits.

    Args:
        by_http: True if the client is that of a gateway.
    """

    def __init__(self, *, by_http: bool = False) -> None:
        self.store = Unanswered(MemoryStore())
        self.client = Client.from_store(self.store)
        self._stack = ExitStack()
        self.client.create_queue(QUEUE, drop_dead=True)
        self.client.receive(QUEUE, "g")
        self.client.put_many(QUEUE, [b"%d" % number for number in range(MESSAGES)])
        door: Any = self.client
        self.put = partial(self.client.put, QUEUE)
        self.receive = partial(self.client.receive, QUEUE, "g")
        if by_http:
            door = self._stack.enter_context(InProcess(self.store)).queue("q")
            door._queue._requests._patience = 0.0
            self.put, self.receive = door.put, partial(door.receive, "g")
        self.settle = {
            "ack": door.ack,
            "release": door.release,
            "reject": partial(door.reject, reason="bad"),
        }
        self.held: Sequence[Message] = self.receive(max=MESSAGES)
        assert len(self.held) == MESSAGES
        self.client.put(QUEUE, b"next")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def repeat(
        self, call: Callable[[], Any], fault: Fault, silent: Iterable[bool], late: int
    ) -> Any:
        """The answer to a call, repeated while it may be; None if the outcome is unknown.

        At last, all that was on its way has arrived.
        """
        store = self.store
        store.fault, store.silent = fault, iter(list(silent))
        store.interrupt(store.arrive, after=late)
        answer, may_repeat = None, True
        while may_repeat:
            may_repeat = False
            try:
                answer = call()
            except OutcomeUnknownError:
                pass
            except HttpError as error:
                if error.status not in {REPEAT, UNKNOWN}:
                    raise
                may_repeat = error.status == REPEAT
            except StoreError:
                may_repeat = True
            store.fault = None
        store.silent = iter(())
        store.calm()
        store.arrive()
        return answer

    def count(self, value: bytes) -> int:
        """How many messages with this value are there, whoever holds them."""
        return [each.value for each in self.client.peek(QUEUE, max=100)].count(value)


FAULTS = st.sampled_from(Fault)
SILENT = st.lists(st.booleans(), max_size=16)
LATE = st.integers(0, 24)


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backoff, "_LONGEST_PAUSE", 0.0)


@given(st.sampled_from(["ack", "release", "reject"]), FAULTS, SILENT, LATE, st.booleans())
@example("ack", Fault.ANSWER_LOST, [False, False, True], 24, False)
@example("ack", Fault.REQUEST_LATE, [False, False, False, True], 4, False)
def test_a_settlement_that_is_repeated_is_not_told_to_be_stale(
    verb: str, fault: Fault, silent: list[bool], late: int, by_http: bool
):
    with Scene(by_http=by_http) as scene:
        settle = partial(scene.settle[verb], *scene.held[:3])

        assert scene.repeat(settle, fault, silent, late) in (None, [])


@given(FAULTS, SILENT, LATE)
def test_an_exchange_that_is_repeated_acks_and_counts_once(
    fault: Fault, silent: list[bool], late: int
):
    scene = Scene()
    desk = scene.client.exchange(QUEUE, "g")
    receipts = [Receipt.parse(each.receipt) for each in scene.held]
    wanted = LeaseRequest(max_messages=1)

    told = scene.repeat(lambda: desk.round(receipts, wanted), fault, silent, late)

    if told is not None:
        assert not told.stale
        assert {each.delivery_count for each in told.messages} <= {1}


@given(FAULTS, SILENT, LATE, st.booleans())
def test_a_receive_that_is_repeated_counts_once(
    fault: Fault, silent: list[bool], late: int, by_http: bool
):
    with Scene(by_http=by_http) as scene:
        got = scene.repeat(scene.receive, fault, silent, late)

        # What was leased, but could neither be read nor be given back, is due later.
        assert {each.delivery_count for each in got or ()} <= {1}


@given(FAULTS, SILENT, LATE, st.booleans())
def test_a_put_that_is_repeated_is_there_once(
    fault: Fault, silent: list[bool], late: int, by_http: bool
):
    with Scene(by_http=by_http) as scene:
        done = scene.repeat(lambda: scene.put(b"new"), fault, silent, late)

        assert scene.count(b"new") in ([0, 1] if done is None else [1])


@given(FAULTS, SILENT, LATE)
def test_a_replacement_that_is_repeated_is_there_once(fault: Fault, silent: list[bool], late: int):
    scene = Scene()

    done = scene.repeat(lambda: scene.client.replace(scene.held[0], b"new"), fault, silent, late)

    assert done in (None, [])
    assert scene.count(b"new") in ([0, 1] if done is None else [1])
