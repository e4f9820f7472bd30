"""The report of a run: a summary, the parts of streaming queries, the goals, all figures."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path

from benchmarks.bench import names
from benchmarks.bench.contest import Figure, find
from benchmarks.bench.goals import Judged
from benchmarks.bench.jars import BROKER, CASSANDRA_CONNECTOR, KAFKA_CONNECTOR
from benchmarks.bench.lab import HEAP_MB
from benchmarks.bench.processor import PYTHON, SERVERS, SPARK
from benchmarks.bench.progress import BATCH_MS, TO_TASKS
from benchmarks.bench.systems import (
    APPEND,
    CASSIEQ,
    KAFKA,
    KAFKA_LZ4,
    KAFKA_TUNED,
    KAFKA_ZSTD,
)
from cassieq_spark.node.jars import DEFAULT_RELEASE

_PROCESSOR = (names.CPU, names.CPU_BATCH, names.CPU_QUERY, names.ROW_CPU)


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


def from_json(line: str) -> Figure:
    """The figure of a line of `to_json`; its values are rounded."""
    it = json.loads(line)
    of = (it["case"], it["payload"], it["system"], it["measure"])
    return Figure(*of, values=tuple(it["values"]))


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
    return f"{value:.0f}" if value >= 10 else f"{value:.2g}"


def _row(figure: Figure, figures: Sequence[Figure]) -> str:
    same = find(figures, case=figure.case, payload=figure.payload, measure=figure.measure)
    ours = same.get(CASSIEQ)
    ratio = "" if ours is None or ours is figure else f"{_ratio(ours, figure)} times that"
    least, most = show(min(figure.values)), show(max(figure.values))
    unit = f" {figure.measure}"
    of = (figure.case, figure.payload, figure.system)
    return f"| {' | '.join((*of, show(figure.median) + unit, f'{least} to {most}', ratio))} |"


def _ratio(ours: Figure, other: Figure) -> str:
    """The median of the ratios, and their range if there are several."""
    return f"{ours.ratio_to(other):.2f}{_range(ours.ratios_to(other))}"


def _range(ratios: Sequence[float]) -> str:
    return f" ({min(ratios):.2f} to {max(ratios):.2f})" if len(ratios) > 1 else ""


def _goal_row(judged: Judged) -> str:
    goal = judged.goal
    bound = "at most" if goal.at_most else "at least"
    measure = f"{goal.measure}, more" if goal.difference else goal.measure
    what = ", ".join(filter(None, (goal.of, goal.payload, measure)))
    verdict = "reached"
    if not judged.reached:
        verdict = "missed" if goal.difference else f"missing {abs(judged.missing):.0f} %"
    of = f"{what}: against {judged.peer}" if judged.peer else what
    reached = f"{judged.ratio:.2f}{_range(judged.ratios)}"
    return f"| {of} | {bound} {goal.wanted} | {reached} | {verdict} |"


#: The parts of a streaming query: titles, and measures.
_PARTS = {
    "start, s": (TO_TASKS,),
    "a batch, ms": (BATCH_MS,),
    "steady, a second": (names.STEADY, names.ROW_STEADY),
}


def parts_table(figures: Sequence[Figure]) -> str:
    """Start, time of a batch, and steady state of streaming queries, beside those of the peers.

    These are the best of Kafka's tuned ones, and each way to keep rows.
    """
    head = "".join(f"| {title} | peer's | ratio " for title in _PARTS)
    lines = [f"| streaming query | peer {head}|", "|---" * (2 + 3 * len(_PARTS)) + "|"]
    for case, payload in dict.fromkeys(
        (each.case, each.payload) for each in figures if each.measure in _STEADY
    ):
        by_measure = [
            next(
                found
                for measure in measures
                if (found := find(figures, case=case, payload=payload, measure=measure))
            )
            for measures in _PARTS.values()
        ]
        for peer in _peers(by_measure[-1]):
            cells = [cell for found in by_measure for cell in _beside(found, peer)]
            lines.append(f"| {' | '.join((f'{case}, {payload}', peer, *cells))} |")
    return "\n".join(lines)


_STEADY = _PARTS["steady, a second"]


def _peers(steady: Mapping[str, Figure]) -> list[str]:
    """The fastest of the tuned ones, and those of rows, if the queue was measured."""
    tuned = best_tuned(steady)
    best = [] if tuned is None else [tuned.system]
    of_rows = [name for name in (names.AVRO, names.JSON) if name in steady]
    return [*best, *of_rows] if CASSIEQ in steady else []


def best_tuned(found: Mapping[str, Figure]) -> Figure | None:
    """The fastest of Kafka's tuned connectors, of figures by system."""
    tuned = [found[name] for name in TUNED if name in found]
    return max(tuned, key=lambda each: each.median, default=None)


def _beside(found: Mapping[str, Figure], peer: str) -> tuple[str, str, str]:
    ours, theirs = found[CASSIEQ], found[peer]
    return show(ours.median), show(theirs.median), _ratio(ours, theirs)


#: The cases of whole queries.
WHOLE = (
    names.BATCH_WRITE,
    names.WRITE_100K,
    names.WRITE_20K,
    names.READ_ALL,
    names.READ_100K,
    names.READ_20K,
)
_SMALL = (names.SMALL_READ, names.SMALL_WRITE, names.REST, names.LATENCY)
#: Kafka's tuned connector, with each codec.
TUNED = (KAFKA_TUNED, KAFKA_LZ4, KAFKA_ZSTD)


def summarise(figures: Sequence[Figure]) -> str:
    """Medians of the rates of whole writes and reads, and of times."""
    whole = rates_table(figures, names.RATE, WHOLE, names.LIMIT)
    return "\n\n".join(filter(None, (whole, small_table(figures), *appended(figures))))


def rates_table(
    figures: Sequence[Figure], measure: str, cases: Sequence[str], *others: str
) -> str:
    """Medians of rates, with a column for each of the other systems."""
    what = "whole queries" if measure == names.RATE else "inside the batches"
    columns = (f"{what}, messages a second", CASSIEQ, KAFKA, KAFKA_TUNED, *others)
    rows = []
    for case, payload in _contests(figures, cases):
        found = find(figures, case=case, payload=payload, measure=measure)
        if found:
            rows.append(_rate_row(f"{case}, {payload}", found, others))
    return table(columns, rows)


def small_table(figures: Sequence[Figure]) -> str:
    """Medians of the times of small batches."""
    return table(("ms", CASSIEQ, KAFKA, KAFKA_TUNED), _small(figures))


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of Markdown; empty without rows."""
    lines = [f"| {' | '.join(cells)} |" for cells in rows]
    return "\n".join(
        [f"| {' | '.join(head)} |", "|---" * len(head) + "|", *lines] if lines else []
    )


def _contests(figures: Sequence[Figure], cases: Sequence[str]) -> Iterator[tuple[str, str]]:
    for case in cases:
        for payload in dict.fromkeys(each.payload for each in figures if each.case == case):
            yield case, payload


def _rate_row(name: str, found: Mapping[str, Figure], others: Sequence[str]) -> tuple[str, ...]:
    best = best_tuned(found)
    codec = best.system.partition(", ")[2] if best else ""
    return (
        name,
        _median(found, CASSIEQ),
        _median(found, KAFKA),
        _median(found, best.system if best else "") + (f" ({codec})" if codec else ""),
        *(_median(found, other) for other in others),
    )


def _small(figures: Sequence[Figure]) -> Iterator[tuple[str, ...]]:
    for case in _SMALL:
        found = find(figures, case=case, payload="", measure=names.MS)
        if found:
            yield (case, *(_median(found, name) for name in (CASSIEQ, KAFKA, KAFKA_TUNED)))


def appended(figures: Sequence[Figure]) -> Iterator[str]:
    """A line for each rate of the Spark Cassandra Connector."""
    for each in figures:
        if (each.system, each.measure) == (APPEND, names.RATE):
            yield f"{each.case}, {each.payload}, with {APPEND}: {show(each.median)}."


def _median(found: Mapping[str, Figure], name: str) -> str:
    return show(found[name].median) if name in found else ""


#: The panels of the picture: title and case.
_PANELS = (
    ("Stream write, messages a second", names.WRITE_100K),
    ("Stream read with ack, messages a second", names.READ_ALL),
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
        payload: find(figures, case=case, payload=payload, measure=names.RATE)
        for payload in payloads
    }
    return {
        payload: sorted(
            (each for name, each in by_name.items() if name != names.LIMIT),
            key=lambda each: (each.system != CASSIEQ, -each.median),
        )
        for payload, by_name in found.items()
    }


_GIB = 1 << 30


def describe_machine() -> str:
    """A line: cores, memory, load, kernel, and the versions of all systems."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    parts = (
        f"{os.cpu_count()} cores ({_processor()})",
        f"{memory / _GIB:.0f} GiB",
        f"load average {os.getloadavg()[-1]:.1f} of 15 minutes",
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
