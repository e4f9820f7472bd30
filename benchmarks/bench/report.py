"""The report of a run: all figures, a summary, the goals, a picture, and the machine."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
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
    """A ratio to reach or, without peers, a figure.

    Attributes:
        of: The case.
        payload: The payload.
        peers: The systems to compare with; the best of them counts.
        wanted: The ratio to the peer: at least this or, for times and costs, at most.
        measure: The measure.
        at_most: Whether less is better.
        difference: Whether the difference to the peer counts instead of the ratio.
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
    """A goal with the best of its peers, if any, and the ratio or difference that was reached."""

    goal: Goal
    peer: str
    ratio: float

    @property
    def reached(self) -> bool:
        return self.ratio <= self.goal.wanted if self.goal.at_most else self.missing <= 0

    @property
    def missing(self) -> float:
        """By how many percent the ratio must change to reach the goal; 0 or less if it has.

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
    """Judge a goal; None if it was not measured."""
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
    """The line of a figure.

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


def figures_table(figures: Sequence[Figure]) -> str:
    """All figures, with the ratio of the queue to each, round by round."""
    rows = [
        "| case | payload | system | median | min to max | cassieq-spark is |",
        "|---|---|---|---|---|---|",
    ]
    whole = (each for each in figures if not _is_of_one_process(each))
    return "\n".join([*rows, *(_row(each, figures) for each in whole)])


def processor_table(figures: Sequence[Figure]) -> str:
    """Processor time, in all and by process, of the queue and of the best of its peers."""
    by_process = "| Spark | Python | server "
    head = [
        f"| processor time | | cassieq-spark {by_process}| peer {by_process}|",
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
    """All goals, and whether they are reached."""
    rows = ["| goal | wanted | reached | |", "|---|---|---|---|"]
    return "\n".join([*rows, *map(_goal_row, judged)])


def show(value: float) -> str:
    """A figure as short text.

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
    of = (figure.case, figure.payload, figure.system)
    return f"| {' | '.join((*of, show(figure.median) + unit, f'{least} to {most}', ratio))} |"


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
    """Medians of the rates of whole writes and reads, of rates inside batches, and of times."""
    whole = (
        f"| whole queries, messages a second | {CASSIEQ} | Kafka | Kafka tuned | driver alone |"
    )
    inside = f"| inside the batches | {CASSIEQ} | Kafka | Kafka tuned |"
    small = f"| ms | {CASSIEQ} | Kafka | Kafka tuned |"
    tables = (
        (whole, 5, _rates(figures, cases.RATE, cases.LIMIT)),
        (inside, 4, _rates(figures, cases.INSIDE)),
        (small, 4, _small(figures)),
    )
    parts = ["\n".join([head, "|---" * columns + "|", *rows]) for head, columns, rows in tables]
    return "\n\n".join([*parts, *_appended(figures)])


def _rates(figures: Sequence[Figure], measure: str, *others: str) -> Iterator[str]:
    """A row for each contest, with a column for each of the others."""
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


#: The panels of the picture: title and case.
_PANELS = (
    ("Stream write, messages a second", cases.WRITE_100K),
    ("Stream read with ack, messages a second", cases.READ_ALL),
)


def draw(path: Path, figures: Sequence[Figure]) -> None:
    """Draw the rates of whole writes and reads with Spark: medians, and the range of rounds."""
    from trials.figures import BLUE, INK, styled  # noqa: PLC0415 (only here: it takes a second)

    with styled(path, (8, 8)) as picture:
        panels = picture.subplots(len(_PANELS), 1, sharex=True)
        for ax, (title, case) in zip(panels, _PANELS, strict=True):
            at, names = 0.0, []
            for payload, bars in bars_of(figures, case).items():
                for bar in bars:
                    colour = BLUE if bar.system == CASSIEQ else INK
                    below, above = bar.median - min(bar.values), max(bar.values) - bar.median
                    ax.barh(
                        at,
                        bar.median,
                        color=colour,
                        alpha=0.7,
                        xerr=[[below], [above]],
                        ecolor=INK,
                    )
                    ax.text(max(bar.values), at, f"  {show(bar.median)}", va="center")
                    names.append((at, f"{payload}, {bar.system}"))
                    at -= 1
                at -= 0.5
            ax.set_yticks([place for place, _ in names], [name for _, name in names])
            ax.grid(visible=False, axis="y")
            ax.set(title=title)


def bars_of(figures: Sequence[Figure], case: str) -> dict[str, list[Figure]]:
    """The systems of a case by payload: the queue first, then the fastest."""
    payloads = dict.fromkeys(each.payload for each in figures if each.case == case)
    found = {
        payload: find(figures, case=case, payload=payload, measure=cases.RATE)
        for payload in payloads
    }
    return {
        payload: sorted(
            (each for name, each in by_name.items() if name != cases.LIMIT),
            key=lambda each: (each.system != CASSIEQ, -each.median),
        )
        for payload, by_name in found.items()
    }


_GIB = 1 << 30


def describe_machine() -> str:
    """A line: cores, memory, kernel, and the versions of all systems."""
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
