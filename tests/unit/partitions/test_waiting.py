"""Receives that wait at a queue of several partitions, of clients and of a gateway."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest

from cassieq_spark import AsyncClient, Client, Message, backoff
from cassieq_spark.client import exchange as exchange_module
from cassieq_spark.client.calls import Calls
from cassieq_spark.client.receiver import LONGEST_PAUSE, longest_pause
from cassieq_spark.consumer import consumer as consumer_module
from cassieq_spark.consumer.idle_backoff import RECHECK
from cassieq_spark.http.gateway.coalescer import Coalescer
from tests.unit.partitions.scene import PartitionedQueue, Time

WIDE = 16
LEASE = timedelta(seconds=30)
WAIT = timedelta(seconds=160)

#: Waits for one message, as a client or by a gateway.
Receive = Callable[[str, timedelta], Sequence[Message]]


class Scene(PartitionedQueue):
    """Queues of one and of sixteen partitions, and what happens while a receive waits."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__()
        for partitions in (1, WIDE):
            self.client.create_queue(f"of{partitions}", partitions=partitions, max_deliveries=0)
            self.client.create_group(f"of{partitions}", "g")
        self.time = Time(monkeypatch, self)
        monkeypatch.setattr(backoff, "time", self.time)
        monkeypatch.setattr(exchange_module, "monotonic", self.time.monotonic)
        monkeypatch.setattr(consumer_module, "monotonic", self.time.monotonic)
        monkeypatch.setattr(Calls, "pause", lambda _, seconds: self.sleep(seconds))
        self._plans: list[tuple[float, Callable[[], object]]] = []

    def after(self, seconds: float, call: Callable[[], object]) -> None:
        self._plans.append((self.time.monotonic() + seconds, call))
        self._plans.sort(key=lambda plan: plan[0])

    def sleep(self, seconds: float) -> bool:
        until = self.time.monotonic() + seconds
        while self._plans and self._plans[0][0] <= until:
            at, call = self._plans.pop(0)
            self.time.sleep(max(0.0, at - self.time.monotonic()))
            call()
        self.time.sleep(max(0.0, until - self.time.monotonic()))
        return True


class Loop(asyncio.SelectorEventLoop):
    """A loop by the clock of the scene, for programs that use no thread."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        super().__init__()
        # A timer is late by a millisecond, and never early.
        cast(Any, self)._clock_resolution = 0.0
        select = cast(Any, self)._selector.select

        def jump(seconds: float | None) -> Any:
            if seconds:
                scene.sleep(seconds + 0.001)
            return select(0)

        cast(Any, self)._selector.select = jump

    def time(self) -> float:
        return self._scene.time.monotonic()


class Blocking:
    """As much of a client for asyncio as a coalescer needs; it works in the loop itself."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def exchange(self, queue: str, group: str, **settings: Any) -> SimpleNamespace:
        exchange = self._client.exchange(queue, group, **settings)

        async def round(*args: Any, **settings: Any) -> Any:  # noqa: A001 (as of an exchange)
            return exchange.round(*args, **settings)

        return SimpleNamespace(round=round)


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> Scene:
    return Scene(monkeypatch)


@pytest.fixture(params=["client", "table", "gateway"])
def receive(request: pytest.FixtureRequest, scene: Scene) -> Iterator[Receive]:
    def by_table(queue: str, wait: timedelta) -> Sequence[Message]:
        return scene.client.receive_table(queue, "g", max=1, wait=wait).to_pylist()

    def by_client(queue: str, wait: timedelta) -> Sequence[Message]:
        return scene.client.receive(queue, "g", max=1, wait=wait)

    def by_gateway(queue: str, wait: timedelta) -> Sequence[Message]:
        return runner.run(coalescer.receive(queue, "g", most=1, lease=LEASE, wait=wait))

    client = cast(AsyncClient, Blocking(scene.client))
    coalescer = Coalescer(client, 1000, timedelta(milliseconds=2))
    by = {"client": by_client, "table": by_table, "gateway": by_gateway}
    with asyncio.Runner(loop_factory=lambda: Loop(scene)) as runner:
        yield by[request.param]


def reads_a_second(scene: Scene, receive: Receive, partitions: int) -> float:
    counted: list[int] = []
    for second in (60, 160):
        scene.after(second, lambda: counted.append(scene.store.read_count))
    assert len(receive(f"of{partitions}", WAIT)) == 0
    return (counted[1] - counted[0]) / 100


def test_a_receive_that_waits_at_16_partitions_makes_ten_reads_a_second_and_no_lwt(
    scene: Scene, receive: Receive
):
    scene.store.reset()

    assert reads_a_second(scene, receive, WIDE) <= 10
    assert scene.store.cas_count == 0


def test_a_receive_that_waits_at_one_partition_makes_about_four_reads_a_second(
    scene: Scene, receive: Receive, request: pytest.FixtureRequest
):
    # A gateway reads the definition of the queue, too.
    each = 4 if "gateway" in request.node.name else 3

    assert reads_a_second(scene, receive, 1) == pytest.approx(each / LONGEST_PAUSE, rel=0.02)


@pytest.mark.parametrize("partitions", [1, WIDE])
def test_a_message_is_received_after_the_longest_pause_at_most(
    scene: Scene, receive: Receive, partitions: int
):
    scene.after(60, lambda: scene.client.put(f"of{partitions}", "v"))

    assert len(receive(f"of{partitions}", WAIT)) == 1
    assert scene.time.monotonic() <= 60 + longest_pause(partitions)


def test_a_delayed_message_is_received_when_its_time_has_come(scene: Scene, receive: Receive):
    def put() -> None:
        scene.client.put("of16", "v", delay=timedelta(seconds=40))

    scene.after(20, put)

    assert len(receive("of16", WAIT)) == 1
    assert 60 <= scene.time.monotonic() <= 60 + 1 + longest_pause(WIDE)


def test_a_message_whose_lease_runs_out_is_received_again(scene: Scene, receive: Receive):
    def take() -> None:
        scene.client.put("of16", "v")
        assert len(scene.client.receive("of16", "g", lease=LEASE)) == 1

    scene.after(30, take)

    assert len(receive("of16", WAIT)) == 1
    assert 60 <= scene.time.monotonic() <= 60 + 1 + longest_pause(WIDE)


def test_a_message_that_others_release_is_received_after_a_recheck(scene: Scene, receive: Receive):
    scene.client.put("of16", "v")
    held = scene.client.receive("of16", "g", lease=timedelta(hours=1))
    scene.after(60, lambda: scene.client.release(*held))

    assert len(receive("of16", WAIT)) == 1
    longest = RECHECK.total_seconds() * WIDE + longest_pause(WIDE)
    assert scene.time.monotonic() <= 60 + longest


def test_a_receive_that_begins_looks_at_all_that_others_have_released(
    scene: Scene, receive: Receive
):
    scene.client.put("of16", "v")
    held = scene.client.receive("of16", "g", lease=timedelta(hours=1))
    assert len(receive("of16", timedelta(seconds=9))) == 0
    scene.client.release(*held)

    assert len(receive("of16", timedelta(0))) == 1
