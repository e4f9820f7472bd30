"""Wrong clocks by libfaketime: of a Python, and of Cassandra nodes."""

from __future__ import annotations

import shlex
import subprocess
import sys
import time
from collections.abc import Sequence
from datetime import timedelta
from importlib.util import find_spec
from pathlib import Path

from cassieq_spark.errors import SetupError

_LIBRARY = "vendor/libfaketime/src/libfaketime.so.1"
_TOLERANCE_SECONDS = 2.0
#: For so many seconds a program caches a clock; else it would read the file at each look.
_CACHED = 1


def skewed_python(path: Path, skew: timedelta) -> Path:
    """Write a program that runs this Python with another wall clock, and check that clock.

    The monotonic clock is not changed.

    Args:
        path: The program to write.
        skew: How far its clock is ahead; behind, if negative.

    Raises:
        SetupError: The clock is not changed, as on another platform than Linux.
    """
    given = shlex.join(_faked(f"FAKETIME={_told(skew)}"))
    path.write_text(f'#!/bin/sh\nexec {given} {shlex.quote(sys.executable)} "$@"\n')
    path.chmod(0o755)
    told = subprocess.run(
        [path, "-c", "import time; print(time.time())"], capture_output=True, text=True, check=True
    )
    off = float(told.stdout) - time.time() - skew.total_seconds()
    if abs(off) > _TOLERANCE_SECONDS:
        raise SetupError(
            f"The clock of {path} should be {skew.total_seconds():+.1f} s off and is not: "
            f"libfaketime does not work here; it needs Linux. {told.stderr.strip()}"
        )
    return path


class NodeClocks:
    """The wall clocks of nodes, a file in ``folder`` for each; set while the nodes run."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def prefix(self, address: str) -> Sequence[str]:
        """The beginning of a node's command; its clock is right at first."""
        self.set(address, timedelta(0))
        return _faked(
            f"FAKETIME_TIMESTAMP_FILE={self._path(address)}",
            f"FAKETIME_CACHE_DURATION={_CACHED}",
        )

    def set(self, address: str, skew: timedelta) -> None:
        """Set a node's clock; the node sees it within a second."""
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._path(address)
        unfinished = path.with_suffix(".new")
        unfinished.write_text(_told(skew))
        unfinished.replace(path)

    def _path(self, address: str) -> Path:
        return self._folder / f"{address}.clock"


def _told(skew: timedelta) -> str:
    return f"{skew.total_seconds():+.3f}"


def _faked(*settings: str) -> list[str]:
    """The beginning of a command with another wall clock and the true monotonic clock."""
    return [
        "env",
        f"LD_PRELOAD={_find_library()}",
        "FAKETIME_DONT_FAKE_MONOTONIC=1",
        "FAKETIME_DISABLE_SHM=1",
        # Java and Python wait by the true monotonic clock. Without this, libfaketime would end
        # each wait of Java at once, and a put by Python would take two to three times the
        # processor time.
        "FAKETIME_FORCE_MONOTONIC_FIX=0",
        *settings,
    ]


def _find_library() -> Path:
    spec = find_spec("libfaketime")
    if spec is None or not spec.submodule_search_locations:
        raise SetupError("libfaketime is missing: pip install libfaketime, or use make chaos")
    return Path(spec.submodule_search_locations[0]) / _LIBRARY
