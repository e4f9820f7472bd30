"""Threads of one process that receive and settle for a group share LWTs, and are not told off."""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from datetime import timedelta
from functools import partial
from itertools import count
from random import Random
from types import SimpleNamespace

import pytest

from cassieq_spark import Client, Message, backoff, combining
from cassieq_spark.client import client as client_module
from cassieq_spark.client.client import Together
from cassieq_spark.errors import NotAppliedError, TooLargeError
from cassieq_spark.groups import group as group_module
from cassieq_spark.groups import rounds as rounds_module
from cassieq_spark.groups import settle as settle_module
from cassieq_spark.groups.rounds import Change, Leasing
from cassieq_spark.settings.connection import ConnectionOptions
from cassieq_spark.store.memory import MemoryStore
from cassieq_spark.store.protocol import Op, Partition
from cassieq_spark.store.tables import Table
from cassieq_spark.testing.stores import CountingStore
from tests.support.threads import PATIENCE, GatedStore, Interrupted, until

MESSAGES = 40


class Scene:
    """A thread receives and is held up; others wait behind it."""

    def __init__(self, order: str = "none") -> None:
        self.store = GatedStore()
        self.client = Client.from_store(self.store)
        self.client.create_queue("q", order=order, max_deliveries=9)
        self.client.put_many("q", [str(number) for number in range(MESSAGES)])
        self.client.create_group("q", "g")
        self.pool = ThreadPoolExecutor(16)

    def receive(self, most: int = 1) -> Callable[[], list[Message]]:
        return lambda: self.client.receive("q", "g", max=most)

    def together(self, *calls: Callable[[], object]) -> list[Future]:
        """Let a thread receive and be held up, and then these calls wait behind it."""
        self.store.reset()
        self.store.shut()
        first = self.pool.submit(self.receive())
        assert self.store.reached.wait(PATIENCE)
        futures = [first]
        for each in calls:
            before = self.waiting
            futures.append(self.pool.submit(each))
            until(lambda before=before: self.waiting > before)
        return futures

    def receive_so_many(self, most: int) -> list[Message]:
        return self.receive(most)()

    def starts(self, receive: Callable[[int], list[Message]], most: int) -> Future:
        """Let a thread receive, until it is held up, waits for another one, or has ended."""
        held = self.store.reached.is_set()
        future = self.pool.submit(receive, most)
        # Not by their number: one that waits may be interrupted at the same moment.
        until(
            lambda: (
                future.done() or self.store.reached.is_set() > held or most in self.most_of_waiting
            )
        )
        return future

    @property
    def most_of_waiting(self) -> list[int | None]:
        waiting = waiting_in(self.client)
        return [each.request.max_messages for each in waiting if isinstance(each, Leasing)]

    @property
    def waiting(self) -> int:
        return len(waiting_in(self.client))

    @property
    def depth(self) -> int:
        (group,) = self.client.groups("q")
        return group.depth


def waiting_in(client: Client) -> list[Change]:
    lines = client._together.rounds._combining.here.lines
    return [each for line in lines.values() for each in line.waiting if not each.is_over]


@pytest.fixture
def scene() -> Iterator[Scene]:
    scene = Scene()
    yield scene
    scene.pool.shutdown()
    # Nobody is left who would have to work for others.
    assert not scene.client._together.rounds._combining.here.lines


def monotons(*futures: Future) -> list[list[int]]:
    return [[each.monoton for each in future.result(PATIENCE)] for future in futures]


# -- they share LWTs ------------------------------------------------------------------------------


def test_threads_that_wait_lease_by_one_lwt_each_under_its_own_lease(scene: Scene):
    futures = scene.together(scene.receive(3), scene.receive(2), scene.receive(1))
    scene.store.open()

    assert monotons(*futures) == [[0], [1, 2, 3], [4, 5], [6]]
    assert scene.store.cas_count == 2
    leases = {each.receipt.rsplit("/", 2)[-2] for it in futures for each in it.result()}
    assert len(leases) == 4


def test_settlements_go_with_what_others_lease(scene: Scene):
    acked, released, rejected = (scene.client.receive("q", "g", max=2) for _ in range(3))
    futures = scene.together(
        lambda: scene.client.ack(*acked),
        lambda: scene.client.release(*released, delay=timedelta(hours=1)),
        scene.receive(2),
        lambda: scene.client.ack(*rejected),
    )
    scene.store.open()

    assert monotons(futures[3]) == [[7, 8]]
    assert [futures[each].result(PATIENCE) for each in (1, 2, 4)] == [[], [], []]
    assert scene.store.cas_count == 2
    assert scene.depth == MESSAGES - 4


def test_what_one_thread_gives_back_another_one_gets_in_the_same_round(scene: Scene):
    released = scene.client.receive("q", "g", max=5)
    futures = scene.together(lambda: scene.client.release(*released), scene.receive(9))
    scene.store.open()

    assert monotons(futures[2]) == [[0, 1, 2, 3, 4, 6, 7, 8, 9]]
    assert [each.delivery_count for each in futures[2].result()] == [2] * 5 + [1] * 4
    assert scene.store.cas_count == 2


def test_threads_that_ack_messages_of_one_lease_share_an_lwt(scene: Scene):
    leased = scene.client.receive("q", "g", max=3)
    acks = [lambda each=each: scene.client.ack(each) for each in leased]
    futures = scene.together(*acks, *acks[:1])
    scene.store.open()

    told = [each.result(PATIENCE) for each in futures[1:]]
    assert told == [[], [], [], [leased[0].receipt]]
    assert scene.store.cas_count == 2
    assert scene.depth == MESSAGES - 3


def test_a_limit_of_bytes_holds_for_each_of_them(scene: Scene):
    def few() -> list[Message]:
        return scene.client.receive("q", "g", max=9, max_bytes=1)

    futures = scene.together(few, scene.receive(2), few)
    scene.store.open()

    assert monotons(*futures) == [[0], [1], [2, 3], [4]]


def test_in_strict_order_one_thread_holds_messages_at_a_time():
    scene = Scene(order="strict")
    futures = scene.together(scene.receive(3), scene.receive(3))
    scene.store.open()

    assert monotons(*futures) == [[0], [], []]


def test_no_group_waits_for_another_one(scene: Scene):
    scene.client.create_group("q", "other")
    scene.together()

    assert len(scene.client.receive("q", "other", max=2)) == 2
    scene.store.open()


def test_a_round_has_as_many_changes_as_one_lwt_takes(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(rounds_module, "MOST_BYTES", 0)
    futures = scene.together(scene.receive(2), scene.receive(2), scene.receive(2))
    scene.store.open()

    assert sorted(monotons(*futures)) == [[0], [1, 2], [3, 4], [5, 6]]
    assert scene.store.cas_count == 4


def test_clients_that_connect_in_the_same_way_share_lwts_and_others_do_not(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(client_module, "open_store", lambda _: scene.store)
    one, same = Client(contact_points=["a"]), Client(contact_points=["a"])
    other = Client(contact_points=["a"], username="u", password="p")
    scene.client._together = one._together

    futures = scene.together(*(receiving_of(each) for each in (one, same)))
    scene.store.open()

    assert monotons(*futures) == [[0], [1], [2]]
    assert scene.store.cas_count == 2
    assert other._together is not one._together
    assert Together.of(ConnectionOptions(contact_points=("a",))) is one._together


def receiving_of(client: Client) -> Callable[[], list[Message]]:
    return lambda: client.receive("q", "g")


# -- what goes wrong for one, and for all ---------------------------------------------------------


def test_what_one_lwt_cannot_carry_out_fails_for_its_thread_only(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
):
    held = scene.client.receive("q", "g", max=2)
    futures = scene.together(
        lambda: scene.client.release(held[0]), scene.receive(2), lambda: scene.client.ack(held[1])
    )
    monkeypatch.setattr(settle_module, "MOST_OUTCOMES", 0)
    scene.store.open()

    with pytest.raises(TooLargeError):
        futures[1].result(PATIENCE)
    assert monotons(futures[2]) == [[3, 4]]
    assert futures[3].result(PATIENCE) == []


def test_all_of_them_hear_that_cassandra_failed(scene: Scene):
    def fail(_: object) -> bool:
        raise NotAppliedError("too few replicas")

    futures = scene.together(scene.receive(2), scene.receive(2))
    gate = scene.store.gate
    scene.store.shut()
    gate.set_result(lambda cas: cas())
    assert scene.store.reached.wait(PATIENCE)
    scene.store.open(fail)

    for each in futures[1:]:
        with pytest.raises(NotAppliedError):
            each.result(PATIENCE)
    assert monotons(futures[0]) == [[0]]


@pytest.mark.parametrize("arrives", [True, False])
def test_if_a_thread_is_interrupted_the_others_find_their_changes_done_or_repeat_them(
    scene: Scene, arrives: bool
):
    held = scene.client.receive("q", "g", max=2)

    def interrupt(cas: Callable[[], bool]) -> bool:
        if arrives:
            cas()
        raise KeyboardInterrupt

    futures = scene.together(scene.receive(2), scene.receive(3), lambda: scene.client.ack(*held))
    gate = scene.store.gate
    scene.store.shut()
    gate.set_result(lambda cas: cas())
    assert scene.store.reached.wait(PATIENCE)
    scene.store.open(interrupt)

    with pytest.raises(KeyboardInterrupt):
        futures[1].result(PATIENCE)
    assert monotons(futures[2]) == ([[5, 6, 7]] if arrives else [[3, 4, 5]])
    assert futures[3].result(PATIENCE) == []
    assert scene.store.cas_count == (2 if arrives else 3)


@pytest.mark.parametrize("victim", [0, 1], ids=["the first", "one that waits"])
def test_wherever_a_thread_is_interrupted_the_others_get_their_messages(
    monkeypatch: pytest.MonkeyPatch, victim: int
):
    monkeypatch.setattr(combining, "_PATIENCE", 0.01)
    for before in count(step=2):
        scene, interrupted = Scene(), Interrupted(before, combining, rounds_module)
        scene.store.shut()
        receives = [scene.receive_so_many] * 3
        receives[victim] = partial(interrupted.call, scene.receive_so_many)
        futures = [scene.starts(receives[at], at + 2) for at in range(3)]
        scene.store.open()
        wait(futures, PATIENCE)

        errors = [future.exception(0) for future in futures]
        assert isinstance(errors.pop(victim), KeyboardInterrupt) is interrupted.happened
        assert errors == [None, None]
        got = [each for future in futures if not future.exception() for each in future.result()]
        assert len({each.monoton for each in got}) == len(got) >= 5
        # One that is interrupted while it leaves last may leave a line, in which nobody waits.
        left = scene.client._together.rounds._combining.here.lines.values()
        assert all(line.leader.is_over and not line.waiting for line in left)
        scene.pool.shutdown()
        if not interrupted.happened:
            assert not left
            break
    assert before > 30, "it was interrupted at each line"


def test_a_signal_handler_may_settle_in_the_middle_of_a_receive(scene: Scene):
    (held,) = scene.client.receive("q", "g")
    told: list[object] = []

    def handle(cas: Callable[[], bool]) -> bool:
        told.append(scene.client.ack(held))
        return cas()

    scene.store.meet(handle)

    assert [each.monoton for each in scene.client.receive("q", "g", max=2)] == [1, 2]
    assert told == [[]]


def test_a_child_does_not_wait_for_a_thread_of_its_parent(scene: Scene):
    scene.together()
    pid = os.fork()
    if pid == 0:
        # The memory is a copy.
        os._exit(0 if len(scene.client.receive("q", "g", max=3)) == 3 else 1)
    assert os.waitpid(pid, 0)[1] == 0
    scene.store.open()


# -- many of them ---------------------------------------------------------------------------------


class BusyStore(CountingStore):
    """Counts the LWTs of groups; each of them lets all other threads run first."""

    def __init__(self) -> None:
        super().__init__(MemoryStore())
        self.of_groups = 0

    def cas(self, partition: Partition, ops: Sequence[Op]) -> bool:
        if partition.table is Table.GROUP_STATE:
            self.of_groups += 1
            threading.Event().wait(0.001)
        return super().cas(partition, ops)


@pytest.mark.parametrize("clients", [1, 2, 8])
def test_eight_threads_take_few_lwts_and_each_message_is_handed_out_as_often_as_it_says(
    clients: int, monkeypatch: pytest.MonkeyPatch
):
    store = BusyStore()
    monkeypatch.setattr(client_module, "open_store", lambda _: store)
    opened = [Client(contact_points=["busy"]) for _ in range(clients)]
    opened[0].create_queue("q", max_deliveries=0)
    opened[0].put_many("q", [str(number) for number in range(400)])
    opened[0].create_group("q", "g")
    deliveries: dict[int, list[int]] = {each: [] for each in range(400)}
    acked: Counter[int] = Counter()
    held: set[int] = set()
    receives = 0
    lock = threading.Lock()

    def read(number: int) -> None:
        nonlocal receives
        client, chance = opened[number % clients], Random(number)
        while True:
            messages = client.receive("q", "g", max=chance.randint(1, 20))
            with lock:
                if not messages and sum(acked.values()) == 400:
                    return
                receives += bool(messages)
                assert not held & {each.monoton for each in messages}
                held.update(each.monoton for each in messages)
                for each in messages:
                    deliveries[each.monoton].append(each.delivery_count)
            back = [each for each in messages if chance.random() < 1 / 3]
            done = [each for each in messages if each not in back]
            with lock:
                held.difference_update(each.monoton for each in messages)
            assert client.release(*back) == []
            assert client.ack(*done) == []
            with lock:
                acked.update(each.monoton for each in done)

    store.of_groups = 0
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(read, range(8)))

    assert acked == Counter(range(400))
    assert all(told == [*range(1, len(told) + 1)] for told in deliveries.values())
    # Without a round, one LWT leases, one acks and one releases.
    assert store.of_groups / receives < 2


def test_seconds_of_contention_are_no_error(monkeypatch: pytest.MonkeyPatch):
    """Another program is faster fifty times in a row."""
    store = MemoryStore()
    client, other = Client.from_store(store), Client.from_store(store)
    client.create_queue("q")
    client.put_many("q", [str(number) for number in range(100)])
    client.create_group("q", "g")
    carry_out = group_module.ConsumerGroup.carry_out
    lost: list[int] = []

    def beaten(group: group_module.ConsumerGroup, *given: object) -> bool:
        if len(lost) < 50 and not threading.current_thread().name.startswith("other"):
            lost.append(0)
            faster = threading.Thread(target=receiving_of(other), name="other")
            faster.start()
            faster.join()
        return carry_out(group, *given)

    monkeypatch.setattr(group_module.ConsumerGroup, "carry_out", beaten)

    assert [each.monoton for each in client.receive("q", "g", max=2)] == [50, 51]


def test_a_client_remembers_that_others_compete_and_pauses_before_it_leases_or_releases(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
):
    other = Client.from_store(scene.store)
    monkeypatch.setattr(backoff, "_LONGEST_PAUSE", 0.5)
    paused: list[float] = []
    # Time stands still, and each pause is as long as the mean.
    stands = SimpleNamespace(monotonic=lambda: 100.0, sleep=paused.append)
    monkeypatch.setattr(backoff, "time", stands)
    mean = SimpleNamespace(uniform=lambda least, most: (least + most) / 2)
    monkeypatch.setattr(backoff, "random", mean)
    scene.store.meet(lambda cas: bool(other.receive("q", "g")) and cas())

    messages = scene.client.receive("q", "g", max=4)

    assert [each.monoton for each in messages] == [1, 2, 3, 4]
    assert len(paused) == 1, "it lost a race"
    scene.client.ack(messages[0])
    assert len(paused) == 1, "acks compete with nobody"
    scene.client.release(messages[1])
    scene.client.receive("q", "g")
    assert len(paused) == 3
