from __future__ import annotations

import logging
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, NamedTuple

import cassandra
import pytest

from cassieq_spark.model import QueueId
from cassieq_spark.settings.connection import ConnectionOptions
from cassieq_spark.store.cassandra import clocks, promises
from cassieq_spark.store.cassandra.clocks import REMEMBERED, NodeClocks
from cassieq_spark.store.cassandra.promises import TOLERANCE, read_serially
from cassieq_spark.store.cassandra.session import CAS, READ, SERIAL_READ
from cassieq_spark.store.protocol import partition_of_ledger
from cassieq_spark.store.tables import SHAPES, Table

LEDGER = partition_of_ledger(QueueId("jobs@1"))
AHEAD = TOLERANCE + timedelta(seconds=0.5)


class Node(NamedTuple):
    address: str
    is_up: bool = True


A, B = Node("10.0.0.1"), Node("10.0.0.2")


class Session:
    """Remembers what is sent to which node; each node has a clock of its own.

    Args:
        ahead: How far the clocks of nodes are ahead.
        nodes: Those of the cluster; the first one answers if no node is named.
    """

    def __init__(
        self, ahead: dict[str, timedelta] | None = None, nodes: tuple[Node, ...] = (A,)
    ) -> None:
        self.options = ConnectionOptions(patience=timedelta(0))
        self.clocks = NodeClocks()
        self.nodes_ahead: set[str] = set()
        self.driver = self
        self.cluster = SimpleNamespace(metadata=SimpleNamespace(all_hosts=lambda: nodes))
        self.sent: list[tuple[str, str]] = []
        self.fails: Callable[[str, Node], None] = lambda *_: None
        self._ahead = ahead or {}
        self._nodes = nodes

    def prepared(self, text: str) -> Any:
        self.fails("prepare", self._nodes[0])
        return SimpleNamespace(bind=lambda _: SimpleNamespace(text=text))

    def execute(
        self,
        statement: Any,
        *,
        execution_profile: str = READ,
        paging_state: Any = None,
        host: Any = None,
        timeout: float | None = None,
    ) -> Any:
        del statement, paging_state, timeout
        node = host or self._nodes[0]
        what = {CAS: "lwt", READ: "clock", SERIAL_READ: "read"}[execution_profile]
        self.sent.append((what, node.address))
        self.fails(what, node)
        now = datetime.now(UTC) + self._ahead.get(node.address, timedelta(0))
        future = SimpleNamespace(attempted_hosts=[node], coordinator_host=node)
        return SimpleNamespace(current_rows=[(now, now)], response_future=future)


def read(session: Any) -> None:
    """Read a partition serially."""
    asked: Any = SimpleNamespace(routing_key=b"jobs@1", keyspace="cassieq")
    read_serially(session, LEDGER, asked, doing="read")


def test_a_read_by_a_node_whose_clock_is_right_costs_a_read_of_that_clock():
    for ahead in (timedelta(0), TOLERANCE / 2, -AHEAD):
        session: Any = Session({A.address: ahead})

        read(session)

        assert session.sent == [("clock", A.address), ("read", A.address)]


def test_before_a_read_by_a_node_whose_clock_is_ahead_goes_an_lwt_at_that_node():
    session: Any = Session({A.address: AHEAD})

    read(session)

    assert session.sent == [("clock", A.address), ("lwt", A.address), ("read", A.address)]


def test_a_node_is_ahead_of_another_one_whatever_the_clock_of_this_machine_says():
    # This machine's clock is as far ahead as that of the first node.
    session: Any = Session({B.address: -AHEAD}, (A, B))

    for _ in range(2):
        read(session)

    asked = [("clock", A.address), ("clock", B.address), ("lwt", A.address), ("read", A.address)]
    assert session.sent == [*asked, *(each for each in asked if each != ("clock", B.address))]


def test_a_clock_that_was_seen_long_ago_is_asked_again(monkeypatch: pytest.MonkeyPatch):
    session: Any = Session(nodes=(A, B))
    read(session)
    later = time.monotonic() + REMEMBERED.total_seconds()
    monkeypatch.setattr(clocks.time, "monotonic", lambda: later)
    session.sent.clear()

    read(session)

    assert ("clock", B.address) in session.sent


def test_a_node_that_is_down_is_not_asked_for_its_clock():
    session: Any = Session(nodes=(A, B._replace(is_up=False)))

    read(session)

    assert session.sent == [("clock", A.address), ("read", A.address)]


@pytest.mark.parametrize("what", ["clock", "prepare", "lwt", "read"])
def test_what_fails_at_one_node_is_done_by_others_and_followed_by_the_lwt(what: str):
    session: Any = Session({A.address: AHEAD})
    failed: list[str] = []

    def fail_once(sent: str, _: Node) -> None:
        if sent == what and not failed:
            failed.append(sent)
            raise cassandra.OperationTimedOut

    session.fails = fail_once

    read(session)

    assert session.sent[-3:] == [("read", A.address), ("clock", A.address), ("lwt", A.address)]


def test_a_node_that_is_ahead_is_warned_of_once(caplog: pytest.LogCaptureFixture):
    session: Any = Session({A.address: timedelta(days=1)})

    for _ in range(3):
        read(session)

    actions = [getattr(record, "action", None) for record in caplog.records]
    assert actions == [promises.NODE_AHEAD]
    assert "86400.0 s ahead" in caplog.text
    assert session.sent.count(("lwt", A.address)) == 3


def test_a_read_whose_promise_cannot_be_replaced_is_no_error_but_a_warning(
    caplog: pytest.LogCaptureFixture,
):
    session: Any = Session({A.address: AHEAD})

    def refuse(sent: str, _: Node) -> None:
        if sent == "lwt":
            raise cassandra.Unauthorized("no MODIFY permission")

    session.fails = refuse
    with caplog.at_level(logging.WARNING):
        read(session)

    last = caplog.records[-1]
    assert last.__dict__["action"] == promises.PROMISE_LEFT
    assert "ledger jobs@1" in last.message
    assert "no MODIFY permission" in last.message


@pytest.mark.parametrize("table", [each for each in Table if each is not Table.CHUNK])
def test_the_lwt_names_a_whole_row_and_a_number_of_each_table_with_partitions(table: Table):
    row, column = promises._NOWHERE[table]

    assert len(row) == len(SHAPES[table].clustering)
    assert SHAPES[table].columns[column] in {"int", "bigint"}
