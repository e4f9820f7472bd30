"""The settings of a connection to Cassandra, as one value that is sent to executors."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from ipaddress import ip_address
from typing import Any, TypedDict

from cassieq_spark.arguments import (
    A_MOMENT,
    address_of,
    check_count,
    check_duration,
    check_flag,
    check_many,
    check_text,
    did_you_mean,
    shown,
)
from cassieq_spark.errors import OptionError
from cassieq_spark.settings.declaration import check_both_or_neither, setting, settings_of
from cassieq_spark.settings.kinds import BOOLEAN, TEXT, Kind, whole_number
from cassieq_spark.settings.secret import REFERENCES, check_secret

DEFAULT_CONTACT_POINTS = ("127.0.0.1",)
DEFAULT_PORT = 9042
DEFAULT_KEYSPACE = "cassieq"
PROTOCOL_VERSIONS = (4, 5)
HIGHEST_PORT = 65_535

_KEYSPACE = re.compile(r"[a-z][a-z0-9_]{0,47}")
_BRACKETED = re.compile(r"\[(?P<host>[^]]+)](?::(?P<port>\d+))?")
#: A number that is likely to be a port; the last group of an IPv6 address seldom has this form.
_LIKE_A_PORT = re.compile(r"[1-9][0-9]{3,4}")
#: Characters that no host name has: a text with one of them is a URL, or a part of a URL.
_OF_URLS = re.compile(r"[/\\?#@\s]")

#: This level has an error text of its own, because it looks like the safest one.
_EACH_QUORUM = "EACH_QUORUM"


class Consistency(StrEnum):
    """The level of plain reads and writes; the level of compare-and-sets follows from it.

    All programs that use a keyspace must use the same level: compare-and-sets of two levels, or
    of two data centres, do not see each other.

    If a compare-and-set breaks off after it was decided, the next serial read or compare-and-set
    completes it at a quorum of replicas: of the local data centre for LOCAL_SERIAL, of all data
    centres for SERIAL. A plain read must overlap this quorum, so plain reads use the level that
    matches the serial one. EACH_QUORUM is refused, because its plain reads ask the local data
    centre only.
    """

    #: A quorum in the local data centre; all programs that use the queues must be there.
    LOCAL_QUORUM = "LOCAL_QUORUM"
    #: A quorum of all replicas, in whichever data centre.
    QUORUM = "QUORUM"

    @property
    def of_conditions(self) -> str:
        """The driver's name of the serial level, which compare-and-sets use."""
        return "LOCAL_SERIAL" if self is Consistency.LOCAL_QUORUM else "SERIAL"


def parse_consistency(text: str) -> Consistency:
    """Read a consistency level, in any case of letters.

    Raises:
        OptionError: The text is not a level, or a level at which a read may miss a write.
    """
    level = text.strip().upper()
    if level == _EACH_QUORUM:
        raise OptionError(
            f"consistency {text!r} is not safe: a compare-and-set that broke off is completed at "
            "a quorum of all replicas, which a read of the local data centre may miss, so "
            "messages could be lost. Use QUORUM if there are producers or consumers in several "
            "data centres, LOCAL_QUORUM if all of them are in one"
        )
    try:
        return Consistency(level)
    except ValueError:
        raise OptionError(
            f"consistency {text!r} is not supported: expected {', '.join(Consistency)}. Below a "
            "quorum, a read may miss a write, so messages could be lost or delivered twice; with "
            "one replica, LOCAL_QUORUM costs the same as ONE"
        ) from None


def _parse_hosts(text: str) -> tuple[str, ...]:
    hosts = tuple(host.strip() for host in text.split(","))
    return ConnectionOptions(contact_points=hosts).contact_points


def _parse_secret(text: str) -> str:
    check_secret("password", TEXT.parse(text))
    return text


HOSTS: Kind[tuple[str, ...]] = Kind(
    "host or host:port, several with commas", _parse_hosts, ",".join, "HOST[:PORT],..."
)
KEYSPACE: Kind[str] = Kind(
    "lower-case letters, digits and _", lambda text: ConnectionOptions(keyspace=text).keyspace
)
CONSISTENCY: Kind[Consistency] = Kind(
    " or ".join(Consistency), parse_consistency, metavar="|".join(Consistency)
)
_SECRET: Kind[str] = Kind(f"text, {REFERENCES}", _parse_secret, metavar="REFERENCE")
_FILE: Kind[str] = Kind("a path", TEXT.parse, metavar="FILE")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionOptions:
    """Where the cluster is, how to log in, how safely to read and write, and how long to wait.

    docs/options.md describes the settings that Spark options and flags set, too. Files are read
    on every machine that connects.

    Attributes:
        protocol_version: The version of Cassandra's native protocol, one of `PROTOCOL_VERSIONS`. 4
            reads large rows faster, 5 adds checksums.
        request_timeout: How long the client waits for one answer.
        patience: For how long after its first failure a call repeats requests that are safe to
            repeat.
    """

    contact_points: tuple[str, ...] = setting(
        HOSTS,
        DEFAULT_CONTACT_POINTS,
        "Nodes to connect to first; the rest of the cluster is found through them.",
        option="spark.cassandra.connection.host",
    )
    port: int = setting(
        whole_number(1, HIGHEST_PORT),
        DEFAULT_PORT,
        "Port of every node that is given without one.",
        option="spark.cassandra.connection.port",
    )
    local_dc: str | None = setting(
        TEXT,
        None,
        "Data centre whose nodes get the requests.",
        without="that of the first contact point",
        option="spark.cassandra.connection.localDC",
    )
    username: str | None = setting(
        TEXT,
        None,
        "Role to log in as; needs the password, too.",
        option="spark.cassandra.auth.username",
    )
    password: str | None = setting(
        _SECRET,
        None,
        f"Password of the role. Given by reference, {REFERENCES}, it is read "
        "where a process connects, and is in no plan, log or list of processes.",
        see="security.md",
        secret=True,
        option="spark.cassandra.auth.password",
    )
    ssl: bool = setting(
        BOOLEAN,
        False,
        "Whether to use TLS, 1.2 or later; each of the three files turns it on, too.",
        option="spark.cassandra.connection.ssl.enabled",
    )
    ssl_ca_file: str | None = setting(
        _FILE,
        None,
        "PEM file of the CAs that sign the nodes' certificates. Like the other files, it must be "
        "on every machine that connects: the driver and the executors.",
        without="those that the machine trusts",
    )
    ssl_cert_file: str | None = setting(
        _FILE,
        None,
        "PEM file of the client's certificate, and of those between it and the "
        "CA, if the nodes ask for one; may contain the key as well.",
    )
    ssl_key_file: str | None = setting(
        _FILE,
        None,
        "PEM file of its private key, without a passphrase.",
        without="in the certificate file",
    )
    ssl_check_hostname: bool = setting(
        BOOLEAN, True, "Whether a node's certificate must name the address that is connected to."
    )
    secure_connect_bundle: str | None = setting(
        _FILE,
        None,
        "Secure connect bundle (zip file) of a hosted cluster, in place of host, port, data "
        "centre and the settings of TLS.",
        option="spark.cassandra.connection.config.cloud.path",
    )
    consistency: Consistency = setting(
        CONSISTENCY,
        Consistency.LOCAL_QUORUM,
        "Which replicas must agree; the same for all programs that use the keyspace.",
        see="security.md#consistency",
    )
    keyspace: str = setting(KEYSPACE, DEFAULT_KEYSPACE, "Keyspace of the tables.")
    protocol_version: int = 4
    request_timeout: timedelta = timedelta(seconds=10)
    patience: timedelta = timedelta(seconds=30)

    def __post_init__(self) -> None:
        self._check_types()
        if not self.contact_points:
            raise OptionError("no contact points: name at least one node of the cluster")
        if not _KEYSPACE.fullmatch(self.keyspace):
            raise OptionError(
                f"keyspace {self.keyspace!r} is not valid: expected at most 48 lower-case "
                "letters, digits or '_', beginning with a letter"
            )
        check_both_or_neither({"a user name": self.username, "a password": self.password})
        if self.password is not None:
            check_secret("password", self.password)
        version = self.protocol_version
        if type(version) is not int or version not in PROTOCOL_VERSIONS:
            raise OptionError(
                f"protocol version {shown(version)} is not supported: expected 4, which reads "
                "large rows faster, or 5, which adds checksums"
            )
        self._check_encryption()
        _ = self.endpoints

    @property
    def encrypted(self) -> bool:
        """True if the connections are encrypted."""
        files = (self.ssl_ca_file, self.ssl_cert_file, self.secure_connect_bundle)
        return self.ssl or any(file is not None for file in files)

    @property
    def endpoints(self) -> tuple[tuple[str, int], ...]:
        """Contact points as ``(host, port)``.

        Raises:
            OptionError: A contact point is malformed.
        """
        return tuple(_endpoint(point.strip(), self.port) for point in self.contact_points)

    @property
    def address(self) -> str:
        """Where the cluster is, for people: its contact points with their ports, or the bundle."""
        points = (address_of(host, port) for host, port in self.endpoints)
        return self.secure_connect_bundle or ", ".join(points)

    def _check_types(self) -> None:
        """Check the types of all settings, as programs may give anything."""
        check_many("contact points", self.contact_points, "hosts")
        for at, each in enumerate(self.contact_points):
            check_text(f"contact point {at}", each)
        check_text("keyspace", self.keyspace)
        check_count("port", self.port, most=HIGHEST_PORT)
        for item in settings_of(ConnectionOptions):
            given = getattr(self, item.attribute)
            if isinstance(item.default, bool):
                check_flag(item.attribute, given)
            elif item.default is None and given is not None:
                check_text(item.attribute, given)
        if not isinstance(self.consistency, Consistency):
            raise OptionError(f"consistency must be one of {', '.join(Consistency)}")
        check_duration("request_timeout", self.request_timeout, least=A_MOMENT)
        check_duration("patience", self.patience)

    def _check_encryption(self) -> None:
        if self.ssl_key_file is not None and self.ssl_cert_file is None:
            raise OptionError(
                f"the private key {self.ssl_key_file!r} comes without its certificate: name the "
                "certificate file as well"
            )
        if not (self.ssl_check_hostname or self.encrypted):
            raise OptionError(
                "the check of host names needs an encrypted connection: turn TLS on, too"
            )
        if self.secure_connect_bundle is None:
            return
        others = {
            "contact points": self.contact_points != DEFAULT_CONTACT_POINTS,
            "a port": self.port != DEFAULT_PORT,
            "a local data centre": self.local_dc is not None,
            "a CA file": self.ssl_ca_file is not None,
            "a certificate file": self.ssl_cert_file is not None,
            "no check of host names": not self.ssl_check_hostname,
        }
        if given := [name for name, is_given in others.items() if is_given]:
            raise OptionError(
                "a secure connect bundle contains these settings itself; leave out: "
                f"{', '.join(given)}"
            )


class Connection(TypedDict, total=False):
    """The arguments of a client by name; `ConnectionOptions` has their meaning and defaults."""

    contact_points: str | Sequence[str]
    port: int
    local_dc: str | None
    username: str | None
    password: str | None
    ssl: bool
    ssl_ca_file: str | None
    ssl_cert_file: str | None
    ssl_key_file: str | None
    ssl_check_hostname: bool
    secure_connect_bundle: str | None
    consistency: Consistency | str
    keyspace: str
    protocol_version: int
    request_timeout: timedelta
    patience: timedelta


def connection_options(given: Connection) -> ConnectionOptions:
    """Read the arguments of a client; contact points may be one text, separated by commas.

    Raises:
        OptionError: An argument is malformed.
        TypeError: There is no argument of this name.
    """
    values: dict[str, Any] = {**given}
    known = Connection.__annotations__
    if unknown := values.keys() - known.keys():
        name = min(unknown)
        advice = did_you_mean(name, known, f"there are {', '.join(known)}")
        raise TypeError(f"a client has no setting {name!r}: {advice}")
    points: Any = values.get("contact_points", ())
    if isinstance(points, str):
        values["contact_points"] = tuple(point.strip() for point in points.split(","))
    elif "contact_points" in values:
        values["contact_points"] = tuple(check_many("contact_points", points, "a list of hosts"))
    if isinstance(values.get("consistency"), str):
        values["consistency"] = parse_consistency(values["consistency"])
    return ConnectionOptions(**values)


def _endpoint(point: str, default_port: int) -> tuple[str, int]:
    if _OF_URLS.search(point):
        raise OptionError(
            f"contact point {point!r} is not valid: expected host or host:port alone, without "
            "http:// in front and without a path or a user"
        )
    host, port = point, str(default_port)
    if bracketed := _BRACKETED.fullmatch(point):
        host, port = bracketed["host"], bracketed["port"] or port
    elif point.count(":") == 1:
        host, port = point.split(":")
    elif ":" in point:
        _check_ipv6(point)
    # int() takes very long for a very long number.
    port = port[: len(str(HIGHEST_PORT)) + 1]
    if not host or not port.isdecimal() or not 0 < int(port) <= HIGHEST_PORT:
        raise OptionError(f"contact point {point!r} is not valid: expected host or host:port")
    return host, int(port)


def _check_ipv6(point: str) -> None:
    """Refuse an address that may be IPv6 with a port: only brackets show where the port begins."""
    before, _, last = point.rpartition(":")
    is_port = bool(_LIKE_A_PORT.fullmatch(last)) and _is_ipv6(before)
    if _is_ipv6(point) and not is_port:
        return
    wanted = "expected host, host:port or [address]:port"
    if is_port:
        address = f"; or, if all of it is the address, [{point}]" if _is_ipv6(point) else ""
        wanted = f"write [{before}]:{last}{address}"
    raise OptionError(f"contact point {point!r} is not valid: {wanted}")


def _is_ipv6(text: str) -> bool:
    # The network interface follows a %.
    try:
        ip_address(text.partition("%")[0])
    except ValueError:
        return False
    return ":" in text
