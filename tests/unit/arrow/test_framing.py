from __future__ import annotations

import struct

import numpy as np
import pyarrow as pa
import pytest

from cassieq_spark.arrow import framing, packing
from cassieq_spark.arrow.framing import HEADERS, MOST_BYTES, MOST_DATA_BYTES, decode, encode
from cassieq_spark.errors import MessageError, UnreadableError

MESSAGES = pa.record_batch(
    {
        "key": pa.array([b"k", None, b""]),
        "value": pa.array([b"a" * 100, b"", b"b" * 50]),
        "headers": pa.array([[("n", "v"), ("m", None)], None, []], HEADERS),
    }
)
HEADER_SIZE = framing._HEADER.size


def signed(frame: bytes) -> bytes:
    """The frame with the sum that its bytes have: what somebody does who knows the layout."""
    bare = frame[: HEADER_SIZE - 8] + bytes(8) + frame[HEADER_SIZE:]
    total = packing.checksum(bare) % packing.MODULUS
    return frame[: HEADER_SIZE - 8] + total.to_bytes(8, "little") + frame[HEADER_SIZE:]


def forged(body: bytes, *counts: int, codec: int = 0, flags: int = 0) -> bytes:
    padded = (*counts, *[0] * (6 - len(counts)))
    return signed(framing._HEADER.pack(b"CQF1", codec, flags, *padded, 0) + body)


def offsets(*ends: int) -> bytes:
    return np.array(ends, "<i4").tobytes()


@pytest.mark.parametrize("compression", ["none", "lz4", "zstd"])
@pytest.mark.parametrize("columns", [["value"], ["key", "value"], ["value", "headers"]])
def test_columns_come_back_as_they_went_in(compression: str, columns: list[str]):
    frame = encode(MESSAGES.select(columns), compression)

    found = decode(frame, 3)

    assert {name: each.to_pylist() for name, each in found.items()} == {
        name: MESSAGES.column(name).to_pylist() for name in columns
    }


def test_a_slice_takes_nothing_else_along():
    whole = pa.concat_batches([MESSAGES] * 100)

    frame = encode(whole.slice(152, 2), "none")

    assert len(frame) < 300
    assert decode(frame, 2)["headers"].to_pylist() == [[], [("n", "v"), ("m", None)]]


def test_what_does_not_become_smaller_is_not_compressed():
    random = pa.record_batch({"value": pa.array([np.random.default_rng(1).bytes(5000)])})

    assert encode(random, "lz4") == encode(random, "none")


def test_a_byte_that_changed_by_accident_is_noticed():
    frame = bytearray(encode(MESSAGES, "none"))
    frame[-20] ^= 1

    with pytest.raises(UnreadableError, match="was damaged"):
        decode(bytes(frame), 3)


@pytest.mark.parametrize("compression", ["none", "lz4", "zstd"])
def test_a_frame_that_is_cut_off_or_longer_is_refused(compression: str):
    frame = encode(MESSAGES, compression)

    for other in (frame[:-1], frame[:HEADER_SIZE], frame + b"\0", frame + frame[HEADER_SIZE:]):
        with pytest.raises(UnreadableError):
            decode(signed(other), 3)


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
def test_a_body_that_holds_more_than_the_header_says_is_not_decompressed(codec: str):
    bomb = pa.compress(bytes(1 << 28), codec, asbytes=True)
    before = pa.total_allocated_bytes()
    number = packing.CODECS.index(codec)

    with pytest.raises(UnreadableError):
        decode(forged(bomb, 1, 0, 100, codec=number), 1)

    assert pa.total_allocated_bytes() == before
    assert pa.default_memory_pool().max_memory() < before + (1 << 29)


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
def test_a_body_that_holds_less_than_the_header_says_shows_no_memory_of_others(codec: str):
    number = packing.CODECS.index(codec)
    short = pa.compress(offsets(0, 600_000), codec, asbytes=True)
    if codec == "lz4":
        short = packing.with_size(short, 600_008)

    with pytest.raises(UnreadableError, match="its body does not match its header"):
        decode(forged(short, 1, 0, 600_000, codec=number), 1)


def test_an_lz4_frame_that_tells_no_size_is_refused():
    body = offsets(0, 100) + b"a" * 100
    plain = pa.compress(body, "lz4", asbytes=True)

    with pytest.raises(UnreadableError, match="not an LZ4 frame of 108 bytes"):
        decode(forged(plain, 1, 0, 100, codec=1), 1)
    told = packing.with_size(plain, len(body))
    assert decode(forged(told, 1, 0, 100, codec=1), 1)["value"].to_pylist() == [b"a" * 100]


@pytest.mark.parametrize(
    ("counts", "problem"),
    [
        ((1, 0, MOST_DATA_BYTES + 1), "bytes of values"),
        (((1 << 20) + 1,), "messages"),
        ((1, 0xFFFFFFFF, 1), f"{MOST_BYTES} is the most"),
        ((1, 0, 0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF), "bytes of values"),
    ],
)
def test_what_is_too_large_is_refused_before_anything_is_allocated(
    counts: tuple[int, ...], problem: str
):
    before = pa.default_memory_pool().max_memory()

    with pytest.raises(UnreadableError, match=problem):
        decode(forged(b"", *counts, flags=3), counts[0])

    assert pa.default_memory_pool().max_memory() == before


@pytest.mark.parametrize(
    "ends", [(0, 9, 4), (0, 5, 3), (-1, 2, 4), (5, 6, 9), (0, 1 << 30, 4)], ids=str
)
def test_offsets_that_lead_outside_are_refused(ends: tuple[int, ...]):
    with pytest.raises(UnreadableError, match="its body does not match its header"):
        decode(forged(offsets(*ends) + b"abcd", 2, 0, 4), 2)


@pytest.mark.parametrize(
    ("name", "value"), [(b"", b"v"), (b"\xff", b"v"), (b"n", b"\xff")], ids=str
)
def test_headers_that_no_writer_takes_are_refused(name: bytes, value: bytes):
    body = offsets(0, 1) + offsets(0, 1) + offsets(0, len(name)) + offsets(0, len(value))
    frame = forged(body + b"x" + name + value, 1, 1, 1, 0, len(name), len(value), flags=2)

    with pytest.raises(UnreadableError):
        decode(frame, 1)


def test_a_frame_without_messages_is_refused():
    with pytest.raises(UnreadableError, match="has 0 messages"):
        decode(forged(offsets(0), 0), 0)


@pytest.mark.parametrize("flags", [4, 8, 16, 32, 255])
def test_flags_that_contradict_each_other_are_refused(flags: int):
    with pytest.raises(UnreadableError, match=r"not begin with a header|not match its header"):
        decode(forged(offsets(0, 0), 1, flags=flags), 1)


def test_more_headers_than_a_frame_takes_are_refused_when_they_are_written(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(framing, "MOST_BYTES", 100)

    with pytest.raises(MessageError, match="fewer headers"):
        encode(MESSAGES, "lz4")


def test_the_check_byte_of_an_lz4_header_is_that_of_its_library():
    frame = pa.compress(b"x" * 1000, "lz4", asbytes=True)

    # Arrow's own header has the check byte right behind the flags.
    assert (packing._xxh32(frame[4:6]) >> 8) & 0xFF == frame[6]
    assert struct.unpack_from("<Q", packing.with_size(frame, 1000), 6) == (1000,)
