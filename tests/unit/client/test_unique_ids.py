"""Messages with unique ids: of each id, one is published within the time that the queue says."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest

from cassieq_spark import Client, NewMessage
from cassieq_spark.errors import (
    BatchChangedError,
    MessageError,
    NotAppliedError,
    OptionError,
    OutcomeUnknownError,
)
from cassieq_spark.model import Position, Positions, Range
from cassieq_spark.producer import blocks as blocks_module
from cassieq_spark.repair.scan import DriverScan
from cassieq_spark.repair.steps import run_once
from cassieq_spark.store.memory import MemoryStore
from cassieq_spark.store.protocol import Op, Partition, partition_of_ledger, partition_of_queue
from cassieq_spark.store.tables import Table
from cassieq_spark.testing.stores import WrappedStore
from tests.support.builders import make_clocked_store
from tests.support.faults import FakeClock, make_block_id

WINDOW = timedelta(minutes=5)
HOUR = timedelta(hours=1)


class Scene:
    """A queue whose buckets and chunks are small."""

    def __init__(self, **settings: Any) -> None:
        self.memory: MemoryStore
        self.clock: FakeClock
        self.memory, self.clock = make_clocked_store()
        self.client = self.another()
        sizes = {"bucket_size": 4, "chunk_size": 2}
        self.queue = self.client.create_queue("q", deduplicate=WINDOW, **sizes, **settings)

    def another(self) -> Client:
        """A client that remembers nothing."""
        return Client.from_store(self.memory)

    def put(self, *ids: str | None, key: str | None = None) -> Range | Positions | None:
        """Put messages together, whose values are numbered ids."""
        return self.client.put_many(
            "q",
            [
                NewMessage(f"{unique_id}{number}", key, unique_id=unique_id)
                for number, unique_id in enumerate(ids)
            ],
        )

    def values(self) -> list[str]:
        return [each.value.decode() for each in self.client.peek("q", max=1000)]  # type: ignore[union-attr]

    def repair(self) -> Any:
        return run_once(
            self.memory, scan=DriverScan(self.memory), verify_data=True, write_timeout=HOUR
        )


def test_a_repeated_put_answers_where_the_first_message_is():
    scene = Scene()

    first = scene.client.put("q", "a", unique_id="1")
    again = scene.another().put("q", NewMessage("b", unique_id=b"1"))
    other = scene.client.put("q", "c", unique_id="2")

    assert [(it, it.partition, it.version, it.is_repeat) for it in (first, again, other)] == [
        (0, 0, 1, False),
        (0, 0, 1, True),
        (1, 0, 1, False),
    ]
    assert scene.values() == ["a", "c"]


def test_where_a_message_is_says_its_partition_and_version():
    scene = Scene(partitions=4)
    scene.client.purge_queue("q")

    with scene.client.producer("q") as producer:
        found = [producer.put(NewMessage("a", str(key))).result() for key in range(32)]

    assert {each.version for each in found} == {2}
    assert {each.partition for each in found} == {0, 1, 2, 3}
    for at in found:
        message = scene.client.message("q", at, partition=at.partition)
        assert (message.monoton, message.partition) == (at, at.partition)


def test_where_a_message_is_can_be_sent_to_another_process():
    found = pickle.loads(pickle.dumps(Position(7, partition=3, version=2, is_repeat=True)))

    assert (found, found.partition, found.version, found.is_repeat) == (7, 3, 2, True)


def test_messages_of_a_producer_are_told_where_each_is():
    scene = Scene()
    scene.client.put("q", "there", unique_id="x")

    with scene.client.producer("q") as producer:
        told = [
            producer.put(NewMessage(each, unique_id=each if each != "-" else None))
            for each in "axb-a-x"
        ]

    assert [it.result() for it in told] == [1, 0, 2, 3, 1, 4, 0]
    repeated = [it.result().is_repeat for it in told]
    assert repeated == [False, True, False, False, True, False, True]


def test_an_id_is_that_of_its_key():
    scene = Scene()

    at = [scene.client.put("q", "a", key=key, unique_id="1") for key in ("a", "b", None, "", "a")]

    assert at == [0, 1, 2, 3, 0]


def test_an_id_may_be_that_of_the_whole_queue():
    scene = Scene(unique_per="queue")

    at = [scene.client.put("q", "a", key=key, unique_id="1") for key in ("a", "b", None)]

    assert at == [0, 0, 0]


@pytest.mark.parametrize("key", ["k", None])
def test_repeated_messages_go_to_the_partition_of_the_first(key: str | None):
    scene = Scene(partitions=8)

    at = [scene.another().put("q", "a", key=key, unique_id="7") for _ in range(10)]

    assert len({(each, each.partition) for each in at}) == 1
    assert [each.is_repeat for each in at] == [False] + [True] * 9
    scene.client.put_many("q", [NewMessage("b", key, unique_id="7")] * 10)
    assert scene.values() == ["a"]


def test_put_many_answers_what_was_published_now():
    scene = Scene()

    assert scene.put("a", None, "b", "a") == Range(0, 3)
    assert scene.put("b", "a") == Range(3, 3)
    assert scene.put("b", "c", "a", "d") == Range(3, 5)
    assert scene.values() == ["a0", "None1", "b2", "c1", "d3"]


@pytest.mark.parametrize("processes", [1, 4])
def test_threads_and_processes_that_race_publish_each_id_once(processes: int):
    scene = Scene()
    clients = [scene.another() for _ in range(processes)]

    def put(number: int) -> Position:
        client = clients[number % len(clients)]
        return client.put("q", str(number % 25), unique_id=str(number % 25))

    with ThreadPoolExecutor(8) as pool:
        told = list(pool.map(put, range(200)))

    assert sorted(scene.values()) == sorted(map(str, range(25)))
    assert sum(not each.is_repeat for each in told) == 25
    for number, each in enumerate(told):
        assert scene.client.message("q", each).value == str(number % 25).encode()


def test_a_purge_forgets():
    scene = Scene()
    scene.put("a")

    scene.client.purge_queue("q")

    assert scene.put("a") == Range(0, 1)


def test_an_alteration_changes_for_how_long():
    scene = Scene()
    scene.put("a")
    scene.client.alter_queue("q", deduplicate=timedelta(minutes=10))

    scene.clock.advance(WINDOW)
    assert scene.put("a") == Range(1, 1)
    scene.client.alter_queue("q", deduplicate=timedelta(0))
    with pytest.raises(OptionError, match="does not deduplicate"):
        scene.put("a")
    scene.client.alter_queue("q", deduplicate=timedelta(minutes=1))
    assert scene.another().put("q", "b", unique_id="a") == 1


def test_a_put_that_some_partitions_have_published_is_completed_by_a_repeated_one():
    scene = Scene(order="key", partitions=4)
    refused = partition_of_ledger(scene.queue.of_partition(1).queue_id)

    class Refusing(WrappedStore):
        def cas(self, partition: Partition, ops: Sequence[Op]) -> bool:
            if partition == refused:
                raise NotAppliedError("refused")
            return super().cas(partition, ops)

    ids = [f"id{number}" for number in range(12)]
    messages = [NewMessage(each, each, unique_id=each) for each in ids]

    with pytest.raises(OutcomeUnknownError, match="except those with a unique id"):
        Client.from_store(Refusing(scene.memory)).put_many("q", messages)
    before = scene.values()
    scene.client.put_many("q", messages)

    assert 0 < len(before) < len(ids)
    assert sorted(scene.values()) == sorted(ids)


def test_an_idempotency_key_and_unique_ids_go_together():
    scene = Scene()
    scene.put("a")

    def put(value: str, key: str) -> Position | None:
        return scene.client.put("q", value, unique_id=value, idempotency_key=key)

    assert (put("a", "one"), put("b", "two")) == (0, 1)
    assert (put("a", "one"), put("b", "two")) == (None, None)
    with pytest.raises(BatchChangedError):
        put("c", "one")
    assert scene.values() == ["a0", "b"]


@pytest.mark.parametrize("txn", [0, 1])
def test_a_batch_of_which_all_is_there_counts_as_published(txn: int):
    scene = Scene()
    scene.put("a")
    messages = [NewMessage("x", unique_id="a")] * 2
    named: dict[str, Any] = {"txn_app_id": "app", "txn_version": txn}

    assert scene.client.put_many("q", messages, **named) == Range(1, 1)
    assert scene.client.put_many("q", messages, **named) is None


@pytest.mark.parametrize(
    ("unique_id", "problem"),
    [("", "has 0 bytes: expected 1 to 1024"), ("x" * 1025, "has 1025 bytes")],
)
def test_an_id_that_is_none_is_refused(unique_id: str, problem: str):
    scene = Scene()

    with pytest.raises(MessageError, match=problem):
        scene.client.put("q", "a", unique_id=unique_id)


def test_a_queue_that_does_not_deduplicate_takes_no_unique_ids():
    scene = Scene()
    scene.client.create_queue("plain")
    scene.client.create_queue("typed", schema="a int")
    table = pa.table({"a": [1], "_unique_id": ["x"]})

    for put in (
        lambda: scene.client.put("plain", "a", unique_id="1"),
        lambda: scene.client.put_many("plain", [NewMessage("a", unique_id="1")]),
        lambda: scene.client.put_many("typed", table),
    ):
        with pytest.raises(OptionError, match=r"cassieq queue alter .* --deduplicate 5m"):
            put()


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"partitions": 2, "unique_per": "queue"}, "this one has 2: give unique_per 'key'"),
        ({"deduplicate": timedelta(days=1, seconds=1)}, "deduplicate must be at most 1 day"),
        ({"unique_per": "keys"}, "did you mean 'key'"),
    ],
)
def test_what_no_queue_can_have_is_refused(settings: dict[str, Any], problem: str):
    with pytest.raises(OptionError, match=problem):
        Client.from_store(MemoryStore()).create_queue("q", **settings)


def test_rows_of_a_table_have_unique_ids():
    scene = Scene()
    scene.client.create_queue("t", schema="a int", partitions=3, deduplicate=WINDOW)
    table = pa.table({"a": range(6), "_unique_id": pa.array(["x", None, "y", "x", "z", None])})

    first, second = (scene.client.put_many("t", table) for _ in range(2))

    assert (len(first), len(second)) == (5, 2)
    found = scene.client.receive_table("t", "g", max=100)
    assert sorted(found["a"].to_pylist()) == [0, 1, 1, 2, 4, 5, 5]


def left_out(scene: Scene) -> None:
    """Put a block of ten messages of which six are published."""
    scene.put("b", "e")
    scene.put("a", "b", "c", "a", None, "e", "d", "c", "f")


KEPT = ["b0", "e1", "a0", "c2", "None4", "d6", "f8"]


@pytest.mark.parametrize("order", ["none", "key", "strict"])
@pytest.mark.parametrize("most", [1, 2, 3, 100])
def test_what_is_left_out_of_a_block_is_not_received(order: str, most: int):
    scene = Scene(order=order)
    left_out(scene)

    found: list[Any] = []
    while got := scene.client.receive("q", "g", max=most):
        found += got
        scene.client.ack(*got)

    assert [each.value.decode() for each in found] == KEPT
    assert [each.monoton for each in found] == list(range(len(KEPT)))
    assert [scene.client.message("q", at).value.decode() for at in range(len(KEPT))] == KEPT


def chunks(scene: Scene) -> int:
    return sum(row["queue_id"] == "q@1" for row in scene.memory.scan(Table.CHUNK))


def blocks(scene: Scene) -> list[Any]:
    rows: Iterable[Any] = scene.memory.read_rows(partition_of_ledger(scene.queue.queue_id)).rows
    return [row for row in rows if row["kind"] == "block"]


@pytest.mark.parametrize("acked", range(len(KEPT) + 1))
def test_the_repair_deletes_what_is_settled_and_loses_nothing(acked: int):
    scene = Scene()
    left_out(scene)
    scene.client.create_group("q", "g")
    for _ in range(acked):
        scene.client.ack(*scene.client.receive("q", "g", max=1))
    scene.clock.advance(2 * HOUR)

    reports = [scene.repair() for _ in range(2)]

    assert not any(each.findings for it in reports for each in it.queues.values())
    found = scene.client.receive("q", "g", max=100)
    assert [each.value.decode() for each in found] == KEPT[acked:]
    if acked == len(KEPT):
        assert (chunks(scene), blocks(scene)) == (0, [])


def test_messages_of_a_purged_version_are_deleted():
    scene = Scene()
    left_out(scene)
    scene.client.purge_queue("q")
    scene.clock.advance(2 * HOUR)

    scene.repair()

    assert chunks(scene) == 0


def test_a_block_of_which_nothing_is_published_is_deleted_by_a_scan(
    monkeypatch: pytest.MonkeyPatch,
):
    scene = Scene()
    # Blocks are begun by the clock of the scene.
    monkeypatch.setattr(blocks_module, "new_block_id", lambda: make_block_id(scene.clock.now))
    scene.clock.advance(HOUR)
    scene.put("a")
    scene.put("a", "a", "a")
    scene.client.create_group("q", "g")
    scene.clock.advance(2 * HOUR)

    scene.repair()

    assert chunks(scene) == 1


def test_dead_letters_are_those_that_were_published():
    scene = Scene(max_deliveries=1)
    left_out(scene)

    scene.client.reject(*scene.client.receive("q", "g", max=100), reason="bad")
    scene.client.receive("q", "g", max=1)

    letters = scene.client.peek("q.dead", max=100)
    assert [each.value.decode() for each in letters] == KEPT  # type: ignore[union-attr]
    origins = [each.headers["cassieq.origin-monoton"] for each in letters]
    assert origins == [str(at) for at in range(len(KEPT))]
    # A dead letter has no unique id, so it comes back whatever was published meanwhile.
    found = scene.client.dead_letters("q.dead")
    assert scene.client.redrive(found).redriven == {"q": len(KEPT)}


@pytest.mark.parametrize("on_dead", ["continue", "stop"])
def test_an_earlier_release_refuses_a_queue_with_unique_ids(on_dead: str):
    scene = Scene(order="key", on_dead=on_dead)

    def column() -> Any:
        (row,) = scene.memory.read_rows(partition_of_queue("q")).rows
        return row["on_dead"]

    # It knows no such value.
    assert column() == f"{on_dead}+unique"
    assert scene.client.queue("q").on_dead == on_dead
    scene.client.alter_queue("q", deduplicate=timedelta(0))
    assert column() == on_dead


def test_an_earlier_release_refuses_a_block_without_some_of_its_messages():
    scene = Scene()
    left_out(scene)

    whole, kept = blocks(scene)

    assert whole["kept"] is None
    # Its reader takes the id from here, and an unset one for a row that it cannot read.
    assert kept["block"] is None
    assert kept["kept"].endswith(" 9 0-1,2-3,4-5,6-7,8-9")
