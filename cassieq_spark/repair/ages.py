"""How old blocks are of which a clock says that they come from the future. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import datetime

from cassieq_spark.model import LedgerBlock, block_time
from cassieq_spark.store.protocol import CLOCKS_APART


def is_of_the_future(block: LedgerBlock, now: datetime) -> bool:
    """Whether the clock of its writer, or of the server that published it, was ahead.

    Args:
        block: As the ledger has it.
        now: By a clock that others agree with.
    """
    return max(block.published_at, block_time(block.block)) > now + CLOCKS_APART


def aged(blocks: Iterable[LedgerBlock], now: datetime) -> Iterator[LedgerBlock]:
    """The same blocks; those of the future were there by the time of the next one that is not.

    The ledger has them in the order in which they were published. So one whose clock was a month
    ahead does not keep what is behind it for a month. Without such a next one it stays so.

    Args:
        blocks: In order.
        now: By a clock that others agree with.
    """
    ahead: list[LedgerBlock] = []
    for block in blocks:
        if is_of_the_future(block, now):
            ahead.append(block)
            continue
        # The server that published it may have had a clock that was behind.
        by = max(block.published_at, block_time(block.block))
        yield from (replace(each, there_by=_no_older(each, by, now)) for each in ahead)
        ahead.clear()
        yield block
    yield from ahead


def _no_older(block: LedgerBlock, by: datetime, now: datetime) -> datetime:
    """The same time, but not before the block was begun, if the clock of its writer was right."""
    begun_at = block_time(block.block)
    return by if begun_at > now + CLOCKS_APART else max(by, begun_at)
