"""A second queue, which a stream reads together with the first one; writes go to both, too."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from pyspark.sql.types import BinaryType, LongType, StringType, StructType

from cassieq_spark import Client, NewMessage
from cassieq_spark.queues import alter_queue
from cassieq_spark.settings import SourceOptions
from cassieq_spark.spark.datasource import CassieqDataSource
from cassieq_spark.spark.source.selection import Selection, columns_of_several, read_selected
from cassieq_spark.store.memory import MemoryStore
from tests.property.features.model import GROUP, QUEUE, At, Model
from tests.support.faults import FakeClock

BESIDE = "acme:beside"


class Beside:
    """The queue, and what must be there.

    Attributes:
        model: What must be there.
        columns: The columns of the queue; none if messages are bytes.
        running: What the stream runs now, with the receipts.
    """

    def __init__(
        self, client: Client, memory: MemoryStore, clock: FakeClock, *, typed: bool
    ) -> None:
        self._client, self._memory, self._clock = client, memory, clock
        self._columns_ever = 0
        self.model = Model(memory, clock, BESIDE)
        # A narrower type, and another order, than those of the first queue.
        self.columns = ["text string", "number int not null"] if typed else []
        self._create()

    def _create(self) -> None:
        self._client.create_queue(
            BESIDE, max_deliveries=6, drop_dead=True, schema=", ".join(self.columns) or None
        )
        self.running: dict[At, str] = {}
        self.model.begin_version()

    def make_anew(self) -> None:
        """Delete the queue, and create another one of its name."""
        self._client.delete_queue(BESIDE, force=True)
        self._create()

    def alter(self, *, adds: bool) -> None:
        """Add a column, or drop one."""
        if not self.columns:
            return
        if adds:
            self._columns_ever += 1
            self.columns.insert(0, f"d{self._columns_ever} string")
        elif len(self.columns) > 1:
            self.columns.pop(0)
        alter_queue(self._memory, BESIDE, schema=", ".join(self.columns))

    def selection(self) -> tuple[Selection, pa.Schema | None]:
        """What a new DataFrame reads: both queues, with the columns that they have now."""
        options = SourceOptions(queue=f"{QUEUE},{BESIDE}", group=GROUP, fail_on_data_loss=False)
        columns, _ = columns_of_several(read_selected(self._memory, options), options)
        return Selection(self._memory, options, columns), columns.schema

    def is_acked(self) -> None:
        """Nothing else reads the queue: its part of a batch is acked, unless its lease is over."""
        now, held = self._clock.now, self.model.held
        mine = {at for at, receipt in self.running.items() if held.get(at, ("",))[0] == receipt}
        certain = {at for at in mine if held[at][1] >= now}
        self.running = {}
        self.model.look(must=certain, may=mine - certain)

    def let_go(self) -> None:
        """What the stream runs is held no more."""
        for at, receipt in self.running.items():
            if self.model.held.get(at, ("",))[0] == receipt:
                del self.model.held[at]

    def drain(self) -> None:
        """Receive and ack all that is left."""
        for _ in range(10):
            self._clock.advance(2 * self.model.queue.lease)
            found = self._client.receive(BESIDE, GROUP, max=1_000)
            self.model.hand_out(found, [each.receipt for each in found], "")
            live = self.model.live(found, self._client.ack(*found))
            self.model.look(must=live)
        assert not self.model.owed, "is not delivered"

    @property
    def names(self) -> set[str]:
        """The names of the columns."""
        return {each.split()[0] for each in self.columns}


def write_to_both(messages: Sequence[tuple[str, NewMessage]], version: int) -> None:
    """Write messages to the queues that are named with them, as one numbered batch of Spark's.

    All have the same columns.
    """
    options = {"queueColumn": "to", "txnAppId": "routed", "txnVersion": str(version)}
    to = pa.array([name for name, _ in messages])
    keys = pa.array([each.key for _, each in messages], pa.string())
    values = [each.value for _, each in messages]
    schema = StructType().add("to", StringType())
    if isinstance(values[0], bytes):
        schema = schema.add("key", StringType()).add("value", BinaryType())
        rows = pa.record_batch({"to": to, "key": keys, "value": values})
    else:
        names = list(values[0])
        schema = schema.add("_key", StringType())
        for name in names:
            schema = schema.add(name, LongType() if name == "number" else StringType())
        types = {name: pa.int64() if name == "number" else pa.string() for name in names}
        arrays = {name: pa.array([it[name] for it in values], types[name]) for name in names}
        rows = pa.record_batch({"to": to, "_key": keys, **arrays})
    writer = CassieqDataSource(options).writer(schema, overwrite=False)
    writer.commit([writer.write(iter([rows]))])
