"""The Cassandra that a command uses: the named one, or the one that `cassieq node up` runs.

The first of these that names one wins: an option, an environment variable, the configuration
file, the node that runs in the background, 127.0.0.1:9042.
"""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import typer

from cassieq_spark.cli.flags import CASSANDRA_PANEL, flags_of, given_by, is_verbose
from cassieq_spark.errors import (
    CassieqError,
    ConnectError,
    MessageError,
    OptionError,
    SchemaError,
    SetupError,
)
from cassieq_spark.node.background import Background, Running
from cassieq_spark.settings.connection import ConnectionOptions
from cassieq_spark.settings.declaration import settings_of
from cassieq_spark.terminal import PlainConsole

#: Settings that name a cluster: with one of them, the node in the background is not used.
_NAMING = ("contact_points", "port", "secure_connect_bundle")
_NODE_UP = "started by 'cassieq node up'"
#: Errors that do not depend on the Cassandra in use.
_ANYWHERE = (OptionError, SetupError, MessageError, SchemaError)
#: How long a program that shows figures or answers requests waits for Cassandra.
_PATIENCE = timedelta(seconds=5)
_DEFAULTS = {item.attribute: item.default for item in settings_of(ConnectionOptions)}
#: Keys in the meta data of a context.
_TARGET = "cassieq.target"


@dataclass(frozen=True, slots=True)
class Target:
    """The Cassandra that a command uses.

    Attributes:
        options: How to reach the Cassandra.
        named_by: What names the Cassandra: ``--contact-points``, ``CASSIEQ_CONTACT_POINTS``, a
            file, ...; None if nothing does.
    """

    options: ConnectionOptions
    named_by: str | None

    def __str__(self) -> str:
        how = "the default address"
        if self.named_by is not None:
            how = self.named_by if self.named_by == _NODE_UP else f"named by {self.named_by}"
        return f"Cassandra at {self.options.address} ({how}), keyspace {self.options.keyspace}"

    def explain(self, error: CassieqError) -> str | None:
        """A hint to add to an error; None if the error has nothing to do with this Cassandra."""
        if isinstance(error, _ANYWHERE):
            return None
        if not isinstance(error, ConnectError):
            return str(self)
        if self.named_by is None:
            return (
                "this is the default address, as none is named; to start a Cassandra here: "
                "cassieq node up --detach"
            )
        how = "the node is" if self.named_by == _NODE_UP else "the address comes from"
        return f"{how} {self.named_by}"


def choose(
    values: Mapping[str, Any], named_by: Callable[[str], str | None], running: Running | None
) -> tuple[dict[str, Any], str | None]:
    """Decide which Cassandra these settings name.

    Args:
        values: Settings of `ConnectionOptions`, by attribute.
        named_by: Returns what gave a setting its value; None for its default.
        running: The node in the background.

    Returns:
        The settings to use, and what names the Cassandra; see `Target`.
    """
    names = [name for each in _NAMING if (name := named_by(each)) is not None]
    if names or running is None:
        return {**values}, names[0] if names else None
    found: dict[str, Any] = {
        **values,
        "contact_points": tuple(running.contact_points),
        "port": running.port,
    }
    if running.username and values["username"] is None and values["password"] is None:
        found |= {"username": running.username, "password": f"file:{running.password_file}"}
    if running.ca_file and values["ssl_ca_file"] is None:
        found["ssl_ca_file"] = running.ca_file
    return found, _NODE_UP


def find_running() -> Running | None:
    """The node in the background; None also if this user's folder cannot be read."""
    with suppress(OSError):
        return Background().running()
    return None


def _build(*, context: typer.Context, **values: Any) -> ConnectionOptions:
    values = {**_DEFAULTS, **values}
    items = {item.attribute: item for item in settings_of(ConnectionOptions)}
    chosen, named_by = choose(values, lambda name: given_by(context, items[name]), find_running())
    if chosen["username"] is not None and chosen["password"] is None:
        whose = chosen["username"]
        if not _has_terminal():
            raise OptionError(
                f"there is no terminal to ask for the password of {whose} on: give --password "
                "env:NAME or file:PATH"
            )
        chosen["password"] = typer.prompt(f"Password of {whose}", hide_input=True, err=True)
    target = Target(ConnectionOptions(**chosen), named_by)
    context.meta[_TARGET] = target
    return target.options


def _has_terminal() -> bool:
    """True if a password can be asked for; without a terminal, standard input would answer."""
    with suppress(OSError):
        # As `getpass` does: there may be one although standard input is a pipe.
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
        return True
    return sys.stdin.isatty()


#: The parameters of a command that connects, and the function that makes `ConnectionOptions` of
#: them.
CONNECTION = flags_of(
    ConnectionOptions,
    _build,
    CASSANDRA_PANEL,
    {
        "contact_points": "the node that 'cassieq node up' runs, else 127.0.0.1",
        "password": "asked for",
    },
)


def read_connection(context: typer.Context) -> ConnectionOptions | None:
    """The connection of a line that is not complete yet; None if it would ask for a password.

    Raises:
        OptionError: A setting is malformed, or two settings contradict each other.
    """
    names = inspect.signature(CONNECTION).parameters.keys() - {"context"}
    given = {name: context.params[name] for name in names if name in context.params}
    if given.get("username") and not given.get("password"):
        return None
    found: ConnectionOptions = CONNECTION(context=context, **given)
    return found


@contextmanager
def telling_where(context: typer.Context) -> Iterator[None]:
    """Add to each error of the block the Cassandra that it comes from, and what names it."""
    try:
        yield
    except CassieqError as error:
        target: Target | None = context.meta.get(_TARGET)
        if target is not None and (note := target.explain(error)) is not None:
            error.add_note(note)
        raise


def tell_where(context: typer.Context) -> None:
    """Print the Cassandra of a command on standard error, if a person looks or has asked."""
    target: Target | None = context.meta.get(_TARGET)
    is_watched = sys.stdout.isatty() and sys.stderr.isatty()
    if target is not None and (is_watched or is_verbose(context)):
        console = PlainConsole(stderr=True, soft_wrap=True)
        console.print(str(target), style="dim", highlight=False)


def impatient(connection: ConnectionOptions) -> ConnectionOptions:
    """The same options, but calls give up early: the command reports an outage soon."""
    return replace(connection, request_timeout=_PATIENCE, patience=_PATIENCE)
