"""A streaming query that reads several queues."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import timedelta
from itertools import chain
from typing import Any

import pytest

from cassieq_spark import Client, NewMessage
from cassieq_spark.consumer import idle_backoff
from cassieq_spark.consumer.message import stored_messages
from cassieq_spark.errors import NotAppliedError, NotFoundError, OptionError, QueueStateError
from cassieq_spark.fetch.read import fetch
from cassieq_spark.groups import presence
from cassieq_spark.groups.lease import LeaseRequest
from cassieq_spark.queues import read_queue
from cassieq_spark.settings import SourceOptions
from cassieq_spark.spark.source import queue_reader
from cassieq_spark.spark.source.columns import columns_of
from cassieq_spark.spark.source.offsets import (
    initial_offset,
    initial_offset_of_queues,
    leases_of,
    split_queues,
)
from cassieq_spark.spark.source.queue_reader import FIND_QUEUES, QueueReader
from cassieq_spark.spark.source.selection import check_alike, read_selected
from cassieq_spark.store.protocol import Store
from cassieq_spark.testing.faults import FaultyStore
from cassieq_spark.testing.stores import CountingStore
from tests.support.builders import LEASE, make_clocked_store

FIRST = initial_offset_of_queues("g")
PAST_LEASE = LEASE + timedelta(seconds=1)


class Queues:
    """Queues in a store whose clock is told; readers' clocks go with it, and nobody sleeps."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
        self.memory, self.clock = make_clocked_store()
        self.faulty = FaultyStore(self.memory)
        self.store = CountingStore(self.faulty)
        self.client = Client.from_store(self.memory)
        self.readers: list[QueueReader] = []
        self._began = self.clock.now
        for module in (idle_backoff, queue_reader, presence):
            monkeypatch.setattr(module, "time", self)
        for name in names:
            self.create(name)

    def create(self, name: str, **settings: Any) -> None:
        self.client.create_queue(name, drop_dead=True, **settings)

    def put(self, queue: str, *values: str) -> None:
        self.client.put_many(queue, [each.encode() for each in values])

    def reader(
        self,
        queue: str = "a,b",
        *,
        store: Store | None = None,
        limits: LeaseRequest | None = None,
        **options: str,
    ) -> QueueReader:
        """A reader of a list; or, if there is a pattern, of what it matches."""
        own = {"queue": queue} if "queuePattern" not in options else {}
        given = SourceOptions.parse({**own, "group": "g", **options})
        store = store or self.store
        single = None if given.is_of_several else read_queue(store, given.queue)
        reader = QueueReader(
            store,
            single,
            "g",
            starting="earliest",
            fail_on_data_loss=given.fail_on_data_loss,
            request=limits or LeaseRequest(lease=LEASE),
            select=None if single else lambda: read_selected(store, given),
        )
        self.readers.append(reader)
        return reader

    def stop(self) -> None:
        """Stop all readers: their heartbeats would go on in other tests."""
        self.faulty.calm()
        for reader in self.readers:
            reader.stop(with_release=False)

    def batch(self, reader: QueueReader, end: Mapping[str, Any]) -> list[str]:
        """The values of a batch, with their queues."""
        return sorted(chain.from_iterable(self.tasks(reader, end)))

    def tasks(self, reader: QueueReader, end: Mapping[str, Any]) -> Iterator[list[str]]:
        for parts in reader.tasks(end, messages_per_task=100):
            yield [
                f"{message.queue}:{bytes(message.value).decode()}"
                for part in parts
                for message in stored_messages(fetch(self.store, part.queue, part.pieces))
            ]

    def depth(self, queue: str) -> int:
        return sum(group.depth for group in self.client.stats(queue).groups)

    def sleep(self, seconds: float) -> None:
        self.clock.advance(timedelta(seconds=seconds))

    def monotonic(self) -> float:
        return (self.clock.now - self._began).total_seconds()

    def time(self) -> float:
        return self.clock.now.timestamp()


@pytest.fixture
def queues(monkeypatch: pytest.MonkeyPatch) -> Iterator[Queues]:
    queues = Queues(monkeypatch, "a", "b")
    yield queues
    queues.stop()


def test_a_batch_has_messages_of_all_queues_and_the_next_one_acks_them(queues: Queues):
    queues.put("a", "1", "2")
    queues.put("b", "1")
    reader = queues.reader()

    end = reader.next_batch(FIRST, limit=None)
    found = [*queues.tasks(reader, end)]
    after = reader.next_batch(end, limit=None)

    assert found == [["a:1", "a:2", "b:1"]], "small parts share a task"
    assert (end["v"], [name for name, _ in end["queues"]]) == (3, ["a@1", "b@1"])
    assert [(queue_id, group) for queue_id, group, _ in leases_of(end)] == [
        ("a@1", "g"),
        ("b@1", "g"),
    ]
    assert after == end
    assert (queues.depth("a"), queues.depth("b")) == (0, 0)
    reader.stop()


def test_a_batch_takes_an_lwt_only_where_messages_are(queues: Queues):
    reader = queues.reader()
    queues.put("b", "1")
    reader.next_batch(FIRST, limit=None)
    queues.store.reset()
    queues.put("b", "2")

    end = reader.next_batch(FIRST, limit=None)

    assert queues.batch(reader, end) == ["b:2"]
    assert queues.store.cas_count == 1
    reader.stop()


def test_a_limit_is_divided_among_the_queues(queues: Queues):
    reader = queues.reader()
    reader.next_batch(FIRST, limit=20)
    queues.put("a", *map(str, range(50)))
    queues.put("b", *map(str, range(3)))

    end = reader.next_batch(FIRST, limit=20)

    found = queues.batch(reader, end)
    assert len(found) == 20
    assert sum(each.startswith("b:") for each in found) == 3
    reader.stop()


def test_a_replay_has_the_messages_that_the_batch_had(queues: Queues):
    queues.put("a", "1")
    queues.put("b", "1")
    reader = queues.reader()
    end = reader.next_batch(FIRST, limit=None)
    queues.put("a", "2")

    again = queues.reader()

    assert queues.batch(again, end) == ["a:1", "b:1"]
    after = again.next_batch(end, limit=None)
    assert queues.batch(again, after) == ["a:2"]
    assert (queues.depth("a"), queues.depth("b")) == (1, 0)
    again.stop()


def test_a_queue_that_is_made_while_the_query_runs_is_read_from_its_beginning(queues: Queues):
    reader = queues.reader(queuePattern="[a-c]|new")
    queues.create("new")
    queues.put("new", "1")

    assert reader.next_batch(FIRST, limit=None) == FIRST
    queues.clock.advance(FIND_QUEUES)
    end = reader.next_batch(FIRST, limit=None)

    assert queues.batch(reader, end) == ["new:1"]
    assert [queue.name for queue in reader.queues] == ["a", "b", "new"]
    reader.stop()


def test_what_the_pattern_selects_no_more_is_left_when_its_batch_is_acked(queues: Queues):
    queues.put("a", "1")
    queues.put("b", "1")
    reader = queues.reader("a,b")
    end = reader.next_batch(FIRST, limit=None)
    reader.stop(with_release=False)
    queues.put("b", "2")

    other = queues.reader("a,c", failOnDataLoss="false")
    after = other.next_batch(end, limit=None)

    assert after == end, "nothing new of a, and nothing of b any more"
    assert (queues.depth("a"), queues.depth("b")) == (0, 1)
    queues.put("a", "2")
    after = other.next_batch(end, limit=None)
    assert queues.batch(other, after) == ["a:2"]
    assert [queue.name for queue in other.queues] == ["a"]
    other.stop()


@pytest.mark.parametrize("what", ["delete_queue", "purge_queue"])
def test_a_queue_that_is_deleted_or_purged_ends_the_query_or_leaves_it(queues: Queues, what: str):
    queues.put("a", "1")
    queues.put("b", "1")
    strict, lenient = queues.reader(), queues.reader(failOnDataLoss="false")
    end = lenient.next_batch(FIRST, limit=None)

    getattr(queues.client, what)("b", force=True)
    queues.put("a", "2")

    with pytest.raises(QueueStateError, match="b"):
        strict.next_batch(FIRST, limit=None)
    after = lenient.next_batch(end, limit=None)
    assert queues.batch(lenient, after) == ["a:2"]
    if what == "delete_queue":
        queues.create("b")
    queues.put("b", "new")
    queues.clock.advance(FIND_QUEUES)
    last = lenient.next_batch(after, limit=None)
    assert queues.batch(lenient, last) == ["b:new"]
    assert queues.depth("a") == 0
    strict.stop()
    lenient.stop()


def test_a_checkpoint_of_a_deleted_queue_is_an_error_or_that_queue_is_left_out(queues: Queues):
    queues.put("a", "1")
    queues.put("b", "1")
    reader = queues.reader()
    end = reader.next_batch(FIRST, limit=None)
    queues.client.delete_queue("b", force=True)

    with pytest.raises(QueueStateError, match="b"):
        queues.reader()
    again = queues.reader(failOnDataLoss="false")

    assert queues.batch(again, end) == ["a:1"]
    assert again.next_batch(end, limit=None) == end
    assert queues.depth("a") == 0


@pytest.mark.parametrize("partitions", [1, 3])
def test_a_checkpoint_of_one_queue_goes_on_as_one_of_several(queues: Queues, partitions: int):
    queues.create("one", partitions=partitions)
    queues.put("one", "1")
    reader = queues.reader("one")
    end = reader.next_batch(initial_offset("one", "g"), limit=None)
    queues.put("a", "1")

    several = queues.reader("a,one")

    assert queues.batch(several, end) == ["one:1"]
    after = several.next_batch(end, limit=None)
    assert queues.batch(several, after) == ["a:1"]
    assert queues.depth("one") == 0
    with pytest.raises(QueueStateError, match="several queues"):
        queues.reader("a").next_batch(after, limit=None)
    first = several.next_batch(initial_offset("one", "g"), limit=None)
    assert split_queues(first, "g").keys() <= {"a@1", "one@1"}
    several.stop()


def test_a_queue_in_order_by_key_keeps_its_order_beside_another_one(queues: Queues):
    queues.create("ordered", order="key", partitions=3)
    keys = [str(number % 5) for number in range(30)]
    queues.client.put_many(
        "ordered", [NewMessage(f"{key}:{at:02d}", key) for at, key in enumerate(keys)]
    )
    queues.put("a", *map(str, range(30)))
    reader, done, seen = queues.reader("a,ordered"), FIRST, []

    while (end := reader.next_batch(done, limit=8)) != done:
        for task in queues.tasks(reader, end):
            seen += [each.split(":")[1:] for each in task if each.startswith("ordered:")]
        done = end

    assert len(seen) == 30
    for key in set(keys):
        own = [value for found, value in seen if found == key]
        assert own == sorted(own)
    assert (queues.depth("a"), queues.depth("ordered")) == (0, 0)


def test_an_offset_of_another_group_is_refused(queues: Queues):
    reader = queues.reader()

    with pytest.raises(QueueStateError, match="'other', not to group 'g'"):
        reader.next_batch(initial_offset_of_queues("other"), limit=None)
    with pytest.raises(QueueStateError, match="version 9"):
        reader.next_batch({"group": "g", "v": 9}, limit=None)
    with pytest.raises(QueueStateError, match="damaged"):
        reader.next_batch({"group": "g", "v": 3, "queues": [["a@1"]]}, limit=None)


@pytest.mark.parametrize("calls", range(30))
def test_whatever_call_fails_nothing_is_lost(queues: Queues, calls: int):
    names = [*map(str, range(4))]
    for queue in ("a", "b"):
        queues.put(queue, *names)
    seen: list[str] = []
    done: Mapping[str, Any] = FIRST

    def fail() -> None:
        raise NotAppliedError("as the test says")

    reader = queues.reader()
    queues.faulty.interrupt(fail, after=calls)
    for _ in range(30):
        try:
            end = reader.next_batch(done, limit=3)
            if end != done:
                seen += queues.batch(reader, end)
                done = end
        except NotAppliedError:
            # As if the driver had died.
            reader = queues.reader(store=queues.memory)
            if done is not FIRST:
                assert queues.batch(reader, done)
        queues.clock.advance(PAST_LEASE)

    assert set(seen) == {f"{queue}:{name}" for queue in "ab" for name in names}
    assert (queues.depth("a"), queues.depth("b")) == (0, 0)


def test_two_queries_of_one_group_share_fifty_queues(monkeypatch: pytest.MonkeyPatch):
    queues = Queues(monkeypatch, *(f"q{number}" for number in range(50)))
    for number in range(50):
        queues.put(f"q{number}", "1", "2")
    readers = [queues.reader(queuePattern="q.*") for _ in range(2)]
    done: list[Mapping[str, Any]] = [FIRST, FIRST]
    seen: list[str] = []

    for _ in range(20):
        for at, reader in enumerate(readers):
            end = reader.next_batch(done[at], limit=15)
            if end != done[at]:
                seen += queues.batch(reader, end)
                done[at] = end

    assert sorted(seen) == sorted(f"q{number}:{it}" for number in range(50) for it in "12")
    for reader in readers:
        reader.stop()


def test_queues_without_messages_are_looked_at_less_often_the_more_there_are(
    monkeypatch: pytest.MonkeyPatch,
):
    def reads_a_second(count: int) -> float:
        queues = Queues(monkeypatch, *(f"q{number}" for number in range(count)))
        reader = queues.reader(queuePattern="q.*")
        for _ in range(30):
            reader.next_batch(FIRST, limit=None)
            queues.clock.advance(timedelta(seconds=1))
        queues.store.reset()
        began = queues.clock.now
        while queues.clock.now - began < timedelta(minutes=2):
            reader.next_batch(FIRST, limit=None)
            queues.clock.advance(timedelta(milliseconds=20))
        reader.stop()
        assert queues.store.cas_count == 0
        reads = queues.store.read_count + queues.store.serial_read_count
        return reads / (queues.clock.now - began).total_seconds()

    assert reads_a_second(40) < 30


def test_figures_are_those_of_all_queues(queues: Queues):
    queues.put("a", "1", "2")
    queues.put("b", "1")
    reader = queues.reader()
    assert reader.report() is None

    reader.next_batch(FIRST, limit=2)

    told = reader.report()
    assert told is not None
    assert (told["queues"], told["next"], told["leased"], told["backlog"]) == (["a", "b"], 3, 2, 1)
    reader.stop()


def test_only_queues_of_the_same_columns_are_read_together(queues: Queues):
    queues.create("small", schema="id BIGINT, name STRING")
    queues.create("large", schema="extra DOUBLE, name STRING, id BIGINT")
    queues.create("wide", schema="id STRING, name STRING")
    queues.create("strict", schema="id BIGINT NOT NULL, name STRING")
    found = {name: read_queue(queues.memory, name) for name in ("small", "large", "wide", "a")}
    options = SourceOptions(queue="small", group="g")
    columns = columns_of(found["small"], options)

    check_alike(columns, [found["small"], found["large"]])

    with pytest.raises(OptionError, match=r"'wide'.*'id' is string, and the rows have bigint"):
        check_alike(columns, [found["small"], found["wide"]])
    with pytest.raises(OptionError, match=r"'a'.*no schema"):
        check_alike(columns, [found["a"]])
    with pytest.raises(OptionError, match=r"'small'.*no column 'extra'"):
        check_alike(columns_of(found["large"], options), [found["small"]])
    with pytest.raises(OptionError, match=r"'small'.*rows are bytes"):
        check_alike(columns_of(found["a"], options), [found["small"]])
    of_strict = columns_of(read_queue(queues.memory, "strict"), options)
    with pytest.raises(OptionError, match=r"'small'.*may be null"):
        check_alike(of_strict, [found["small"]])


def test_what_is_selected_exists(queues: Queues):
    def selected(**options: str) -> list[str]:
        given = SourceOptions.parse({"group": "g", **options})
        return [queue.name for queue in read_selected(queues.memory, given)]

    assert selected(queuePattern="a|b|c") == ["a", "b"]
    assert selected(queue="b, a", failOnDataLoss="false") == ["b", "a"]
    assert selected(queue="b,c", failOnDataLoss="false") == ["b"]
    with pytest.raises(NotFoundError, match="'c'"):
        selected(queue="b,c")
    with pytest.raises(NotFoundError, match="no queue has a name"):
        selected(queuePattern="aa")
    with pytest.raises(NotFoundError):
        selected(queue="c,d", failOnDataLoss="false")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"queue": "a", "queuePattern": "b"}, "give one of them"),
        ({"queue": "a,b,a"}, "'a' is named twice"),
        ({"queue": "a,,b"}, "queue"),
        ({"queuePattern": "("}, "no regular expression"),
        ({}, "or .option('queuePattern', ...) does without"),
    ],
)
def test_what_contradicts_itself_is_refused(options: dict[str, str], words: str):
    with pytest.raises(OptionError, match=re.escape(words)):
        SourceOptions.parse({"group": "g", **options})


def test_only_a_stream_reads_several_queues():
    options = SourceOptions.parse({"queue": "a,b"})

    with pytest.raises(OptionError, match="only a stream reads several queues"):
        options.check_meaning("a batch read of messages", ["queue"])
