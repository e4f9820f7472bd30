"""Renews the tables and the picture of the docs from a run; the words around them stay.

    make bench-docs

A table is between ``<!-- bench: NAME -->`` and ``<!-- end -->``. Only a whole run renews them: of
another one, tables would lose rows.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from benchmarks.bench import names
from benchmarks.bench.cases import FULL, titles
from benchmarks.bench.contest import Figure, find
from benchmarks.bench.goals import earlier_goals, goals, judge
from benchmarks.bench.payloads import FLIGHTS, RANDOM
from benchmarks.bench.processor import PYTHON, SERVERS, SPARK
from benchmarks.bench.progress import BATCH_MS, TO_TASKS
from benchmarks.bench.report import (
    TUNED,
    WHOLE,
    appended,
    best_tuned,
    draw,
    from_json,
    goals_table,
    parts_table,
    processor_table,
    rates_table,
    show,
    small_table,
    table,
)
from benchmarks.bench.systems import CASSIEQ, KAFKA
from benchmarks.capacity.report import with_part

PAGES = [Path("docs/performance.md"), Path("docs/performance-history.md")]
PICTURE = Path("docs/figures/throughput.svg")
_GROUPS = {
    "batch writes": names.BATCH_WRITE,
    "streams that write": names.WRITE_100K,
    "streams that read": names.READ_ALL,
}
_TYPED = {
    "no limit, all columns": names.TYPED_READ_ALL,
    "no limit, 3 columns": names.TYPED_READ_ALL_SOME,
    "100,000 a batch, all columns": names.TYPED_READ_100K,
    "100,000 a batch, 3 columns": names.TYPED_READ_100K_SOME,
}


def compared(figures: Sequence[Figure]) -> str:
    """How many times as fast Kafka's connector is, with its defaults and tuned."""
    rows = []
    for title, case in _GROUPS.items():
        ranges: dict[str, list[float]] = {"": [], "tuned": []}
        for payload in dict.fromkeys(each.payload for each in figures if each.case == case):
            found = find(figures, case=case, payload=payload, measure=names.RATE)
            for kind, peer in (("", found.get(KAFKA)), ("tuned", best_tuned(found))):
                if peer is not None and CASSIEQ in found:
                    ranges[kind].append(peer.ratio_to(found[CASSIEQ]))
        if all(ranges.values()):
            cells = (f"{min(each):.1f} to {max(each):.1f} times" for each in ranges.values())
            rows.append((title, *cells))
    return table(("", "Kafka's connector with its defaults", "tuned"), rows)


def whole(figures: Sequence[Figure]) -> str:
    """Rates of whole queries."""
    return rates_table(figures, names.RATE, tuple(_GROUPS.values()))


def typed(figures: Sequence[Figure]) -> str:
    """Queries of rows with columns, beside Kafka with Avro and with JSON."""
    of_write = {
        "rows a second": names.ROW_RATE,
        "microseconds of processor time a row": names.ROW_CPU,
        "bytes a row, as stored": names.STORED,
    }
    lines = [("batch write", what, names.TYPED_WRITE, it) for what, it in of_write.items()]
    start = "seconds to the tasks of the first batch"
    lines.append(("stream read", start, names.TYPED_READ_100K, TO_TASKS))
    for title, case in _TYPED.items():
        if "no limit" not in title:
            lines.append((title, "milliseconds a batch", case, BATCH_MS))
        steady = "rows a second in the steady state"
        lines.append((title, steady, case, names.ROW_STEADY))
        lines.append((title, "microseconds of processor time a row", case, names.ROW_CPU))
    rows = []
    for title, what, case, measure in lines:
        found = find(figures, case=case, payload=FLIGHTS, measure=measure)
        if found.keys() >= _PEERS:
            rows.append((f"{title}: {what}", *(_beside(found, peer) for peer in _COLUMNS)))
    return table((f"{CASSIEQ} : Kafka", "Avro", "JSON"), rows)


_COLUMNS = (names.AVRO, names.JSON)
_PEERS = {CASSIEQ, *_COLUMNS}


def _beside(found: Mapping[str, Figure], peer: str) -> str:
    ours, theirs = found[CASSIEQ], found[peer]
    return f"{show(ours.median)} : {show(theirs.median)} = {ours.ratio_to(theirs):.2f}"


def cost(figures: Sequence[Figure]) -> str:
    """Processor time for a message, beside that of the tuned Kafka that needs least."""
    rows = []
    for case in (names.BATCH_WRITE, names.READ_ALL):
        for payload in (RANDOM, FLIGHTS):
            found = find(figures, case=case, payload=payload, measure=names.CPU)
            tuned = [found[name] for name in TUNED if name in found]
            if CASSIEQ in found and tuned:
                least = min(each.median for each in tuned)
                medians = (f"{it:.2f}" for it in (found[CASSIEQ].median, least))
                rows.append((f"{case}, {payload}", *medians))
    return table(("", CASSIEQ, "Kafka tuned"), rows)


def limits(figures: Sequence[Figure]) -> str:
    """Processor time for a row by process, beside Kafka's with Avro."""
    rows = []
    for title, case in {"batch write": names.TYPED_WRITE, **_TYPED}.items():
        cells = []
        for system in (CASSIEQ, names.AVRO):
            for process in (f", {SPARK}", f", {PYTHON}", *(f", {it}" for it in SERVERS), ""):
                measure = f"{names.ROW_CPU}{process}"
                found = find(figures, case=case, payload=FLIGHTS, measure=measure)
                if system in found:
                    cells.append(f"{found[system].median:.2f}")
        if cells:
            rows.append((title, *cells))
    parts = ("Spark's Java", "Python", "server", "in all")
    return table(("", *parts, *(f"Kafka, Avro: {each}" for each in parts)), rows)


def everything(figures: Sequence[Figure]) -> str:
    """All tables of a whole run but those of the present goals."""
    judged = [found for goal in earlier_goals() if (found := judge(goal, figures))]
    if not judged:
        return ""
    reached = sum(each.reached for each in judged)
    return "\n\n".join(
        [
            rates_table(figures, names.RATE, WHOLE, names.LIMIT),
            rates_table(figures, names.INSIDE, WHOLE),
            small_table(figures),
            *appended(figures),
            parts_table(figures),
            processor_table(figures),
            f"Of the goals that were set before, {reached} of {len(judged)} are reached:",
            goals_table(judged),
        ]
    )


def present_goals(figures: Sequence[Figure]) -> str:
    """The goals of the steady state."""
    judged = [found for goal in goals() if (found := judge(goal, figures))]
    return goals_table(judged) if judged else ""


#: The tables by name.
TABLES: Mapping[str, Callable[[Sequence[Figure]], str]] = MappingProxyType(
    {
        "compared": compared,
        "whole": whole,
        "typed": typed,
        "small": small_table,
        "cost": cost,
        "everything": everything,
        "goals": present_goals,
        "limits": limits,
    }
)


def renewed(page: str, figures: Sequence[Figure]) -> str:
    """A page with the tables of these figures."""
    for name, table_of in TABLES.items():
        part, new = f"bench: {name}", table_of(figures)
        if new and f"<!-- {part} -->" in page:
            page = with_part(page, part, new)
    return page


def missing_in(figures: Sequence[Figure]) -> list[str]:
    """The cases of a whole run of which there are no figures."""
    measured = {(each.case, each.payload) for each in figures}
    return [names.name_of(each) for each in titles(FULL) if each not in measured]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("figures", type=Path, help="figures.jsonl of a run")
    path: Path = parser.parse_args().figures
    if not path.exists():
        sys.exit(f"there is no {path}: run make bench first")
    figures = [from_json(line) for line in path.read_text(encoding="utf-8").splitlines()]
    if missing := missing_in(figures):
        sys.exit(f"{path} is not of a whole run, it lacks {missing[0]}: run make bench first")
    for page in PAGES:
        page.write_text(renewed(page.read_text(encoding="utf-8"), figures), encoding="utf-8")
    draw(PICTURE, figures)


if __name__ == "__main__":
    main()
