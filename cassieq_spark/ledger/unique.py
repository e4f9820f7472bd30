"""Unique ids: a message is left out if one with its id was published within the queue's window.

A publish writes the digests of its messages' ids into a row of the ledger, by the LWT that makes
the messages visible. That LWT is conditioned on ``next``, so it decides by all rows before it:
nobody has published a message of such an id since they were read (I12). It takes no LWT more.

The idea of a bounded memory of ids is that of Amazon SQS's FIFO queues; there it is a service of
its own, here it is the log.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from cassieq_spark.model import Kept, PendingBlock, Range, Ranges, UniquePer

#: Bytes of a digest.
ID_BYTES = 16
#: What stands for a message without a unique id.
NO_ID = bytes(ID_BYTES)
#: Most ids of a window that a ledger has: so many take some 150 MB in each process that publishes.
MOST_IDS = 1_000_000
#: The longest window.
LONGEST_WINDOW = timedelta(days=1)
_LENGTH_BYTES = 4
_NO_KEY = b"\xff" * _LENGTH_BYTES


@dataclass(frozen=True, slots=True)
class Part:
    """The messages of a block that are published.

    Attributes:
        block: The block.
        kept: Which of its messages; None: all.
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
        repeats: Of those that are left out, by their number in the write: the monoton of the
            message that has their id.
        ids: The digests of those that are published, `NO_ID` without an id; empty if none has one.
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

    >>> digest_of(b"7", b"a", UniquePer.KEY) == digest_of(b"7", b"b", UniquePer.KEY)
    False
    >>> digest_of(b"7", b"a", UniquePer.QUEUE) == digest_of(b"7", b"b", UniquePer.QUEUE)
    True
    """
    within = _NO_KEY
    if key is not None and per is UniquePer.KEY:
        within = len(key).to_bytes(_LENGTH_BYTES, "big") + key
    return hashlib.blake2b(within + unique_id, digest_size=ID_BYTES).digest()


def sift(
    pending: Sequence[PendingBlock], first: int, known: Callable[[bytes], int | None]
) -> Sifted:
    """Leave out the messages whose ids are known, or occur earlier in the same write.

    Args:
        pending: The blocks, in the order that their messages are to have.
        first: The monoton of the first message that is published.
        known: The monoton of the published message that has an id; None if there is none.
    """
    if not any(block.ids for block in pending):
        return Sifted(tuple(map(Part, pending)), {}, b"")
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
        for offset in range(block.count):
            each = block.ids[offset * ID_BYTES : (offset + 1) * ID_BYTES]
            if each != NO_ID:
                earlier = known(each)
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
