"""The tables of docs/capacity.md: coefficients, plans, predictions beside the truth."""

from __future__ import annotations

import contextlib
import io
import os
import platform
import re
import sys
from collections.abc import Iterable, Mapping
from datetime import datetime
from importlib.metadata import version
from pathlib import Path
from unittest.mock import patch

from benchmarks.capacity.check import STEPS, WANTED, Checked
from cassieq_spark import cli
from cassieq_spark.node.jars import DEFAULT_RELEASE
from cassieq_spark.planning.coefficients import MEANINGS, SECONDS, Coefficients
from cassieq_spark.planning.units import shown

PAGE = Path(__file__).parents[2] / "docs" / "capacity.md"
#: The plans that the page shows.
EXAMPLES = {
    "large": "plan --rate 200k/s --size 1kB --groups 3 --keep 7d --rf 3",
    "small": "plan --rate 12M/day --size 2kB --compression 3 --order key --interval 1min",
}
_GIB = 1 << 30


def about(now: datetime) -> dict[str, str]:
    """This machine, what runs on it, and when."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    models = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    model = next(models, platform.machine())
    return {
        "machine": (f"{os.cpu_count()} cores of {model}, {memory / _GIB:.0f} GiB, {_busy()}"),
        "date": f"{now:%Y-%m-%d}",
        "versions": (
            f"Cassandra {DEFAULT_RELEASE.version}, Spark {version('pyspark')}, "
            f"Python {platform.python_version()}"
        ),
        "command": "python -m benchmarks.capacity",
    }


def tables(known: Coefficients) -> dict[str, str]:
    """What the page has of the coefficients: their table, and the plans."""
    return {"coefficients": coefficients_table(known)} | {
        name: f"```console\n$ cassieq {line}\n{_output(line)}```"
        for name, line in EXAMPLES.items()
    }


def coefficients_table(known: Coefficients) -> str:
    """All coefficients, a line each."""
    about = known.measured
    by = f"{about['machine']}, {about['date']}, with {about['versions']}, by `{about['command']}`"
    lines = [
        f"Measured on {by}.",
        "",
        "| coefficient | value | unit | what it is |",
        "|---|---|---|---|",
    ]
    for name, (unit, meaning) in MEANINGS.items():
        value = known[name] * (1e6 if unit == SECONDS else 1)
        lines.append(f"| `{name}` | {shown(value)} | {unit} | {meaning} |")
    return "\n".join(lines)


def check_table(found: Iterable[Checked], now: datetime) -> str:
    """Predictions beside the truth, and the sum of those that are judged together."""
    found = list(found)
    lines = [
        f"Measured by `python -m benchmarks.capacity --check`, {now:%Y-%m-%d}, {_busy()}.",
        "",
        f"| cluster | load | what | predicted | measured | ratio | within {WANTED:.0%} |",
        "|---|---|---|---|---|---|---|",
    ]
    for each in [*found, Checked.sum_of_steps(found)]:
        figures = (
            f"{shown(value)} {each.unit}".strip() for value in (each.predicted, each.measured)
        )
        verdict = "yes" if each.is_near else "**no**"
        if each.what == STEPS and each in found:
            verdict = "in the sum"
        cells = (each.cluster, each.load, each.what, *figures, f"{each.ratio:.2f}", verdict)
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def write_page(parts: Mapping[str, str]) -> None:
    """Replace parts of the page, each between ``<!-- name -->`` and ``<!-- end -->``."""
    text = PAGE.read_text(encoding="utf-8")
    for name, part in parts.items():
        text = with_part(text, name, part)
    PAGE.write_text(text, encoding="utf-8")


def with_part(text: str, name: str, part: str) -> str:
    r"""Replace a part of a text.

    >>> with_part("a<!-- x -->b<!-- end -->c", "x", "new")
    'a<!-- x -->\nnew\n<!-- end -->c'
    """
    found = re.compile(rf"(<!-- {name} -->).*?(<!-- end -->)", re.DOTALL)
    return found.sub(lambda match: f"{match[1]}\n{part}\n{match[2]}", text)


def _busy() -> str:
    """How busy the machine is, with others' work too."""
    return f"load average {os.getloadavg()[2]:.0f}"


def _output(line: str) -> str:
    """What a command prints into a file."""
    written = io.StringIO()
    with (
        patch.object(sys, "argv", ["cassieq", *line.split()]),
        contextlib.redirect_stdout(written),
        contextlib.suppress(SystemExit),
    ):
        cli.main()
    return written.getvalue()
