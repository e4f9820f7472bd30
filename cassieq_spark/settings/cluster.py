"""The options of reaching Cassandra, which reading and writing share. Pure."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from cassieq_spark.arguments import shown
from cassieq_spark.errors import OptionError
from cassieq_spark.settings.connection import (
    DEFAULT_CONTACT_POINTS,
    DEFAULT_KEYSPACE,
    DEFAULT_PORT,
    ConnectionOptions,
    Consistency,
    parse_consistency,
)
from cassieq_spark.settings.declaration import check_both_or_neither, option, options_by_key
from cassieq_spark.settings.kinds import BOOLEAN, TEXT, Kind, whole_number
from cassieq_spark.settings.secret import REFERENCES, check_secret


def _parse_hosts(text: str) -> tuple[str, ...]:
    hosts = tuple(host.strip() for host in text.split(","))
    return ConnectionOptions(contact_points=hosts).contact_points


HOSTS: Kind[tuple[str, ...]] = Kind(
    "host or host:port, several with commas", _parse_hosts, ",".join
)
KEYSPACE: Kind[str] = Kind(
    "lower-case letters, digits and _", lambda text: ConnectionOptions(keyspace=text).keyspace
)


def _parse_secret(text: str) -> str:
    check_secret("password", TEXT.parse(text))
    return text


SECRET: Kind[str] = Kind(f"text, {REFERENCES}", _parse_secret)
CONSISTENCY: Kind[Consistency] = Kind(
    f"{', '.join(list(Consistency)[:-1])} or {list(Consistency)[-1]}", parse_consistency
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterOptions:
    """How to reach Cassandra; every field is one of `ConnectionOptions`."""

    contact_points: tuple[str, ...] = field(
        default=DEFAULT_CONTACT_POINTS,
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
            "spark.cassandra.auth.password",
            SECRET,
            "Needs the user name, too. By reference, it is read where a process connects, and is "
            "in no plan or log: [security.md](security.md).",
            secret=True,
        ),
    )
    ssl: bool = field(
        default=False,
        metadata=option(
            "spark.cassandra.connection.ssl.enabled",
            BOOLEAN,
            "Whether to encrypt, with TLS 1.2 or later; any of the files below means so, too.",
        ),
    )
    ssl_ca_file: str | None = field(
        default=None,
        metadata=option(
            "sslCaFile",
            TEXT,
            "PEM file of the CAs that sign the nodes' certificates; without it, those that the "
            "machine trusts. Like the files below, it must be on the driver and the executors.",
        ),
    )
    ssl_cert_file: str | None = field(
        default=None,
        metadata=option(
            "sslCertFile",
            TEXT,
            "PEM file of the client's own certificate, where the nodes ask for one.",
        ),
    )
    ssl_key_file: str | None = field(
        default=None,
        metadata=option(
            "sslKeyFile",
            TEXT,
            "PEM file of its private key, without a passphrase; without it, the key is in "
            "`sslCertFile`.",
        ),
    )
    ssl_check_hostname: bool = field(
        default=True,
        metadata=option(
            "sslCheckHostname",
            BOOLEAN,
            "Whether a node's certificate must name the address that is connected to.",
        ),
    )
    secure_connect_bundle: str | None = field(
        default=None,
        metadata=option(
            "spark.cassandra.connection.config.cloud.path",
            TEXT,
            "Secure connect bundle (zip file) of a hosted cluster, in place of host, port, data "
            "centre and the options of TLS.",
        ),
    )
    consistency: Consistency = field(
        default=Consistency.LOCAL_QUORUM,
        metadata=option(
            "consistency",
            CONSISTENCY,
            "Which replicas have to agree; the same for all who use the keyspace: "
            "[security.md](security.md#consistency).",
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

    Raises:
        OptionError: It is no SparkSession.
    """
    conf: Any = getattr(spark, "conf", None)
    if not hasattr(conf, "get"):
        raise OptionError(f"a SparkSession is needed, not {shown(spark)}")
    keys = [item.key for item in options_by_key(ClusterOptions).values() if "." in item.key]
    found = {key: conf.get(key, None) for key in keys}
    return {key: text for key, text in found.items() if text is not None}
