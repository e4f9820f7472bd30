"""Hunt every mutant: python -m tests.mutants [--machine] [--seconds N] [--jobs N] [NAME ...]."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.console import Console
from rich.table import Table

from tests.mutants.catalogue import MUTANTS
from tests.mutants.hunt import UNIT_TESTS, Outcome, copy, hunt, package_of, run
from tests.mutants.mutant import PACKAGE, ROOT, Mutant

_WIDTH = 160
#: Processor time that all of the tests take at the most, when nothing is wrong.
_OF_ALL = timedelta(minutes=20)


def main(arguments: Sequence[str]) -> int:
    """Hunt, print what was caught by which test, and return 1 if something was not.

    With ``--machine`` it is enough that one mutant is caught of those that break the same promise.
    """
    parser = argparse.ArgumentParser(prog="tests.mutants", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="only these")
    parser.add_argument(
        "--machine",
        action="store_true",
        help="by state machines and interleavings alone: each promise has to be missed once",
    )
    parser.add_argument("--seconds", type=int, default=60, help="processor time for each")
    parser.add_argument("--jobs", type=int, default=2, help="mutants at a time")
    parser.add_argument("--seed", type=int, default=0, help="of the tests")
    given = parser.parse_args(arguments)
    chosen = [each for each in MUTANTS if not given.names or each.name in given.names]
    if given.machine:
        chosen = [each for each in chosen if each.tests_in("property")]
    if unknown := set(given.names) - {each.name for each in chosen}:
        parser.error(f"there is no mutant {min(unknown)!r}")
    console, within = Console(width=_WIDTH), timedelta(seconds=given.seconds)
    # All of them from one copy: files may be edited meanwhile.
    with TemporaryDirectory(prefix="original-") as folder:
        original = copy(ROOT, Path(folder))
        console.print(f"First the tests without any bug; then {len(chosen)} mutants.")
        check = partial(_check, original, chosen, seed=given.seed, jobs=given.jobs)
        if complaint := check(by_units=not given.machine):
            console.print(complaint, markup=False)
            return 1
        seek = partial(
            hunt, original=original, seed=given.seed, within=within, by_units=not given.machine
        )
        outcomes = []
        with ThreadPoolExecutor(given.jobs) as pool:
            for outcome in pool.map(seek, chosen):
                outcomes.append(outcome)
                caught = "caught" if outcome.test else "SURVIVED"
                console.print(f"{caught:8} {outcome.seconds:5.0f}s  {outcome.mutant.name}")
    console.print(_table(outcomes))
    by_promise = caught_by_promise(outcomes)
    for promise, (caught, total) in by_promise.items():
        console.print(f"{promise:10} {caught} of {total} caught", highlight=False)
    if given.machine:
        return int(any(caught == 0 for caught, _ in by_promise.values()))
    return int(any(each.test is None for each in outcomes))


def caught_by_promise(outcomes: Sequence[Outcome]) -> dict[str, tuple[int, int]]:
    """How many mutants were caught, and of how many, for each promise that they break."""
    total = Counter(each.mutant.breaks for each in outcomes)
    caught = Counter(each.mutant.breaks for each in outcomes if each.test is not None)
    return {promise: (caught[promise], total[promise]) for promise in sorted(total, key=_order)}


def _order(promise: str) -> tuple[int, str]:
    """Invariants come first, by number."""
    number = promise.removeprefix("I")
    return (int(number), "") if number.isdecimal() else (99, promise)


def _check(
    original: Path, chosen: Sequence[Mutant], *, seed: int, jobs: int, by_units: bool
) -> str | None:
    """What is wrong with the tests themselves: they must pass, on the copy."""
    found = package_of(original)
    if found != original / PACKAGE:
        return f"the tests of {original} import {found}: nothing would be mutated"
    folders = ("unit", "property") if by_units else ("property",)
    named = {name for each in chosen for folder in folders for name in each.tests_in(folder)}
    tests = [*(UNIT_TESTS if by_units else ()), *sorted(named)]
    parts = [part for at in range(jobs) if (part := tests[at::jobs])]
    with ThreadPoolExecutor(jobs) as pool:
        done = pool.map(lambda part: run(original, part, "dev", seed=seed, within=_OF_ALL), parts)
        return next((each.stdout for each in done if each.returncode), None)


def _table(outcomes: Sequence[Outcome]) -> Table:
    table = Table("mutant", "breaks", "caught by", "seconds", "because", title="Mutants")
    for each in outcomes:
        test = each.test or "[bold red]nothing[/]"
        because = each.why.replace("[", r"\[")[:60]
        table.add_row(each.mutant.name, each.mutant.breaks, test, f"{each.seconds:.0f}", because)
    return table


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
