"""The ``cassieq`` command: one sub-command per module, and how errors are shown."""

from __future__ import annotations

import os
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
    plan,
    put,
    queue,
    receive,
    repair,
    schedule,
    schema,
    spark,
    top,
)
from cassieq_spark.cli.flags import Config, Verbose
from cassieq_spark.cli.help import HelpfulGroup, help_of
from cassieq_spark.cli.options import command
from cassieq_spark.cli.output import (
    FAILED,
    INTERRUPTED,
    WRONG_USAGE,
    complain,
    finish_output,
)
from cassieq_spark.errors import CassieqError, OptionError
from cassieq_spark.terminal import echo

app = typer.Typer(
    name="cassieq",
    cls=HelpfulGroup,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["--help", "-h"]},
)

# In the order in which a newcomer needs them; help shows them under these headings.
_BEGIN, _FAILURES = "Begin", "Groups and failures"
_WATCH, _OPERATE = "Watch", "Operate"
app.add_typer(node.app, name="node", rich_help_panel=_BEGIN)
app.add_typer(schema.app, name="schema", rich_help_panel=_BEGIN)
app.add_typer(queue.app, name="queue", rich_help_panel=_BEGIN)
app.add_typer(put.app)
app.add_typer(receive.app)
app.add_typer(messages.app)
app.add_typer(copy.app)
app.add_typer(group.app, name="group", rich_help_panel=_FAILURES)
app.add_typer(dead.app, name="dead", rich_help_panel=_FAILURES)
app.add_typer(schedule.app, name="schedule", rich_help_panel=_OPERATE)
app.add_typer(top.app)
app.add_typer(console.app)
app.add_typer(monitoring.app)
app.add_typer(plan.app)
app.add_typer(repair.app, name="repair", rich_help_panel=_OPERATE)
app.add_typer(gateway.app, name="gateway", rich_help_panel=_OPERATE)
app.add_typer(spark.app, name="spark", rich_help_panel=_OPERATE)
_helping = typer.Typer()
app.add_typer(_helping)


@command(_helping, "help", panel=_OPERATE)
def help_(
    context: typer.Context,
    words: Annotated[
        list[str] | None,
        typer.Argument(help="A command, or 'connection'.", metavar="WORD", show_default=False),
    ] = None,
) -> None:
    """Show the help of a command, or how commands find Cassandra.

    Examples:
        cassieq help queue create
        cassieq help connection
    """
    echo(help_of(words or [], context.find_root()))


def _show_version(is_asked: bool) -> None:
    if is_asked:
        echo(f"cassieq {__version__}")
        raise typer.Exit


@app.callback()
def cassieq(
    *,
    config: Config = None,
    verbose: Verbose = False,
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Print the version.", is_eager=True, callback=_show_version
        ),
    ] = False,
) -> None:
    """A durable work queue on Apache Cassandra for Spark.

    Examples:
        cassieq node up --detach                  # start a Cassandra on this machine
        cassieq schema apply                      # create the tables
        cassieq queue create orders
        cassieq put orders hello
        cassieq receive orders --group billing    # prints hello, and acks it
        cassieq queue stats orders
    """
    del config, verbose, version


def _check_streams() -> None:
    """Replace closed standard streams, which Python sets to None."""
    if sys.stdin is None:
        sys.stdin = Path(os.devnull).open()  # noqa: SIM115 (for the rest of the process)
    if sys.stderr is None:
        sys.stderr = Path(os.devnull).open("w")  # noqa: SIM115 (for the rest of the process)
    if sys.stdout is None:
        # Messages that are printed nowhere would be acked.
        raise OptionError("standard output is closed: open it, if only as > /dev/null")


def main() -> None:
    """Run the command that the arguments name.

    Exit codes: 0 done, 1 it failed (a red line on standard error, no stack trace), 2 wrong usage,
    130 Ctrl-C; some commands have others, which their help lists.
    """
    sys.exit(finish_output("cassieq", _run()))


def _run() -> int:
    """Run the command; return its exit code."""
    try:
        _check_streams()
        app(prog_name="cassieq")
    except SystemExit as ended:
        return int(ended.code or 0)
    except (CassieqError, OSError) as error:
        complain("cassieq", error)
        return WRONG_USAGE if isinstance(error, OptionError) else FAILED
    except KeyboardInterrupt:
        return INTERRUPTED
    return 0
