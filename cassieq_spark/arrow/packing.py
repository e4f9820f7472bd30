"""Parts of frames: buffers of Arrow, checksums, and bodies compressed and unpacked."""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa

#: The compressions, at the index that names them in a frame.
CODECS = ("none", "lz4", "zstd")
Offsets = np.ndarray[Any, Any]
OFFSETS: np.dtype[Any] = np.dtype("<i4")
#: Checksums are taken modulo this.
MODULUS = 1 << 64

_PLAIN, _LZ4 = CODECS.index("none"), CODECS.index("lz4")
_DECODERS = {CODECS.index(name): pa.Codec(name) for name in ("lz4", "zstd")}
_WORD = 8
_WORDS = np.dtype("<u8")
#: The header of an LZ4 frame: magic, two bytes of flags, optionally the size, a check byte.
_LZ4_MAGIC = b"\x04\x22\x4d\x18"
_LZ4_SIZED = 1 << 3
_LZ4_PLAIN_HEADER = 7
_LZ4_HEADER = struct.Struct("<4sBBQ")
#: How many bytes `with_size` adds.
_LZ4_ADDED = _LZ4_HEADER.size + 1 - _LZ4_PLAIN_HEADER


def checksum(*parts: bytes | pa.Buffer) -> int:
    """The sum of the 8-byte words of all parts, modulo `MODULUS`; a last word may be shorter."""
    total = 0
    for part in parts:
        view = memoryview(part)
        words = len(view) // _WORD
        total += int(np.add.reduce(np.frombuffer(view, _WORDS, words))) if words else 0
        total += int.from_bytes(view[words * _WORD :], "little")
    return total % MODULUS


def ends_of(array: pa.Array) -> Offsets:
    """The offsets of an array of lists or maps, from its first element on; not a copy."""
    return _ends(array, array.buffers()[1])


def texts_of(array: pa.Array) -> tuple[Offsets, bytes | memoryview]:
    """The offsets of an array of texts, and the bytes from the first one to the last; no copy."""
    _, offsets, data = array.buffers()
    ends = _ends(array, offsets)
    return ends, b"" if data is None else memoryview(data)[int(ends[0]) : int(ends[-1])]


def _ends(array: pa.Array, offsets: pa.Buffer | None) -> Offsets:
    if offsets is None or not len(array):
        return np.zeros(1, OFFSETS)
    return np.frombuffer(offsets, OFFSETS, len(array) + 1, array.offset * OFFSETS.itemsize)


def bits(flags: np.ndarray[Any, Any]) -> bytes:
    """One bit per flag, as Arrow lays out booleans and validity."""
    return np.packbits(flags, bitorder="little").tobytes()


def bit_bytes(count: int) -> int:
    """How many bytes ``count`` bits take."""
    return (count + 7) // 8


def pack(body: bytes, compression: str) -> tuple[int, bytes]:
    """Compress ``body``, if that makes it smaller.

    Args:
        body: Any bytes.
        compression: ``lz4``, ``zstd`` or ``none``.

    Returns:
        The number of the codec that was used, and the result.
    """
    if compression == "none" or not body:
        return _PLAIN, body
    packed = pa.compress(body, compression)
    if len(packed) + (_LZ4_ADDED if compression == "lz4" else 0) >= len(body):
        return _PLAIN, body
    if compression == "lz4":
        return _LZ4, with_size(packed, len(body))
    return CODECS.index(compression), packed.to_pybytes()


def unpack(body: pa.Buffer, codec: int, size: int) -> pa.Buffer:
    """Decompress ``body`` into exactly ``size`` bytes; allocates no more than these.

    If a body decompressed to fewer bytes, Arrow would leave the rest uninitialised and show
    earlier content of the memory. Arrow refuses a zstd frame that is too short. The LZ4 library
    does so only if the frame states its size, so an LZ4 frame without a size is refused here.

    Raises:
        pa.ArrowException, OSError, ValueError: The body has another size, or is damaged.
    """
    if codec == _LZ4:
        found = _LZ4_HEADER.unpack_from(body) if len(body) >= _LZ4_HEADER.size else ()
        if not found or found[0] != _LZ4_MAGIC or not found[1] & _LZ4_SIZED or found[3] != size:
            raise ValueError(f"it is not an LZ4 frame of {size} bytes")
    if codec:
        return _DECODERS[codec].decompress(body, size)
    if len(body) != size:
        raise ValueError(f"it has {len(body)} bytes, not {size}")
    return body


def with_size(frame: bytes | pa.Buffer, size: int) -> bytes:
    """Add the decompressed size to an LZ4 frame, as Arrow leaves it out."""
    # After Arrow has shortened a buffer, its memoryview still has the old length.
    view = memoryview(frame)[: len(frame)]
    return _start(view[4], view[5], size) + view[_LZ4_PLAIN_HEADER:]


@lru_cache(maxsize=1024)
def _start(flags: int, block_flags: int, size: int) -> bytes:
    """The header of an LZ4 frame; cached, as the check byte is computed in Python."""
    start = _LZ4_HEADER.pack(_LZ4_MAGIC, flags | _LZ4_SIZED, block_flags, size)
    return start + bytes([(_xxh32(start[4:]) >> 8) & 0xFF])


def _xxh32(data: bytes) -> int:
    """XXH32 with seed 0, as in headers of LZ4 frames; for fewer than 16 bytes."""
    prime_1, prime_2, prime_3 = 2654435761, 2246822519, 3266489917
    prime_4, prime_5 = 668265263, 374761393
    digest = prime_5 + len(data)
    whole = len(data) // 4 * 4
    for (word,) in struct.iter_unpack("<I", data[:whole]):
        digest = _turn(digest + word * prime_3, 17) * prime_4
    for byte in data[whole:]:
        digest = _turn(digest + byte * prime_5, 11) * prime_1
    digest &= 0xFFFFFFFF
    digest = ((digest ^ (digest >> 15)) * prime_2) & 0xFFFFFFFF
    digest = ((digest ^ (digest >> 13)) * prime_3) & 0xFFFFFFFF
    return digest ^ (digest >> 16)


def _turn(number: int, bits: int) -> int:
    number &= 0xFFFFFFFF
    return ((number << bits) | (number >> (32 - bits))) & 0xFFFFFFFF
