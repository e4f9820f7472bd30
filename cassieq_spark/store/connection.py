"""How to reach a Cassandra cluster, as one value that may travel to executors. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import timedelta

from cassieq_spark.errors import OptionError

DEFAULT_PORT = 9042
DEFAULT_KEYSPACE = "cassieq"

_KEYSPACE = re.compile(r"[a-z][a-z0-9_]{0,47}")
_BRACKETED = re.compile(r"\[(?P<host>[^]]+)](?::(?P<port>\d+))?")
_HIGHEST_PORT = 65_535


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionOptions:
    """Where the cluster is, who asks, and how long to wait.

    Attributes:
        contact_points: Nodes to begin with, each ``host``, ``host:port``, ``[ipv6]`` or
            ``[ipv6]:port``.
        port: Port of the contact points that name none, and of every node found through them.
        local_dc: Data centre whose nodes are asked; that of the contact points, if None.
        username: Role to log in as; None where the cluster asks for none.
        password: Its password; never shown.
        keyspace: Where the tables are: lower-case letters, digits and ``_``.
        protocol_version: Of Cassandra's native protocol. 4 reads large rows faster, 5 adds
            checksums.
        request_timeout: How long the client waits for one answer.
        patience: How long one call goes on repeating what is safe to repeat, from its first
            failure on.
    """

    contact_points: tuple[str, ...] = ("127.0.0.1",)
    port: int = DEFAULT_PORT
    local_dc: str | None = None
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    keyspace: str = DEFAULT_KEYSPACE
    protocol_version: int = 4
    request_timeout: timedelta = timedelta(seconds=10)
    patience: timedelta = timedelta(seconds=30)

    def __post_init__(self) -> None:
        if not self.contact_points:
            raise OptionError("no contact points: name at least one node of the cluster")
        if not _KEYSPACE.fullmatch(self.keyspace):
            raise OptionError(
                f"keyspace {self.keyspace!r} is not valid: expected at most 48 lower-case "
                "letters, digits or '_', beginning with a letter"
            )
        if self.password is not None and self.username is None:
            raise OptionError("a password without a user name: give both, or neither")
        _ = self.endpoints

    @property
    def endpoints(self) -> tuple[tuple[str, int], ...]:
        """Contact points as ``(host, port)``.

        Raises:
            OptionError: One of them is malformed.
        """
        return tuple(_endpoint(point.strip(), self.port) for point in self.contact_points)


def _endpoint(point: str, default_port: int) -> tuple[str, int]:
    host, port = point, str(default_port)
    if bracketed := _BRACKETED.fullmatch(point):
        host, port = bracketed["host"], bracketed["port"] or port
    elif point.count(":") == 1:
        host, port = point.split(":")
    if not host or not port.isdecimal() or not 0 < int(port) <= _HIGHEST_PORT:
        raise OptionError(f"contact point {point!r} is not valid: expected host or host:port")
    return host, int(port)
