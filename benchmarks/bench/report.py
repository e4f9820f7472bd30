"""What a run prints: every figure, the figures in short, the goals, a picture, and the machine."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from importlib.metadata import version
from pathlib import Path

from benchmarks.bench import cases, rows
from benchmarks.bench.contest import Figure, find
from benchmarks.bench.jars import BROKER, CASSANDRA_CONNECTOR, KAFKA_CONNECTOR
from benchmarks.bench.lab import HEAP_MB
from benchmarks.bench.payloads import FLIGHTS, ORDERS, RANDOM, READINGS
from benchmarks.bench.processor import PYTHON, SERVERS, SPARK
from benchmarks.bench.systems import (
    APPEND,
    CASSIEQ,
    KAFKA,
    KAFKA_LZ4,
    KAFKA_TUNED,
    KAFKA_ZSTD,
)
from cassieq_spark.node.jars import DEFAULT_RELEASE

_JSON = (ORDERS, READINGS, FLIGHTS)
_TUNED = (KAFKA_TUNED, KAFKA_LZ4)
_PROCESSOR = (cases.CPU, cases.CPU_BATCH, cases.CPU_QUERY, rows.CPU)


@dataclass(frozen=True, slots=True)
class Goal:
    """A ratio to reach, or, without peers, a figure.

    Attributes:
        of: The case that it is of.
        payload: With which messages.
        peers: What the queue is compared with: the best of them, if there are several.
        wanted: How many times the peer it has to be, at least, or, for times and costs, at most.
        measure: What is compared.
        at_most: Whether less is better.
        difference: Whether it is how much more than the peer, instead of how many times.
    """

    of: str
    payload: str
    peers: tuple[str, ...]
    wanted: float
    measure: str = cases.RATE
    at_most: bool = False
    difference: bool = False


@dataclass(frozen=True, slots=True)
class Judged:
    """A goal, and how far it is.

    Attributes:
        goal: Which.
        peer: The best of its peers; empty if it has none.
        ratio: What was reached; the difference, if the goal is one.
    """

    goal: Goal
    peer: str
    ratio: float

    @property
    def reached(self) -> bool:
        return self.ratio <= self.goal.wanted if self.goal.at_most else self.missing <= 0

    @property
    def missing(self) -> float:
        """By how many percent the ratio would have to change; 0 or less if by none.

        >>> goal = Goal("batch write", "", ("Kafka",), 1.2)
        >>> round(Judged(goal, "Kafka", 1.0).missing)
        20
        """
        return (self.goal.wanted / self.ratio - 1) * 100


def goals() -> Iterator[Goal]:
    for payload in (RANDOM, *_JSON):
        for case in (cases.READ_ALL, cases.READ_100K):
            yield Goal(case, payload, _TUNED, 1.2, cases.INSIDE)
            yield Goal(case, payload, _TUNED, 0.9, cases.CPU, at_most=True)
    for case, rate in ((cases.BATCH_WRITE, cases.RATE), (cases.WRITE_100K, cases.INSIDE)):
        for payload in _JSON:
            yield Goal(case, payload, (KAFKA_LZ4,), 1.0, rate)
            yield Goal(case, payload, (KAFKA_LZ4,), 1.1, cases.CPU, at_most=True)
        yield Goal(case, RANDOM, (KAFKA_TUNED,), 0.8, rate)
        yield Goal(case, RANDOM, (KAFKA_TUNED,), 1.4, cases.CPU, at_most=True)
    for payload in (RANDOM, FLIGHTS):
        for case in (cases.WRITE_20K, cases.READ_20K):
            yield Goal(case, payload, _TUNED, 1.0, cases.INSIDE)
    json, avro = (rows.JSON,), (rows.AVRO,)
    for payload in (ORDERS, FLIGHTS):
        yield Goal(rows.WRITE, payload, json, 1.2, rows.RATE)
        yield Goal(rows.READ, payload, json, 3.5, rows.INSIDE)
        yield Goal(rows.READ, payload, avro, 2.5, rows.INSIDE)
        yield Goal(rows.READ_SOME, payload, json, 7.0, rows.INSIDE)
        yield Goal(rows.WRITE, payload, json, 0.8, rows.STORED, at_most=True)
    tuned = (KAFKA_TUNED,)
    yield Goal(cases.SMALL_WRITE, "", tuned, 1.1, cases.MS, at_most=True)
    yield Goal(cases.SMALL_READ, "", tuned, 1.1, cases.MS, at_most=True)
    yield Goal(cases.START, "", tuned, 0.25, cases.SECONDS, at_most=True, difference=True)
    yield Goal(cases.LATENCY, "", tuned, 1.1, cases.MS, at_most=True)
    yield Goal(cases.PUTS.format(64), "", (cases.ROWS,), 1.0)
    yield Goal(cases.IDLE, "", (), 0, cases.IDLE_LWTS, at_most=True)
    yield Goal(cases.IDLE, "", (), 5, cases.IDLE_READS, at_most=True)


def judge(goal: Goal, figures: Sequence[Figure]) -> Judged | None:
    """How far a goal is; None if what it is about was not measured."""
    ours = find(figures, case=goal.of, payload=goal.payload, measure=goal.measure).get(CASSIEQ)
    if ours is not None and not goal.peers:
        return Judged(goal, "", ours.median)
    theirs = find(figures, case=goal.of, payload=goal.payload, measure=goal.measure)
    present = [theirs[name] for name in goal.peers if name in theirs]
    if ours is None or not present:
        return None
    best = (min if goal.at_most else max)(present, key=lambda each: each.median)
    compare = ours.more_than if goal.difference else ours.ratio_to
    return Judged(goal, best.system, compare(best))


def to_json(figure: Figure) -> str:
    """One line.

    >>> to_json(Figure("read", "flights", "Kafka", "ms", (1.0, 3.0, 2.0)))  # doctest: +ELLIPSIS
    '{"case": "read", "payload": "flights", "system": "Kafka", "measure": "ms", "median": 2.0, ...
    """
    return json.dumps(
        {
            "case": figure.case,
            "payload": figure.payload,
            "system": figure.system,
            "measure": figure.measure,
            "median": round(figure.median, 2),
            "min": round(min(figure.values), 2),
            "max": round(max(figure.values), 2),
            "values": [round(value, 2) for value in figure.values],
        }
    )


def from_json(line: str) -> Figure:
    read = json.loads(line)
    names = ("case", "payload", "system", "measure")
    return Figure(**{name: read[name] for name in names}, values=tuple(read["values"]))


def figures_table(figures: Sequence[Figure]) -> str:
    """Every figure, with how many times it the queue is, round by round."""
    rows = [
        "| case | payload | system | median | min to max | CassieQ is |",
        "|---|---|---|---|---|---|",
    ]
    whole = (each for each in figures if not _is_of_one_process(each))
    return "\n".join([*rows, *(_row(each, figures) for each in whole)])


def processor_table(figures: Sequence[Figure]) -> str:
    """Processor time, together and by process, of the queue and of the best of its peers."""
    by_process = "| Spark | Python | server "
    head = [
        f"| processor time | | CassieQ {by_process}| peer {by_process}|",
        "|---" * 10 + "|",
    ]
    cells = []
    for case, payload, measure in dict.fromkeys(
        (each.case, each.payload, each.measure)
        for each in figures
        if each.measure in _PROCESSOR and each.system == CASSIEQ
    ):
        found = find(figures, case=case, payload=payload, measure=measure)
        peers = [each for name, each in found.items() if name != CASSIEQ]
        best = min(peers, key=lambda each: each.median, default=None)
        both = [found[CASSIEQ], *([] if best is None else [best])]
        name = "" if best is None else f" ({best.system})"
        row = [", ".join(filter(None, (case, payload))), measure]
        for each in both:
            parts = [
                find(figures, case=case, payload=payload, measure=f"{measure}, {process}").get(
                    each.system
                )
                for process in (SPARK, PYTHON, *SERVERS)
            ]
            row.append(f"{each.median:.2f}" + (name if each is best else ""))
            row += [f"{part.median:.2f}" for part in parts if part is not None]
        cells.append(f"| {' | '.join(row)} |")
    return "\n".join([*head, *cells])


def _is_of_one_process(figure: Figure) -> bool:
    return any(figure.measure.startswith(f"{measure}, ") for measure in _PROCESSOR)


def goals_table(judged: Sequence[Judged]) -> str:
    """Every goal, and how far it is."""
    rows = ["| goal | wanted | reached | |", "|---|---|---|---|"]
    return "\n".join([*rows, *map(_goal_row, judged)])


def show(value: float) -> str:
    """A figure, short.

    >>> show(123_456), show(1_234), show(12.34), show(1.234)
    ('123 k', '1.2 k', '12', '1.2')
    """
    for above, text in ((100_000, f"{value / 1000:.0f} k"), (1_000, f"{value / 1000:.1f} k")):
        if value >= above:
            return text
    return f"{value:.0f}" if value >= 10 else f"{value:.1f}"


def _row(figure: Figure, figures: Sequence[Figure]) -> str:
    same = find(figures, case=figure.case, payload=figure.payload, measure=figure.measure)
    ours = same.get(CASSIEQ)
    ratio = "" if ours is None or ours is figure else f"{ours.ratio_to(figure):.2f} times that"
    least, most = show(min(figure.values)), show(max(figure.values))
    unit = f" {figure.measure}"
    cells = (
        figure.case,
        figure.payload,
        figure.system,
        show(figure.median) + unit,
        f"{least} to {most}",
        ratio,
    )
    return f"| {' | '.join(cells)} |"


def _goal_row(judged: Judged) -> str:
    goal = judged.goal
    bound = "at most" if goal.at_most else "at least"
    measure = f"{goal.measure}, more" if goal.difference else goal.measure
    what = ", ".join(filter(None, (goal.of, goal.payload, measure)))
    verdict = "reached"
    if not judged.reached:
        verdict = "missed" if goal.difference else f"missing {abs(judged.missing):.0f} %"
    of = f"{what}: against {judged.peer}" if judged.peer else what
    return f"| {of} | {bound} {goal.wanted} | {judged.ratio:.2f} | {verdict} |"


_WHOLE = (
    cases.BATCH_WRITE,
    cases.WRITE_100K,
    cases.WRITE_20K,
    cases.READ_ALL,
    cases.READ_100K,
    cases.READ_20K,
)
_SMALL = (cases.SMALL_READ, cases.SMALL_WRITE, cases.LATENCY)
_ALL_TUNED = (KAFKA_TUNED, KAFKA_LZ4, KAFKA_ZSTD)


def summarise(figures: Sequence[Figure]) -> str:
    """Medians: messages a second of whole writes and reads; inside the batches; milliseconds."""
    whole = "| whole queries, messages a second | CassieQ | Kafka | Kafka tuned | driver alone |"
    inside = "| inside the batches | CassieQ | Kafka | Kafka tuned |"
    small = "| ms | CassieQ | Kafka | Kafka tuned |"
    tables = (
        (whole, 5, _rates(figures, cases.RATE, cases.LIMIT)),
        (inside, 4, _rates(figures, cases.INSIDE)),
        (small, 4, _small(figures)),
    )
    parts = ["\n".join([head, "|---" * columns + "|", *rows]) for head, columns, rows in tables]
    return "\n\n".join([*parts, *_appended(figures)])


def _rates(figures: Sequence[Figure], measure: str, *others: str) -> Iterator[str]:
    """A row for each contest; with a column for each of the others."""
    for case, payload in _contests(figures):
        found = find(figures, case=case, payload=payload, measure=measure)
        if found:
            yield _rate_row(f"{case}, {payload}", found, others)


def _contests(figures: Sequence[Figure]) -> Iterator[tuple[str, str]]:
    for case in _WHOLE:
        for payload in dict.fromkeys(each.payload for each in figures if each.case == case):
            yield case, payload


def _rate_row(name: str, found: Mapping[str, Figure], others: Sequence[str]) -> str:
    tuned = [found[name] for name in _ALL_TUNED if name in found]
    best = max(tuned, key=lambda each: each.median, default=None)
    codec = best.system.partition(", ")[2] if best else ""
    cells = (
        name,
        _median(found, CASSIEQ),
        _median(found, KAFKA),
        _median(found, best.system if best else "") + (f" ({codec})" if codec else ""),
        *(_median(found, other) for other in others),
    )
    return f"| {' | '.join(cells)} |"


def _small(figures: Sequence[Figure]) -> Iterator[str]:
    for case in _SMALL:
        found = find(figures, case=case, payload="", measure=cases.MS)
        if found:
            medians = (_median(found, name) for name in (CASSIEQ, KAFKA, KAFKA_TUNED))
            yield f"| {case} | {' | '.join(medians)} |"


def _appended(figures: Sequence[Figure]) -> Iterator[str]:
    for each in figures:
        if (each.system, each.measure) == (APPEND, cases.RATE):
            yield f"{each.case}, {each.payload}, with {APPEND}: {show(each.median)}."


def _median(found: Mapping[str, Figure], name: str) -> str:
    return show(found[name].median) if name in found else ""


_WIDTH = 760
_LEFT, _BAR_WIDTH, _BAR_HEIGHT, _GAP = 200, 460, 17, 14
_TITLE_HEIGHT, _MARGIN = 34, 18
_STYLE = """
  .card { fill: #ffffff; stroke: #d0d7de; }
  .ours { fill: #2f6fb3; }
  .peer { fill: #b9c2cc; }
  .range { stroke: #57606a; stroke-width: 1.2; }
  text { font-family: system-ui, sans-serif; font-size: 12px; fill: #1f2328; }
  .title { font-size: 14px; font-weight: 600; }
  .note { fill: #57606a; }
  @media (prefers-color-scheme: dark) {
    .card { fill: #161b22; stroke: #30363d; }
    .ours { fill: #5ea0e6; }
    .peer { fill: #4b5560; }
    .range { stroke: #c3ccd5; }
    text { fill: #e6edf3; }
    .note { fill: #9aa4ae; }
  }
"""
#: What is drawn: the title of a panel, and its case.
_PANELS = (
    ("Stream write, messages a second", cases.WRITE_100K),
    ("Stream read with ack, messages a second", cases.READ_ALL),
)


def draw(figures: Sequence[Figure]) -> str:
    """The picture: for writes and for reads, and each payload, all that use Spark."""
    shapes: list[str] = []
    y = _MARGIN
    longest = max((max(each.values) for each in _drawn(figures)), default=1.0)
    for title, case in _PANELS:
        shapes.append(_text(_MARGIN, y + 14, title, "title"))
        y += _TITLE_HEIGHT
        for payload in dict.fromkeys(each.payload for each in figures if each.case == case):
            bars = _bars(figures, case, payload)
            shapes.append(_text(_MARGIN, y + 13, payload, "note"))
            for bar in bars:
                shapes += _bar(bar, y, longest)
                y += _BAR_HEIGHT
            y += _GAP
        y += _GAP
    height = y
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" role="img" '
        'aria-label="Messages a second, written and read with Spark: CassieQ beside Kafka">'
    )
    card = (
        f'<rect class="card" x="0.5" y="0.5" width="{_WIDTH - 1}" height="{height - 1}" rx="8"/>'
    )
    return "\n".join([head, f"<style>{_STYLE}</style>", card, *shapes, "</svg>"]) + "\n"


def _drawn(figures: Sequence[Figure]) -> Iterator[Figure]:
    for _, case in _PANELS:
        for payload in dict.fromkeys(each.payload for each in figures if each.case == case):
            yield from _bars(figures, case, payload)


def _bars(figures: Sequence[Figure], case: str, payload: str) -> list[Figure]:
    """The systems of one contest, the queue first, then the fastest."""
    found = find(figures, case=case, payload=payload, measure=cases.RATE)
    bars = [each for name, each in found.items() if name != cases.LIMIT]
    return sorted(bars, key=lambda each: (each.system != CASSIEQ, -each.median))


def _bar(figure: Figure, y: int, longest: float) -> list[str]:
    def at(value: float) -> float:
        return round(_LEFT + _BAR_WIDTH * value / longest, 1)

    kind = "ours" if figure.system == CASSIEQ else "peer"
    middle = y + _BAR_HEIGHT / 2 - 1
    least, most = at(min(figure.values)), at(max(figure.values))
    width = round(at(figure.median) - _LEFT, 1)
    return [
        _text(_LEFT - 8, y + 12, figure.system, "", anchor="end"),
        f'<rect class="{kind}" x="{_LEFT}" y="{y}" width="{width}" height="{_BAR_HEIGHT - 3}"/>',
        f'<line class="range" x1="{least}" x2="{most}" y1="{middle}" y2="{middle}"/>',
        _text(max(at(figure.median), most) + 6, y + 12, show(figure.median), "note"),
    ]


def _text(x: float, y: float, text: str, kind: str, *, anchor: str = "start") -> str:
    return f'<text class="{kind}" x="{x}" y="{y}" text-anchor="{anchor}">{escape(text)}</text>'


_GIB = 1 << 30


def describe_machine() -> str:
    """One line: cores, memory, kernel, and everything that takes part."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    parts = (
        f"{os.cpu_count()} cores ({_processor()})",
        f"{memory / _GIB:.0f} GiB",
        f"Linux {platform.release().split('-')[0]}",
        f"Python {platform.python_version()}",
        *(f"{name} {version(name)}" for name in ("pyspark", "cassandra-driver", "pyarrow")),
        f"cassandra-{DEFAULT_RELEASE.version} ({HEAP_MB} MiB of heap)",
        *(each.name for each in (BROKER, KAFKA_CONNECTOR, CASSANDRA_CONNECTOR)),
    )
    return ", ".join(parts)


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())
