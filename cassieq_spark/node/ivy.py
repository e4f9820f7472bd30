"""Run Ivy as a program: show its progress, understand its failure."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from cassieq_spark.errors import SetupError
from cassieq_spark.node.manifest import LIBRARY
from cassieq_spark.terminal import Console

_PLAIN_EVERY = 25
_LONGEST_SECONDS = 30 * 60
_TELLING = ("error", "failed", "not found", "exception", "unresolved", "timed out", "refused")
_TOLD_LINES = 8


def run_ivy(
    ivy: Sequence[str],
    *,
    coordinates: tuple[str, str, str],
    ivy_cache: Path,
    target: Path,
    console: Console,
) -> None:
    """Download a module and all that it depends on into ``target/lib``.

    Args:
        ivy: The command that runs Ivy, without its arguments.
        coordinates: Organisation, name and version of the module.
        ivy_cache: Ivy's own folder; what it holds is not downloaded again.
        target: Folder to put ``lib`` into.
        console: Where progress is shown: a bar on a terminal, else a few lines.

    Raises:
        SetupError: Ivy failed, or took longer than half an hour.
    """
    # Relative: a bracket in the folder's own name would be read as part of the pattern.
    pattern = f"{LIBRARY}/[artifact]-[revision](-[classifier]).[ext]"
    command = [*ivy, "-cache", str(ivy_cache.absolute()), "-dependency", *coordinates]
    command += ["-confs", "default", "-retrieve", pattern]
    name = f"{coordinates[1]} {coordinates[2]}"
    process = subprocess.Popen(  # noqa: S603 (the command is ours)
        command,
        cwd=target,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    limit = threading.Timer(_LONGEST_SECONDS, process.kill)
    limit.daemon = True
    limit.start()
    try:
        with process:
            output = list(_watched(process, name, console))
    finally:
        process.kill()
        limit.cancel()
    if process.returncode or not any((target / LIBRARY).glob("*.jar")):
        raise SetupError(_explain(name, output, process.returncode))


def telling_lines(output: Sequence[str]) -> list[str]:
    """Pick the lines of Ivy's output that say why it failed, each once, the last ones.

    >>> telling_lines(["found a#b;1 in public", "Server access error: connection refused", ""])
    ['Server access error: connection refused']
    """
    stripped = [line.strip(":\t\n ") for line in output]
    telling = [line for line in stripped if any(word in line.lower() for word in _TELLING)]
    return list(dict.fromkeys(telling or [line for line in stripped if line]))[-_TOLD_LINES:]


def _explain(name: str, output: Sequence[str], code: int) -> str:
    lines = "".join(f"\n  {line}" for line in telling_lines(output))
    return (
        f"Downloading {name} from Maven Central failed (exit code {code}):{lines}\n"
        "Check the network and try again; what has arrived is kept. Behind a proxy, set"
        " JAVA_TOOL_OPTIONS='-Dhttps.proxyHost=HOST -Dhttps.proxyPort=PORT'."
    )


def _watched(process: subprocess.Popen[str], name: str, console: Console) -> Iterator[str]:
    assert process.stdout is not None  # noqa: S101 (asked for above)
    watch = _bar if console.is_terminal else _plain
    yield from watch(process.stdout, name, console)


def _bar(lines: Iterator[str], name: str, console: Console) -> Iterator[str]:
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task(f"Finding what {name} needs", total=None)
        for line in lines:
            if _is_find(line):
                progress.advance(task)
            elif _is_jar(line):
                if progress.tasks[0].total is None:
                    found = progress.tasks[0].completed
                    progress.reset(task, description=f"Getting {name}", total=found)
                progress.advance(task)
            yield line


def _plain(lines: Iterator[str], name: str, console: Console) -> Iterator[str]:
    console.print(
        f"Getting {name} from Maven Central: about 60 MB, once, about two minutes.",
        highlight=False,
    )
    found = jars = 0
    for line in lines:
        found += _is_find(line)
        if _is_jar(line):
            jars += 1
            if jars % _PLAIN_EVERY == 0:
                console.print(f"{jars} of about {found} jars are here.", highlight=False)
        yield line


def _is_find(line: str) -> bool:
    return line.startswith("\tfound ")


def _is_jar(line: str) -> bool:
    return "[SUCCESSFUL ]" in line
