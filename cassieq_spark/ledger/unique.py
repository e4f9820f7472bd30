"""Unique ids: a message is left out if its id was already published within the queue's window.

A publish writes the digests of its messages' ids into a row of the ledger, by the LWT that makes
the messages visible. That LWT is conditioned on ``next``, so it decides by all rows before it:
nobody has published a message of such an id since they were read (I12). There is no further LWT.

The idea of a bounded memory of ids is that of Amazon SQS's FIFO queues; there it is a service of
its own, here it is the log.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from cassieq_spark.model import Kept, PendingBlock, Range, Ranges, UniquePer

#: Bytes of a digest.
ID_BYTES = 16
#: The digest of a message without a unique id.
NO_ID = bytes(ID_BYTES)
#: Maximum number of ids within the window of a ledger. Each process that publishes keeps them in
#: memory: a million take about 150 MB.
MOST_IDS = 1_000_000
#: The longest window.
LONGEST_WINDOW = timedelta(days=1)
_DIGEST = struct.Struct(f"{ID_BYTES}s")
_LENGTH_BYTES = 4
_NO_KEY = b"\xff" * _LENGTH_BYTES


@dataclass(frozen=True, slots=True)
class Part:
    """The messages of a block that are published.

    Attributes:
        block: The block.
        kept: The messages of the block that are published; None for all.
    """

    block: PendingBlock
    kept: Kept | None = None

    @property
    def count(self) -> int:
        """How many messages are published."""
        return self.block.count if self.kept is None else self.kept.offsets.count


@dataclass(frozen=True, slots=True)
class Sifted:
    """The messages of a write, without those that were published already.

    Attributes:
        parts: The messages that are published, in order.
        repeats: The messages that are left out, by their number in the write, each with the
            monoton of the message that has its id.
        ids: The digests of the published messages, `NO_ID` without an id; empty if none has an id.
    """

    parts: tuple[Part, ...]
    repeats: Mapping[int, int]
    ids: bytes

    @property
    def count(self) -> int:
        """How many messages are published."""
        return sum(part.count for part in self.parts)


def digest_of(unique_id: bytes, key: bytes | None, per: UniquePer) -> bytes:
    """The digest of a unique id, with the key of its message if ids are unique per key.

    Takes 0.7 us.

    >>> digest_of(b"7", b"a", UniquePer.KEY) == digest_of(b"7", b"b", UniquePer.KEY)
    False
    >>> digest_of(b"7", b"a", UniquePer.QUEUE) == digest_of(b"7", b"b", UniquePer.QUEUE)
    True
    """
    within = _NO_KEY
    if key is not None and per is UniquePer.KEY:
        within = len(key).to_bytes(_LENGTH_BYTES, "big") + key
    return hashlib.blake2b(within + unique_id, digest_size=ID_BYTES).digest()


def split_ids(ids: bytes) -> list[bytes]:
    """Split the concatenated digests of messages."""
    return [digest for (digest,) in _DIGEST.iter_unpack(ids)]


def sift(pending: Sequence[PendingBlock], first: int, known: Mapping[bytes, int]) -> Sifted:
    """Leave out messages whose ids are known, or occur earlier in the same write.

    Args:
        pending: The blocks, in the order of publication.
        first: The monoton of the first message that is published.
        known: The monoton of the published message that has an id.
    """
    if not any(block.ids for block in pending):
        return Sifted(tuple(map(Part, pending)), {}, b"")
    ids = b"".join(block.ids or NO_ID * block.count for block in pending)
    every = split_ids(ids)
    different = set(every)
    different.discard(NO_ID)
    if len(different) == len(every) - every.count(NO_ID) and known.keys().isdisjoint(different):
        return Sifted(tuple(map(Part, pending)), {}, ids)
    return _sift_one_by_one(pending, first, known)


def _sift_one_by_one(
    pending: Sequence[PendingBlock], first: int, known: Mapping[bytes, int]
) -> Sifted:
    parts: list[Part] = []
    repeats: dict[int, int] = {}
    seen: dict[bytes, int] = {}
    kept_ids: list[bytes] = []
    monoton, number = first, 0
    for block in pending:
        if not block.ids:
            parts.append(Part(block))
            kept_ids.append(NO_ID * block.count)
            monoton, number = monoton + block.count, number + block.count
            continue
        left_out = []
        for offset, each in enumerate(split_ids(block.ids)):
            if each != NO_ID:
                earlier = known.get(each)
                if earlier is None:
                    earlier = seen.setdefault(each, monoton)
                if earlier != monoton:
                    repeats[number + offset] = earlier
                    left_out.append(Range(offset, offset + 1))
                    continue
            kept_ids.append(each)
            monoton += 1
        number += block.count
        offsets = Ranges.of(Range(0, block.count)) - Ranges.of(*left_out)
        if offsets:
            parts.append(Part(block, Kept(offsets, block.count) if left_out else None))
    has_ids = any(part.block.ids for part in parts)
    return Sifted(tuple(parts), repeats, b"".join(kept_ids) if has_ids else b"")
