"""The style of the figures that trials draw, for light and dark pages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

#: Of medium lightness, so that it is visible on white and on black.
INK = "#808890"
BLUE, RED, GREEN, OCHRE = "#3f8ae0", "#e0564a", "#3fa35f", "#c98a1b"
COLOURS = (BLUE, RED, GREEN, OCHRE)
_STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "cassieq",
    "font.family": "sans-serif",
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.alpha": 0.3,
    "lines.marker": "o",
    "lines.markersize": 5,
    "legend.frameon": False,
    "legend.fontsize": 9,
    "axes.titlesize": 10,
    **dict.fromkeys(("text.color", "xtick.color", "ytick.color", "grid.color"), INK),
    **dict.fromkeys(("axes.edgecolor", "axes.labelcolor", "axes.titlecolor"), INK),
}


@contextmanager
def styled(path: Path, size: tuple[float, float]) -> Iterator[Figure]:
    """A figure of a size in inches; at the end it is saved, as SVG or as its name says."""
    with mpl.rc_context(_STYLE):
        figure = Figure(size, layout="constrained")
        yield figure
        figure.savefig(
            path, transparent=True, metadata={"Date": None} if path.suffix == ".svg" else None
        )


@contextmanager
def pictured(path: Path, size: tuple[float, float]) -> Iterator[tuple[Axes, Sequence[str]]]:
    """The same with one panel, and the colours to use."""
    with styled(path, size) as figure:
        yield figure.subplots(), COLOURS
