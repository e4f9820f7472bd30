"""``cassieq`` as a shell runs it, and every command that it has."""

from __future__ import annotations

import contextlib
import inspect
import io
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

from click.testing import Result
from typer.main import get_command
from typer.testing import CliRunner

from cassieq_spark import cli
from cassieq_spark.cli.options import with_options
from cassieq_spark.cli.repair import Job, job_of, run_command
from cassieq_spark.settings.connection import ConnectionOptions

Command = Callable[..., Result]

_ARGUMENTS = {
    "queue": "orders",
    "name": "orders",
    "group": "billing",
    "monoton": "5",
    "source": "orders",
    "target": "orders.parquet",
    "user": "repair",
    "role": "repairer",
    "values": "hello",
    "words": "put",
    "receipts": "orders@1/billing/6a9ff0e4-5d6a-4e5b-8f43-37a2ad64e2a4/5",
    "file": "/nowhere/gateway.secret",
    "archives": "/nowhere/package.zip",
}
_SECRET, _ANY_SECRET = "GATEWAY_SECRET", "a-secret-of-at-least-32-characters"
_REQUIRED = {
    "rate": "--rate 200k/s",
    "size": "--size 1kB",
    "to": "--to latest",
    "group": "--group billing",
    "by": "--by 5m",
    "reason": "--reason bad",
    "queue": "--queue orders",
    "message": "--message hello",
    "secret": f"--secret env:{_SECRET}",
}


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    code: object
    out: str
    err: str


def cassieq(*arguments: str, said: bytes = b"") -> Ended:
    """Run it in this process, without a terminal; ``said`` is its standard input."""
    out, err = io.TextIOWrapper(io.BytesIO()), io.TextIOWrapper(io.BytesIO())
    code: object = None
    with (
        patch.object(sys, "argv", ["cassieq", *arguments]),
        patch.dict(os.environ, {_SECRET: os.environ.get(_SECRET, _ANY_SECRET)}),
        patch.object(sys, "stdin", io.TextIOWrapper(io.BytesIO(said))),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        try:
            cli.main()
        except SystemExit as ended:
            code = ended.code
    return Ended(code, _text(out), _text(err))


def make_command(connection: ConnectionOptions, *words: str) -> Command:
    """``cassieq WORDS ...`` on that Cassandra; an error is raised, not told."""
    reach = ["--contact-points", ",".join(connection.contact_points)]
    reach += ["--port", str(connection.port), "--keyspace", connection.keyspace]

    def run(*arguments: str, said: str | None = None) -> Result:
        result = CliRunner().invoke(cli.app, [*words, *arguments, *reach], input=said)
        if result.exception and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result

    return run


def commands() -> dict[str, Any]:
    """Every command by the words that run it."""
    return dict(_commands(get_command(cli.app), ()))


def repair_context(words: Sequence[str]) -> Any:
    """What the arguments of the repair job mean, as a context; wrong ones end in SystemExit."""
    return run_command().make_context("repair.py", list(words))


def repair_job(words: Sequence[str]) -> Job:
    """What the repair job is asked to do by these arguments."""
    params, read = repair_context(words).params, with_options(job_of)
    job: Job = read(**{name: params[name] for name in inspect.signature(read).parameters})
    return job


def options_of(command: Any) -> set[str]:
    """The options that a command has."""
    return {name for param in command.params for name in param.opts}


def likely_words(name: str, command: Any) -> list[str]:
    """The command with arguments that could be right, for queue ``orders``."""
    params = command.params
    given = [_ARGUMENTS[each.name] for each in params if each.param_type_name == "argument"]
    needed = [
        word
        for each in params
        if each.param_type_name == "option" and each.required
        for word in _REQUIRED[each.name].split()
    ]
    needed += ["--lease", "60s"] * (name == "queue alter")
    needed += ["--every", "5m"] * (name == "schedule alter")
    return [*name.split(), *given, *needed]


def _commands(command: Any, path: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    inner = getattr(command, "commands", None)
    if inner is None:
        yield " ".join(path), command
        return
    for name, each in inner.items():
        yield from _commands(each, (*path, name))


def _text(stream: io.TextIOWrapper) -> str:
    stream.flush()
    buffer: Any = stream.buffer
    text: str = buffer.getvalue().decode()
    return text
