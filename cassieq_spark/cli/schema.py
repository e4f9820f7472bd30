"""``cassieq schema``: the keyspace and its tables."""

from __future__ import annotations

from typing import Annotated

import typer

from cassieq_spark.cli.options import AsJson, Value, command
from cassieq_spark.cli.output import print_json, tell
from cassieq_spark.settings.connection import DEFAULT_KEYSPACE, KEYSPACE, ConnectionOptions
from cassieq_spark.store.cassandra.upgrade import KNOWN_VERSION, Difference
from cassieq_spark.store.grants import User, grant_statements
from cassieq_spark.terminal import echo

app = typer.Typer(
    help="Create or upgrade the keyspace and its tables; print the grants of roles.",
    no_args_is_help=True,
)

#: The tables are not those that this release needs.
DIFFERENT = 1


@app.callback()
def schema() -> None:
    """Create or upgrade the keyspace and its tables; say who may use them."""


@command(app)
def apply(
    *,
    connection: ConnectionOptions,
    replication: Annotated[
        str | None,
        typer.Option(
            help="Replicas: a number for the data centre connected to, dc1=3,dc2=3, or "
            "SimpleStrategy=1.",
            show_default="3, or as many as there are nodes",
        ),
    ] = None,
    only_print: Annotated[
        bool, typer.Option("--print", help="Show the statements for this cluster, change nothing.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Create the keyspace and the tables, or add the columns that this release needs.

    Safe to repeat. Nothing is ever dropped or changed, so programs of earlier releases go on
    meanwhile. Records the schema version at the end, and refuses tables of another version.
    """
    # The driver takes a while to import, and `--help` needs none.
    from cassieq_spark.store.cassandra.schema import apply_schema, plan_schema  # noqa: PLC0415

    if only_print:
        _print_statements(plan_schema(connection, replication), as_json=as_json)
        return
    added = apply_schema(connection, replication)
    tell(
        f"Keyspace {connection.keyspace} is ready.",
        {"keyspace": connection.keyspace, "added": added},
        as_json=as_json,
    )


@command(app)
def check(*, connection: ConnectionOptions, as_json: AsJson = False) -> None:
    """Check that the tables are those that this release needs; exit code 1 if not.

    Warns of settings of nodes that can lose messages; a warning does not change the exit code.
    """
    from cassieq_spark.store.cassandra.schema import check_schema  # noqa: PLC0415

    difference = check_schema(connection)
    keyspace = connection.keyspace
    if as_json:
        print_json(
            {
                "keyspace": keyspace,
                "version": {"found": difference.version, "known": KNOWN_VERSION},
                "missing": difference.missing,
                "conflicts": difference.conflicts,
                "unknown": difference.unknown,
                "warnings": difference.warnings,
            }
        )
    else:
        _tell_difference(difference, keyspace)
    if difference.missing or difference.conflicts or difference.is_newer or difference.is_older:
        raise typer.Exit(DIFFERENT)


@command(app)
def grants(
    user: Annotated[User, typer.Argument(help="What the role is for.", show_default=False)],
    role: Annotated[
        str,
        typer.Argument(
            help="Name of the role, which must exist in Cassandra.", show_default=False
        ),
    ],
    *,
    keyspace: Annotated[str, Value(KEYSPACE, "Keyspace of the tables.")] = DEFAULT_KEYSPACE,
    as_json: AsJson = False,
) -> None:
    """Print the GRANT statements that a role needs, and no more; connects to nothing."""
    statements = grant_statements(user, role, keyspace)
    if as_json:
        print_json(statements)
    else:
        echo("".join(f"{text};\n" for text in statements), end="")


def _tell_difference(difference: Difference, keyspace: str) -> None:
    if not difference.keyspace:
        found = "none is recorded" if difference.version is None else f"{difference.version}"
        echo(f"Schema version: {found}; this program knows {KNOWN_VERSION}.")
    for each in difference.missing:
        echo(f"Missing: {each}")
    for each in difference.conflicts:
        echo(f"In the way: {each}")
    for each in difference.warnings:
        echo(f"Warning: {each}")
    for each in difference.unknown:
        echo(f"Newer than this program: {each}; upgrade it before you use what is new.")
    if difference.is_newer:
        echo("These tables are not for this program: upgrade cassieq-spark here.")
    elif difference.is_older:
        echo("These tables are of an earlier release: use another keyspace.")
    elif difference.conflicts:
        echo("These tables cannot be upgraded: use another keyspace.")
    elif difference.missing:
        echo(f"To add it: cassieq schema apply --keyspace {keyspace}")
    else:
        echo(f"Keyspace {keyspace} is what this release needs.")


def _print_statements(statements: list[str], *, as_json: bool) -> None:
    if as_json:
        print_json(statements)
    else:
        echo("".join(f"{text};\n\n" for text in statements), end="")
