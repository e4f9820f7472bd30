"""Finding messages: from monotons to the blocks that hold them."""

from __future__ import annotations

from collections.abc import Iterator

from cassieq_spark.errors import InvariantError
from cassieq_spark.fetch.pieces import Piece, pieces_of
from cassieq_spark.ledger.read import locate, stream_blocks
from cassieq_spark.ledger.state import check_tiling
from cassieq_spark.model import LedgerBlock, QueueId, Range, Ranges
from cassieq_spark.store.protocol import Store

#: Ranges further apart than this are looked for one by one: what lies between them need not be
#: read.
_FAR = 10_000
#: Blocks that are remembered.
_REMEMBERED = 1_000


class Finder:
    """Finds messages, and remembers the last blocks that it found: they never change (I2).

    For one thread at a time.

    Args:
        store: Where the queue is kept.
        queue_id: Which queue.
    """

    def __init__(self, store: Store, queue_id: QueueId) -> None:
        self._store = store
        self._queue_id = queue_id
        self._blocks: list[LedgerBlock] = []

    def pieces(self, monotons: Ranges, *, deliveries: int | None) -> list[Piece]:
        """Find messages, in order. For each run of ranges near each other, reads as `covering`.

        Args:
            monotons: Which messages; published, and not finalised.
            deliveries: What their pieces are to say.

        Raises:
            InvariantError: The ledger has a hole there (I1).
        """
        return [
            piece
            for near in _neighbourhoods(monotons)
            for piece in pieces_of(self.covering(near.hull), near, deliveries=deliveries)
        ]

    def covering(self, monotons: Range) -> list[LedgerBlock]:
        """The blocks that hold these messages, in order.

        No read if they are among the last found, one for those that follow them, else two; one
        more for each thousand blocks.

        Raises:
            InvariantError: The ledger has a hole there (I1).
        """
        blocks = self._going_on_to(monotons)
        if blocks is None:
            blocks = locate(self._store, self._queue_id, monotons)
        blocks = [block for block in blocks if monotons.start < block.monotons.stop]
        self._blocks = blocks[-_REMEMBERED:]
        return [block for block in blocks if block.monotons.start < monotons.stop]

    def forget(self) -> None:
        """Read anew from here on."""
        self._blocks = []

    def _going_on_to(self, monotons: Range) -> list[LedgerBlock] | None:
        """What is remembered and what follows it; None if these are not among them."""
        known = self._blocks
        if not known:
            return None
        if not known[0].monotons.start <= monotons.start <= known[-1].monotons.stop:
            return None
        blocks = known + self._following(known[-1].monotons.stop, monotons.stop)
        try:
            check_tiling(blocks, monotons)
        except InvariantError:
            return None  # a plain read may miss what is there; see `locate`
        return blocks

    def _following(self, start: int, stop: int) -> list[LedgerBlock]:
        if stop <= start:
            return []
        return list(stream_blocks(self._store, self._queue_id, start=start, stop=stop))


def find_pieces(
    store: Store, queue_id: QueueId, monotons: Ranges, *, deliveries: int | None
) -> list[Piece]:
    """Find messages once; see `Finder.pieces`."""
    return Finder(store, queue_id).pieces(monotons, deliveries=deliveries)


def _neighbourhoods(monotons: Ranges) -> Iterator[Ranges]:
    near: list[Range] = []
    for part in monotons:
        if near and part.start - near[-1].stop > _FAR:
            yield Ranges(tuple(near))
            near = []
        near.append(part)
    if near:
        yield Ranges(tuple(near))
