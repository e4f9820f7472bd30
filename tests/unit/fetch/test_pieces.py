"""Several pieces, such as many small blocks, are read in one go."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cassieq_spark.errors import LeaseLostError
from cassieq_spark.fetch.find import find_pieces
from cassieq_spark.fetch.read import Decoder, fetch, read_pieces
from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.ledger.publish import publish
from cassieq_spark.model import BucketSlice, Chunk, QueueId, Range, Ranges
from cassieq_spark.producer.blocks import write_block
from cassieq_spark.settings import SinkOptions
from cassieq_spark.store.memory import MemoryStore
from cassieq_spark.testing.stores import WrappedStore
from tests.support.builders import make_queue

COUNTS = (3, 9, 1, 20, 2)
COUNT = sum(COUNTS)
RANGES = st.lists(
    st.tuples(st.integers(0, COUNT - 1), st.integers(1, COUNT)).map(
        lambda it: Range(it[0], min(COUNT, it[0] + it[1]))
    ),
    max_size=4,
)


class Scene:
    """Blocks of different sizes, four messages to a chunk and eight to a bucket."""

    def __init__(self) -> None:
        self.memory = MemoryStore()
        self.store = _Asked(self.memory)
        self.queue = make_queue(self.store)
        self.ledger = Ledger(self.store, self.queue.queue_id)
        values = iter(range(COUNT))
        for count in COUNTS:
            own = pa.array([b"%d" % next(values) for _ in range(count)])
            rows = pa.record_batch({"value": own})
            written = write_block(self.store, self.queue, [rows], SinkOptions(queue="q"))
            publish(self.ledger, [written])

    def found(self) -> list[list[int]]:
        """The offsets that are found of each block."""
        pieces = find_pieces(self.ledger, Ranges.of(Range(0, COUNT)), deliveries=None)
        return [
            [at for offsets, _ in messages for at in range(offsets.start, offsets.stop)]
            for _, messages in read_pieces(Decoder(self.store, self.queue), pieces)
        ]


class _Asked(WrappedStore):
    """Keeps what each call asks for."""

    def __init__(self, store: MemoryStore) -> None:
        super().__init__(store)
        self.asked: list[list[BucketSlice]] = []

    def read_chunks(
        self, queue_id: QueueId, slices: Iterable[BucketSlice]
    ) -> Iterator[tuple[BucketSlice, Chunk]]:
        self.asked.append([])

        def told() -> Iterator[BucketSlice]:
            for each in slices:
                self.asked[-1].append(each)
                yield each

        return super().read_chunks(queue_id, told())


@given(wanted=RANGES)
def test_the_wanted_messages_come_in_order_by_one_call(wanted: list[Range]):
    scene, monotons = Scene(), Ranges.of(*wanted)
    pieces = find_pieces(scene.ledger, monotons, deliveries=None)

    batches = list(fetch(scene.store, scene.queue, pieces))

    values = chain.from_iterable(batch.column("value").to_pylist() for batch in batches)
    expected = [at for part in monotons for at in range(part.start, part.stop)]
    assert [int(value) for value in values] == expected
    assert len(scene.store.asked) == 1
    assert len(set(scene.store.asked[0])) == len(scene.store.asked[0]) >= len(pieces)


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_a_piece_that_is_gone_takes_nothing_of_the_others(scene: Scene):
    block = scene.ledger.read_blocks()[2].block
    scene.memory.delete_buckets(scene.queue.queue_id, [(block, 0)])
    pieces = find_pieces(scene.ledger, Ranges.of(Range(0, COUNT)), deliveries=None)

    assert scene.found() == [[0, 1, 2], [*range(9)], [], [*range(20)], [0, 1]]
    with pytest.raises(LeaseLostError, match="message 12 is not in the store"):
        list(fetch(scene.store, scene.queue, pieces))


def test_what_follows_a_gap_in_its_piece_is_not_taken_for_the_next_piece(scene: Scene):
    block = scene.ledger.read_blocks()[3].block
    del scene.memory._chunks[scene.queue.queue_id, block, 0][4]

    assert scene.found() == [[0, 1, 2], [*range(9)], [0], [*range(4)], [0, 1]]
