"""``python -m benchmarks.bench``: measures, and prints tables.

The folder of results gets ``figures.jsonl``, ``table.md`` and ``throughput.svg``.
"""

from __future__ import annotations

import argparse
import random
import re
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from benchmarks.bench.cases import FULL, QUICK, contests, titles, warm_up
from benchmarks.bench.contest import Budget, Figure, hold
from benchmarks.bench.lab import open_lab
from benchmarks.bench.report import (
    describe_machine,
    draw,
    figures_table,
    goals,
    goals_table,
    judge,
    processor_table,
    summarise,
    to_json,
)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="two payloads, one round")
    parser.add_argument("--rounds", type=int, help="most rounds of each contest")
    parser.add_argument("--minutes", type=float, help="time for all; in less time, fewer rounds")
    parser.add_argument("--only", default="", help="pattern of the cases and payloads to run")
    parser.add_argument("--into", type=Path, default=Path("dist/bench"), help="folder of results")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    given = parser.parse_args(argv)
    console = Console(stderr=True)
    scale = QUICK if given.quick else FULL
    chance = random.Random(given.seed)
    given.into.mkdir(parents=True, exist_ok=True)
    figures: list[Figure] = []
    began = time.monotonic()

    def wanted(case: str, payload: str) -> bool:
        return re.search(given.only, f"{case} {payload}") is not None

    with open_lab() as lab, (given.into / "figures.jsonl").open("w") as lines:
        warm_up(lab)
        seconds = given.minutes and given.minutes * 60 - (time.monotonic() - began)
        budget = Budget(seconds, sum(wanted(*each) for each in titles(scale)))
        for contest in contests(lab, scale, wanted=wanted):
            about = f"{contest.case} {contest.payload}"
            console.print(f"{time.monotonic() - began:4.0f} s  {about}", highlight=False)
            found = hold(
                contest,
                rounds=given.rounds or scale.rounds,
                chance=chance,
                settle=lab.settle,
                is_over=budget.next(),
            )
            figures += found
            lines.writelines(f"{to_json(each)}\n" for each in found)
            lines.flush()
    judged = [each for goal in goals() if (each := judge(goal, figures))]
    parts = (
        describe_machine(),
        summarise(figures),
        processor_table(figures),
        goals_table(judged),
        figures_table(figures),
    )
    report = "\n\n".join(parts) + "\n"
    (given.into / "table.md").write_text(report)
    draw(given.into / "throughput.svg", figures)
    print(report)
    console.print(f"{time.monotonic() - began:.0f} s in all; results in {given.into}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
