from __future__ import annotations

import logging
import time
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import cassandra
import pytest
from cassandra.connection import DefaultEndPoint
from cassandra.policies import DCAwareRoundRobinPolicy, SimpleConvictionPolicy
from cassandra.pool import Host
from hypothesis import given
from hypothesis import strategies as st

from cassieq_spark.model import QueueId
from cassieq_spark.settings.connection import ConnectionOptions
from cassieq_spark.store.cassandra import clocks as subject
from cassieq_spark.store.cassandra import store as store_module
from cassieq_spark.store.cassandra.clocks import (
    NODE_OUTVOTED,
    REMEMBERED,
    NodeClocks,
    NodesThatComeUp,
    RightClocksFirst,
    judge,
)
from cassieq_spark.store.cassandra.store import CassandraStore
from cassieq_spark.store.protocol import CLOCKS_APART, partition_of_ledger

A, B, C, D = "10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4"
RIGHT = timedelta(seconds=1)
DAY = timedelta(days=1)
WRONG = CLOCKS_APART + 3 * RIGHT


class Cluster:
    """A driver with nodes whose clocks are off; it remembers which node was asked for what."""

    def __init__(self, **_: Any) -> None:
        self.off: dict[str, timedelta] = {}
        self.stands_still: set[str] = set()
        self.down: set[str] = set()
        self.hangs: set[str] = set()
        self.asked: list[str] = []
        self.clocks = NodeClocks()
        self.policy = RightClocksFirst(
            DCAwareRoundRobinPolicy("near"), self.clocks, shuffle_replicas=False
        )

    def have(self, **off: timedelta) -> Cluster:
        """Let nodes A, B, ... have clocks that are off by so much."""
        self.off = {globals()[name]: by for name, by in off.items()}
        self.policy.populate(self.cluster, self.hosts())
        return self

    def hosts(self) -> list[Host]:
        return [self.host(address) for address in self.off]

    def host(self, address: str) -> Host:
        host = Host(DefaultEndPoint(address), SimpleConvictionPolicy)
        host.set_location_info("near", "rack")
        if address not in self.down:
            host.set_up()
        return host

    # -- as the driver's session --

    @property
    def cluster(self) -> Any:
        metadata = SimpleNamespace(all_hosts=self.hosts, can_support_partitioner=lambda: True)
        return SimpleNamespace(metadata=metadata, endpoints_resolved=[])

    def execute(self, statement: Any, *, host: Host | None = None, **_: Any) -> Any:
        del statement
        node = host or next(self.policy.make_query_plan())
        self.asked.append(node.address)
        if node.address in self.hangs:
            raise cassandra.OperationTimedOut
        future = SimpleNamespace(coordinator_host=node)
        row = (1, *self.clocks_of(node.address))
        return SimpleNamespace(
            current_rows=[row[-2:]] if host else [row],
            response_future=future,
            paging_state=None,
        )

    def clocks_of(self, address: str) -> tuple[datetime, datetime]:
        """Its wall clock, and what ``now()`` says."""
        now = self.now()
        wall = now + self.off[address]
        return wall, now if address in self.stands_still else wall

    def now(self) -> datetime:
        return datetime.now(UTC)

    # -- what a read does --

    def judge(self, address: str) -> bool:
        self.clocks.see(address, *self.clocks_of(address))
        driver: Any = self
        return judge(driver, self.clocks, self.host(address))

    def order(self) -> list[str]:
        return [host.address for host in self.policy.make_query_plan()]


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


def test_a_node_whose_clock_most_contradict_is_asked_last():
    for off in (-DAY, -WRONG, WRONG, DAY):
        for wrong in (A, B, C):
            cluster = Cluster().have(A=RIGHT, B=-RIGHT, C=RIGHT)
            cluster.off[wrong] = off

            assert cluster.judge(wrong)

            assert cluster.order()[-1] == wrong
            assert sorted(cluster.order()) == [A, B, C]


def test_a_node_whose_clock_was_set_back_while_it_runs_is_asked_last(cluster: Cluster):
    cluster.have(A=-DAY, B=RIGHT, C=RIGHT).stands_still = {A}

    assert cluster.judge(A)

    assert cluster.order()[-1] == A


def test_a_node_whose_clock_was_ahead_and_is_right_again_is_asked_last_until_it_is_restarted(
    cluster: Cluster,
):
    cluster.have(A=RIGHT, B=RIGHT, C=RIGHT)
    cluster.clocks.see(A, datetime.now(UTC), datetime.now(UTC) + DAY)
    driver: Any = cluster

    assert judge(driver, cluster.clocks, cluster.host(A))

    assert cluster.judge(A) is False
    assert cluster.clocks.outvoted == frozenset()


def test_clocks_that_agree_cost_no_request(cluster: Cluster):
    cluster.have(A=RIGHT, B=-RIGHT, C=CLOCKS_APART - RIGHT)

    assert not any(cluster.judge(each) for each in (A, B, C))

    assert cluster.asked == []
    assert cluster.clocks.outvoted == frozenset()


def test_a_node_is_not_outvoted_by_the_clock_of_this_process_alone(cluster: Cluster):
    assert not cluster.have(A=-DAY).judge(A)
    assert not cluster.have(A=-DAY, B=-DAY, C=-DAY).judge(A)

    assert cluster.clocks.outvoted == frozenset()


def test_two_other_nodes_are_asked_and_each_once_a_minute(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
):
    cluster.have(A=-DAY, B=-DAY, C=-DAY, D=-DAY)

    cluster.judge(A)
    cluster.judge(A)

    assert len(cluster.asked) == len(set(cluster.asked) - {A}) == 2
    later = time.monotonic() + REMEMBERED.total_seconds()
    monkeypatch.setattr(subject.time, "monotonic", lambda: later)
    cluster.judge(A)
    assert len(cluster.asked) == 4


def test_nodes_that_are_down_or_hang_have_no_vote(cluster: Cluster):
    cluster.have(A=-DAY, B=RIGHT, C=RIGHT)
    cluster.down, cluster.hangs = {B}, {C}

    assert not cluster.judge(A)

    assert cluster.asked == [C]


def test_a_node_is_asked_like_the_others_again_once_its_clock_is_right(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
):
    cluster.have(A=-DAY, B=RIGHT, C=RIGHT).judge(A)
    cluster.off[A] = RIGHT
    later = time.monotonic() + REMEMBERED.total_seconds()
    monkeypatch.setattr(subject.time, "monotonic", lambda: later)
    monkeypatch.setattr(subject.time, "time", lambda: datetime.now(UTC).timestamp() + 60)
    monkeypatch.setattr(cluster, "now", lambda: datetime.now(UTC) + timedelta(minutes=1))

    cluster.judge(B)

    assert cluster.asked.count(A) == 1
    assert cluster.clocks.outvoted == frozenset()


def test_an_outvoted_node_stays_so_while_nobody_has_seen_its_clock(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
):
    cluster.have(A=-DAY, B=RIGHT, C=RIGHT).judge(A)
    cluster.down = {A}
    later = time.monotonic() + REMEMBERED.total_seconds()
    monkeypatch.setattr(subject.time, "monotonic", lambda: later)

    cluster.judge(B)

    assert cluster.clocks.outvoted == {A}


def test_a_node_that_comes_up_is_asked_for_its_clock(cluster: Cluster):
    cluster.have(A=-DAY, B=RIGHT, C=RIGHT)
    driver: Any = cluster
    listener = NodesThatComeUp(driver, cluster.clocks)

    listener.on_add(cluster.host(B))
    assert cluster.asked == [B]

    listener.on_up(cluster.host(A))
    assert cluster.clocks.outvoted == {A}

    cluster.hangs = {C}
    listener.on_up(cluster.host(C))
    assert cluster.clocks.outvoted == {A}

    listener.on_remove(cluster.host(A))
    assert cluster.clocks.outvoted == frozenset()


def test_an_outvoted_node_is_warned_of_once(cluster: Cluster, caplog: pytest.LogCaptureFixture):
    cluster.have(A=-DAY, B=RIGHT, C=RIGHT)

    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            cluster.judge(A)

    (record,) = caplog.records
    assert (record.__dict__["action"], record.__dict__["node"]) == (NODE_OUTVOTED, A)


@pytest.mark.parametrize("serial", [False, True])
def test_what_an_outvoted_node_has_read_is_read_again_by_another_one(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, *, serial: bool
):
    cluster.have(A=-DAY, B=RIGHT, C=RIGHT)
    # The first of the plan, until it is outvoted.
    plan = cluster.order()
    cluster.off = dict.fromkeys(plan, RIGHT) | {plan[0]: -DAY}
    monkeypatch.setattr(
        DCAwareRoundRobinPolicy, "make_query_plan", lambda *_: iter(map(cluster.host, plan))
    )
    session = SimpleNamespace(driver=cluster, clocks=cluster.clocks)
    monkeypatch.setattr(store_module, "bind", lambda *_: SimpleNamespace())
    monkeypatch.setattr(store_module, "execute", lambda _, statement, **__: cluster.execute(None))
    monkeypatch.setattr(store_module, "read_serially", lambda *_, **__: cluster.execute(None))
    monkeypatch.setattr(CassandraStore, "_session", session)
    monkeypatch.setattr(store_module, "columns_of", lambda _: ("next",))
    store = CassandraStore(ConnectionOptions())

    for _ in range(2):
        now = store.read_rows(partition_of_ledger(QueueId("q@1")), serial=serial).now
        assert now is not None
        assert abs(now - datetime.now(UTC)) < CLOCKS_APART

    assert cluster.asked.count(plan[0]) == 1


@given(
    st.lists(st.sampled_from([timedelta(0), RIGHT, -RIGHT]), min_size=1, max_size=5),
    st.lists(st.sampled_from([-DAY, -WRONG, WRONG, DAY]), max_size=6),
)
def test_a_right_majority_outvotes_all_wrong_clocks_and_no_right_one(
    right: list[timedelta], wrong: list[timedelta]
):
    clocks = NodeClocks()
    for number, off in enumerate([*right, *wrong]):
        clocks.see(str(number), *[datetime.now(UTC) + off] * 2)
    wrong_ones = {str(number) for number in range(len(right), len(right) + len(wrong))}

    lost = clocks.vote()

    assert clocks.outvoted == lost
    if len(wrong) <= len(right):  # and this process is right
        assert lost == wrong_ones
