"""The cost of publishes and reads with a ledger of a million blocks, before and after a trim.

Fills one ledger of each size in a Cassandra that it starts. Each round measures all of them, so
that other work of the machine affects all alike. Then half of each ledger is trimmed, and the
rounds are repeated. Prints JSON lines: first the uncompressed size of a block on disk, then the
median and 95th percentile in ms, and the ratio to the smallest ledger (median over the rounds).
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
import tracemalloc
from collections import defaultdict
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import uuid1

from benchmarks.lines import compared, show
from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.ledger.publish import publish
from cassieq_spark.ledger.state import HEAD, LedgerHead, block_key
from cassieq_spark.model import PendingBlock, QueueId, Range, SinkBatch
from cassieq_spark.queues import create_queue
from cassieq_spark.store.cassandra.session import connect
from cassieq_spark.store.protocol import (
    Insert,
    Op,
    Slice,
    Store,
    Update,
    Values,
    When,
    partition_of_ledger,
)
from trials.environment import cassandra

MESSAGES_PER_BLOCK = 10
BLOCK_BYTES = 20_000
#: Blocks that one conditional batch carries while a ledger is filled.
BLOCKS_AT_ONCE = 5_000
#: Between one block and the next: a million of them make three weeks.
PUBLISHED_EVERY = timedelta(seconds=2)
#: Blocks that every ledger has in addition, so that the smallest is not empty.
MORE_BLOCKS = 40
#: Messages of one `locate`.
BATCH = 1_000

Measured = Callable[[Store, QueueId, LedgerHead], object]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--blocks", default="0,10000,100000,1000000", help="sizes of the ledgers")
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument(
        "--single", type=int, default=5_000, help="publishes to measure the size of"
    )
    given = parser.parse_args()
    show(phase="size", bytes_per_block=round(measure_size(given.single), 1), blocks=given.single)
    with cassandra(nodes=1) as environment:
        store = environment.store
        ledgers = {size: fill(store, size) for size in map(int, given.blocks.split(","))}
        measure(store, ledgers, HOT, given.rounds, phase="full")
        for size, queue_id in ledgers.items():
            show(phase="full", op="read_blocks", blocks=size, **read_all(store, queue_id))
            show(phase="trim", op="trim", blocks=size, ms=trim_half(store, queue_id))
        measure(store, ledgers, HOT, given.rounds, phase="trimmed")
        measure(store, ledgers, WADING, max(1, given.rounds // 10), phase="trimmed")


def measure_size(count: int) -> float:
    """Bytes of a block in the ledger's file, when a sink publishes each block alone."""
    with tempfile.TemporaryDirectory(prefix="cassieq-ledger-") as folder:
        with cassandra(nodes=1, data_dir=Path(folder)) as environment:
            store = environment.store
            driver, session = connect(environment.connection)
            session.execute("ALTER TABLE cassieq.ledger WITH compression = {'enabled': 'false'}")
            driver.shutdown()
            queue_id = create_queue(store, "single").queue_id
            for number in range(count):
                batch = SinkBatch("query:single", number)
                publish(Ledger(store, queue_id), [make_pending()], batch=batch)
        # A node writes all rows to its files before it stops.
        files = Path(folder).glob("**/cassieq/ledger-*/*-Data.db")
        return sum(file.stat().st_size for file in files) / count


def fill(store: Store, size: int) -> QueueId:
    """Create a queue with ``size`` blocks and a few more, as if published over weeks."""
    queue_id = create_queue(store, f"q{size}").queue_id
    wanted = size + MORE_BLOCKS
    first = datetime.now(UTC) - wanted * PUBLISHED_EVERY
    for done in range(0, wanted, BLOCKS_AT_ONCE):
        numbers = range(done, min(wanted, done + BLOCKS_AT_ONCE))
        values = {"next": numbers.stop * MESSAGES_PER_BLOCK}
        unchanged = When("next", "=", numbers.start * MESSAGES_PER_BLOCK)
        rows = [make_row(number, first + number * PUBLISHED_EVERY) for number in numbers]
        head = Update(HEAD, values, when=(unchanged,))
        store.cas(partition_of_ledger(queue_id), [head, *rows])
    return queue_id


def make_row(number: int, published_at: datetime) -> Op:
    """The row of a block, as a publish inserts it, but with a time of our choice."""
    start = number * MESSAGES_PER_BLOCK
    values: Values = {
        "stop": start + MESSAGES_PER_BLOCK,
        "block": uuid1(),
        "published_at": published_at,
        "size": BLOCK_BYTES,
    }
    return Insert(block_key(start), values)


def make_pending() -> PendingBlock:
    return PendingBlock(uuid1(), MESSAGES_PER_BLOCK, BLOCK_BYTES)


def publish_one(store: Store, queue_id: QueueId, _: LedgerHead) -> object:
    return publish(Ledger(store, queue_id), [make_pending()])


def locate_at(part: float) -> Measured:
    """Locate a batch, at a part (0 to 1) of the messages that are not final."""

    def run(store: Store, queue_id: QueueId, head: LedgerHead) -> object:
        last = max(head.finalised, head.next - BATCH)
        start = head.finalised + int((last - head.finalised) * part)
        return Ledger(store, queue_id).locate(Range(start, min(head.next, start + BATCH)))

    return run


def find_instant(store: Store, queue_id: QueueId, head: LedgerHead) -> object:
    """Find the first position published since the time of the middle block."""
    middle = Ledger(store, queue_id).read_block_of((head.finalised + head.next) // 2)
    return Ledger(store, queue_id).find_position(head, middle.published_at if middle else "latest")


def read_first(store: Store, queue_id: QueueId, *, start: int) -> object:
    which = Slice(kinds=("block",), start=start, limit=1)
    return store.read_rows(partition_of_ledger(queue_id), which)


HOT: Mapping[str, Measured] = {
    "publish": publish_one,
    "read_head": lambda store, queue_id, _: Ledger(store, queue_id).read_head(),
    "read_head_serially": lambda store, queue_id, _: Ledger(store, queue_id).read_head(
        serial=True
    ),
    "locate_first": locate_at(0),
    "locate_middle": locate_at(0.5),
    "locate_last": locate_at(1),
    "find_instant": find_instant,
    "first_block": lambda store, queue_id, head: read_first(store, queue_id, start=head.trimmed),
}
#: A read that begins among deleted rows, for comparison: the package makes none.
WADING: Mapping[str, Measured] = {
    "first_block_from_zero": lambda store, queue_id, _: read_first(store, queue_id, start=0),
}


def measure(
    store: Store,
    ledgers: Mapping[int, QueueId],
    calls: Mapping[str, Measured],
    rounds: int,
    *,
    phase: str,
) -> None:
    """Make every call on every ledger, round by round, and show the times."""
    took: defaultdict[str, defaultdict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for _ in range(rounds):
        for name, call in calls.items():
            # In random order: the first call of a round finds cold caches.
            for size, queue_id in random.sample(list(ledgers.items()), len(ledgers)):
                head = Ledger(store, queue_id).read_head()
                began = time.perf_counter()
                call(store, queue_id, head)
                took[name][size].append((time.perf_counter() - began) * 1000)
    for name, by_size in took.items():
        for size, figures in compared(by_size):
            show(phase=phase, op=name, blocks=size, **figures)


def read_all(store: Store, queue_id: QueueId) -> dict[str, float]:
    """Read a whole ledger for the time that it takes, and a part again for its memory."""
    began = time.perf_counter()
    count = sum(1 for _ in Ledger(store, queue_id).stream_blocks())
    seconds = time.perf_counter() - began
    tracemalloc.start()
    stop = BLOCKS_AT_ONCE * MESSAGES_PER_BLOCK
    blocks = list(Ledger(store, queue_id).stream_blocks(stop=stop))
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return {
        "read": count,
        "seconds": round(seconds, 2),
        "kept_bytes_per_block": round(kept / len(blocks)),
    }


def trim_half(store: Store, queue_id: QueueId) -> float:
    """Finalise and trim the first half of a ledger; return the ms of the trim."""
    head = Ledger(store, queue_id).read_head()
    middle = Ledger(store, queue_id).read_block_of(head.next // 2)
    below = middle.monotons.start if middle else head.finalised
    Ledger(store, queue_id).finalise(head, below)
    began = time.perf_counter()
    Ledger(store, queue_id).trim(finalised=below, below=below)
    return round((time.perf_counter() - began) * 1000, 2)


if __name__ == "__main__":
    main()
