"""Bodies that come to more than they are, and requests that are not what they should be."""

from __future__ import annotations

import io
import random

import pyarrow as pa

from trials.attack.stage import Stage, attack
from trials.attack.verdicts import Seen, contained_if, refused_if

_ARROW = "application/vnd.apache.arrow.stream"
_MIB = 1 << 20
_MUTANTS = 200
_FROM_ERRORS, _SERVER = 400, 500


def stream_of(table: pa.Table, codec: str | None = None) -> bytes:
    """An Arrow IPC stream."""
    sink = io.BytesIO()
    options = pa.ipc.IpcWriteOptions(compression=codec)
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        writer.write_table(table)
    return sink.getvalue()


def _put(stage: Stage, body: bytes | str, kind: str = _ARROW) -> Seen:
    queue = stage.queue()
    path = f"/{queue}/messages/batch"
    told = stage.victim.ask("POST", path, content=body, headers={"Content-Type": kind})
    stored = stage.victim.ask("GET", f"/{queue}/statistics").json()["stored"]
    is_refused = _FROM_ERRORS <= told.status_code < _SERVER and not stored
    return refused_if(is_refused and stage.serves(queue), f"{len(body)} bytes: {told.text}")


@attack
def arrow_dictionary(stage: Stage) -> Seen:
    """656 bytes are a thousand messages of a megabyte."""
    shared = pa.DictionaryArray.from_arrays(
        pa.array([0] * 1000, pa.int16()), pa.array(["x" * _MIB])
    )
    return _put(stage, stream_of(pa.table({"value": shared}), "zstd"))


@attack
def arrow_zstd(stage: Stage) -> Seen:
    """A few kilobytes are hundreds of megabytes."""
    return _put(stage, stream_of(pa.table({"value": [b"\0" * (8 * _MIB)] * 40}), "zstd"))


@attack
def arrow_lz4(stage: Stage) -> Seen:
    """The same by another codec."""
    return _put(stage, stream_of(pa.table({"value": [b"\0" * (8 * _MIB)] * 40}), "lz4"))


@attack
def arrow_views(stage: Stage) -> Seen:
    """Ten thousand views of one value."""
    validity, views, data = pa.array(["x" * _MIB], pa.string_view()).buffers()
    same = pa.py_buffer(views.to_pybytes()[:16] * 1000)
    values = pa.Array.from_buffers(pa.string_view(), 1000, [validity, same, data])
    return _put(stage, stream_of(pa.table({"value": values})))


@attack
def arrow_rows_without_bytes(stage: Stage) -> Seen:
    """A million messages of nothing."""
    return _put(stage, stream_of(pa.table({"value": [b""] * 1_000_000}), "zstd"))


@attack
def arrow_mutants(stage: Stage) -> Seen:
    """Streams with a few bytes changed."""
    queue = stage.queue()
    path, kind = f"/{queue}/messages/batch", {"Content-Type": _ARROW}
    good = stream_of(pa.table({"value": ["a", "b"], "key": ["k", None]}), "lz4")
    chance, failed = random.Random(17), []
    for _ in range(_MUTANTS):
        body = bytearray(good)
        for _ in range(chance.randint(1, 4)):
            body[chance.randrange(len(body))] = chance.randrange(256)
        told = stage.victim.ask("POST", path, content=bytes(body), headers=kind)
        if told.status_code >= _SERVER:
            failed.append(told.status_code)
    return refused_if(not failed and stage.serves(queue), f"{len(failed)} of {_MUTANTS} failed")


@attack
def lines_of_nothing(stage: Stage) -> Seen:
    """Thirty million empty lines."""
    return _put(stage, "\n" * (30 * _MIB), "application/x-ndjson")


@attack
def deep_json(stage: Stage) -> Seen:
    """JSON a million levels deep."""
    return _put(stage, "[" * _MIB, "application/x-ndjson")


@attack
def numbers_without_end(stage: Stage) -> Seen:
    """A number of a million digits where seconds go."""
    queue = stage.queue()
    body = '{"popReceipts": ["x"], "delaySeconds": 1' + "0" * _MIB + "}"
    told = stage.victim.ask("POST", f"/{queue}/messages/release", content=body)
    return refused_if(_FROM_ERRORS <= told.status_code < _SERVER, told.text)


@attack
def receipts_without_end(stage: Stage) -> Seen:
    """Millions of receipts by one request."""
    queue = stage.queue()
    body = '{"popReceipts": [' + '"",' * (2 * _MIB) + '""]}'
    told = stage.victim.ask("POST", f"/{queue}/messages/ack", content=body)
    return refused_if(_FROM_ERRORS <= told.status_code < _SERVER, told.text)


@attack
def answers_of_control_characters(stage: Stage) -> Seen:
    """A look at twelve messages that JSON makes six times as long."""
    queue = stage.queue()
    for _ in range(12):
        stage.victim.ask("POST", f"/{queue}/messages", content=b"\0" * (8 * _MIB))
    told = stage.victim.ask("GET", f"/{queue}/messages", params={"max": 100})
    return contained_if(len(told.content) < 100 * _MIB, f"{len(told.content)} bytes")


@attack
def gets_of_what_was_small(stage: Stage) -> Seen:
    """A batch of messages that are small as stored, and large as they are got."""
    queue = stage.queue(maxDeliveryCount=1)
    for _ in range(12):
        stage.victim.ask("POST", f"/{queue}/messages", content=b"\0" * (8 * _MIB))
    sizes, counts = [], []
    while True:
        told = stage.victim.ask("POST", f"/{queue}/messages/receive", params={"max": 10_000})
        if told.status_code != 200:
            break
        sizes.append(len(told.content))
        counts.append(len(told.text.splitlines()))
    return contained_if(
        sizes and max(sizes) < 100 * _MIB and sum(counts) == 12,
        f"{sum(counts)} messages by answers of {max(sizes, default=0)} bytes at most",
    )


@attack
def answers_that_nobody_reads(stage: Stage) -> Seen:
    """Connections that ask for much, and read nothing."""
    queue = stage.queue()
    for _ in range(4):
        stage.victim.ask("POST", f"/{queue}/messages", content=b"\0" * (8 * _MIB))
    path = f"/api/v1/accounts/{stage.victim.name}/queues/{queue}/messages?max=4"
    asked = f"GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Key {stage.victim.key}\r\n\r\n"
    held = [stage.connect() for _ in range(12)]
    try:
        for each in held:
            each.sendall(asked.encode())
        slowest = stage.puts_slowly(queue, 10)
    finally:
        for each in held:
            each.close()
    return contained_if(slowest < 5, f"the slowest of ten puts took {slowest:.1f} s")
