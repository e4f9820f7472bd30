"""A chunk that can't be read: its messages go to the dead-letter queue, and the queue goes on."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace
from typing import cast
from uuid import UUID

import pytest
from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadMaxRows

from cassieq_spark import Client
from cassieq_spark.client import LeaseRequest
from cassieq_spark.client.receiver import UNSEEN
from cassieq_spark.consumer.consumer import UNREADABLE
from cassieq_spark.dead_letters import dead_letter
from cassieq_spark.dead_letters.letters import Filter
from cassieq_spark.dead_letters.purge import purge
from cassieq_spark.dead_letters.redrive import read_routes
from cassieq_spark.dead_letters.survey import survey
from cassieq_spark.queues import create_queue
from cassieq_spark.settings import SourceOptions
from cassieq_spark.spark.source import stream
from cassieq_spark.spark.source.columns import Columns
from cassieq_spark.store.memory import MemoryStore
from cassieq_spark.testing.stores import CountingStore

COUNT, CHUNK = 12, 4
NONSENSE = b"no chunk of ours" * 100


class Scene:
    """Twelve messages, four to a chunk, and a dead-letter queue."""

    def __init__(self, *, count: int = COUNT, strict: bool = False) -> None:
        self.memory = MemoryStore()
        self.store = CountingStore(self.memory)
        self.client = Client.from_store(self.store)
        create_queue(self.memory, "dead", chunk_size=CHUNK, bucket_size=8)
        create_queue(
            self.memory,
            "q",
            chunk_size=CHUNK,
            bucket_size=8,
            max_deliveries=5,
            dead_letter_queue="dead",
            order="strict" if strict else "none",
        )
        self.client.put_many("q", map(str, range(count)))

    def craft(self, start: int, data: bytes = NONSENSE, *, queue: str = "q") -> None:
        """Change the chunk that begins at this offset of the first block."""
        for (queue_id, _, _), chunks in self.memory._chunks.items():
            if queue_id == f"{queue}@1" and start in chunks:
                chunks[start] = replace(chunks[start], data=data)

    def letters(self) -> list[tuple[bytes, dict[str, str | None]]]:
        return [(each.value, dict(each.headers)) for each in self.client.peek("dead", max=100)]


@pytest.fixture
def scene() -> Iterator[Scene]:
    scene = Scene()
    scene.craft(4)
    yield scene
    scene.client.close()


def check_letter(scene: Scene) -> None:
    ((value, headers),) = scene.letters()
    assert value == NONSENSE
    assert headers["cassieq.origin-queue"] == "q"
    assert headers["cassieq.origin-monoton"] == "4"
    assert headers["cassieq.unreadable"] == "4-8"
    assert headers["cassieq.chunk-bytes"] == str(len(NONSENSE))
    assert "unreadable: it does not begin with a header" in str(headers["cassieq.reason"])


@pytest.mark.parametrize("limit", [1, 3, 5, 20])
def test_a_client_receives_all_the_others(scene: Scene, limit: int):
    got: list[int] = []
    for _ in range(COUNT):
        messages = scene.client.receive("q", "g", max=limit)
        got += [each.monoton for each in messages]
        scene.client.ack(*messages)

    assert got == [*range(4), *range(8, 12)]
    letters = scene.letters()
    assert {dict(headers)["cassieq.origin-queue"] for _, headers in letters} == {"q"}
    assert {value for value, _ in letters} == {NONSENSE}


def test_its_messages_are_one_letter_that_has_what_is_left(
    scene: Scene, caplog: pytest.LogCaptureFixture
):
    with caplog.at_level(logging.ERROR):
        messages = scene.client.receive("q", "g", max=20)

    check_letter(scene)
    scene.client.ack(*messages)
    assert scene.client.receive("q", "g") == []
    (record,) = (each for each in caplog.records if getattr(each, "action", "") == UNREADABLE)
    assert (record.count, record.group) == (4, "g")  # type: ignore[attr-defined]


def test_an_exchange_reads_ahead_and_rejects_only_what_it_has_leased(scene: Scene):
    exchange = scene.client.exchange("q", "g")

    first = exchange.round([], LeaseRequest(max_messages=2))
    assert [each.monoton for each in first.messages] == [0, 1]
    assert scene.letters() == []
    second = exchange.round([], LeaseRequest(max_messages=8))

    assert [each.monoton for each in second.messages] == [2, 3, 8, 9]
    check_letter(scene)
    third = exchange.round([], LeaseRequest(max_messages=8))
    assert [each.monoton for each in third.messages] == [10, 11]


def test_a_letter_has_no_more_of_a_chunk_than_a_limit(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(dead_letter, "UNREADABLE_BYTES", 10)

    scene.client.receive("q", "g", max=20)

    ((value, headers),) = scene.letters()
    assert (value, headers["cassieq.chunk-bytes"]) == (NONSENSE[:10], str(len(NONSENSE)))


def test_peeking_leaves_them_out_and_says_so(scene: Scene, caplog: pytest.LogCaptureFixture):
    with caplog.at_level(logging.WARNING):
        seen = scene.client.peek("q", max=20)

    assert [each.monoton for each in seen] == [*range(4), *range(8, 12)]
    assert UNSEEN in [getattr(each, "action", "") for each in caplog.records]


def test_without_a_dead_letter_queue_the_queue_goes_on_too():
    memory = MemoryStore()
    with Client.from_store(memory) as client:
        create_queue(memory, "q", chunk_size=CHUNK, bucket_size=8)
        client.put_many("q", map(str, range(COUNT)))
        for chunks in memory._chunks.values():
            if 4 in chunks:
                chunks[4] = replace(chunks[4], data=b"")

        messages = client.receive("q", "g", max=20)

        assert [each.monoton for each in messages] == [*range(4), *range(8, 12)]
        client.ack(*messages)
        assert client.receive("q", "g") == []


def test_messages_in_strict_order_come_in_order_around_it():
    scene = Scene(strict=True)
    scene.craft(4)
    got: list[int] = []
    for _ in range(COUNT):
        messages = scene.client.receive("q", "g", max=3)
        got += [each.monoton for each in messages]
        scene.client.ack(*messages)

    assert got == [*range(4), *range(8, 12)]


class Query:
    """A streaming query, called as Spark calls it."""

    def __init__(self, scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(stream, "open_store", lambda _: scene.store)
        options = SourceOptions(queue="q", group="g", starting_position="earliest")
        self.options = replace(options, messages_per_task=CHUNK)
        self.source = stream.MessageStreamReader(self.options, Columns(None))
        self.end = self.source.initialOffset()

    def batch(self, limit: int) -> list[InputPartition]:
        start, self.end = self.end, self.source.latestOffset(self.end, ReadMaxRows(limit))
        return self.source.partitions(start, self.end) if self.end != start else []

    def read(self, tasks: list[InputPartition]) -> list[int]:
        executor = stream.MessageStreamReader(self.options, Columns(None))
        batches = [batch for task in tasks for batch in executor.read(task)]
        return [row["monoton"] for batch in batches for row in batch.to_pylist()]


def test_a_query_gets_all_the_others_and_its_ack_sends_the_letter(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
):
    query = Query(scene, monkeypatch)

    tasks = query.batch(10)
    assert query.read(tasks) == [0, 1, 2, 3, 8, 9]
    assert scene.letters() == []
    assert query.read(query.batch(10)) == [10, 11]

    check_letter(scene)
    assert query.batch(10) == []


def test_a_task_that_runs_twice_sends_one_letter(scene: Scene, monkeypatch: pytest.MonkeyPatch):
    query = Query(scene, monkeypatch)
    tasks = query.batch(20)

    assert query.read(tasks) == query.read(tasks)
    query.batch(20)

    check_letter(scene)


def test_a_task_that_is_closed_early_tells_of_what_it_has_met(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
):
    scene.craft(0)
    query = Query(scene, monkeypatch)
    query.options = replace(query.options, messages_per_task=COUNT)
    query.source = stream.MessageStreamReader(query.options, Columns(None))
    (task,) = query.batch(COUNT)

    batches = stream.MessageStreamReader(query.options, Columns(None)).read(task)
    next(batches)
    batches.close()  # type: ignore[attr-defined]
    query.batch(COUNT)

    assert [headers["cassieq.unreadable"] for _, headers in scene.letters()] == ["0-4", "4-8"]


def test_a_task_without_such_messages_asks_for_nothing_more(monkeypatch: pytest.MonkeyPatch):
    scene = Scene()
    query = Query(scene, monkeypatch)
    tasks = query.batch(20)
    scene.store.reset()

    query.read(tasks)

    assert (scene.store.cas_count, scene.store.read_count) == (0, 0)


def test_a_lease_that_is_lost_sends_no_letter(scene: Scene, monkeypatch: pytest.MonkeyPatch):
    query = Query(scene, monkeypatch)
    tasks = query.batch(20)
    (part,) = cast("stream.TaskPartition", tasks[0]).parts
    lease = part.receipt_prefix
    stolen = lease.replace(lease.split("/")[2], f"{UUID(int=7)}.1")
    tasks = [
        stream.TaskPartition((replace(part, receipt_prefix=stolen),))
        for each in tasks
        for part in cast("stream.TaskPartition", each).parts
    ]

    assert query.read(tasks) == [*range(4), *range(8, 12)]
    query.batch(20)

    assert scene.letters() == []


def test_dead_letters_that_can_t_be_read_are_listed_and_purged_and_go_nowhere(scene: Scene):
    messages = scene.client.receive("q", "g", max=20)
    scene.client.reject(*messages[:3], reason="no good")
    scene.craft(0, queue="dead")

    found = survey(scene.store, "dead", Filter(reason="unreadable: it does not begin"))

    unreadable = [group for group in found.groups if group.origin_queue is None]
    assert sum(group.monotons.count for group in unreadable) == 4
    assert {route.target.name for route in read_routes(scene.store, found)} <= {"q"}
    assert purge(scene.store, found).purged == found.monotons.count
