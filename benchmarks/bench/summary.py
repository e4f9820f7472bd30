"""The figures in short, as docs/performance.md has them. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from benchmarks.bench import cases
from benchmarks.bench.contest import Figure, find
from benchmarks.bench.report import show
from benchmarks.bench.systems import (
    APPEND,
    CASSIEQ,
    KAFKA,
    KAFKA_LZ4,
    KAFKA_TUNED,
    KAFKA_ZSTD,
)

_WHOLE = (
    cases.BATCH_WRITE,
    cases.WRITE_100K,
    cases.WRITE_20K,
    cases.READ_ALL,
    cases.READ_100K,
    cases.READ_20K,
)
_SMALL = (cases.SMALL_READ, cases.LATENCY)
_TUNED = (KAFKA_TUNED, KAFKA_LZ4, KAFKA_ZSTD)


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
    tuned = [found[name] for name in _TUNED if name in found]
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
