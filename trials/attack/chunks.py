"""Forged chunks, from somebody who may write to the tables."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from contextlib import closing

import pyarrow as pa

from cassieq_spark.arrow import framing
from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.ledger.publish import publish
from cassieq_spark.model import Chunk, PendingBlock
from cassieq_spark.producer.blocks import new_block_id
from cassieq_spark.queues import read_queue
from cassieq_spark.settings.connection import ConnectionOptions
from cassieq_spark.store import open_store
from tests.fuzz.mutations import HEADER, signed
from tests.support.arrow_streams import stream_of
from trials.attack.target import Target, attack
from trials.attack.verdicts import Seen, Verdict, contained_if

_PATIENCE = 60
_MOST_MB = 600
_ZSTD = 2
#: The counts in a frame's header, in their order.
_COUNTS = ("messages", "entries", "value_bytes", "key_bytes", "name_bytes", "item_bytes")
#: Receives until the last message has come, and prints how much memory that took.
_CONSUMER = """
import sys, time
from cassieq_spark import Client
from cassieq_spark.errors import CassieqError
with Client(contact_points=sys.argv[1]) as client:
    end = time.monotonic() + 40
    while time.monotonic() < end:
        try:
            messages = client.receive(sys.argv[2], "g", max=100)
        except CassieqError as error:
            print("error", type(error).__name__)
            time.sleep(0.5)
            continue
        if any(each.value == b"good" for each in messages):
            # getrusage would begin with the memory of the parent when it forked.
            with open("/proc/self/status") as status:
                peak = next(line for line in status if line.startswith("VmHWM"))
            print("came", int(peak.split()[1]) // 1024)
            break
        client.ack(*messages)
"""


def _frame(*values: bytes) -> bytes:
    return framing.encode(pa.record_batch({"value": pa.array(values, pa.binary())}), "none")


def _with_body(frame: bytes, body: bytes, codec: int, **counts: int) -> bytes:
    """A frame with another body, and perhaps other counts; its checksum is correct."""
    magic, _, flags, *found, total = HEADER.unpack_from(frame)
    changed = {**dict(zip(_COUNTS, found, strict=True)), **counts}
    return signed(HEADER.pack(magic, codec, flags, *changed.values(), total) + body)


def _gigabyte(**counts: int) -> bytes:
    body = pa.compress(bytes(1 << 30), "zstd", asbytes=True)
    return _with_body(_frame(b"a"), body, _ZSTD, **counts)


def _poison(target: Target, count: int, make: Callable[[], bytes]) -> Seen:
    queue = f"{target.victim.name}:{target.queue(maxDeliveryCount=2)}"
    with closing(open_store(ConnectionOptions(contact_points=(target.hosts,)))) as store:
        definition = read_queue(store, queue)
        block, data = new_block_id(), make()
        store.write_chunks(definition.queue_id, block, [Chunk(0, 0, count, data)])
        publish(Ledger(store, definition.queue_id), [PendingBlock(block, count, len(data))])
    target.victim.ask("POST", f"/{queue.partition(':')[2]}/messages", content="good")
    command = [sys.executable, "-c", _CONSUMER, target.hosts, queue]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=_PATIENCE + 30, check=False
    )
    said = done.stdout.split()
    took = int(said[said.index("came") + 1]) if "came" in said else 0
    target.consumer_peak_mb = max(target.consumer_peak_mb, took)
    told = f"exit code {done.returncode}, {took} MB; {' '.join(said[:6])}{done.stderr[-80:]}"
    fine = done.returncode == 0 and took and took < _MOST_MB
    by_http = target.victim.ask("GET", f"/{queue.partition(':')[2]}/messages", params={"max": 5})
    if by_http.status_code >= 500:
        return Seen(Verdict.OPEN, f"a look is {by_http.status_code}; {told}")
    return contained_if(fine, told)


@attack
def chunk_that_is_none(target: Target) -> Seen:
    """Bytes that are no Arrow stream."""
    return _poison(target, 1, lambda: b"no arrow")


@attack
def chunk_of_another_type(target: Target) -> Seen:
    """An Arrow stream, with numbers instead of values."""
    return _poison(target, 2, lambda: stream_of(pa.table({"value": [1, 2]})))


@attack
def chunk_of_fewer_messages(target: Target) -> Seen:
    """Fewer messages than its row and the ledger say."""
    return _poison(target, 5, lambda: _frame(b"a"))


@attack
def chunk_that_says_more_messages_than_it_has(target: Target) -> Seen:
    """Its header, its row and the ledger agree; its body does not."""
    whole = _frame(b"a")
    return _poison(target, 5, lambda: _with_body(whole, whole[HEADER.size :], 0, messages=5))


@attack
def chunk_that_is_huge(target: Target) -> Seen:
    """Some hundred kilobytes that decompress to a gigabyte, as the header says."""
    return _poison(target, 1, lambda: _gigabyte(value_bytes=(1 << 30) - 8))


@attack
def chunk_that_is_more_than_it_says(target: Target) -> Seen:
    """Its header says a few bytes, and its body decompresses to a gigabyte."""
    return _poison(target, 1, _gigabyte)


@attack
def chunk_with_offsets_that_lead_nowhere(target: Target) -> Seen:
    """Offsets beyond the data: a reader that follows them reads other memory, or crashes."""
    frame = bytearray(_frame(b"abc", b"de"))
    frame[HEADER.size + 4 : HEADER.size + 8] = (1 << 30).to_bytes(4, "little")
    return _poison(target, 2, lambda: signed(bytes(frame)))
