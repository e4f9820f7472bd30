"""Reads altered chunks, in a process of its own: a crash of that is a failure.

``python -m tests.fuzz.chunks --mutants 200000`` tells the seed, and what each failure needs to be
seen again: ``--seed S --first N --mutants 1``. The last line is one JSON object. With ``--typed``
they are chunks of queues with a schema.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import random
import resource
import secrets
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime

import pyarrow as pa

from cassieq_spark import Client
from cassieq_spark.arrow import typed_chunks, typed_framing
from cassieq_spark.arrow.chunks import decode
from cassieq_spark.arrow.framing import MOST_BYTES
from cassieq_spark.arrow.rows import PlainRows
from cassieq_spark.errors import UnreadableError
from cassieq_spark.model import Chunk, Range
from cassieq_spark.queues import create_queue
from cassieq_spark.store.memory import MemoryStore
from tests.fuzz import typed_mutations
from tests.fuzz.mutations import mutant_of

NOW = datetime.now(UTC)
#: One of so many is read through a queue.
THROUGH_A_QUEUE = 20
#: What the process may hold beyond what it holds at its start: a chunk, and copies of it for rows.
MOST_GROWTH = 6 * MOST_BYTES
#: More messages or headers than so are not made into objects of Python.
_FEW = 10_000


def main(argv: list[str] | None = None) -> int:
    """Run the child, and tell what became of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mutants", type=int, default=5_000)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--typed", action="store_true")
    parser.add_argument("--child", action="store_true")
    given = parser.parse_args(argv)
    seed = secrets.randbits(32) if given.seed is None else given.seed
    if given.child:
        try_one = try_typed if given.typed else try_plain
        _say(json.dumps(try_all(try_one, seed, given.first, given.mutants)))
        return 0
    _say(f"to repeat it: --seed {seed}")
    arguments = [f"--seed={seed}", f"--first={given.first}", f"--mutants={given.mutants}"]
    arguments += ["--typed"] if given.typed else []
    child = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-m", "tests.fuzz.chunks", "--child", *arguments],
        capture_output=True,
        text=True,
        check=False,
    )
    if child.returncode:
        last = next((line for line in reversed(child.stderr.splitlines()) if "at:" in line), "?")
        sys.stderr.write(child.stderr[-4000:])
        _say(json.dumps({"seed": seed, "exit": child.returncode, "last": last}))
        return 1
    _say(child.stdout.splitlines()[-1])
    return 0


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def try_all(
    try_one: Callable[[int, int], bool], seed: int, first: int, count: int
) -> dict[str, int]:
    """Read mutants one by one; what is not an `UnreadableError` ends it."""
    logging.disable(logging.CRITICAL)
    read = refused = 0
    try_one(seed, first - first % THROUGH_A_QUEUE)  # imports, caches, pools
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for number in range(first, first + count):
        sys.stderr.write(f"at: --seed {seed} --first {number} --mutants 1\n")
        if os.environ.get("CASSIEQ_FUZZ_CRASH_AT") == str(number):
            os.kill(os.getpid(), signal.SIGSEGV)
        if try_one(seed, number):
            read += 1
        else:
            refused += 1
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) << 10
    if grown > MOST_GROWTH:
        raise MemoryError(f"it grew by {grown} bytes, and {MOST_GROWTH} is the most")
    return {"mutants": count, "read": read, "refused": refused, "grown_mb": grown >> 20}


def try_plain(seed: int, number: int) -> bool:
    """Whether a mutant can be read; then all of it is used as readers do."""
    data, count = mutant_of(random.Random(f"{seed}/{number}"))
    if number % THROUGH_A_QUEUE == 0:
        _receive(data)
    chunk = Chunk(0, 0, count, data)
    try:
        messages = decode(chunk, Range(0, count))
    except UnreadableError:
        return False
    part = decode(chunk, Range(count // 3, count)) if count > 1 else messages
    for batch in (messages, part):
        rows = PlainRows("q", include_headers=True).of(
            batch,
            first_monoton=0,
            published_at=NOW,
            delivery_count=1,
        )
        _hand_over(pa.concat_batches([rows, rows]))
    return True


def try_typed(seed: int, number: int) -> bool:
    """The same with a chunk of a queue with a schema; also of some of its columns."""
    rng = random.Random(f"{seed}/{number}")
    data, count, schema = typed_mutations.mutant_of(rng)
    chunk = Chunk(0, 0, count, data)
    offsets, schemas = Range(0, count), {typed_mutations.VERSION: schema}
    some = [name for name in schema.names if rng.random() < 0.5]
    try:
        _, part = typed_chunks.decode(chunk, offsets, schemas.get, some)
        part.validate(full=True)
        _, messages = typed_chunks.decode(chunk, offsets, schemas.get)
    except UnreadableError:
        return False
    messages.validate(full=True)
    if messages.nbytes < _FEW:
        messages.to_pylist()
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, messages.schema) as writer:
        writer.write_batch(messages)
        writer.write_batch(messages.slice(count // 3))
    found = messages.select([*schema.names])
    again = typed_framing.encode(found, schema, 1, "none")
    typed_framing.decode(again, count, lambda _: schema)
    return True


def _hand_over(rows: pa.RecordBatch) -> None:
    """What Spark and clients do with rows."""
    rows.validate(full=True)
    entries = len(rows.column("headers").keys)
    if rows.num_rows < _FEW and entries < _FEW:
        rows.to_pylist()
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_batch(rows)


def _receive(data: bytes) -> None:
    """Put it into a queue in place of a chunk: all other messages come, and it is done."""
    store = MemoryStore()
    with Client.from_store(store) as client:
        create_queue(store, "dead")
        create_queue(
            store,
            "q",
            chunk_size=3,
            bucket_size=3,
            max_deliveries=3,
            dead_letter_queue="dead",
        )
        client.put_many("q", ["value"] * 9)
        for (_, _, bucket), chunks in store._chunks.items():
            if bucket == 1:
                chunks[3] = replace(chunks[3], data=data)
        messages = client.receive("q", "g", max=9)
        others = {each.monoton for each in messages} - {3, 4, 5}
        if others != {0, 1, 2, 6, 7, 8}:
            raise AssertionError(f"only {sorted(others)} of the other messages came")
        client.ack(*messages)
        if len(messages) == 6 and len(client.peek("dead")) != 1:
            raise AssertionError("there is no dead letter")
        if client.receive("q", "g"):
            raise AssertionError("messages came again")


if __name__ == "__main__":
    sys.exit(main())
