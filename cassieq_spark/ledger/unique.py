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
from itertools import chain, repeat

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
# Many digests at a time are split in a third of the time.
_DIGESTS = struct.Struct(f"{ID_BYTES}s" * 64)
_LENGTH_BYTES = 4
_NO_KEY = b"\xff" * _LENGTH_BYTES
# Copied for each id, which takes two thirds of the time of a new one.
_NOTHING = hashlib.blake2b(digest_size=ID_BYTES)
_WITHOUT_KEY = hashlib.blake2b(_NO_KEY, digest_size=ID_BYTES)


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
        monotons: The monoton of each published message with an id, by its digest.
    """

    parts: tuple[Part, ...]
    repeats: Mapping[int, int]
    ids: bytes
    monotons: Mapping[bytes, int]

    @property
    def count(self) -> int:
        """How many messages are published."""
        return sum(part.count for part in self.parts)


def digests_of(
    unique_ids: Sequence[bytes | None], keys: Sequence[bytes | None] | None, per: UniquePer
) -> bytes:
    """The concatenated digests of unique ids, with the keys of their messages if unique per key.

    Takes 0.3 us per id, and 0.4 us with a key.

    Args:
        unique_ids: The ids; a message that has none has the digest `NO_ID`.
        keys: The keys of the same messages; None if no message has a key.
        per: The scope within which ids are unique.

    >>> a, b = (digests_of([b"7"], [key], UniquePer.KEY) for key in (b"a", b"b"))
    >>> a == b
    False
    >>> a, b = (digests_of([b"7"], [key], UniquePer.QUEUE) for key in (b"a", b"b"))
    >>> a == b
    True
    """
    found = []
    with_key, without_key = _NOTHING.copy, _WITHOUT_KEY.copy
    within = keys if per is UniquePer.KEY and keys is not None else repeat(None)
    for unique_id, key in zip(unique_ids, within, strict=False):
        if unique_id is None:
            found.append(NO_ID)
            continue
        if key is None:
            digest = without_key()
        else:
            digest = with_key()
            digest.update(len(key).to_bytes(_LENGTH_BYTES, "big") + key)
        digest.update(unique_id)
        found.append(digest.digest())
    return b"".join(found)


def split_ids(ids: bytes) -> list[bytes]:
    """Split the concatenated digests of messages. Takes 0.03 us per digest."""
    whole = len(ids) - len(ids) % _DIGESTS.size
    many, rest = _DIGESTS.iter_unpack(ids[:whole]), _DIGEST.iter_unpack(ids[whole:])
    return [*chain.from_iterable(many), *chain.from_iterable(rest)]


def sift(pending: Sequence[PendingBlock], first: int, known: Mapping[bytes, int]) -> Sifted:
    """Leave out messages whose ids are known, or occur earlier in the same write.

    Args:
        pending: The blocks, in the order of publication.
        first: The monoton of the first message that is published.
        known: The monoton of the published message that has an id.
    """
    if not any(block.ids for block in pending):
        return Sifted(tuple(map(Part, pending)), {}, b"", {})
    ids = b"".join(block.ids or NO_ID * block.count for block in pending)
    every = split_ids(ids)
    monotons = dict(zip(every, range(first, first + len(every)), strict=True))
    without_id = every.count(NO_ID) if monotons.pop(NO_ID, None) is not None else 0
    if len(monotons) == len(every) - without_id and known.keys().isdisjoint(monotons):
        return Sifted(tuple(map(Part, pending)), {}, ids, monotons)
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
    return Sifted(tuple(parts), repeats, b"".join(kept_ids) if has_ids else b"", seen)
