"""The options of reaching Cassandra, which reading and writing share. Pure."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from cassieq_spark.options.declaration import check_both_or_neither, option, options_by_key
from cassieq_spark.options.kinds import TEXT, Kind, whole_number
from cassieq_spark.store.connection import DEFAULT_KEYSPACE, DEFAULT_PORT, ConnectionOptions


def _parse_hosts(text: str) -> tuple[str, ...]:
    hosts = tuple(host.strip() for host in text.split(","))
    return ConnectionOptions(contact_points=hosts).contact_points


HOSTS: Kind[tuple[str, ...]] = Kind(
    "host or host:port, several with commas", _parse_hosts, ",".join
)
KEYSPACE: Kind[str] = Kind(
    "lower-case letters, digits and _", lambda text: ConnectionOptions(keyspace=text).keyspace
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterOptions:
    """How to reach Cassandra; every field is one of `ConnectionOptions`."""

    contact_points: tuple[str, ...] = field(
        default=("127.0.0.1",),
        metadata=option(
            "spark.cassandra.connection.host",
            HOSTS,
            "Nodes to connect to first; the rest of the cluster is found through them.",
        ),
    )
    port: int = field(
        default=DEFAULT_PORT,
        metadata=option(
            "spark.cassandra.connection.port",
            whole_number(1, 65535),
            "Port of every node that does not come with its own.",
        ),
    )
    local_dc: str | None = field(
        default=None,
        metadata=option(
            "spark.cassandra.connection.localDC",
            TEXT,
            "Data centre whose nodes are asked; without it, that of the first contact point.",
        ),
    )
    username: str | None = field(
        default=None,
        metadata=option("spark.cassandra.auth.username", TEXT, "Needs the password, too."),
    )
    password: str | None = field(
        default=None,
        repr=False,
        metadata=option(
            "spark.cassandra.auth.password", TEXT, "Needs the user name, too.", secret=True
        ),
    )
    keyspace: str = field(
        default=DEFAULT_KEYSPACE, metadata=option("keyspace", KEYSPACE, "Where the tables are.")
    )

    def __post_init__(self) -> None:
        check_both_or_neither(
            {
                "spark.cassandra.auth.username": self.username,
                "spark.cassandra.auth.password": self.password,
            }
        )

    def connection(self) -> ConnectionOptions:
        """The same for the store."""
        return ConnectionOptions(**asdict(self))


def options_from_session(spark: Any) -> dict[str, str]:
    """Copy what a SparkSession knows about reaching Cassandra into options.

    Sources and sinks cannot see the session's configuration, so hand it over:
    ``.options(**options_from_session(spark))``.
    """
    keys = [item.key for item in options_by_key(ClusterOptions).values() if "." in item.key]
    found = {key: spark.conf.get(key, None) for key in keys}
    return {key: text for key, text in found.items() if text is not None}
