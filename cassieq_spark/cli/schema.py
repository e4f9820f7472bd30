"""``cassieq schema``: the keyspace and its tables."""

from __future__ import annotations

from typing import Annotated

import typer

from cassieq_spark.cli.options import AsJson, Value, command, make_app
from cassieq_spark.cli.output import print_json, tell
from cassieq_spark.settings.connection import DEFAULT_KEYSPACE, KEYSPACE, ConnectionOptions
from cassieq_spark.store.cassandra.upgrade import KNOWN_VERSION, Difference
from cassieq_spark.store.grants import User, grant_statements
from cassieq_spark.terminal import echo

app = make_app("Create or upgrade the keyspace and its tables; print the grants of roles.")

#: The tables are not those that this release needs.
DIFFERENT = 1


@command(app)
def apply(
    *,
    connection: ConnectionOptions,
    replication: Annotated[
        str | None,
        typer.Option(
            help="Number of replicas in this data centre; or dc1=3,dc2=3; or SimpleStrategy=1.",
            show_default="3, or as many as there are nodes",
        ),
    ] = None,
    only_print: Annotated[
        bool, typer.Option("--print", help="Print the statements, and change nothing.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Create the keyspace and the tables, or add the columns that this release needs.

    The command is safe to repeat. It drops and changes nothing, so programs of earlier releases
    continue to work. It refuses tables of another schema version.

    Examples:
        cassieq schema apply
        cassieq schema apply --replication dc1=3,dc2=3
        cassieq schema apply --print
    """
    # The driver takes a while to import, and `--help` needs none.
    from cassieq_spark.store.cassandra.schema import apply_schema, needed_statements  # noqa: PLC0415

    if only_print:
        _print_statements(needed_statements(connection, replication), as_json=as_json)
        return
    added = apply_schema(connection, replication)
    tell(
        f"Keyspace {connection.keyspace} is ready.",
        {"keyspace": connection.keyspace, "added": added},
        as_json=as_json,
    )


@command(app)
def check(*, connection: ConnectionOptions, as_json: AsJson = False) -> None:
    """Check that the tables are those that this release needs.

    The exit code is 1 if they are not. Warnings do not change it: about settings of nodes that can
    lose messages, and about fewer replicas than the nodes could keep.

    Examples:
        cassieq schema check
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
    user: Annotated[
        User, typer.Argument(help=f"What the role is for: {', '.join(User)}.", show_default=False)
    ],
    role: Annotated[
        str,
        typer.Argument(help="Name of the role; it must exist in Cassandra.", show_default=False),
    ],
    *,
    keyspace: Annotated[str, Value(KEYSPACE, "Keyspace of the tables.")] = DEFAULT_KEYSPACE,
    as_json: AsJson = False,
) -> None:
    """Print the GRANT statements that a role needs, and no others. Connects to nothing.

    Examples:
        cassieq schema grants consumer billing
        cassieq schema grants producer loader | cqlsh
    """
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
