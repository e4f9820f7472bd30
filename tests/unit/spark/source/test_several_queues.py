"""A streaming query that reads several queues."""

from __future__ import annotations

import pickle
import re
from collections.abc import Iterator, Mapping
from datetime import timedelta
from itertools import chain
from typing import Any

import pytest
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType

from cassieq_spark import Client, NewMessage
from cassieq_spark.consumer import idle_backoff
from cassieq_spark.consumer.message import stored_messages
from cassieq_spark.errors import NotAppliedError, NotFoundError, OptionError, QueueStateError
from cassieq_spark.fetch.read import fetch
from cassieq_spark.groups import presence
from cassieq_spark.groups.lease import LeaseRequest
from cassieq_spark.queues import read_queue
from cassieq_spark.schemas.ddl import to_ddl
from cassieq_spark.settings import SourceOptions
from cassieq_spark.spark.datasource import CassieqDataSource
from cassieq_spark.spark.source import queue_reader
from cassieq_spark.spark.source.columns import Columns
from cassieq_spark.spark.source.offsets import (
    initial_offset,
    initial_offset_of_queues,
    leases_of,
    split_queues,
)
from cassieq_spark.spark.source.queue_reader import FIND_QUEUES, QueueReader
from cassieq_spark.spark.source.selection import Selection, columns_of_several, read_selected
from cassieq_spark.store.protocol import Store, partition_of_queue
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
        select: Selection | None = None,
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
            starting=given.starting_position,
            fail_on_data_loss=given.fail_on_data_loss,
            request=limits or LeaseRequest(lease=LEASE),
            select=None if single else select or (lambda: read_selected(store, given)),
            check_fits=None if select is None else select.check_left,
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


def test_a_queue_that_is_made_anew_is_read_though_the_last_batch_names_the_old_one(queues: Queues):
    queues.put("b", "1")
    reader = queues.reader(failOnDataLoss="false")
    end = reader.next_batch(FIRST, limit=None)
    queues.client.delete_queue("b", force=True)
    queues.create("b")

    assert reader.next_batch(end, limit=None) == end
    queues.put("b", "new")
    queues.clock.advance(FIND_QUEUES)

    assert queues.batch(reader, reader.next_batch(end, limit=None)) == ["b:new"]


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


def columns(queues: Queues, names: str, **given: Any) -> Columns:
    """The columns of a stream of these queues; of a pattern, if there is one."""
    options = SourceOptions(queue=names, group="g", **given)
    return columns_of_several(read_selected(queues.memory, options), options)[0]


def ddl(columns: Columns) -> str:
    assert columns.schema is not None
    return to_ddl(columns.schema)


def typed_rows(
    queues: Queues, reader: QueueReader, end: Mapping[str, Any], columns: Columns
) -> list[dict[str, Any]]:
    """The rows of a batch, as tasks make them."""
    batches = [
        batch
        for parts in reader.tasks(end, messages_per_task=100)
        for part in parts
        for batch in fetch(queues.memory, part.queue, part.pieces, columns.rows(part.queue))
    ]
    return sorted((row for batch in batches for row in batch.to_pylist()), key=str)


def test_rows_of_several_queues_have_the_columns_of_all_and_each_may_be_null(queues: Queues):
    queues.create("first", schema="id INT NOT NULL, name STRING")
    queues.create("second", schema="extra DOUBLE, id BIGINT NOT NULL")
    found = columns(queues, "first,second")

    assert ddl(found) == "id bigint, name string, extra double"
    assert ddl(columns(queues, "second,first")) == "extra double, id bigint, name string"
    assert ddl(columns(queues, "first,second", columns=("EXTRA", "id"))) == (
        "extra double, id bigint"
    )
    queues.client.put("first", {"id": 1, "name": "a"})
    queues.client.put("second", {"id": 1 << 40, "extra": 0.5})
    select = Selection(queues.memory, SourceOptions(queue="first,second", group="g"), found)
    reader = queues.reader("first,second", select=select)
    end = reader.next_batch(FIRST, limit=None)
    assert typed_rows(queues, reader, end, found) == [
        {"id": 1, "name": "a", "extra": None},
        {"id": 1 << 40, "name": None, "extra": 0.5},
    ]


def test_queues_whose_columns_contradict_each_other_are_refused_by_name(queues: Queues):
    queues.create("number", schema="id BIGINT, name STRING")
    queues.create("text", schema="id STRING, name STRING")
    queues.create("other", schema="ID BIGINT, note STRING")

    with pytest.raises(
        OptionError, match=r"'text'.*queue 'number'.*'id' that is string.*there it is bigint"
    ):
        columns(queues, "number,text")
    with pytest.raises(OptionError, match=r"'other'.*called 'ID'.*called 'id'"):
        columns(queues, "number,other")
    assert ddl(columns(queues, "number,text,other", columns=("name",))) == "name string"
    with pytest.raises(OptionError, match=r"'a' can't be.*no schema, and the rows have columns"):
        columns(queues, "number,a")
    with pytest.raises(OptionError, match=r"'number' can't be.*schema, and the rows are bytes"):
        columns(queues, "a,number")
    with pytest.raises(
        OptionError, match=r"none of the queues has a column 'names'; did you mean 'name'"
    ):
        columns(queues, "number,text", columns=("names",))


def test_a_schema_of_the_user_chooses_columns_of_any_of_the_queues(
    queues: Queues, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("cassieq_spark.store.open_store", lambda _: queues.memory)
    queues.create("one", schema="id INT NOT NULL, clash STRING, name STRING")
    queues.create("two", schema="id BIGINT, clash DOUBLE")
    options = {"queue": "one,two", "group": "g"}

    def given(*fields: StructField, **more: str) -> Any:
        return CassieqDataSource({**options, **more}).streamReader(StructType([*fields]))

    name, number = StructField("name", StringType()), StructField("id", LongType())
    reader = given(name, number)
    assert ddl(reader._columns) == "name string, id bigint"
    chosen = CassieqDataSource({**options, "columns": "id,name"})
    whole = pickle.loads(pickle.dumps(chosen)).schema()
    assert whole == StructType([number, name])
    assert ddl(chosen.streamReader(whole)._columns) == "id bigint, name string"
    for field, words in (
        (StructField("id", IntegerType()), "column 'id' is bigint, not int"),
        (StructField("id", LongType(), nullable=False), "'id' may be null: leave out not null"),
        (StructField("clash", StringType()), "'two' can't be read together with queue 'one'"),
        (StructField("names", StringType()), "none of the queues has a column 'names'"),
    ):
        with pytest.raises(OptionError, match=words):
            given(field).getDefaultReadLimit()


def test_what_a_queue_has_dropped_counts_only_if_another_one_has_it(queues: Queues):
    queues.create("changed", schema="id BIGINT, gone BIGINT, x STRING")
    queues.client.put("changed", {"id": 1, "gone": 7, "x": "old"})
    queues.client.alter_queue("changed", schema="id BIGINT")
    queues.create("plain", schema="id BIGINT")
    queues.create("narrow", schema="id BIGINT, gone INT")
    queues.create("conflict", schema="id BIGINT, x DOUBLE")

    assert ddl(columns(queues, "changed,plain")) == "id bigint"
    assert ddl(columns(queues, "changed,narrow")) == "id bigint, gone bigint"
    with pytest.raises(OptionError, match=r"'changed'.*has messages with a column 'x'.*string"):
        columns(queues, "changed,conflict")


class Growing:
    """A stream of a pattern, whose queues change while it runs."""

    def __init__(self, queues: Queues, **given: Any) -> None:
        self.queues = queues
        options = SourceOptions(queue_pattern="t.*", group="g", **given)
        self.columns = columns_of_several(read_selected(queues.memory, options), options)[0]
        select = Selection(queues.memory, options, self.columns)
        self.reader = queues.reader(queuePattern="t.*", select=select)
        self.done: Mapping[str, Any] = FIRST

    def batch(self) -> list[dict[str, Any]]:
        """The rows of the next batch, after a look which queues there are."""
        self.queues.clock.advance(FIND_QUEUES)
        self.done = self.reader.next_batch(self.done, limit=None)
        return typed_rows(self.queues, self.reader, self.done, self.columns)


def test_a_queue_that_comes_later_is_read_by_the_columns_that_the_query_began_with(
    queues: Queues,
):
    queues.create("t1", schema="id BIGINT, name STRING NOT NULL")
    stream = Growing(queues)
    queues.create("t2", schema="extra STRING, name STRING, id INT")
    queues.create("t3", schema="id BIGINT")

    queues.client.put("t2", {"id": 2, "name": "b", "extra": "unseen"})
    queues.client.put("t3", {"id": 3})

    assert stream.batch() == [{"id": 2, "name": "b"}, {"id": 3, "name": None}]


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ("id STRING", r"'id' is string, and the rows have bigint"),
        ("id DECIMAL(30,0)", r"'id' is decimal\(30,0\).*bigint, which lacks some of its values"),
        ("ID BIGINT", r"'ID' is called 'id'"),
        ("note STRING", r"none of the columns id, name"),
        (None, "no schema"),
    ],
)
def test_a_queue_that_comes_later_and_does_not_fit_is_refused_and_not_leased(
    queues: Queues, schema: str | None, words: str
):
    queues.create("t1", schema="id BIGINT, name STRING")
    stream = Growing(queues)
    queues.create("t2", schema=schema)
    queues.client.put("t1", {"id": 1})
    queues.client.put_many("t2", [b"x"] if schema is None else [{}])

    with pytest.raises(OptionError, match=rf"queue 't2' can't be read together.*{words}"):
        stream.batch()

    assert queues.client.stats("t2").groups == ()
    assert queues.depth("t1") == 1


def test_an_alteration_of_one_of_the_queues_does_not_stop_the_query(queues: Queues):
    queues.create("t1", schema="id INT, name STRING")
    queues.create("t2", schema="id INT, name STRING")
    stream = Growing(queues)
    queues.client.put("t1", {"id": 1, "name": "a"})
    first = stream.batch()
    queues.client.alter_queue("t1", schema="id BIGINT, extra DOUBLE")
    queues.client.put("t1", {"id": 2, "extra": 0.5})

    assert first + stream.batch() == [{"id": 1, "name": "a"}, {"id": 2, "name": None}]
    stream.reader.stop()
    again = Growing(queues)
    assert ddl(again.columns) == "id bigint, extra double, name string"
    with pytest.raises(OptionError, match=r"'t1'.*bigint.*make the DataFrame anew"):
        Selection(queues.memory, SourceOptions(queue_pattern="t.*"), stream.columns)()


def test_a_queue_that_is_made_anew_with_other_columns_is_refused(queues: Queues):
    queues.create("t1", schema="id BIGINT")
    queues.create("t2", schema="id BIGINT")
    stream = Growing(queues, fail_on_data_loss=False)
    stream.batch()
    queues.client.delete_queue("t2")
    queues.create("t2", schema="id STRING")

    with pytest.raises(OptionError, match=r"'t2'.*'id' is string"):
        stream.batch()


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


def test_a_queue_that_was_deleted_ends_the_query_also_if_it_is_not_in_the_last_batch(
    queues: Queues, caplog: pytest.LogCaptureFixture
):
    strict = queues.reader(queuePattern="[ab]")
    lenient = queues.reader(queuePattern="[ab]", failOnDataLoss="false")
    queues.put("a", "1")
    end = strict.next_batch(FIRST, limit=None)
    assert lenient.next_batch(FIRST, limit=None) == FIRST
    queues.put("b", "lost")

    queues.client.delete_queue("b", force=True)
    queues.clock.advance(FIND_QUEUES)

    with pytest.raises(NotFoundError, match="'b'"):
        strict.next_batch(end, limit=None)
    assert lenient.next_batch(FIRST, limit=None) == FIRST
    assert [queue.name for queue in lenient.queues] == ["a"]
    assert queue_reader.QUEUE_LEFT in [getattr(it, "action", "") for it in caplog.records]


def test_a_queue_whose_row_cannot_be_read_is_read_on(queues: Queues):
    reader = queues.reader(queuePattern="[ab]")
    assert reader.next_batch(FIRST, limit=None) == FIRST
    queues.put("b", "1")
    queues.memory._rows[partition_of_queue("b")][()]["status"] = "of a later release"
    queues.clock.advance(FIND_QUEUES)

    end = reader.next_batch(FIRST, limit=None)

    assert queues.batch(reader, end) == ["b:1"]


@pytest.mark.parametrize("starting", ["latest", "2099-01-01T00:00:00Z"])
def test_a_queue_that_is_made_while_the_query_is_stopped_is_read_from_its_beginning(
    queues: Queues, starting: str
):
    options = {"queuePattern": "[a-c]", "startingPosition": starting}
    queues.put("a", "before")
    reader = queues.reader(**options)
    assert reader.next_batch(FIRST, limit=None) == FIRST, "a new group begins where it is told to"
    queues.create("c")
    queues.put("c", "1")
    queues.clock.advance(FIND_QUEUES)
    end = reader.next_batch(FIRST, limit=None)
    reader.stop(with_release=False)
    queues.client.delete_queue("b", force=True)
    queues.create("b")
    queues.put("b", "owed")

    again = queues.reader(**options)

    assert queues.batch(again, end) == ["c:1"]
    assert queues.batch(again, again.next_batch(end, limit=None)) == ["b:owed"]


def test_a_queue_that_is_deleted_while_the_query_starts_is_left_out(queues: Queues):
    strict, lenient = queues.reader(), queues.reader(failOnDataLoss="false")
    queues.client.delete_queue("b", force=True)
    queues.put("a", "1")

    end = lenient.next_batch(FIRST, limit=None)

    assert queues.batch(lenient, end) == ["a:1"]
    with pytest.raises(QueueStateError, match="b@1"):
        strict.next_batch(FIRST, limit=None)


def test_messages_of_a_queue_that_is_left_and_do_not_fit_the_rows_are_not_counted_as_delivered(
    queues: Queues,
):
    for name, columns in (("x", "id int"), ("y", "id int"), ("wide", "id bigint")):
        queues.create(name, schema=columns)
    queues.client.put_many("wide", [{"id": 2**40}])

    def selection(names: str) -> Selection:
        options = SourceOptions.parse({"queue": names, "group": "g"})
        columns, _ = columns_of_several(read_selected(queues.memory, options), options)
        return Selection(queues.memory, options, columns)

    reader = queues.reader("x,wide", select=selection("x,wide"))
    end = reader.next_batch(FIRST, limit=None)
    without = queues.reader("x,y", select=selection("x,y"))

    for _ in range(6):
        with pytest.raises(OptionError, match="'wide', which is not selected any more"):
            without.tasks(end)
    again = queues.reader("x,wide", select=selection("x,wide"))
    ((part,),) = again.tasks(end)

    assert part.receipt_prefix.split("/")[2].endswith(".2"), "the second delivery"
    assert queues.reader("x,y", select=selection("x,y")).next_batch(end, limit=None) == end
    assert queues.depth("wide") == 0, "a batch that is done is acked, whatever its columns are"
