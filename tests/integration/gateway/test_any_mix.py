"""Any mix of requests of several clients: nothing is lost, and nothing is with two at once."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from uuid import uuid4

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cassieq_spark import Message
from cassieq_spark.http.client import HttpQueue
from tests.support.gateway import Account

HOUR = timedelta(hours=1)
STEPS = st.sampled_from(
    ["put", "put many", "get", "get many", "ack", "release", "ack twice", "hold"]
)
PROGRAMS = st.lists(st.lists(STEPS, min_size=1, max_size=8), min_size=2, max_size=4)


class Judge:
    """Knows what is put, held and acked, by the answers of the gateway."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.put: set[str] = set()
        self.acked: Counter[str] = Counter()
        self._holders: Counter[str] = Counter()
        self._handed_out: Counter[str] = Counter()

    def was_put(self, *values: str) -> None:
        with self._lock:
            self.put.update(values)

    def got(self, messages: Sequence[Message]) -> None:
        with self._lock:
            for message in messages:
                value = message.value.decode()
                self._holders[value] += 1
                self._handed_out[value] += 1
                assert message.delivery_count == self._handed_out[value], "not as often as counted"
            assert max(self._holders.values(), default=0) <= 1, "two hold one message"

    def settled(self, message: Message, *, acked: bool) -> None:
        """Before the request: from then on another one may have it."""
        with self._lock:
            self._holders[message.value.decode()] -= 1
            self.acked[message.value.decode()] += acked


def run(queue: HttpQueue, judge: Judge, steps: Sequence[str]) -> None:
    held: list[Message] = []
    for step in steps:
        if step == "put":
            value = uuid4().hex
            queue.put(value)
            judge.was_put(value)
        elif step == "put many":
            values = [uuid4().hex for _ in range(3)]
            queue.put_many(values)
            judge.was_put(*values)
        elif step.startswith("get"):
            messages = queue.receive(max=3 if step == "get many" else 1, lease=HOUR)
            judge.got(messages)
            held += messages
        elif held:
            message = held.pop()
            if step == "hold":
                assert queue.extend(message, by=HOUR) == []
                held.insert(0, message)
                continue
            judge.settled(message, acked=step.startswith("ack"))
            if step == "release":
                assert queue.release(message) == []
                continue
            assert queue.ack(message) == []
            if step == "ack twice":
                assert queue.ack(message) == [message.receipt]
    for message in held:
        judge.settled(message, acked=False)
        queue.release(message)


@settings(max_examples=25, database=None, suppress_health_check=list(HealthCheck))
@given(programs=PROGRAMS)
def test_nothing_is_lost_and_nothing_is_with_two_at_once(
    account: Account, programs: list[list[str]]
):
    judge = Judge()
    with account.queue(f"q{uuid4().hex[:8]}", max_deliveries=0) as queue:
        with ThreadPoolExecutor(len(programs)) as threads:
            list(threads.map(lambda steps: run(queue, judge, steps), programs))
        left: list[str] = []
        while messages := queue.receive(max=100, lease=HOUR):
            judge.got(messages)
            left += [message.value.decode() for message in messages]

    assert max(judge.acked.values(), default=0) <= 1
    assert sorted(left) == sorted(
        judge.put - {value for value, count in judge.acked.items() if count}
    )
