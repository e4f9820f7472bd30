"""Draws the figures of docs/bdqs.md."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby
from pathlib import Path

from matplotlib.axes import Axes

from trials.bdqs.cells import Experiment
from trials.bdqs.journal import Line
from trials.figures import BLUE, COLOURS, INK, RED, styled

_PANEL = (4.3, 3.3)
#: From the paper: below this share of the highest rate, responses take less than this.
_SAFE_SHARE, _SAFE_MS = 0.8, 200


def draw(path: Path, experiment: Experiment, lines: Sequence[Line]) -> None:
    """Draw one experiment into a file."""
    panels = _PANELS[experiment]
    with styled(path, (_PANEL[0] * len(panels), _PANEL[1])) as figure:
        axes = figure.subplots(1, len(panels), squeeze=False)[0]
        for panel, ax in zip(panels, axes, strict=True):
            panel(ax, lines)


def _figures(lines: Sequence[Line], name: str, scale: float = 1) -> list[float]:
    return [line["figures"][name] * scale for line in lines]


def _of_load(ax: Axes, lines: Sequence[Line], *, gathered: bool) -> None:
    chosen = [line for line in lines if line["cell"]["gathered"] == gathered]
    queues = [line["cell"]["queues"] for line in chosen]
    ax.plot(queues, _figures(chosen, "send_per_s"), color=BLUE, label="send")
    ax.plot(queues, _figures(chosen, "receive_per_s"), color=RED, label="receive and ack")
    ax.set_xscale("log", base=2)
    ax.set_xticks(queues, [str(each) for each in queues])
    ax.set(xlabel="queues", ylabel="messages a second", ylim=(0, None))
    batch = max(line["cell"]["batch"] for line in chosen)
    ax.set_title(f"gathered, {batch} at a time" if gathered else "one message at a time")
    ax.legend()


def _one_by_one(ax: Axes, lines: Sequence[Line]) -> None:
    _of_load(ax, lines, gathered=False)


def _gathered(ax: Axes, lines: Sequence[Line]) -> None:
    if any(line["cell"]["gathered"] for line in lines):
        _of_load(ax, lines, gathered=True)
    else:
        ax.set_axis_off()


def _response(what: str, title: str, colour: str) -> Callable[[Axes, Sequence[Line]], None]:
    def panel(ax: Axes, lines: Sequence[Line]) -> None:
        # In the order of load: beyond saturation, the rate may fall.
        load = sorted(
            lines, key=lambda line: (line["cell"]["queues"], -line["cell"]["send_pause"])
        )
        rates = _figures(load, f"{what}_per_s")
        ax.plot(rates, _figures(load, f"{what}_ms"), color=colour, label="mean")
        tail = _figures(load, f"{what}_p95_ms")
        ax.plot(rates, tail, color=colour, linestyle=":", marker="", label="95 of 100")
        ax.axhline(_SAFE_MS, color=INK, linestyle="--", linewidth=1, marker="")
        ax.axvline(_SAFE_SHARE * max(rates), color=INK, linestyle="--", linewidth=1, marker="")
        ax.set(xlabel="messages a second", ylabel="ms", yscale="log", title=title)
        ax.set_xlim(0, None)
        ax.legend(loc="upper left")

    return panel


def _by_receivers(
    name: str, title: str, scale: float = 1
) -> Callable[[Axes, Sequence[Line]], None]:
    def panel(ax: Axes, lines: Sequence[Line]) -> None:
        def batch(line: Line) -> int:
            return int(line["cell"]["batch"])

        by_batch = groupby(sorted(lines, key=batch), key=batch)
        for (size, every), colour in zip(by_batch, COLOURS, strict=False):
            chosen = list(every)
            receivers = [line["cell"]["receivers"] for line in chosen]
            figures = _figures(chosen, name, scale)
            ax.plot(receivers, figures, color=colour, label=f"max = {size}")
            ax.set_xticks(receivers)
        ax.set(xlabel="receivers of a queue", title=title)
        ax.set_ylim(0, max(1.0, ax.get_ylim()[1]))
        ax.legend(loc="upper left")

    return panel


def _by_trouble(
    title: str, series: Sequence[tuple[str, str]], scale: float = 1
) -> Callable[[Axes, Sequence[Line]], None]:
    """Bars side by side, for each chance or mean time to failure."""

    def panel(ax: Axes, lines: Sequence[Line]) -> None:
        width = 0.8 / len(series)
        for at, ((name, label), colour) in enumerate(zip(series, COLOURS, strict=False)):
            places = [place + (at - (len(series) - 1) / 2) * width for place in range(len(lines))]
            ax.bar(places, _figures(lines, name, scale), width * 0.9, color=colour, label=label)
        ax.set_xticks(range(len(lines)), [_trouble(line) for line in lines])
        ax.grid(visible=False, axis="x")
        ax.set(title=title, xlabel=_axis(lines[0]))
        ax.set_ylim(0, max(1.0, ax.get_ylim()[1] * 1.3))
        ax.legend(loc="upper left", ncols=2, columnspacing=1)

    return panel


def _trouble(line: Line) -> str:
    cell = line["cell"]
    if line["experiment"] == Experiment.SERVER:
        return "none" if cell["mttf"] is None else f"{cell['mttf']:.0f} s"
    return f"{cell['lost'] or cell['killed']:g}"


def _axis(line: Line) -> str:
    return {
        Experiment.NETWORK: "chance of each request to be lost",
        Experiment.CLIENT: "chance of a receiver to die in a cycle",
        Experiment.SERVER: "mean time to failure of each node",
    }[Experiment(line["experiment"])]


_RATES = _by_trouble(
    "messages a second", [("send_per_s", "send"), ("receive_per_s", "receive and ack")]
)
_CONSISTENCY = _by_trouble(
    "of 100 messages",
    [
        ("loss", "lost"),
        ("duplication", "duplicates"),
        ("out_of_order", "out of order, as sent"),
        ("out_of_order_published", "as published"),
    ],
    100,
)
_RESPONSES = _by_trouble("mean ms", [("send_ms", "send"), ("receive_ms", "receive")])
_PANELS: dict[Experiment, tuple[Callable[[Axes, Sequence[Line]], None], ...]] = {
    Experiment.THROUGHPUT: (_one_by_one, _gathered),
    Experiment.RESPONSE: (
        _response("send", "send", BLUE),
        _response("receive", "receive", RED),
    ),
    Experiment.CONSISTENCY: (
        _by_receivers("duplication", "duplicates of 100 messages", 100),
        _by_receivers("out_of_order_published", "out of order, as published, of 100", 100),
        _by_receivers("displacement_published", "mean displacement, as published"),
    ),
    Experiment.NETWORK: (_RATES, _CONSISTENCY),
    Experiment.CLIENT: (_RATES, _CONSISTENCY),
    Experiment.SERVER: (_RATES, _RESPONSES, _CONSISTENCY),
}
