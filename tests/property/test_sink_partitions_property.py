"""I4: a sink publishes each batch once, and none after a later one, in each of its partitions."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cassieq_spark import Client, NewMessage
from cassieq_spark.errors import BatchChangedError, BatchOrderError
from cassieq_spark.ledger.identity import PlanIdentity
from cassieq_spark.model import SinkBatch
from cassieq_spark.producer.new_message import batches_of, check_message
from cassieq_spark.producer.partitioned import publish_all, read_lasts, write_messages
from cassieq_spark.producer.partitioner import partition_of_key, partition_without_key
from cassieq_spark.queues import read_queue
from cassieq_spark.store.memory import MemoryStore
from tests.support.dying import publish_some

#: A key, or none, and a value.
Row = tuple[str | None, str]
ROWS = st.lists(
    st.tuples(st.none() | st.sampled_from(["a", "b", "c", "d"]), st.sampled_from("xy")), max_size=3
)
#: Number, rows, and where the driver dies: after so many partitions are published.
WRITES = st.lists(st.tuples(st.integers(0, 4), ROWS, st.none() | st.integers(0, 3)), max_size=6)


class Model:
    """What each partition knows: the last batch of which it has rows, and all rows of that."""

    def __init__(self, partitions: int) -> None:
        self.partitions = partitions
        self.last: dict[int, tuple[int, Counter[Row]]] = {}
        self.visible: Counter[str] = Counter()

    def parts(self, batch: SinkBatch, rows: Sequence[Row]) -> dict[int, Counter[Row]]:
        found: defaultdict[int, Counter[Row]] = defaultdict(Counter)
        for key, value in rows:
            at = (
                partition_without_key(batch, self.partitions)
                if key is None
                else partition_of_key(key, self.partitions)
            )
            found[at][key, value] += 1
        return dict(sorted(found.items()))

    def refusal(self, batch: SinkBatch, rows: Sequence[Row]) -> type[Exception] | None:
        """How a write is refused, as docs/partitions.md says."""
        number, known = batch.batch_id, self.last.values()
        if any(last > number for last, _ in known):
            return BatchOrderError
        if any(last == number and Counter(rows) != there for last, there in known):
            return BatchChangedError
        return None

    def publish(self, number: int, at: int, rows: Counter[Row], *, whole: Counter[Row]) -> None:
        if self.last.get(at) != (number, whole):
            self.last[at] = (number, whole)
            self.visible.update(value for _, value in rows.elements())


@given(partitions=st.integers(1, 4), writes=WRITES)
def test_batches_of_any_number_with_and_without_keys_are_published_once_or_refused(
    partitions: int, writes: list[tuple[int, list[Row], int | None]]
):
    store, model = MemoryStore(), Model(partitions)
    client = Client.from_store(store)
    client.create_queue("q", partitions=partitions)
    queue = read_queue(store, "q")

    for number, rows, dies_after in filter(lambda write: write[1], writes):
        batch = SinkBatch("app:a", number)
        messages = [NewMessage(value, key) for key, value in rows]
        refusal, parts = model.refusal(batch, rows), model.parts(batch, rows)
        if refusal is not None:
            with pytest.raises(refusal):
                client.put_many("q", messages, txn_app_id="a", txn_version=number)
        elif dies_after is None:
            client.put_many("q", messages, txn_app_id="a", txn_version=number)
        else:
            checked = batches_of([check_message(each, queue) for each in messages], queue)
            parts = dict(list(parts.items())[:dies_after])
            written = write_messages(store, queue, checked, batch)
            publish_some(store, written, written[:dies_after])
        if refusal is None:
            for at, part in parts.items():
                model.publish(number, at, part, whole=Counter(rows))

        found = Counter(bytes(each.value).decode() for each in client.peek("q", max=1000))
        assert found == model.visible


# -- batches that are known by their plan --------------------------------------------------------

#: Number, plan, rows, and where the driver dies.
PLANNED = st.lists(
    st.tuples(
        st.integers(0, 2), st.sampled_from([0, 0, 0, 1]), ROWS, st.none() | st.integers(0, 3)
    ),
    max_size=8,
)


class PlannedModel(Model):
    """What each partition knows of planned batches: number, plan, and where the rows go."""

    def __init__(self, partitions: int) -> None:
        super().__init__(partitions)
        self.known: dict[int, tuple[int, int, frozenset[int], Counter[str | None]]] = {}

    def planned(
        self, number: int, plan: int, rows: Sequence[Row], reached: frozenset[int]
    ) -> type[Exception] | set[int]:
        """How a write is refused, or to which partitions it is published."""
        if any(last > number for last, *_ in self.known.values()):
            return BatchOrderError
        same = {at: it for at, it in self.known.items() if it[0] == number}
        if any(its != plan for _, its, *_ in same.values()):
            return BatchChangedError
        if not same:
            return {*reached}
        *_, wanted, keys = next(iter(same.values()))
        if wanted <= same.keys():
            return set()
        if (reached, Counter(key for key, _ in rows)) != (wanted, keys):
            return BatchChangedError
        return {*reached} - same.keys()


@given(partitions=st.integers(2, 4), writes=PLANNED)
def test_a_planned_batch_is_published_once_completed_or_refused_whatever_its_values_are(
    partitions: int, writes: list[tuple[int, int, list[Row], int | None]]
):
    """A replay has other values, and in this test at times other keys."""
    store, model = MemoryStore(), PlannedModel(partitions)
    client = Client.from_store(store)
    client.create_queue("q", partitions=partitions)
    queue = read_queue(store, "q")
    queue_ids = [each.queue_id for each in queue.by_partition]

    for number, plan, rows, dies_after in filter(lambda write: write[2], writes):
        batch = SinkBatch("query:a", number, str(PlanIdentity(f"{number}-{plan}")))
        parts = model.parts(batch, rows)
        expected = model.planned(number, plan, rows, frozenset(parts))
        lasts = read_lasts(store, queue_ids, batch.sink)
        is_fresh = all(last.batch_id < number for last in lasts.values())
        messages = [check_message(NewMessage(value, key), queue) for key, value in rows]
        checked = batches_of(messages, queue)

        if isinstance(expected, type):
            with pytest.raises(expected):
                publish_all(store, write_messages(store, queue, checked, batch))
        else:
            written = write_messages(store, queue, checked, batch, is_fresh=is_fresh)
            alive = written[:dies_after]
            publish_some(store, written, alive)
            numbers = {queue_ids.index(each.queue_id) for each in alive}
            for at in expected & numbers:
                keys = Counter(key for key, _ in rows)
                model.known[at] = (number, plan, frozenset(parts), keys)
                model.visible.update(value for _, value in parts[at].elements())

        found = Counter(bytes(each.value).decode() for each in client.peek("q", max=1000))
        assert found == model.visible
