"""Which reads come in pages, and which are of one moment."""

from __future__ import annotations

from cassieq_spark.store.cassandra.store import page_rows
from cassieq_spark.store.protocol import EVERYTHING, Partition, Rows, Slice
from cassieq_spark.testing.stores import WrappedStore
from tests.support.builders import make_clocked_store, make_group, make_queue


class ReadStore(WrappedStore):
    """Remembers what was read."""

    slices: list[Slice]

    def read_rows(
        self, partition: Partition, which: Slice = EVERYTHING, *, serial: bool = False
    ) -> Rows:
        self.slices.append(which)
        return super().read_rows(partition, which, serial=serial)


def test_rows_of_several_kinds_are_one_page_and_many_of_one_kind_are_not():
    assert page_rows(Slice(kinds=("head", "slot"))) is None
    assert page_rows(Slice(kinds=("waiting",))) is not None


def test_the_head_and_the_slots_that_a_floor_rests_on_are_one_page():
    memory, _ = make_clocked_store()
    store = ReadStore(memory)
    store.slices = []
    group = make_group(store, make_queue(store, [10]).queue_id)
    store.slices.clear()

    group.read(every_waiting=True)

    (with_slots,) = (each for each in store.slices if "slot" in each.kinds)
    assert "head" in with_slots.kinds
    assert page_rows(with_slots) is None
