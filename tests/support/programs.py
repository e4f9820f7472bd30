"""Programs that run in a process of their own."""

from __future__ import annotations

import subprocess
import sys
from textwrap import dedent


def output_of(program: str) -> str:
    """What a program printed that ended well and wrote nothing to standard error."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", dedent(program)],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout
