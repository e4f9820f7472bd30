"""The options of reaching Cassandra, shared by every command that does."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Annotated, Any

import typer

from cassieq_spark.cli.shared import shared_options
from cassieq_spark.repair.arguments import OWN
from cassieq_spark.settings.connection import (
    DEFAULT_CONTACT_POINTS,
    DEFAULT_KEYSPACE,
    DEFAULT_PORT,
    ConnectionOptions,
    Consistency,
    parse_consistency,
)
from cassieq_spark.settings.file import CASSANDRA, REPAIR, read_settings
from cassieq_spark.settings.secret import REFERENCES

#: The options are shown together under this heading.
PANEL = "Cassandra"


def configured(path: Path, command: Any) -> dict[str, Any]:
    """The defaults of a command, and of those below it, that a file of settings makes.

    Raises:
        OptionError: The file can't be read, or has a setting that is none.
    """
    names = [name.replace("_", "-") for name in inspect.signature(_connection).parameters]
    # The repair job reads the rest.
    settings = read_settings(path, {CASSANDRA: names, REPAIR: OWN})[CASSANDRA]
    return _defaults({name.replace("-", "_"): it for name, it in settings.items()}, command)


def _defaults(settings: dict[str, Any], command: Any) -> dict[str, Any]:
    if hasattr(command, "commands"):
        return {name: _defaults(settings, it) for name, it in command.commands.items()}
    taken = {parameter.name for parameter in command.params}
    return {name: value for name, value in settings.items() if name in taken}


def _connection(  # noqa: PLR0913 (one per option)
    *,
    contact_points: Annotated[
        str,
        typer.Option(
            help="Nodes to connect to first: host or host:port, several with commas.",
            rich_help_panel=PANEL,
        ),
    ] = ",".join(DEFAULT_CONTACT_POINTS),
    port: Annotated[
        int,
        typer.Option(
            help="Port of every node that does not come with its own.",
            min=1,
            max=65535,
            rich_help_panel=PANEL,
        ),
    ] = DEFAULT_PORT,
    local_dc: Annotated[
        str | None,
        typer.Option(
            help="Data centre whose nodes are asked.",
            show_default="that of the contact points",
            rich_help_panel=PANEL,
        ),
    ] = None,
    username: Annotated[
        str | None,
        typer.Option(help="Role to log in as.", show_default=False, rich_help_panel=PANEL),
    ] = None,
    password: Annotated[
        str | None,
        typer.Option(
            help=f"Where its password is: {REFERENCES}. Asked for if left out; given as it is, "
            "everybody on this machine can read it.",
            show_default=False,
            rich_help_panel=PANEL,
        ),
    ] = None,
    ssl: Annotated[
        bool,
        typer.Option(
            "--ssl",
            help="Encrypt; any of the three files means so, too.",
            rich_help_panel=PANEL,
        ),
    ] = False,
    ssl_ca_file: Annotated[
        str | None,
        typer.Option(
            help="PEM file of the CAs that sign the nodes' certificates.",
            show_default="those that the machine trusts",
            rich_help_panel=PANEL,
        ),
    ] = None,
    ssl_cert_file: Annotated[
        str | None,
        typer.Option(
            help="PEM file of the own certificate, where the nodes ask for one.",
            show_default=False,
            rich_help_panel=PANEL,
        ),
    ] = None,
    ssl_key_file: Annotated[
        str | None,
        typer.Option(
            help="PEM file of its private key, without a passphrase.",
            show_default="in the certificate file",
            rich_help_panel=PANEL,
        ),
    ] = None,
    ssl_check_hostname: Annotated[
        bool,
        typer.Option(
            " /--no-ssl-check-hostname",
            help="Do not check that a node's certificate names its address.",
            show_default=False,
            rich_help_panel=PANEL,
        ),
    ] = True,
    secure_connect_bundle: Annotated[
        str | None,
        typer.Option(
            help="Zip file that says how to reach a hosted cluster.",
            show_default=False,
            rich_help_panel=PANEL,
        ),
    ] = None,
    consistency: Annotated[
        str,
        typer.Option(
            help=f"Which replicas have to agree: {', '.join(Consistency)}; the same for everybody "
            "who uses the keyspace.",
            rich_help_panel=PANEL,
        ),
    ] = Consistency.LOCAL_QUORUM.value,
    keyspace: Annotated[
        str, typer.Option(help="Where the tables are.", rich_help_panel=PANEL)
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
        ssl=ssl,
        ssl_ca_file=ssl_ca_file,
        ssl_cert_file=ssl_cert_file,
        ssl_key_file=ssl_key_file,
        ssl_check_hostname=ssl_check_hostname,
        secure_connect_bundle=secure_connect_bundle,
        consistency=parse_consistency(consistency),
        keyspace=keyspace,
    )


#: Gives a command the options of reaching Cassandra, as ``connection: ConnectionOptions``.
with_connection = shared_options("connection", _connection)
