from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from runpy import run_module
from uuid import UUID

import pytest

from cassieq_spark.arrow.row_columns import row_ddl
from cassieq_spark.client import Client, NewMessage
from cassieq_spark.errors import OptionError, QueueStateError
from cassieq_spark.groups.history import (
    SPAN,
    Did,
    HistoryEvent,
    HistoryWriter,
    flush_history,
)
from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.ledger.publish import publish
from cassieq_spark.model import Range, Ranges
from cassieq_spark.queues import create_queue, delete_queue, read_queue
from cassieq_spark.queues.stats import queue_stats
from cassieq_spark.settings import MESSAGES, SourceOptions
from cassieq_spark.settings.declaration import settings_by_option
from cassieq_spark.spark.source import views
from cassieq_spark.spark.source.views import VIEWS, documentation, read_view
from cassieq_spark.store.memory import MemoryStore
from cassieq_spark.store.protocol import Store
from tests.support.builders import (
    LEASE,
    make_clocked_store,
    make_group,
    make_pending,
    make_queue,
    make_request,
)
from tests.support.faults import FakeClock

DOCS = Path(__file__).parents[4] / "docs" / "views.md"
SECOND = timedelta(seconds=1)


def rows_of(store: Store, view: str, *, queue: str = "q", group: str | None = None):
    rows = list(read_view(store, SourceOptions(queue=queue, view=view, group=group)))
    names = [column.name for column in VIEWS[view].columns]
    return [dict(zip(names, row, strict=True)) for row in rows]


@pytest.fixture
def busy() -> tuple[Store, FakeClock]:
    """A queue of 100 messages whose group ``g`` has leased, due, and taken-over ones."""
    store, clock = make_clocked_store()
    queue_id = make_queue(store, [10]).queue_id
    clock.advance(SECOND)
    publish(Ledger(store, queue_id), make_pending([90]))
    group = make_group(store, queue_id)
    done = group.lease(make_request(stop=100, max_messages=3)).token
    group.lease(make_request(held=done, stop=100, max_messages=12))  # [3, 15)
    clock.advance(LEASE + SECOND)
    group.lease(make_request(stop=100, max_messages=5))  # [3, 8), rest waits
    group.lease(make_request(stop=100, max_messages=4, prefer_fresh=True))  # [15, 19)
    return store, clock


def test_blocks_are_those_that_are_not_finalised_at_least_in_part():
    store = MemoryStore()
    queue_id = make_queue(store, [5, 4, 3]).queue_id
    Ledger(store, queue_id).finalise(Ledger(store, queue_id).read_head(), 7)
    _, second, third = Ledger(store, queue_id).read_blocks()

    rows = rows_of(store, "blocks")

    assert rows == [
        {
            "queue": "q",
            "partition": 0,
            "first_monoton": block.monotons.start,
            "stop_monoton": block.monotons.stop,
            "messages": len(block.monotons),
            "block": str(block.block),
            "published_at": block.published_at,
        }
        for block in (second, third)
    ]
    assert second.published_at.tzinfo is not None


def test_leases_are_the_ranges_offered_and_not_settled_in_order(busy: tuple[Store, FakeClock]):
    store, clock = busy
    rows = rows_of(store, "leases")

    assert [
        (row["state"], row["slot"], row["start_monoton"], row["stop_monoton"], row["deliveries"])
        for row in rows
    ] == [("leased", 0, 3, 8, 2), ("due", None, 8, 15, 1), ("leased", 1, 15, 19, 1)]
    assert [row["messages"] for row in rows] == [5, 7, 4]
    assert [row["lease"] is None for row in rows] == [False, True, False]
    assert [row["due_at"] for row in rows] == [clock() + LEASE, clock(), clock() + LEASE]


def test_a_lease_that_ran_out_is_due_and_still_names_its_token(busy: tuple[Store, FakeClock]):
    store, clock = busy
    clock.advance(LEASE)
    assert [row["state"] for row in rows_of(store, "leases")] == ["leased", "due", "leased"]

    clock.advance(timedelta(milliseconds=1))

    rows = rows_of(store, "leases")
    assert [row["state"] for row in rows] == ["due"] * 3
    assert rows[0]["lease"] is not None


def test_every_range_of_a_slot_or_a_waiting_row_is_a_row(monkeypatch: pytest.MonkeyPatch):
    store, clock = make_clocked_store()
    queue_id = make_queue(store, [9]).queue_id
    group = make_group(store, queue_id)
    group.lease(make_request(stop=9))
    state = group.read(every_waiting=True)
    parts = Ranges.of(Range(0, 2), Range(5, 9))
    slot = views.Slot(0, parts, state.slots[0].lease, clock() + LEASE, 1)
    later = views.Waiting(state.now_ms + 1, Ranges.of(Range(3, 4)), 2)
    shown = views.GroupState(state.head, (slot,), (later,), state.now)
    monkeypatch.setattr(views, "read_group_states", lambda *_: {"g": shown})

    rows = rows_of(store, "leases")

    assert [(row["state"], row["start_monoton"], row["stop_monoton"]) for row in rows] == [
        ("leased", 0, 2),
        ("leased", 5, 9),
        ("waiting", 3, 4),
    ]


def test_leases_may_be_those_of_one_group(busy: tuple[Store, FakeClock]):
    store, _ = busy
    other = make_group(store, read_queue_id(store), "other")
    other.lease(make_request(stop=100))

    assert {row["consumer_group"] for row in rows_of(store, "leases")} == {"g", "other"}
    assert [row["messages"] for row in rows_of(store, "leases", group="other")] == [100]


def test_leases_of_a_group_that_is_not_there_are_refused(busy: tuple[Store, FakeClock]):
    store, _ = busy

    with pytest.raises(QueueStateError, match=r"no group 'typo'; it has: g$"):
        rows_of(store, "leases", group="typo")
    create_queue(store, "empty")
    with pytest.raises(QueueStateError, match=r"it has: none$"):
        rows_of(store, "leases", queue="empty", group="typo")


def test_groups_are_told_with_where_they_stand(busy: tuple[Store, FakeClock]):
    store, _ = busy

    assert rows_of(store, "groups") == [
        {
            "queue": "q",
            "partition": 0,
            "consumer_group": "g",
            "starts_at": 0,
            "pointer": 19,
            "floor": 3,
            "depth": 97,
        }
    ]


def test_stats_are_the_exact_figures_and_agree_with_leases(busy: tuple[Store, FakeClock]):
    store, _ = busy
    (figures,) = queue_stats(Ledger(store, read_queue_id(store))).groups

    (row,) = rows_of(store, "stats")

    assert row == {
        "queue": "q",
        "partition": 0,
        "consumer_group": "g",
        "finalised": 0,
        "next": 100,
        "depth": figures.depth,
        "leased": 9,
        "due": 7,
        "waiting": 0,
        "dead": 0,
        "oldest_age_seconds": 62.0,
        "pointer": 19,
        "floor": 3,
        "unexamined": 0,
        "stopped": 0,
    }
    leases = rows_of(store, "leases")
    for state in ("leased", "due", "waiting"):
        assert row[state] == sum(each["messages"] for each in leases if each["state"] == state)


def test_stats_of_a_group_that_is_owed_nothing_have_no_age():
    store = MemoryStore()
    queue_id = make_queue(store).queue_id
    make_group(store, queue_id)

    (row,) = rows_of(store, "stats")

    assert (row["depth"], row["oldest_age_seconds"]) == (0, None)


def test_stats_of_a_queue_without_groups_are_one_row_of_its_own_figures():
    store = MemoryStore()
    make_queue(store, [5])

    (row,) = rows_of(store, "stats")

    assert (row["queue"], row["finalised"], row["next"]) == ("q", 0, 5)
    others = set(row) - {"queue", "partition", "finalised", "next"}
    assert {row[name] for name in others} == {None}


def test_the_history_is_all_events_of_all_partitions_and_groups():
    store, ann = MemoryStore(), "ann"
    client = Client.from_store(store, name=ann)
    client.create_queue("q", history=timedelta(days=1), partitions=2, order="key")
    client.put_many("q", [NewMessage("x", key) for key in "abcdefgh"])
    held = client.receive("q", "g", max=8)
    client.ack(*held[1:])
    client.reject(held[0], reason="no address")
    client.receive("q", "other", max=1)
    flush_history(store, 30 * SECOND)

    rows = rows_of(store, "history")

    for message in held:
        found = [
            (row["event"], row["done_by"], row["deliveries"], row["reason"])
            for row in reversed(rows)
            if (row["partition"], row["consumer_group"]) == (message.partition, "g")
            and row["start_monoton"] <= message.monoton < row["stop_monoton"]
        ]
        rejected = ("rejected", ann, None, "no address")
        last = rejected if message is held[0] else ("acked", ann, None, None)
        assert found == [("leased", ann, 1, None), last]
    assert {row["partition"] for row in rows} == {0, 1}
    assert all(row["queue"] == "q" and row["at"].tzinfo for row in rows)
    assert all(row["messages"] == row["stop_monoton"] - row["start_monoton"] for row in rows)
    assert all(UUID(row["lease"]) for row in rows)
    assert {row["consumer_group"] for row in rows} == {"g", "other"}
    only = rows_of(store, "history", group="other")
    assert only == [row for row in rows if row["consumer_group"] == "other"]
    assert [row["event"] for row in only] == ["leased"]
    with pytest.raises(QueueStateError, match=r"no group 'typo'; it has: g, other$"):
        rows_of(store, "history", group="typo")


def test_the_history_is_read_span_by_span(monkeypatch: pytest.MonkeyPatch):
    """65,536 messages are a span, and the last one may have a single message."""
    store = MemoryStore()
    queue = make_queue(store, [SPAN + 1])
    make_group(store, queue.queue_id)
    writer = HistoryWriter(store)
    for monoton in (0, SPAN - 1, SPAN):
        named = Ranges.of(Range(monoton, monoton + 1))
        event = HistoryEvent(did=Did.ACKED, monotons=named, lease=UUID(int=1))
        writer.record(replace(queue, history=SECOND), "g", [event])
    assert writer.flush(30 * SECOND)

    rows = rows_of(store, "history")

    assert [row["start_monoton"] for row in rows] == [SPAN, SPAN - 1, 0]


def test_the_history_of_a_queue_without_one_is_empty(busy: tuple[Store, FakeClock]):
    store, _ = busy

    assert rows_of(store, "history") == []


def test_queues_are_all_of_the_keyspace_or_the_one_asked_for():
    store = MemoryStore()
    created = make_queue(store)
    create_queue(store, "another")

    rows = rows_of(store, "queues", queue="")

    assert [row["queue"] for row in rows] == ["another", "q"]
    assert rows_of(store, "queues", queue="q") == [rows[1]]
    assert rows[1] == {
        "queue": "q",
        "version": 1,
        "status": "active",
        "bucket_size": 8,
        "chunk_size": 4,
        "delay_seconds": None,
        "deduplicate_seconds": None,
        "unique_per": "key",
        "history_seconds": None,
        "lease_seconds": 60,
        "max_deliveries": 0,
        "dead_letter_queue": None,
        "partitions": 1,
        "order": "none",
        "on_dead": "continue",
        "expire_after_seconds": None,
        "keep_settled_seconds": None,
        "schema": None,
        "created_at": created.created_at,
    }


def test_queues_that_are_gone_are_shown_with_what_became_of_them():
    store = MemoryStore()
    create_queue(
        store,
        "q",
        order="strict",
        expire_after=timedelta(days=7),
        keep_settled=timedelta(days=1),
        schema="a int",
    )
    delete_queue(store, "q")

    (row,) = rows_of(store, "queues", queue="q")

    assert (row["version"], row["status"]) == (1, "deleting")
    assert (row["order"], row["expire_after_seconds"]) == ("strict", 604_800)
    assert (row["keep_settled_seconds"], row["schema"]) == (86_400, "a int")


@pytest.mark.parametrize("view", ["blocks", "leases", "groups", "stats", "history"])
def test_a_view_of_a_queue_that_is_not_there_is_refused(view: str):
    with pytest.raises(QueueStateError, match="cassieq queue create"):
        rows_of(MemoryStore(), view)


def test_every_view_may_be_asked_for_and_no_other():
    kind = settings_by_option(SourceOptions)["view"].kind

    assert kind.name.replace(" or ", ", ").split(", ") == list(VIEWS)


def test_messages_are_documented_as_they_are_read():
    assert VIEWS[MESSAGES].ddl == row_ddl(include_headers=True, include_receipts=True)


def test_every_view_but_queues_needs_a_queue():
    for view in set(VIEWS) - {"queues"}:
        with pytest.raises(OptionError, match=r"'queue' is missing: .* only .*'queues'"):
            SourceOptions.parse({"view": view})
    assert SourceOptions.parse({"view": "QUEUES"}).queue == ""


def test_a_stream_of_another_view_is_refused():
    options = SourceOptions.parse({"queue": "q", "group": "g", "view": "stats"})

    with pytest.raises(OptionError, match=r"a stream reads messages: option 'view' is 'stats'"):
        options.stream_group()


def test_the_docs_are_what_the_definitions_say():
    assert DOCS.read_text(encoding="utf-8") == documentation(), (
        "run: python -m cassieq_spark.spark.source > docs/views.md"
    )


def test_the_folder_run_as_a_program_prints_the_docs(capsys: pytest.CaptureFixture[str]):
    run_module("cassieq_spark.spark.source", run_name="__main__")

    assert capsys.readouterr().out == documentation()


def read_queue_id(store: Store):
    return read_queue(store, "q").queue_id
