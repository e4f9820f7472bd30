"""Finding messages: from monotons to the blocks that hold them."""

from __future__ import annotations

from collections.abc import Iterator

from cassieq_spark.fetch.pieces import Piece, pieces_of
from cassieq_spark.ledger.read import locate
from cassieq_spark.model import QueueId, Range, Ranges
from cassieq_spark.store.protocol import Store

#: Ranges further apart than this are looked for one by one: what lies between them need not be
#: read.
_FAR = 10_000


def find_pieces(
    store: Store, queue_id: QueueId, monotons: Ranges, *, deliveries: int | None
) -> list[Piece]:
    """Find messages, in order. Two reads for each run of ranges that are near each other.

    Args:
        store: Where the queue is kept.
        queue_id: Which queue.
        monotons: Which messages; published, and not finalised.
        deliveries: What their pieces are to say.

    Raises:
        InvariantError: The ledger has a hole there (I1).
    """
    return [
        piece
        for near in _neighbourhoods(monotons)
        for piece in pieces_of(locate(store, queue_id, near.hull), near, deliveries=deliveries)
    ]


def _neighbourhoods(monotons: Ranges) -> Iterator[Ranges]:
    near: list[Range] = []
    for part in monotons:
        if near and part.start - near[-1].stop > _FAR:
            yield Ranges(tuple(near))
            near = []
        near.append(part)
    if near:
        yield Ranges(tuple(near))
