"""Find the Java that Cassandra 5.0 runs on: 17, and no other (it refuses 21 and later)."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

from cassieq_spark.errors import SetupError

REQUIRED_MAJOR = 17

_VERSION = re.compile(r'version "(?P<first>\d+)(?:\.(?P<second>\d+))?')
_ANSWER_SECONDS = 30


def major_version(banner: str) -> int | None:
    """Tell the major version from what ``java -version`` prints, or None if there is none.

    >>> major_version('openjdk version "17.0.15" 2025-04-15')
    17
    >>> major_version('java version "1.8.0_402"')
    8
    """
    match = _VERSION.search(banner)
    if match is None:
        return None
    first = int(match["first"])
    return int(match["second"]) if first == 1 and match["second"] else first


def find_java(environment: Mapping[str, str] | None = None) -> Path:
    """Find a Java 17: the one in ``JAVA_HOME``, else the first on ``PATH``.

    Args:
        environment: Where the two variables are looked up; this process's own unless given.

    Returns:
        The ``java`` executable.

    Raises:
        SetupError: There is none, or only others; says which, and how to get a 17.
    """
    found = []
    for origin, java in _candidates(os.environ if environment is None else environment):
        major = _ask(java)
        if major == REQUIRED_MAJOR:
            return java
        found.append(f"{java} ({origin}) " + (f"is Java {major}" if major else "does not run"))
    raise SetupError(
        f"Cassandra needs Java {REQUIRED_MAJOR}; found: {'; '.join(found) or 'no Java at all'}."
        f" Install it (apt install openjdk-{REQUIRED_MAJOR}-jre-headless),"
        " or set JAVA_HOME to where it is."
    )


def _candidates(environment: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    if home := environment.get("JAVA_HOME"):
        yield "JAVA_HOME", Path(home, "bin", "java")
    if on_path := shutil.which("java", path=environment.get("PATH", "")):
        yield "PATH", Path(on_path)


def _ask(java: Path) -> int | None:
    try:
        answer = subprocess.run(  # noqa: S603 (the user's own Java)
            [java, "-version"], capture_output=True, text=True, check=True, timeout=_ANSWER_SECONDS
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return major_version(answer.stderr + answer.stdout)
