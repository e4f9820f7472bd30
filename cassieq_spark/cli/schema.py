"""``cassieq schema``: the keyspace and its tables."""

from __future__ import annotations

from typing import Annotated

import typer

from cassieq_spark.cli.connection import with_connection
from cassieq_spark.store.connection import DEFAULT_KEYSPACE, ConnectionOptions
from cassieq_spark.store.grants import User, grant_statements

app = typer.Typer(
    help="Create the keyspace and its tables; say who may use them.", no_args_is_help=True
)


@app.callback()
def schema() -> None:
    """Create the keyspace and its tables; say who may use them."""


@app.command()
@with_connection
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
) -> None:
    """Create what is missing; what exists stays as it is. Safe to repeat."""
    # The driver takes a while to import, and `--help` needs none.
    from cassieq_spark.store.cassandra.schema import apply_schema, plan_schema  # noqa: PLC0415

    if only_print:
        typer.echo(
            "".join(f"{text};\n\n" for text in plan_schema(connection, replication)), nl=False
        )
        return
    apply_schema(connection, replication)
    typer.echo(f"Keyspace {connection.keyspace} is ready.")


@app.command()
def grants(
    user: Annotated[User, typer.Argument(help="What the role is to do.", show_default=False)],
    role: Annotated[
        str, typer.Argument(help="Its name in Cassandra, where it exists.", show_default=False)
    ],
    *,
    keyspace: Annotated[str, typer.Option(help="Where the tables are.")] = DEFAULT_KEYSPACE,
) -> None:
    """Print what lets a role do its part, and no more; connects to nothing."""
    statements = grant_statements(user, role, ConnectionOptions(keyspace=keyspace).keyspace)
    typer.echo("".join(f"{text};\n" for text in statements), nl=False)
