"""Bodies of frames: compressed, unpacked into a length that is known, and summed. Pure."""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa

#: By their numbers in frames.
CODECS = ("none", "lz4", "zstd")
#: Sums are taken modulo this.
MODULUS = 1 << 64

_PLAIN, _LZ4 = CODECS.index("none"), CODECS.index("lz4")
_DECODERS = {CODECS.index(name): pa.Codec(name) for name in ("lz4", "zstd")}
_WORD = 8
_WORDS = np.dtype("<u8")
#: The header of an LZ4 frame: magic, two bytes of flags, then perhaps the size, then a check byte.
_LZ4_MAGIC = b"\x04\x22\x4d\x18"
_LZ4_SIZED = 1 << 3
_LZ4_PLAIN_HEADER = 7
_LZ4_HEADER = struct.Struct("<4sBBQ")
#: The bytes that `with_size` adds.
_LZ4_ADDED = _LZ4_HEADER.size + 1 - _LZ4_PLAIN_HEADER


def checksum(data: bytes | pa.Buffer) -> int:
    """The sum of the words of ``data``; the last one may be shorter."""
    view = memoryview(data)
    words = len(view) // _WORD
    total = int(np.add.reduce(np.frombuffer(view, _WORDS, words))) if words else 0
    return total + int.from_bytes(view[words * _WORD :], "little")


def bits(flags: np.ndarray[Any, Any]) -> bytes:
    """A bit for each element, as Arrow lays out booleans and what is not null."""
    return np.packbits(flags, bitorder="little").tobytes()


def pack(body: bytes, compression: str) -> tuple[int, bytes]:
    """The number of a codec, and ``body`` packed by it.

    A body that does not become smaller is not compressed.

    Args:
        body: Any bytes.
        compression: ``lz4``, ``zstd`` or ``none``.
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
    """Exactly ``size`` bytes; allocates no more than those.

    Of bytes that a frame does not fill, Arrow would hand over what was in memory before. A frame
    of zstd that is shorter is refused by Arrow, one of LZ4 by its library, if it tells its size.

    Raises:
        pa.ArrowException, OSError, ValueError: The body is of another size, or damaged.
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
    """An LZ4 frame that tells its size, which Arrow leaves out."""
    # The view of a buffer that Arrow has cut short has its length from before.
    view = memoryview(frame)[: len(frame)]
    return _start(view[4], view[5], size) + view[_LZ4_PLAIN_HEADER:]


@lru_cache(maxsize=1024)
def _start(flags: int, block_flags: int, size: int) -> bytes:
    """The header of an LZ4 frame; cached, as its check byte is computed in Python."""
    start = _LZ4_HEADER.pack(_LZ4_MAGIC, flags | _LZ4_SIZED, block_flags, size)
    return start + bytes([(_xxh32(start[4:]) >> 8) & 0xFF])


def _xxh32(data: bytes) -> int:
    """The hash of LZ4's frame headers, XXH32 with seed 0, of fewer than 16 bytes."""
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
