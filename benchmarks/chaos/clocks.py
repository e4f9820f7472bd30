"""Clocks that go wrong: a Python whose wall clock is ahead or behind, by libfaketime."""

from __future__ import annotations

import shlex
import subprocess
import sys
import time
from datetime import timedelta
from importlib.util import find_spec
from pathlib import Path

from cassieq_spark.errors import SetupError

_LIBRARY = "vendor/libfaketime/src/libfaketime.so.1"
_TOLERANCE_SECONDS = 2.0


def skewed_python(path: Path, skew: timedelta) -> Path:
    """Write a program that is this Python with another wall clock, and see that it has it.

    Only the wall clock: time that passes is the same for all, as it is on real machines.

    Args:
        path: The program to write.
        skew: How far its clock is ahead; behind, if negative.

    Raises:
        SetupError: The clock is not as it should be, as on another platform than Linux.
    """
    library = _find_library()
    settings = {
        "LD_PRELOAD": str(library),
        "FAKETIME": f"{skew.total_seconds():+.3f}",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "FAKETIME_DISABLE_SHM": "1",
    }
    given = " ".join(f"{name}={shlex.quote(value)}" for name, value in settings.items())
    path.write_text(f'#!/bin/sh\nexec env {given} {shlex.quote(sys.executable)} "$@"\n')
    path.chmod(0o755)
    told = subprocess.run(  # noqa: S603 (our own file)
        [path, "-c", "import time; print(time.time())"], capture_output=True, text=True, check=True
    )
    off = float(told.stdout) - time.time() - skew.total_seconds()
    if abs(off) > _TOLERANCE_SECONDS:
        raise SetupError(
            f"The clock of {path} should be {skew.total_seconds():+.1f} s off and is not: "
            f"libfaketime ({library}) does not work here; it needs Linux. {told.stderr.strip()}"
        )
    return path


def _find_library() -> Path:
    spec = find_spec("libfaketime")
    if spec is None or not spec.submodule_search_locations:
        raise SetupError("libfaketime is missing: pip install libfaketime, or use make chaos")
    return Path(spec.submodule_search_locations[0]) / _LIBRARY
