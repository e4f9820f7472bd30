"""Which queue partition a message goes to.

The partition of a message with a key is MurmurHash3 (x86, 32 bits, seed 0) of the bytes of the
key, text as UTF-8, as an unsigned number, modulo the number of partitions. So programs in any
language and release find the same partition; docs/partitions.md has examples to test against.

A message without a key goes by its unique id, if it has one. Other messages of a named batch go to
one partition, which follows from the name: a replay must find it again, however its rows are
distributed over tasks. Those of other writes go to a random partition per task.

Source: Austin Appleby's MurmurHash3, by the package mmh3.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from itertools import pairwise

import mmh3
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cassieq_spark.arrow.chunks import ColumnNames
from cassieq_spark.groups.lanes import LANES, NO_LANE
from cassieq_spark.ledger.once import Once
from cassieq_spark.model import SinkBatch
from cassieq_spark.producer.unique_ids import keys_to_go_by


def partition_of_key(key: bytes | str, partitions: int) -> int:
    """The partition of messages with this key.

    >>> [partition_of_key(key, 16) for key in ("", "a", "order-1", "order-2")]
    [0, 2, 1, 15]

    Args:
        key: The key; text counts as UTF-8.
    """
    return _hash(key.encode() if isinstance(key, str) else key) % partitions


def partition_without_key(batch: SinkBatch | Once | None, partitions: int) -> int:
    """The partition of the messages without a key that a task writes.

    Args:
        batch: The name of the write; without a name, the partition is random.
    """
    match batch:
        case SinkBatch(sink=sink, batch_id=batch_id):
            # Batches take the partitions in turn.
            return (_hash(sink.encode()) + batch_id) % partitions
        case Once():
            return _hash(batch.name.encode()) % partitions
    return secrets.randbelow(partitions)


def deal(
    rows: pa.RecordBatch, names: ColumnNames, partitions: int, *, without_key: int
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Divide rows among partitions; those of one partition keep their order.

    Hashing takes about 0.2 us per distinct key, and 0.02 us per further row. The rows are
    copied once, unless all of them go to one partition.

    Args:
        rows: At least one.
        names: Names of the columns with keys and unique ids; the columns may be missing.
        without_key: The partition of rows with neither key nor unique id.
    """
    keys = keys_to_go_by(rows, names)
    if keys is None:
        yield without_key, rows
        return
    numbers = _partitions_of(keys, partitions, without_key)
    if (numbers == numbers[0]).all():
        yield int(numbers[0]), rows
        return
    order = np.argsort(numbers, kind="stable")
    in_order = rows.take(pa.array(order))
    ends = np.searchsorted(numbers[order], np.arange(partitions + 1)).tolist()
    for partition, (start, stop) in enumerate(pairwise(ends)):
        if start < stop:
            yield partition, in_order.slice(start, stop - start)


def lanes_of_keys(keys: pa.Array, partitions: int) -> list[int]:
    """The lane of each message in its partition, given the keys; `NO_LANE` without a key.

    The partition takes the remainder of the hash of a key, the lane follows from the rest. So a
    lane has the same keys in any language and release, as a partition has.

    >>> lanes_of_keys(pa.array(["a", "b", None, "a"]), 16)
    [22171, 59360, 65536, 22171]
    """
    hashes, indices = _hashed(keys)
    lanes = np.append(hashes // np.uint32(partitions) % np.uint32(LANES), NO_LANE)
    found: list[int] = lanes[indices].tolist()
    return found


def _partitions_of(keys: pa.Array, partitions: int, without_key: int) -> npt.NDArray[np.uint16]:
    hashes, indices = _hashed(keys)
    # Small numbers are sorted in one pass.
    table = np.append(hashes % np.uint32(partitions), without_key).astype(np.uint16)
    numbers: npt.NDArray[np.uint16] = table[indices]
    return numbers


def _hashed(keys: pa.Array) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.int32]]:
    """The hashes of the distinct keys, and each key's index in them (or one more, for none)."""
    encoded = keys.dictionary_encode()
    distinct = encoded.dictionary.cast(_BYTES.get(keys.type, pa.binary())).to_pylist()
    hashes = np.fromiter(map(_hash, distinct), np.uint32, len(distinct))
    return hashes, encoded.indices.fill_null(len(distinct)).to_numpy()


#: MurmurHash3 with the seed 0.
_hash: Callable[[bytes], int] = mmh3.mmh3_32_uintdigest

_BYTES = {pa.large_string(): pa.large_binary(), pa.large_binary(): pa.large_binary()}
