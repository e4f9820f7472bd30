"""Hunt what mutmut makes of pure modules: python -m tests.mutants.pure [--only MODULE] [--jobs N].

mutmut changes each operator, constant and argument of a function by itself, so nobody has to write
these mutants down. ``survivors.toml`` says for each function which of them may live, and why: they
change nothing that a caller could see, or nothing that matters. It has a sentence for each, and no
text or number of a mutant, since both change with the function.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.mutants.hunt import copy
from tests.mutants.mutant import PACKAGE, ROOT

SURVIVORS = Path(__file__).with_name("survivors.toml")
_RESULT = re.compile(rf"^\s*({PACKAGE}\.\S+): (.+)$", re.MULTILINE)
#: Between the names of a class and a method.
_OF_CLASS = "ǁ"
#: A test failed, or went on without an end.
_FOUND = {"killed", "timeout", "caught by type check"}


def main(arguments: Sequence[str]) -> int:
    """Make the mutants, run their tests, and print those that live although they should not."""
    parser = argparse.ArgumentParser(prog="tests.mutants.pure", description=__doc__)
    parser.add_argument("--only", metavar="MODULE", default="", help="such as groups.plan")
    parser.add_argument("--jobs", type=int, default=2, help="mutants at a time")
    parser.add_argument("--keep", type=Path, help="a folder, to go on from there the next time")
    given = parser.parse_args(arguments)
    known = read_survivors(SURVIVORS.read_text(encoding="utf-8"), given.only)
    with TemporaryDirectory(prefix="pure-") as folder:
        root = given.keep or Path(folder)
        if not (root / PACKAGE).exists():
            copy(ROOT, root)
        chosen = [f"{PACKAGE}.{given.only}.*"] if given.only else []
        ran = _mutmut(root, "run", "--max-children", str(given.jobs), *chosen)
        if ran.returncode:
            return ran.returncode
        results = results_of(_mutmut(root, "results", "--all", "true").stdout, given.only)
        living = living_of(results)
        problems = compare(living, known)
        for function, problem in problems.items():
            sys.stdout.write(f"{problem}\n")
            for name in living.get(function, ()):
                sys.stdout.write(_mutmut(root, "show", name).stdout)
    counts = Counter(results.values())
    told = ", ".join(f"{count} {status}" for status, count in counts.most_common())
    sys.stdout.write(f"{len(results)} mutants: {told}\n")
    return int(bool(problems))


def results_of(printed: str, only: str = "") -> dict[str, str]:
    """What became of each mutant of a module, or of all; from what ``mutmut results`` prints."""
    return {
        name: status
        for name, status in _RESULT.findall(printed)
        if only in {"", function_of(name).partition(":")[0]}
    }


def living_of(results: Mapping[str, str]) -> dict[str, list[str]]:
    """The mutants that no test has found, by function."""
    living: dict[str, list[str]] = {}
    for name, status in results.items():
        if status not in _FOUND:
            living.setdefault(function_of(name), []).append(name)
    return living


def function_of(mutant: str) -> str:
    """The function that mutmut has changed, as in ``groups.plan:plan_lease``.

    >>> function_of("cassieq_spark.groups.plan.x__due_rows__mutmut_3")
    'groups.plan:_due_rows'
    >>> function_of("cassieq_spark.ledger.unique.xǁSiftedǁcount__mutmut_1")
    'ledger.unique:Sifted.count'
    """
    module, _, name = mutant.removeprefix(f"{PACKAGE}.").rpartition(".")
    name = name.rpartition("__mutmut_")[0].removeprefix("x")
    parts = name.strip(_OF_CLASS).split(_OF_CLASS)
    return f"{module}:{'.'.join(parts) if len(parts) > 1 else name.removeprefix('_')}"


def read_survivors(text: str, only: str = "") -> dict[str, list[str]]:
    """Why each mutant that lives may live, by function; of one module, or of all."""
    tables: Mapping[str, Mapping[str, list[str]]] = tomllib.loads(text)
    return {
        f"{module}:{function}": reasons
        for module, functions in tables.items()
        if only in {"", module}
        for function, reasons in functions.items()
    }


def compare(
    living: Mapping[str, Sequence[str]], known: Mapping[str, Sequence[str]]
) -> dict[str, str]:
    """What is wrong, by function: more mutants live than have a reason, or fewer."""
    counts = {
        function: (len(living.get(function, ())), len(known.get(function, ())))
        for function in sorted({*living, *known})
    }
    return {
        function: f"{function}: {lives} live, and {have} have a reason in {SURVIVORS.name}"
        for function, (lives, have) in counts.items()
        if lives != have
    }


def _mutmut(root: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run mutmut; a run shows its progress, and other commands print what is to be read."""
    return subprocess.run(
        [sys.executable, "-m", "mutmut", *words],
        cwd=root,
        env=os.environ | {"HYPOTHESIS_PROFILE": "ci"},
        check=False,
        text=True,
        stdout=None if "run" in words else subprocess.PIPE,
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
