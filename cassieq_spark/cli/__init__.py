"""The ``cassieq`` command: one sub-command per module, and how errors are shown."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from cassieq_spark import __version__
from cassieq_spark.cli import (
    console,
    copy,
    dead,
    gateway,
    group,
    messages,
    monitoring,
    node,
    queue,
    repair,
    schema,
    spark,
)
from cassieq_spark.cli.options import configured
from cassieq_spark.cli.output import INTERRUPTED
from cassieq_spark.errors import CassieqError
from cassieq_spark.settings.file import VARIABLE
from cassieq_spark.terminal import Console, echo

app = typer.Typer(
    name="cassieq",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)

# Every sub-command is a typer app in a module of its own, added here.
app.add_typer(console.app)
app.add_typer(copy.app)
app.add_typer(dead.app, name="dead")
app.add_typer(gateway.app, name="gateway")
app.add_typer(group.app, name="group")
app.add_typer(messages.app)
app.add_typer(monitoring.app)
app.add_typer(node.app, name="node")
app.add_typer(queue.app, name="queue")
app.add_typer(repair.app, name="repair")
app.add_typer(schema.app, name="schema")
app.add_typer(spark.app, name="spark")


def _show_version(is_asked: bool) -> None:
    if is_asked:
        echo(f"cassieq {__version__}")
        raise typer.Exit


@app.callback()
def cassieq(
    *,
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Print the version.", is_eager=True, callback=_show_version
        ),
    ] = False,
    config: Annotated[
        Path | None,
        typer.Option(
            help="File with settings, as conf/cassieq.toml; options override them.",
            envvar=VARIABLE,
            show_default=False,
        ),
    ] = None,
    context: typer.Context,
) -> None:
    """A durable work queue on Apache Cassandra for Spark."""
    del version
    if config is not None:
        context.default_map = configured(config, context.command)


def main() -> None:
    """Run the command that the arguments name.

    Exit codes: 0 done, 1 one of our errors, or the system's (a red line, no stack trace), 2 wrong
    usage, 130 Ctrl-C; some commands have others, and say so.
    """
    try:
        app(prog_name="cassieq")
    except (CassieqError, OSError) as error:
        # No markup, no wrapping: the message may hold brackets, and be searched for.
        console = Console(stderr=True, soft_wrap=True)
        console.print(f"cassieq: {error}", style="red", markup=False, highlight=False)
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
