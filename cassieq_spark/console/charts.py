"""The positions of the shapes in charts, in the units of their picture; templates draw them.

| chart | shows |
|---|---|
| `spark` | a small line without axes, in a row of a table |
| `plot` | lines over time, with axes |
| `strip` | where the messages of a group stand, from the first stored message to the last |
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from cassieq_spark.model import Range, Ranges
from cassieq_spark.queues.stats import Backlog

#: The kinds of messages of a strip, in the order of drawing from the bottom.
KINDS = ("dead", "due", "leased", "waiting", "fresh", "settled")
_MOST_TICKS = 4
_FULL = 1000.0
#: How many columns a strip has, each of the same width.
_COLUMNS = 250
#: The part of a strip for all settled messages below the floor.
_STUB = 0.06
#: The smallest part of a strip for messages that were offered, and for those that were not.
_LEAST = 0.2
#: The height of a strip, and of the smallest visible piece.
STRIP_HEIGHT, _LEAST_HEIGHT = 24.0, 4.0


@dataclass(frozen=True, slots=True)
class Spark:
    """A small line: its parts as points of SVG polylines, and the areas below them.

    Attributes:
        lines: The runs of known values.
        areas: The same runs, closed at the bottom.
    """

    lines: tuple[str, ...]
    areas: tuple[str, ...]


def spark(
    values: Sequence[float | None], *, width: float, height: float, most: float | None = None
) -> Spark:
    """Draw values that are equally far apart.

    >>> spark([0.0, 2.0], width=10, height=4).lines
    ('0,4 10,0',)

    Args:
        values: The values from left to right; None where there is none.
        width: The width of the picture.
        height: The height of the picture; 0 is at the bottom.
        most: The value at the top; None for the largest.
    """
    top = most or max((each for each in values if each is not None), default=0.0) or 1.0
    step = width / max(1, len(values) - 1)
    lines, areas = [], []
    for run in _runs(values):
        points = [
            f"{_short(at * step)},{_short(height - min(value, top) / top * height)}"
            for at, value in run
        ]
        if len(points) == 1:
            points = [points[0], f"{_short(run[0][0] * step + 1)},{points[0].split(',')[1]}"]
        first, last = (each.split(",")[0] for each in (points[0], points[-1]))
        lines.append(" ".join(points))
        areas.append(f"{first},{_short(height)} {' '.join(points)} {last},{_short(height)}")
    return Spark(tuple(lines), tuple(areas))


@dataclass(frozen=True, slots=True)
class Tick:
    """A mark of an axis.

    Attributes:
        at: The position of the mark.
        text: The label of the mark.
    """

    at: float
    text: str


@dataclass(frozen=True, slots=True)
class Plot:
    """A chart over time.

    Attributes:
        width, height: Size of the drawing area, without the axes.
        lines: The lines, by name.
        across: Marks of the times.
        up: Marks of the values.
        read_from: Where the readings begin; None if they begin outside of the picture.
    """

    width: float
    height: float
    lines: Mapping[str, Spark]
    across: tuple[Tick, ...]
    up: tuple[Tick, ...]
    read_from: float | None


def plot(
    series: Mapping[str, Sequence[float | None]],
    edges: Sequence[float],
    *,
    width: float,
    height: float,
    read_from: float | None = None,
) -> Plot:
    """Draw series over the same time.

    Args:
        series: For each name, the value of each bin.
        edges: Where the bins begin and end, in seconds since 1970.
        width: The width of the picture without its axes.
        height: The height of the picture without its axes.
        read_from: When the readings began.
    """
    largest = max(
        (each for values in series.values() for each in values if each is not None), default=0.0
    )
    step = _round_step(largest / _MOST_TICKS)
    top = max(step, math.ceil(largest / step) * step)
    up = [
        Tick(height - number * step / top * height, _amount(number * step, step))
        for number in range(round(top / step) + 1)
    ]
    begin, end = edges[0], edges[-1]

    def place(at: float) -> float:
        return (at - begin) / (end - begin) * width

    every = _round_seconds((end - begin) / _MOST_TICKS)
    first = math.ceil(begin / every) * every
    marks = [first + number * every for number in range(int((end - first) / every) + 1)]
    across = [Tick(place(at), datetime.fromtimestamp(at, UTC).strftime("%H:%M")) for at in marks]
    lines = {
        name: spark(values, width=width, height=height, most=top)
        for name, values in series.items()
    }
    is_within = read_from is not None and begin < read_from < end
    return Plot(
        width,
        height,
        lines,
        tuple(across),
        tuple(up),
        place(read_from) if is_within and read_from is not None else None,
    )


@dataclass(frozen=True, slots=True)
class StripPiece:
    """A rectangle of a strip."""

    kind: str
    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True, slots=True)
class Strip:
    """The messages of a group in one partition, from left to right by their monotons.

    Settled messages below the floor are in a narrow part at the left, messages that were offered
    in the middle, and messages that were not offered at the right.

    Attributes:
        pieces: The rectangles, in a picture of 1000 by `STRIP_HEIGHT`.
        ticks: Where floor and pointer are, with their monotons.
        stop: The monoton after the last published message.
    """

    pieces: tuple[StripPiece, ...]
    ticks: tuple[Tick, ...]
    stop: int


def strip(backlog: Backlog, *, stored_from: int, floor: int, pointer: int) -> Strip:
    """Compute where the messages of a group stand.

    Args:
        backlog: The messages that the group is owed.
        stored_from: The first monoton that is stored.
        floor: The lowest monoton that the group is owed.
        pointer: The first monoton that the group was never offered.
    """
    floor = max(stored_from, min(floor, backlog.stop))
    pointer = max(floor, min(pointer, backlog.stop))
    offered, ahead = pointer - floor, backlog.stop - pointer
    stub = 0.0 if floor == stored_from else _STUB if offered + ahead else 1.0
    room = 1.0 - stub
    share = room * offered / max(1, offered + ahead)
    if offered and ahead:
        share = min(max(share, _LEAST), room - _LEAST)
    middle = (stub + share) * _FULL
    pieces = [StripPiece("settled", 0.0, 0.0, stub * _FULL, STRIP_HEIGHT)] if stub else []
    by_kind = {
        "dead": backlog.dead,
        "due": backlog.due,
        "leased": backlog.leased,
        "waiting": backlog.waiting,
        "fresh": backlog.fresh,
    }
    if offered:
        pieces += _columns(by_kind, Range(floor, pointer), stub * _FULL, middle)
    if ahead:
        pieces += _columns(by_kind, Range(pointer, backlog.stop), middle, _FULL)
    ticks = [Tick(stub * _FULL, f"{floor:,}")]
    if offered and ahead:
        ticks.append(Tick(middle, f"{pointer:,}"))
    return Strip(tuple(pieces), tuple(ticks), backlog.stop)


def _columns(
    by_kind: Mapping[str, Ranges], within: Range, left: float, right: float
) -> list[StripPiece]:
    """The pieces of a part of a strip: columns, each with its kinds from the bottom up."""
    count = max(1, min(len(within), round((right - left) / _FULL * _COLUMNS)))
    edges = [within.start + len(within) * number // count for number in range(count + 1)]
    held = {kind: _counts(ranges, edges) for kind, ranges in by_kind.items()}
    width = (right - left) / count
    pieces: list[StripPiece] = []
    before: tuple[tuple[str, float], ...] = ()
    for number in range(count):
        size = edges[number + 1] - edges[number]
        heights = tuple(_heights({kind: held[kind][number] for kind in held}, size))
        if heights == before:
            same = len(heights)
            pieces[-same:] = [
                StripPiece(each.kind, each.x, each.y, each.width + width, each.height)
                for each in pieces[-same:]
            ]
            continue
        before, bottom = heights, STRIP_HEIGHT
        for kind, height in heights:
            bottom -= height
            pieces.append(StripPiece(kind, left + number * width, bottom, width, height))
    return pieces


def _heights(counts: Mapping[str, int], size: int) -> Iterable[tuple[str, float]]:
    """The height of each kind in a column; a kind that is present stays visible."""
    counts = {**counts, "settled": size - sum(counts.values())}
    present = [kind for kind in KINDS if counts[kind]]
    least = min(_LEAST_HEIGHT, STRIP_HEIGHT / max(1, len(present)))
    rest = STRIP_HEIGHT - least * len(present)
    for kind in present:
        yield kind, round(least + rest * counts[kind] / size, 2)


def _counts(ranges: Ranges, edges: Sequence[int]) -> list[int]:
    """How many of these monotons lie between neighbouring edges."""
    counts = [0] * (len(edges) - 1)
    at = 0
    for part in ranges:
        if part.start >= edges[-1]:
            break
        while at < len(counts) - 1 and edges[at + 1] <= part.start:
            at += 1
        for number in range(at, len(counts)):
            if edges[number] >= part.stop:
                break
            shared = min(part.stop, edges[number + 1]) - max(part.start, edges[number])
            counts[number] += max(0, shared)
    return counts


def _runs(values: Sequence[float | None]) -> list[list[tuple[int, float]]]:
    runs: list[list[tuple[int, float]]] = [[]]
    for at, value in enumerate(values):
        if value is None:
            runs.append([])
        else:
            runs[-1].append((at, value))
    return [run for run in runs if run]


def _round_step(least: float) -> float:
    """The next of 1, 2 and 5 with zeroes; at least the rate of one message in ten seconds."""
    least = max(least, 0.1)
    size = 10.0 ** math.floor(math.log10(least))
    return next(factor * size for factor in (1, 2, 5, 10) if factor * size >= least * 0.999_999)


def _round_seconds(least: float) -> float:
    lengths = (60, 120, 300, 600, 900, 1800, 3600, 7200)
    return next((each for each in lengths if each >= least), lengths[-1])


def _amount(value: float, step: float) -> str:
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:.10g}{letter}"
    return f"{value:.1f}" if step < 1 else f"{value:.0f}"


def _short(number: float) -> str:
    return f"{number:.1f}".removesuffix(".0")
