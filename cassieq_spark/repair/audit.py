"""Which messages of the ledger are not stored as they should be. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from uuid import UUID

from cassieq_spark.model import LedgerBlock, Range
from cassieq_spark.repair.scan import Run


class Problem(StrEnum):
    """What is wrong with messages at or above ``finalised`` (I3)."""

    MISSING = "missing"
    OVERLAPPING = "overlapping"
    MISPLACED = "misplaced"
    #: Their chunk is there, and can't be decoded.
    UNREADABLE = "unreadable"


@dataclass(frozen=True, slots=True)
class Finding:
    """Messages that are not stored exactly once, where readers look for them.

    Attributes:
        problem: What is wrong.
        monotons: Which messages of the queue.
        block: The block that they are in; None if the ledger has none for them, or two (I1).
    """

    problem: Problem
    monotons: Range
    block: UUID | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Thoroughness:
    """How far an audit goes.

    Attributes:
        verify_data: Whether to read and decode every message, not only the keys of the chunks.
        explain: Whether to find out what the findings mean, and which blocks are in no ledger.
    """

    verify_data: bool = False
    explain: bool = False


#: Keys only, and no explanations.
BRIEF = Thoroughness()


def audit(blocks: Sequence[LedgerBlock], runs: Iterable[Run], within: Range) -> list[Finding]:
    """Compare what the ledger says with what is stored.

    Args:
        blocks: The ledger's.
        runs: What is stored of this queue; blocks that the ledger does not have are passed over.
        within: The monotons to look at; the ledger should have a block for each.
    """
    stored: dict[UUID, list[Run]] = {}
    for run in runs:
        stored.setdefault(run.block, []).append(run)
    tiles = [block.monotons for block in blocks]
    findings = [Finding(Problem.MISSING, hole, None) for hole in holes(tiles, within)]
    findings += [Finding(Problem.OVERLAPPING, each, None) for each in _doubled(tiles, within)]
    for block in blocks:
        due = block.monotons & within
        if due:
            findings += _audit_block(block, stored.get(block.block, []), due)
    return findings


def merged(ranges: Iterable[Range]) -> list[Range]:
    """The same monotons as ranges that neither overlap nor touch, in order.

    >>> [str(each) for each in merged([Range(5, 7), Range(0, 2), Range(1, 3), Range(7, 8)])]
    ['[0, 3)', '[5, 8)']
    """
    result: list[Range] = []
    for each in sorted(ranges):
        if result and each.start <= result[-1].stop:
            last = result.pop()
            each = Range(last.start, max(last.stop, each.stop))  # noqa: PLW2901
        result.append(each)
    return result


def holes(ranges: Iterable[Range], within: Range) -> Iterator[Range]:
    """What of ``within`` none of the ranges has.

    >>> [str(each) for each in holes([Range(5, 7), Range(1, 3)], Range(0, 9))]
    ['[0, 1)', '[3, 5)', '[7, 9)']
    """
    at = within.start
    for each in sorted(ranges):
        if each.stop > at and each.start < within.stop:
            if each.start > at:
                yield Range(at, each.start)
            at = each.stop
    if at < within.stop:
        yield Range(at, within.stop)


def _audit_block(block: LedgerBlock, runs: Sequence[Run], due: Range) -> Iterator[Finding]:
    first = block.monotons.start
    found = {
        Problem.MISSING: holes([_shifted(run.covered, first) for run in runs], due),
        Problem.OVERLAPPING: (
            _shifted(each, first) & due for run in runs for each in run.overlaps
        ),
        Problem.MISPLACED: (_shifted(each, first) & due for run in runs for each in run.misplaced),
    }
    for problem, ranges in found.items():
        for monotons in merged(each for each in ranges if each):
            yield Finding(problem, monotons, block.block)


def _doubled(ranges: Iterable[Range], within: Range) -> list[Range]:
    """What of ``within`` more than one of the ranges has."""
    reached, doubled = 0, []
    for each in sorted(ranges):
        doubled.append(Range(each.start, max(each.start, min(each.stop, reached))) & within)
        reached = max(reached, each.stop)
    return merged(filter(None, doubled))


def _shifted(offsets: Range, first_monoton: int) -> Range:
    return Range(first_monoton + offsets.start, first_monoton + offsets.stop)
