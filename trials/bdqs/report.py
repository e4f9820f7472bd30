"""Makes docs/bdqs.md from the lines of a run: fills its tables, and draws its figures."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from trials.bdqs.cells import Experiment
from trials.bdqs.journal import Line

_DOCS = Path(__file__).parents[2] / "docs"
PAGE = _DOCS / "bdqs.md"
FIGURES = _DOCS / "figures"
#: The default file of lines; docs/bdqs.md is made from it.
LINES = FIGURES / "bdqs.jsonl"

_END = "<!-- end -->"
_CAPTIONS = {
    Experiment.THROUGHPUT: "Messages a second against the number of queues",
    Experiment.RESPONSE: "Response times against rates",
    Experiment.CONSISTENCY: "Duplicates and order against the number of receivers",
    Experiment.NETWORK: "Rates and consistency against the chance of losing a request",
    Experiment.CLIENT: "Rates and consistency against the chance of dying",
    Experiment.SERVER: "Rates, times and consistency against the mean time to failure",
}


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table: its heading, and its text for a line."""

    title: str
    show: Callable[[Line], str]


def read_lines(path: Path) -> list[Line]:
    """The lines of a file; empty if there is no such file."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def write_report(lines: Sequence[Line]) -> None:
    """Fill docs/bdqs.md and draw its figures."""
    from trials.bdqs.plots import draw  # noqa: PLC0415 (the page alone needs no Matplotlib)

    PAGE.write_text(fill(PAGE.read_text(), lines))
    for experiment in Experiment:
        if chosen := of_experiment(lines, experiment):
            draw(FIGURES / figure_of(experiment), experiment, chosen)


def fill(page: str, lines: Sequence[Line]) -> str:
    """Put the figure and table of each experiment that has lines between its marks.

    >>> fill("<!-- bdqs: network -->old<!-- end -->", [])
    '<!-- bdqs: network -->old<!-- end -->'
    """
    for experiment in Experiment:
        if chosen := of_experiment(lines, experiment):
            mark = f"<!-- bdqs: {experiment} -->"
            before, sep, rest = page.partition(mark)
            _, end, after = rest.partition(_END)
            if not (sep and end):
                raise ValueError(f"the page has no marks {mark} and {_END} around a table")
            parts = (
                f"![{_CAPTIONS[experiment]}](figures/{figure_of(experiment)})",
                table_of(experiment, chosen),
                about(chosen),
            )
            page = "\n\n".join((before + mark, *parts, end + after))
    return page


def of_experiment(lines: Sequence[Line], experiment: Experiment) -> list[Line]:
    """The lines of one experiment; repetitions are replaced by their mean."""
    alike: dict[str, list[Line]] = {}
    for line in lines:
        if line["experiment"] == experiment:
            alike.setdefault(json.dumps(line["cell"] | {"repetition": 0}), []).append(line)
    return [
        every[0] | {"figures": _mean_of([line["figures"] for line in every])}
        for every in alike.values()
    ]


def figure_of(experiment: Experiment) -> str:
    """The file name of a figure."""
    return f"bdqs-{experiment}.svg"


def table_of(experiment: Experiment, lines: Sequence[Line]) -> str:
    """A Markdown table with a row for each line."""
    columns = (*_CELLS[experiment], *_FIGURES[experiment])
    rows = [
        [column.title for column in columns],
        ["---"] * len(columns),
        *([column.show(line) for column in columns] for line in lines),
    ]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def about(lines: Sequence[Line]) -> str:
    """A sentence on how these lines were measured."""
    first, seconds = lines[0], sum(line["seconds"] for line in lines)
    nodes, replicas = first["nodes"], first["replicas"]
    return (
        f"Profile `{first['profile']}`, {_count(nodes, 'node')}, {_count(replicas, 'replica')}, "
        f"{first['consistency']}; clients in {_count(first['processes'], 'process', 'es')} on the "
        f"same {_count(first['cores'], 'core')}; seed {first['seed']}; {seconds:.0f} s; "
        f"{first['day']}."
    )


def _count(number: int, noun: str, plural: str = "s") -> str:
    return f"{number} {noun}{plural if number != 1 else ''}"


def _mean_of(every: Sequence[Line]) -> Line:
    return {
        name: fmean(each[name] for each in every) if isinstance(value, float | int) else value
        for name, value in every[0].items()
    }


def _cell(title: str, name: str, show: Callable[[Any], str] = str) -> Column:
    return Column(title, lambda line: show(line["cell"][name]))


def _figure(title: str, name: str, form: str) -> Column:
    return Column(title, lambda line: format(line["figures"][name], form))


def _times(title: str, name: str) -> Column:
    return Column(
        title,
        lambda line: (
            f"{line['figures'][f'{name}_ms']:,.0f} / {line['figures'][f'{name}_p95_ms']:,.0f}"
        ),
    )


def _pause(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms"


def _chance(share: float) -> str:
    return f"{share:g}"


def _mttf(seconds: float | None) -> str:
    return "none fails" if seconds is None else f"{seconds:.0f} s"


_SENT = _figure("messages", "sent", ",.0f")
_RATES = (
    _figure("sends /s", "send_per_s", ",.0f"),
    _figure("receive+ack /s", "receive_per_s", ",.0f"),
)
_RESPONSES = (
    _times("send: mean / p95 ms", "send"),
    _times("receive: mean / p95 ms", "receive"),
    _figure("ack: mean ms", "ack_ms", ",.0f"),
)
_LOSS = (_figure("lost", "loss", ".2%"), _figure("duplicates", "duplication", ".2%"))
_ORDER = (
    _figure("out of order, as sent", "out_of_order", ".1%"),
    _figure("as published", "out_of_order_published", ".1%"),
    _figure("displacement, as sent", "displacement", ".2f"),
    _figure("as published", "displacement_published", ".2f"),
)
_REPEATED = Column(
    "calls repeated", lambda line: f"{sum(line['figures']['repeated_calls'].values()):,}"
)

_CELLS: dict[Experiment, tuple[Column, ...]] = {
    Experiment.THROUGHPUT: (
        _cell("at a time", "gathered", lambda gathered: "many" if gathered else "one"),
        _cell("queues", "queues"),
        _SENT,
    ),
    Experiment.RESPONSE: (_cell("queues", "queues"), _cell("pause", "send_pause", _pause)),
    Experiment.CONSISTENCY: (_cell("receivers", "receivers"), _cell("`max`", "batch")),
    Experiment.NETWORK: (_cell("p", "lost", _chance),),
    Experiment.CLIENT: (_cell("p", "killed", _chance), _figure("died", "deaths", ".0f")),
    Experiment.SERVER: (
        _cell("MTTF", "mttf", _mttf),
        _figure("outages", "outages", ".0f"),
        _figure("each, s", "outage_s", ".1f"),
        _figure("without a quorum, s", "without_quorum_s", ".1f"),
    ),
}
_FIGURES: dict[Experiment, tuple[Column, ...]] = {
    Experiment.THROUGHPUT: (*_RATES, *_LOSS),
    Experiment.RESPONSE: (*_RATES, *_RESPONSES, *_LOSS),
    Experiment.CONSISTENCY: (*_LOSS, *_ORDER),
    Experiment.NETWORK: (_REPEATED, *_RATES, *_LOSS, *_ORDER),
    Experiment.CLIENT: (*_RATES, *_LOSS, *_ORDER),
    Experiment.SERVER: (_REPEATED, *_RATES, *_RESPONSES, *_LOSS, *_ORDER),
}
