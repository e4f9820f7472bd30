"""What tasks write, and the driver publishes: once, whichever tasks have which rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import BinaryType, StructType

from cassieq_spark import Client
from cassieq_spark.errors import (
    BatchChangedError,
    BatchOrderError,
    InvariantError,
    OptionError,
    QueueStateError,
)
from cassieq_spark.ledger.publish import MOST_BLOCKS
from cassieq_spark.model import SinkBatch
from cassieq_spark.producer.blocks import times_of_task
from cassieq_spark.settings import SinkOptions
from cassieq_spark.spark.checkpoint import read_plan
from cassieq_spark.spark.sink import message_writer as writer_module
from cassieq_spark.spark.sink import query as query_module
from cassieq_spark.spark.sink.message_writer import MessageWriter, TaskDone
from cassieq_spark.spark.sink.query import check_trigger
from cassieq_spark.store.memory import MemoryStore
from tests.support.builders import make_queue

SCHEMA = StructType().add("value", BinaryType())
#: The values of each task.
TASKS = st.lists(st.lists(st.binary(max_size=12), max_size=3), min_size=1, max_size=4)


#: As Spark names them, without a colon.
QUERIES = st.sampled_from(["6c64a0a8", "f7a1"])
NAMES = st.text("a:", min_size=1, max_size=3)


@contextmanager
def told_by_spark(properties: dict[str, str]) -> Iterator[None]:
    """In a task that has these local properties."""
    context = SimpleNamespace(getLocalProperty=properties.get, partitionId=lambda: 0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(query_module, "TaskContext", SimpleNamespace(get=lambda: context))
        yield


def sinks_of(query: str, name: str | None) -> tuple[str, str]:
    """Of a query's own stream into a queue, and of a write inside its ``foreachBatch``."""
    with told_by_spark({"sql.streaming.queryId": query, "streaming.sql.batchId": "7"}):
        batches = (writer_module._batch_of_task(), writer_module._batch_of_foreach(name))
    assert {batch.batch_id for batch in batches} == {7}
    return batches[0].sink, batches[1].sink


@dataclass
class Driver:
    """Runs a write task by task, as Spark does."""

    store: MemoryStore
    options: SinkOptions

    def task(self, values: Sequence[bytes], batch: SinkBatch) -> TaskDone:
        rows = [pa.record_batch({"value": pa.array([each], pa.binary())}) for each in values]
        return self._writer()._write(iter(rows), batch)

    def commit(self, done: Sequence[TaskDone]) -> None:
        self._writer().commit(list(done))

    def run(self, tasks: Sequence[Sequence[bytes]], batch: SinkBatch) -> None:
        self.commit([self.task(values, batch) for values in tasks])

    def visible(self) -> list[bytes]:
        with Client.from_store(self.store) as client:
            return sorted(message.value for message in client.peek("q", max=1000))

    def _writer(self) -> MessageWriter:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(writer_module, "open_store", lambda _: self.store)
            writer = MessageWriter(self.options, SCHEMA, overwrite=False)
        writer._store = lambda: self.store  # type: ignore[method-assign]
        return writer


def make_driver(*, fail_on_changed: bool = True) -> Driver:
    store = MemoryStore()
    options = SinkOptions(queue="q", fail_on_changed_batch=fail_on_changed)
    make_queue(store)
    return Driver(store, options)


@given(st.lists(st.tuples(QUERIES, st.none() | NAMES), min_size=2, max_size=2, unique=True))
def test_no_two_writes_of_two_queries_share_a_sink(writes: list[tuple[str, str | None]]):
    one, other = (sinks_of(query, name) for query, name in writes)
    queries = {query for query, _ in writes}

    assert len({*one, *other}) == (4 if len(queries) == 2 else 3)


def test_a_write_that_spark_tells_no_batch_is_refused():
    for told in ({}, {"sql.streaming.queryId": "a"}, {"streaming.sql.batchId": "1"}):
        with told_by_spark(told):
            with pytest.raises(OptionError, match="writes inside foreachBatch"):
                writer_module._batch_of_foreach(None)
            with pytest.raises(InvariantError, match="did not give"):
                writer_module._batch_of_task()


@given(st.integers(0, 30), st.booleans())
def test_whether_a_trigger_is_continuous_is_told_by_what_is_logged(
    committed: int,
    is_planned: bool,
):
    with TemporaryDirectory() as folder:
        Path(folder, "metadata").write_text('{"id":"q1"}')
        for log, count in (("offsets", committed + is_planned), ("commits", committed)):
            Path(folder, log).mkdir()
            for number in range(count):
                Path(folder, log, str(number)).touch()

        with nullcontext() if is_planned else pytest.raises(OptionError, match="continuous"):
            check_trigger(read_plan(folder))


@given(st.integers(1, 10_000))
def test_whatever_number_of_tasks_has_delayed_messages_one_publish_takes_them(tasks: int):
    assert sum(map(times_of_task, range(tasks))) <= MOST_BLOCKS


@given(TASKS, st.data())
def test_a_replay_with_its_rows_in_any_order_and_any_tasks_publishes_nothing(
    tasks: list[list[bytes]], data: st.DataObject
):
    driver, batch = make_driver(), SinkBatch("query:q", 3)
    rows = [value for values in tasks for value in values]
    driver.run(tasks, batch)

    shuffled = data.draw(st.permutations(rows))
    cut = data.draw(st.integers(0, len(rows)))
    driver.run([shuffled[:cut], shuffled[cut:]], batch)

    assert driver.visible() == sorted(rows)


@given(TASKS, TASKS, st.booleans(), st.data())
def test_a_driver_that_is_overtaken_by_another_publishes_all_or_nothing_and_is_told(
    tasks: list[list[bytes]],
    others: list[list[bytes]],
    fail_on_changed: bool,
    data: st.DataObject,
):
    driver, batch = make_driver(fail_on_changed=fail_on_changed), SinkBatch("query:q", 3)
    ours, theirs = (sorted(chain(*each)) for each in (tasks, others))
    before = data.draw(st.integers(0, len(tasks)))

    done = [driver.task(values, batch) for values in tasks[:before]]
    driver.run(others, batch)
    done += [driver.task(values, batch) for values in tasks[before:]]

    if not theirs:
        # Nothing was published, so there is nothing to find.
        driver.commit(done)
        assert driver.visible() == ours
    elif not ours or ours == theirs or not fail_on_changed:
        # Without rows there is nothing to lose.
        driver.commit(done)
        assert driver.visible() == theirs
    else:
        with pytest.raises(BatchChangedError):
            driver.commit(done)
        assert driver.visible() == theirs


@given(TASKS.filter(any), TASKS, st.integers(0, 9))
def test_a_batch_below_the_last_one_is_refused_before_its_rows_are_read(
    tasks: list[list[bytes]], older: list[list[bytes]], number: int
):
    driver = make_driver()
    driver.run(tasks, SinkBatch("query:q", 10))

    def unread() -> Iterator[pa.RecordBatch]:
        raise AssertionError("it reads")
        yield

    with pytest.raises(BatchOrderError):
        driver._writer()._write(unread(), SinkBatch("query:q", number))
    with pytest.raises(BatchOrderError):
        driver.run(older, SinkBatch("query:q", number))
    assert driver.visible() == sorted(chain(*tasks))


@given(TASKS, st.data())
def test_a_queue_that_is_purged_or_made_anew_under_a_write_gets_all_of_it_or_nothing(
    tasks: list[list[bytes]], data: st.DataObject
):
    driver, batch = make_driver(), SinkBatch("query:q", 3)
    steps = st.sampled_from([None, "purge", "create"])

    def meanwhile() -> bool:
        with Client.from_store(driver.store) as client:
            match data.draw(steps):
                case "purge":
                    client.purge_queue("q", force=True)
                case "create":
                    client.delete_queue("q", force=True)
                    client.create_queue("q")
                case _:
                    return False
        return True

    done, changed = [], False
    for values in tasks:
        done.append(driver.task(values, batch))
        changed |= meanwhile()

    versions = {written.queue_id for each in done for written in each.written}
    if len(versions) > 1:
        # Spark plans the tasks of a write once; if it did not, nothing would come of it either.
        outcome: AbstractContextManager[object] = pytest.raises(InvariantError)
    elif changed and any(tasks):
        outcome = pytest.raises(QueueStateError)
    else:
        outcome = nullcontext()
    with outcome:
        driver.commit(done)

    assert driver.visible() == ([] if changed else sorted(chain(*tasks)))
    driver.run(tasks, batch)
    assert driver.visible() == sorted(chain(*tasks))
