from __future__ import annotations

import pyarrow as pa
import pytest

from cassieq_spark.arrow.chunks import PLAIN
from cassieq_spark.ledger.once import once_of_key
from cassieq_spark.model import SinkBatch
from cassieq_spark.producer.partitioner import deal, partition_of_key, partition_without_key


@pytest.mark.parametrize(
    ("key", "hash_"),
    [
        # Of the reference implementation, with seed 0.
        (b"", 0),
        (b"hello", 0x248BFA47),
        (b"hello, world", 0x149BBB7F),
        (b"The quick brown fox jumps over the lazy dog", 0x2E4FF723),
        (b"\xff\xff\xff\xff", 0x76293B50),
        # Of 2^31 or more: a signed hash would find other partitions.
        (b"order-1", 4117911073),
        (b"test", 0xBA6BD213),
        ("ключ".encode(), 2589532226),
    ],
)
@pytest.mark.parametrize("partitions", [1, 2, 3, 16, 100, 256])
def test_the_partition_of_a_key_is_murmur3_of_its_bytes(key: bytes, hash_: int, partitions: int):
    assert partition_of_key(key, partitions) == hash_ % partitions


def test_text_counts_as_utf_8():
    assert partition_of_key("ключ", 97) == partition_of_key("ключ".encode(), 97)


def rows_of(*keys: str | None, type_: pa.DataType | None = None) -> pa.RecordBatch:
    return pa.record_batch(
        {"value": pa.array(range(len(keys))), "key": pa.array(keys, type_ or pa.string())}
    )


@pytest.mark.parametrize("type_", [pa.string(), pa.binary(), pa.large_string()], ids=str)
def test_rows_are_dealt_as_each_key_says_and_keep_their_order(type_: pa.DataType):
    keys = [None if n % 7 == 0 else str(n % 5) for n in range(100)]
    rows = rows_of(*keys, type_=type_)

    dealt = dict(deal(rows, PLAIN.names, 8, without_key=3))

    assert sum(part.num_rows for part in dealt.values()) == 100
    for partition, part in dealt.items():
        numbers = part.column("value").to_pylist()
        assert numbers == sorted(numbers)
        for key in part.column("key").to_pylist():
            assert partition == (3 if key is None else partition_of_key(key, 8))


def test_rows_of_one_partition_are_not_copied():
    rows = rows_of("a", "a", "a")

    ((_, part),) = deal(rows, PLAIN.names, 8, without_key=0)

    assert part is rows


def test_without_a_column_of_keys_all_rows_go_together():
    rows = rows_of("a", "b").select(["value"])

    assert list(deal(rows, PLAIN.names, 8, without_key=5)) == [(5, rows)]


def test_batches_without_keys_go_to_each_partition_in_turn():
    found = [partition_without_key(SinkBatch("query:q", number), 16) for number in range(32)]

    assert sorted(found[:16]) == [*range(16)]
    assert found[16:] == found[:16]


def test_what_is_put_under_an_idempotency_key_again_goes_to_the_same_partition():
    found = {partition_without_key(once_of_key("upload-7"), 100) for _ in range(20)}

    assert len(found) == 1


def test_writes_without_a_name_are_spread():
    assert len({partition_without_key(None, 4) for _ in range(200)}) == 4
