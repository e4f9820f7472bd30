from __future__ import annotations

import pytest

from cassieq_spark.client import Client
from cassieq_spark.errors import LeaseLostError, QueueStateError
from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.model import QueueId
from cassieq_spark.repair.scan import DriverScan
from cassieq_spark.repair.steps import Step, run_once
from cassieq_spark.settings import SourceOptions
from cassieq_spark.spark.source import browse
from cassieq_spark.spark.source.browse import MessageReader
from cassieq_spark.spark.source.columns import Columns
from cassieq_spark.store.memory import MemoryStore


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> MemoryStore:
    it = MemoryStore()
    monkeypatch.setattr(browse, "open_store", lambda _: it)
    with Client.from_store(it) as client:
        client.create_queue("orders", drop_dead=True)
        client.put_many("orders", ["a", "b", "c"])
    return it


def read(reader: MessageReader, planned: list[object]) -> int:
    """Read the messages of a plan, as Spark does; how many there are."""
    return sum(batch.num_rows for each in planned for batch in reader.read(each))  # type: ignore[arg-type]


def test_what_was_deleted_after_the_plan_is_told_with_what_to_do(store: MemoryStore):
    reader = MessageReader(SourceOptions(queue="orders"), Columns(None))
    planned: list[object] = [*reader.partitions()]
    assert read(reader, planned) == 3
    with Client.from_store(store) as client:
        client.ack(*client.receive("orders", "etl", max=2))
    run_once(store, scan=DriverScan(store), steps=tuple(Step))
    assert read(reader, [*reader.partitions()]) == 1

    with Client.from_store(store) as client:
        client.ack(*client.receive("orders", "etl", max=1))
    run_once(store, scan=DriverScan(store), steps=tuple(Step))

    with pytest.raises(QueueStateError, match=r"messages below 3 are deleted, .* load it again"):
        read(reader, planned)
    assert read(reader, [*reader.partitions()]) == 0


def test_what_is_lost_is_not_told_as_deleted(store: MemoryStore):
    reader = MessageReader(SourceOptions(queue="orders"), Columns(None))
    planned: list[object] = [*reader.partitions()]
    (block,) = Ledger(store, QueueId("orders@1")).read_blocks()
    store.delete_buckets(QueueId("orders@1"), [(block.block, 0)])

    with pytest.raises(LeaseLostError, match="or data was lost") as caught:
        read(reader, planned)

    assert "every group has settled it meanwhile and the repair deleted it" in str(caught.value)
    assert "lease" not in str(caught.value)


def test_min_partitions_cuts_a_batch_read_into_tasks_in_the_order_of_the_messages(
    store: MemoryStore,
):
    reader = MessageReader(SourceOptions(queue="orders", min_partitions=3), Columns(None))

    planned: list[object] = [*reader.partitions()]

    rows = [batch for each in planned for batch in reader.read(each)]  # type: ignore[arg-type]
    assert [batch.column("monoton").to_pylist() for batch in rows] == [[0], [1], [2]]
