from __future__ import annotations

import pyarrow as pa

from cassieq_spark.arrow.rows import PlainRows
from cassieq_spark.fetch.find import find_pieces
from cassieq_spark.fetch.read import SMALL_BYTES, SMALL_COUNT, fetch
from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.ledger.publish import publish
from cassieq_spark.model import Range, Ranges
from cassieq_spark.producer.blocks import write_block
from cassieq_spark.settings import SinkOptions
from cassieq_spark.store.memory import MemoryStore
from tests.support.builders import make_queue


def batches_of(*values: bytes) -> list[pa.RecordBatch]:
    """What Spark is handed of a queue with these messages, four to a chunk."""
    store = MemoryStore()
    queue = make_queue(store)
    messages = pa.record_batch({"value": pa.array(values, pa.binary())})
    written = write_block(store, queue, [messages], SinkOptions(queue="q"))
    publish(Ledger(store, queue.queue_id), [written])
    every = Ranges.of(Range(0, len(values)))
    pieces = find_pieces(Ledger(store, queue.queue_id), every, deliveries=None)
    batches = list(fetch(store, queue, pieces, PlainRows(queue.name, include_headers=False)))
    fetched = [value for batch in batches for value in batch.column("value").to_pylist()]
    assert fetched == list(values)
    return batches


def test_many_small_chunks_are_put_together():
    assert [batch.num_rows for batch in batches_of(*[b"x"] * 1276)] == [SMALL_COUNT] * 6 + [76]


def test_large_messages_are_handed_over_as_they_come():
    large = bytes(SMALL_BYTES)

    assert [batch.num_rows for batch in batches_of(*[large] * 5)] == [1] * 5


def test_no_more_is_put_together_than_some_bytes_and_a_chunk():
    batches = batches_of(*[bytes(SMALL_BYTES // 5)] * 40)

    assert len(batches) > 1
    assert all(batch.nbytes < SMALL_BYTES * 1.3 for batch in batches)
