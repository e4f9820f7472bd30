from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, NamedTuple

import cassandra
import pytest

from cassieq_spark.model import QueueId
from cassieq_spark.settings.connection import ConnectionOptions
from cassieq_spark.store.cassandra import promises
from cassieq_spark.store.cassandra.promises import TOLERANCE, replace_promise
from cassieq_spark.store.cassandra.session import CAS
from cassieq_spark.store.protocol import partition_of_ledger
from cassieq_spark.store.tables import SHAPES, Table

LEDGER = partition_of_ledger(QueueId("jobs@1"))
AHEAD = TOLERANCE + timedelta(seconds=0.5)


class Node(NamedTuple):
    address: str


A, B = Node("10.0.0.1"), Node("10.0.0.2")


class Session:
    """Remembers what is sent to which node; each node has a clock of its own."""

    def __init__(self, ahead: dict[str, timedelta] | None = None) -> None:
        self.options = ConnectionOptions(patience=timedelta(0))
        self.nodes_ahead: set[str] = set()
        self.driver = self
        self.sent: list[tuple[str, str]] = []
        self.fails: Callable[[], None] = lambda: None
        self._ahead = ahead or {}

    def prepared(self, text: str) -> Any:
        return SimpleNamespace(bind=lambda _: SimpleNamespace(text=text))

    def execute(
        self, statement: Any, *, execution_profile: str, paging_state: Any, host: Any
    ) -> Any:
        del paging_state
        self.fails()
        what = "lwt" if execution_profile == CAS else "clock"
        self.sent.append((what, host.address))
        now = datetime.now(UTC) + self._ahead.get(host.address, timedelta(0))
        return SimpleNamespace(current_rows=[(now,)], statement=statement)


def page(*hosts: Any) -> Any:
    """An answer of the first of these nodes, sent to all of them."""
    future = SimpleNamespace(attempted_hosts=list(hosts), coordinator_host=hosts[0])
    return SimpleNamespace(response_future=future)


def told(ahead: timedelta) -> datetime:
    return datetime.now(UTC) + ahead


def test_a_read_by_a_node_whose_clock_is_right_costs_nothing_more():
    session: Any = Session()

    replace_promise(session, LEDGER, page(A), told(timedelta(0)))
    replace_promise(session, LEDGER, page(A), told(TOLERANCE / 2))
    replace_promise(session, LEDGER, page(A), told(-AHEAD))

    assert session.sent == []


def test_a_read_by_a_node_whose_clock_is_ahead_is_followed_by_an_lwt_at_that_node():
    session: Any = Session()

    replace_promise(session, LEDGER, page(A), told(AHEAD))

    assert session.sent == [("lwt", A.address)]


def test_a_read_that_found_nothing_asks_the_node_for_its_clock():
    session: Any = Session()

    replace_promise(session, LEDGER, page(A), None)

    assert session.sent == [("clock", A.address)]


def test_a_read_that_found_nothing_at_a_node_that_is_ahead_is_followed_by_an_lwt():
    session: Any = Session({A.address: AHEAD})

    replace_promise(session, LEDGER, page(A), None)

    assert session.sent == [("clock", A.address), ("lwt", A.address)]


def test_a_slow_node_that_got_the_read_too_is_asked_for_its_clock():
    session: Any = Session({B.address: AHEAD})

    replace_promise(session, LEDGER, page(A, B), told(timedelta(0)))

    assert session.sent == [("clock", B.address), ("lwt", B.address)]


def test_a_node_that_is_ahead_is_warned_of_once(caplog: pytest.LogCaptureFixture):
    session: Any = Session()

    for _ in range(3):
        replace_promise(session, LEDGER, page(A), told(timedelta(days=1)))

    actions = [getattr(record, "action", None) for record in caplog.records]
    assert actions == [promises.NODE_AHEAD]
    assert "86400.0 s ahead" in caplog.text
    assert session.sent == [("lwt", A.address)] * 3


def test_a_read_whose_promise_cannot_be_replaced_is_no_error_but_a_warning(
    caplog: pytest.LogCaptureFixture,
):
    session: Any = Session()

    def refuse() -> None:
        raise cassandra.Unauthorized("no MODIFY permission")

    session.fails = refuse
    with caplog.at_level(logging.WARNING):
        replace_promise(session, LEDGER, page(A), told(AHEAD))

    last = caplog.records[-1]
    assert last.__dict__["action"] == promises.PROMISE_LEFT
    assert "ledger jobs@1" in last.message
    assert "no MODIFY permission" in last.message


@pytest.mark.parametrize("table", [each for each in Table if each is not Table.CHUNK])
def test_the_lwt_names_a_whole_row_and_a_number_of_each_table_with_partitions(table: Table):
    row, column = promises._NOWHERE[table]

    assert len(row) == len(SHAPES[table].clustering)
    assert SHAPES[table].columns[column] in {"int", "bigint"}
