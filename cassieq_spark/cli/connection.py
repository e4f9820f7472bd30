"""The options of reaching Cassandra, shared by every command that does."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Annotated, Any

import typer

from cassieq_spark.store.connection import DEFAULT_KEYSPACE, DEFAULT_PORT, ConnectionOptions

_PARAMETER = "connection"
_PANEL = "Cassandra"


def with_connection(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of reaching Cassandra.

    The command has a keyword parameter ``connection: ConnectionOptions``; in its place the user
    sees ``--contact-points``, ``--port``, ``--local-dc``, ``--username``, ``--password`` and
    ``--keyspace``.
    """
    shared = inspect.signature(_connection, eval_str=True).parameters
    own = inspect.signature(command, eval_str=True).parameters

    @functools.wraps(command)
    def run(**given: Any) -> None:
        reach = {name: given.pop(name) for name in shared}
        command(connection=_connection(**reach), **given)

    seen = {name: one for name, one in {**own, **shared}.items() if name != _PARAMETER}
    # typer reads both; `functools.wraps` has pointed them at the command.
    run.__annotations__ = {name: one.annotation for name, one in seen.items()}
    vars(run)["__signature__"] = inspect.Signature(
        [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in seen.values()]
    )
    del vars(run)["__wrapped__"]
    return run


def _connection(  # noqa: PLR0913 (one per option)
    *,
    contact_points: Annotated[
        str,
        typer.Option(
            help="Nodes to connect to first: host or host:port, several with commas.",
            rich_help_panel=_PANEL,
        ),
    ] = "127.0.0.1",
    port: Annotated[
        int,
        typer.Option(
            help="Port of every node that does not come with its own.",
            min=1,
            max=65535,
            rich_help_panel=_PANEL,
        ),
    ] = DEFAULT_PORT,
    local_dc: Annotated[
        str | None,
        typer.Option(
            help="Data centre whose nodes are asked.",
            show_default="that of the contact points",
            rich_help_panel=_PANEL,
        ),
    ] = None,
    username: Annotated[
        str | None,
        typer.Option(help="Role to log in as.", show_default=False, rich_help_panel=_PANEL),
    ] = None,
    password: Annotated[
        str | None,
        typer.Option(
            help="Its password; asked for if left out.",
            show_default=False,
            rich_help_panel=_PANEL,
        ),
    ] = None,
    keyspace: Annotated[
        str, typer.Option(help="Where the tables are.", rich_help_panel=_PANEL)
    ] = DEFAULT_KEYSPACE,
) -> ConnectionOptions:
    if username is not None and password is None:
        password = typer.prompt(f"Password of {username}", hide_input=True)
    return ConnectionOptions(
        contact_points=tuple(point.strip() for point in contact_points.split(",")),
        port=port,
        local_dc=local_dc,
        username=username,
        password=password,
        keyspace=keyspace,
    )
