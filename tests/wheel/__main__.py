"""Installs a wheel into an empty environment, and does there what the README does.

    python -m tests.wheel dist

Of several wheels in that folder it takes the newest. What that needs comes from PyPI, in the
versions that pip chooses; Cassandra is its own.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.docs.pages import blocks_of, connect

KEYSPACE = "cassieq"
#: What would let the environment see more than it has.
_NOT_OURS = {"PYTHONPATH", "VIRTUAL_ENV", "SPARK_HOME", "CASSIEQ_CONFIG", "PYSPARK_PYTHON"}


class Environment:
    """An empty virtual environment in a folder, and commands of it."""

    def __init__(self, folder: Path) -> None:
        venv.create(folder / "venv", with_pip=True)
        self._folder = folder
        self._commands = folder / "venv" / "bin"

    def start(self, *command: str) -> subprocess.Popen[str]:
        """Start one of its commands, in the folder, with its words on a pipe."""
        kept = {key: value for key, value in os.environ.items() if key not in _NOT_OURS}
        path = f"{self._commands}{os.pathsep}{kept['PATH']}"
        return subprocess.Popen(
            [self._commands / command[0], *command[1:]],
            cwd=self._folder,
            env=kept | {"PATH": path},
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, *command: str) -> str:
        """Run one of its commands, and return what it says.

        Raises:
            SystemExit: It failed.
        """
        print("$", *(word if len(word) < 80 else "..." for word in command), flush=True)  # noqa: T201
        with self.start(*command) as process:
            said, _ = process.communicate()
        if process.returncode:
            raise SystemExit(f"it ended with {process.returncode}: {said}")
        return said


def main(wheels: str) -> None:
    """Install it, look at its command, publish and consume."""
    found = Path(wheels).resolve().glob("cassieq_spark-*.whl")
    wheel = max(found, key=lambda each: each.stat().st_mtime)
    with TemporaryDirectory(prefix="cassieq-wheel-") as folder:
        empty = Environment(Path(folder))
        empty.run("pip", "install", "--quiet", f"{wheel}[spark]")
        empty.run("pip", "check")
        print(empty.run("pip", "list"))  # noqa: T201
        assert "cassieq" in empty.run("cassieq", "--help")
        with _node(empty) as host:
            there = ("--contact-points", host)
            empty.run("cassieq", "schema", "apply", *there)
            empty.run(*_create(), *there)
            program = next(
                each.text for each in blocks_of("README.md") if each.language == "python"
            )
            said = empty.run("python", "-c", connect(program, host=host, keyspace=KEYSPACE))
            late = sum(number % 60 > 30 for number in range(100_000))
            assert f"0 {late}" in said, said
            stats = json.loads(empty.run("cassieq", "queue", "stats", "flights", "--json", *there))
    assert [group["depth"] for group in stats["groups"]] == [0], stats
    print("published 100,000, consumed 100,000")  # noqa: T201


def _create() -> list[str]:
    """The command by which the README creates its queue."""
    lines = [line for each in blocks_of("README.md") for line in each.text.splitlines()]
    return shlex.split(next(line for line in lines if line.startswith("cassieq queue create")))


@contextmanager
def _node(empty: Environment) -> Iterator[str]:
    with empty.start("cassieq", "node", "up", "--json") as node:
        assert node.stdout is not None
        try:
            running = json.loads(node.stdout.readline())
            yield f"{running['contact_points'][0]}:{running['port']}"
        finally:
            node.terminate()


if __name__ == "__main__":
    main(*sys.argv[1:])
