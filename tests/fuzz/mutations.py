"""Chunks, and what becomes of them if somebody who knows how they are laid out changes them."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable

import pyarrow as pa

from cassieq_spark.arrow import framing, packing
from cassieq_spark.arrow.framing import HEADERS

HEADER = framing._HEADER
SUM_AT = HEADER.size - 8
#: Where the fields of a header are, and their formats: codec, flags, and six counts.
_FIELDS = [(4, "<B"), (5, "<B"), *((at, "<I") for at in range(8, 32, 4))]
EDGES = (0, 1, 2, 3, 7, 8, 255, 256, 65_535, 1 << 20, (1 << 20) + 1, 1 << 24, 1 << 30, 1 << 31)
_CODECS = ("none", "lz4", "zstd")

Mutation = Callable[[random.Random, bytes], bytes]


def chunk_of(rng: random.Random) -> tuple[bytes, int]:
    """A whole chunk, and how many messages it has."""
    count = rng.choice((1, 2, 3, 8, 100))
    columns = {"value": pa.array([_bytes(rng) for _ in range(count)], pa.binary())}
    if rng.random() < 0.5:
        keys = [rng.choice((None, _bytes(rng))) for _ in range(count)]
        columns["key"] = pa.array(keys, pa.binary())
    if rng.random() < 0.6:
        columns["headers"] = pa.array([_headers(rng) for _ in range(count)], HEADERS)
    return framing.encode(pa.record_batch(columns), rng.choice(_CODECS)), count


def mutant_of(rng: random.Random) -> tuple[bytes, int]:
    """A chunk that was changed in one to four ways, and how many messages its row says it has."""
    frame, count = chunk_of(rng)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        frame = rng.choice(MUTATIONS)(rng, frame)
    # As a rule its row and its sum agree with it: else the rest would never be looked at.
    if len(frame) >= HEADER.size and rng.random() < 0.95:
        count = struct.unpack_from("<I", frame, 8)[0]
        frame = signed(frame)
    return frame, count


def signed(frame: bytes) -> bytes:
    """The frame with the sum that its bytes have."""
    bare = frame[:SUM_AT] + bytes(8) + frame[HEADER.size :]
    total = packing.checksum(bare) % (1 << 64)
    return frame[:SUM_AT] + total.to_bytes(8, "little") + frame[HEADER.size :]


def _flip(rng: random.Random, frame: bytes) -> bytes:
    changed = bytearray(frame)
    for _ in range(rng.choice((1, 2, 8))):
        if changed:
            changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def _cut_off(rng: random.Random, frame: bytes) -> bytes:
    return frame[: rng.randrange(len(frame) + 1)]


def _extend(rng: random.Random, frame: bytes) -> bytes:
    return frame + rng.randbytes(rng.choice((1, 8, 100)))


def _set_field(rng: random.Random, frame: bytes) -> bytes:
    at, form = rng.choice(_FIELDS)
    return _poke(rng, frame, at, form)


def _set_word(rng: random.Random, frame: bytes) -> bytes:
    """Offsets are words of the body."""
    at = HEADER.size + 4 * rng.randrange(1 + max(0, len(frame) - HEADER.size) // 4)
    return _poke(rng, frame, at, "<I")


def _poke(rng: random.Random, frame: bytes, at: int, form: str) -> bytes:
    size = struct.calcsize(form)
    if len(frame) < at + size:
        return frame
    before = struct.unpack_from(form, frame, at)[0]
    near = before + rng.choice((-2, -1, 1, 2))
    number = rng.choice((near, near, -1, rng.getrandbits(32), *EDGES)) % (1 << (8 * size))
    return frame[:at] + struct.pack(form, number) + frame[at + size :]


def _in_body(rng: random.Random, frame: bytes) -> bytes:
    """Change what is compressed, and compress it again."""
    if len(frame) < HEADER.size:
        return frame
    magic, codec, flags, *counts, total = HEADER.unpack_from(frame)
    size = sum(framing._sizes(flags, framing._Counts(*counts)))
    body: bytes = frame[HEADER.size :]
    if 0 < codec < len(_CODECS) and size < 1 << 24:
        try:
            # Arrow alone would fill up a body that is too short with what the memory has.
            body = packing.unpack(pa.py_buffer(body), codec, size).to_pybytes()
        except (OSError, pa.ArrowException, ValueError):
            return frame
    change = rng.choice((_flip, _cut_off, _extend, _set_word))
    bare = change(rng, HEADER.pack(magic, 0, flags, *counts, total) + body)
    if len(bare) <= HEADER.size:
        return bare
    return bare[: HEADER.size] + bare[HEADER.size :] if rng.random() < 0.3 else _packed(rng, bare)


def _packed(rng: random.Random, bare: bytes) -> bytes:
    codec = rng.choice((1, 2))
    body = pa.compress(bare[HEADER.size :], _CODECS[codec], asbytes=True)
    if codec == 1:
        size = len(bare) - HEADER.size + rng.choice((0, 0, 0, -1, 1, 1 << 20))
        body = packing.with_size(body, max(0, size))
    return bare[:4] + bytes([codec]) + bare[5 : HEADER.size] + body


def _bomb(rng: random.Random, frame: bytes) -> bytes:
    """A body that declares as much as the header does, or little, and holds much."""
    if len(frame) < HEADER.size:
        return frame
    codec = rng.choice((1, 2))
    body = pa.compress(bytes(rng.choice((1 << 16, 1 << 24))), _CODECS[codec], asbytes=True)
    _, _, flags, *counts, _ = HEADER.unpack_from(frame)
    size = sum(framing._sizes(flags, framing._Counts(*counts)))
    if codec == 1:
        body = packing.with_size(body, size % (1 << 64))
    elif rng.random() < 0.5:
        body += body
    return frame[:4] + bytes([codec]) + frame[5 : HEADER.size] + body


def _splice(rng: random.Random, frame: bytes) -> bytes:
    other, _ = chunk_of(rng)
    return frame[: HEADER.size] + other[HEADER.size :]


def _stream(rng: random.Random, frame: bytes) -> bytes:
    """A stream of Arrow's, as chunks once were."""
    sink = pa.BufferOutputStream()
    batch = pa.record_batch({"value": pa.array([_bytes(rng)] * 3)})
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    data: bytes = sink.getvalue().to_pybytes()
    return data if rng.random() < 0.5 else frame[: HEADER.size] + data


MUTATIONS: tuple[Mutation, ...] = (
    _flip,
    _flip,
    _cut_off,
    _extend,
    _set_field,
    _set_field,
    _set_word,
    _set_word,
    _set_word,
    _in_body,
    _in_body,
    _in_body,
    _bomb,
    _splice,
    _stream,
)


def _bytes(rng: random.Random) -> bytes:
    length = rng.choice((0, 1, 5, 100))
    return rng.randbytes(length) if rng.random() < 0.5 else b"a" * length


def _headers(rng: random.Random) -> list[tuple[str, str | None]] | None:
    if rng.random() < 0.2:
        return None
    pairs = range(rng.choice((0, 1, 2, 5)))
    return [(f"name{each}", rng.choice((None, "", "value", "ä€"))) for each in pairs]
