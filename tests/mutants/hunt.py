"""Looking for a mutant: the tests run on a copy of everything, in a temporary folder."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.mutants.mutant import PACKAGE, QUEUE_MACHINE, Mutant

_COPIED = (PACKAGE, "tests")
_LEFT_OUT = shutil.ignore_patterns("integration", ".hypothesis")
#: They come first: they take seconds, while the machine goes on until the time is over.
UNIT_TESTS = (
    "unit/groups",
    "unit/ledger",
    "unit/dead_letters",
    "unit/repair",
    "unit/queues",
    "unit/producer",
    "unit/consumer",
    "unit/spark/source/test_reader.py",
    "unit/store/test_consistency.py",
    "unit/store/test_node_clocks.py",
    "unit/store/test_promises.py",
)
_FAILED = re.compile(r"^(?:FAILED|ERROR) tests/(\S+)", re.MULTILINE)
_WHY = re.compile(r"^E +(?:[\w.]*\.)?(\w+(?:Error|Exception)\b.*)$", re.MULTILINE)
_WORDS = re.compile(r"""['"]([^'"]+)['"]\)?$""")
_TESTS_FAILED = 1
#: What takes so many times longer than its processor time allows hangs.
_HANGS = 20


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the tests made of a mutant.

    Attributes:
        mutant: Which.
        seconds: How long they took.
        test: The one that failed; None if none did, within the time allowed.
        why: What it said.
    """

    mutant: Mutant
    seconds: float
    test: str | None
    why: str


def hunt(
    mutant: Mutant, original: Path, *, seed: int, within: timedelta, by_units: bool = True
) -> Outcome:
    """Run tests until one fails or time is up.

    Args:
        mutant: What they are to find.
        original: The tree to mutate a copy of.
        seed: Of the tests.
        within: Processor time for each stage: unit tests that the mutant names, those of its
            package, property tests that it names, all other unit tests, the queue machine.
        by_units: Whether unit tests come first; if not, a state machine has to find it alone.
    """
    with TemporaryDirectory(prefix="mutant-") as folder:
        root = copy(original, Path(folder))
        mutant.apply(root)
        begun = time.monotonic()
        try:
            for profile, tests in _stages(mutant, by_units=by_units):
                done = run(root, tests, profile, seed=seed, within=within)
                if done.returncode == _TESTS_FAILED:
                    break
        except subprocess.TimeoutExpired:
            return Outcome(mutant, time.monotonic() - begun, None, "")
        seconds = time.monotonic() - begun
    if done.returncode in (0, -signal.SIGXCPU, -signal.SIGKILL):
        return Outcome(mutant, seconds, None, "")
    failed = _FAILED.search(done.stdout)
    if done.returncode != _TESTS_FAILED or failed is None:
        raise RuntimeError(f"mutant {mutant.name!r}: no test could run:\n{done.stdout}")
    whys = _WHY.findall(done.stdout)
    return Outcome(mutant, seconds, failed[1], _in_short(whys[-1]) if whys else "")


def _stages(mutant: Mutant, *, by_units: bool) -> Iterator[tuple[str, Sequence[str]]]:
    """Profiles of Hypothesis, and the tests to run with them: those first that fail soonest.

    Each of them has passed without a mutant: what fails anyway catches nothing.
    """
    named, properties = mutant.tests_in("unit"), mutant.tests_in("property")
    near = [name for name in UNIT_TESTS if name.startswith(f"unit/{mutant.file.parts[0]}")]
    stages = [
        ("dev", named if by_units else []),
        ("dev", near if by_units else []),
        ("dev", [name for name in UNIT_TESTS if name not in near] if by_units else []),
    ]
    # The machine of the whole queue takes longest: it comes last, where nothing else is named.
    at = 3 if mutant.tests == (QUEUE_MACHINE,) else 2
    # With the profile "mutants", the first test of a file takes all of the time. So each test of
    # the file runs with few examples before, and with its explicit ones.
    stages[at:at] = [("dev", properties), ("mutants", properties)]
    yield from (stage for stage in stages if stage[1])


def _in_short(why: str) -> str:
    """The words that an assertion ends with, or all that an error says."""
    words = _WORDS.search(why)
    return words[1] if words else why


def copy(original: Path, root: Path) -> Path:
    """Copy the package, and the tests that need no service; what Python compiled comes along."""
    for name in _COPIED:
        shutil.copytree(original / name, root / name, ignore=_LEFT_OUT)
    shutil.copy(original / "pyproject.toml", root)
    return root


def run(
    root: Path, tests: Sequence[str], profile: str, *, seed: int, within: timedelta
) -> subprocess.CompletedProcess[str]:
    """Run tests of a copy, with the package of that copy.

    Args:
        root: Where the copy is.
        tests: Files and folders under ``tests``, in their order.
        profile: Of Hypothesis.
        seed: Of Hypothesis.
        within: Processor time, so that a busy machine does not matter.

    Raises:
        subprocess.TimeoutExpired: They hang.
    """
    environment = os.environ | {
        "HYPOTHESIS_PROFILE": profile,
        # Its first folder wins, before the package that is installed.
        "PYTHONPATH": str(root),
    }
    options = ["-q", "-x", "--show-capture=no", "-p", "no:randomly", "-p", "no:cacheprovider"]
    longest = _HANGS * within
    options += ["-o", f"timeout={longest.total_seconds():.0f}", f"--hypothesis-seed={seed}"]
    files = [f"tests/{name}" for name in tests]
    limited = f'ulimit -t {within.total_seconds():.0f}; exec "$@"'
    return subprocess.run(
        ["sh", "-c", limited, "sh", sys.executable, "-m", "pytest", *options, *files],
        cwd=root,
        env=environment,
        timeout=longest.total_seconds(),
        check=False,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )


def package_of(root: Path) -> Path:
    """Which package the tests of a copy import."""
    program = f"import {PACKAGE}; print({PACKAGE}.__file__)"
    found = subprocess.run(
        [sys.executable, "-c", program],
        cwd=root,
        env=os.environ | {"PYTHONPATH": str(root)},
        check=True,
        text=True,
        stdout=subprocess.PIPE,
    )
    return Path(found.stdout.strip()).parent
