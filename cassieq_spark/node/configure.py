"""The files that a node reads, and the folder of data that may outlive its cluster.

The settings are small on purpose: a node of 512 MB serves tests, the demo and laptops. A folder of
data is used by one cluster at a time, and always by one of the same release and size.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from cassieq_spark.errors import SetupError
from cassieq_spark.node.jars import DEFAULT_RELEASE, Release

_RING = 2**64


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeTls:
    """How clients reach the nodes by TLS, and only so; the nodes themselves talk in the clear."""

    #: PEM file of a node's private key, its certificate, and those between it and the CA.
    identity: Path
    #: PEM file of the CA.
    ca: Path
    #: Ask clients for a certificate of the CA.
    client_certificates: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSettings:
    """What tells one node from another."""

    #: Where everything of this node is: ``conf``, ``storage``, ``node.log``.
    folder: Path
    address: str
    #: The addresses of all nodes of the cluster, this one's included.
    members: tuple[str, ...]
    native_port: int
    storage_port: int
    cluster_name: str = "cassieq"
    heap_mb: int = 512
    #: Ask for a name and a password (at first both ``cassandra``), and check rights.
    authentication: bool = False
    #: Serve CQL in the clear unless given.
    tls: NodeTls | None = None
    #: Whether the log of writes is forced to disk; a node thrown away afterwards can do without.
    synced: bool = True
    #: Log a write before it is acknowledged; else a kill may lose the last 100 ms of writes.
    write_through: bool = False
    #: Write the log past the page cache, which costs less; not known to 4.1, nor used together
    #: with ``write_through``.
    direct_log: bool = False

    @property
    def token(self) -> int:
        """Where on the ring this node begins: the ring is shared out evenly."""
        return initial_tokens(len(self.members))[self.members.index(self.address)]


def initial_tokens(nodes: int) -> tuple[int, ...]:
    """Cut the ring into equal parts.

    >>> initial_tokens(3)
    (-9223372036854775808, -3074457345618258603, 3074457345618258602)
    """
    return tuple(number * _RING // nodes - _RING // 2 for number in range(nodes))


def cassandra_yaml(settings: NodeSettings) -> str:
    """Write ``cassandra.yaml``; what it leaves out keeps Cassandra's default."""
    # All are seeds: so they may start in any order, and again while any other is down.
    seeds = ",".join(f"{member}:{settings.storage_port}" for member in settings.members)
    seed_provider = {
        "class_name": "org.apache.cassandra.locator.SimpleSeedProvider",
        "parameters": [{"seeds": seeds}],
    }
    several = len({member.split(".")[1] for member in settings.members}) > 1
    values: dict[str, object] = {
        "cluster_name": settings.cluster_name,
        "num_tokens": 1,
        "initial_token": str(settings.token),
        "partitioner": "org.apache.cassandra.dht.Murmur3Partitioner",
        "endpoint_snitch": "RackInferringSnitch" if several else "SimpleSnitch",
        "seed_provider": [seed_provider],
        "listen_address": settings.address,
        "rpc_address": settings.address,
        "storage_port": settings.storage_port,
        "native_transport_port": settings.native_port,
        "auto_bootstrap": False,
        "paxos_variant": "v2",
        # The default forgets what an LWT has written by a clock that was ahead, before it is past.
        "paxos_state_purging": "gc_grace",
        # Half a segment is the largest mutation: 16 MiB.
        "commitlog_segment_size": "32MiB",
        "commitlog_total_space": "256MiB",
        "concurrent_reads": 8,
        "concurrent_writes": 8,
        "concurrent_compactors": 1,
        "memtable_flush_writers": 1,
        "key_cache_size": "0MiB",
        "counter_cache_size": "0MiB",
        "file_cache_enabled": False,
        "auto_snapshot": False,
        # The defaults, heap / 10 and heap / 40, would hold up a few large chunks in flight.
        "native_transport_max_request_data_in_flight": "256MiB",
        "native_transport_max_request_data_in_flight_per_ip": "128MiB",
    }
    values |= _log_of_writes(settings)
    if settings.authentication:
        values |= {"authenticator": "PasswordAuthenticator", "authorizer": "CassandraAuthorizer"}
    if settings.tls:
        values["client_encryption_options"] = {
            "enabled": True,
            "optional": False,
            "ssl_context_factory": {
                "class_name": "org.apache.cassandra.security.PEMBasedSslContextFactory"
            },
            "keystore": str(settings.tls.identity.absolute()),
            "truststore": str(settings.tls.ca.absolute()),
            "require_client_auth": settings.tls.client_certificates,
        }
    # JSON is YAML: quoting and nesting need no thought.
    return "".join(f"{key}: {json.dumps(value)}\n" for key, value in values.items())


def _log_of_writes(settings: NodeSettings) -> dict[str, object]:
    if settings.write_through:
        return {"commitlog_sync": "batch"}
    if settings.direct_log:
        # A kill loses what is not in the page cache: so it goes to disk as often as it would go
        # to the page cache.
        return {
            "commitlog_sync": "periodic",
            "commitlog_sync_period": "100ms",
            "commitlog_disk_access_mode": "direct",
        }
    return {"commitlog_sync": "periodic", "commitlog_sync_period": "10000ms"}


def logback_xml() -> str:
    """Write ``logback.xml``: one line per event, to standard output.

    Without one, logback would print all of DEBUG and slow the start down.
    """
    return """\
<configuration scan="false">
  <appender name="OUT" class="ch.qos.logback.core.ConsoleAppender">
    <encoder><pattern>%-5level [%thread] %date{ISO8601} %logger{0} - %msg%n</pattern></encoder>
  </appender>
  <root level="INFO"><appender-ref ref="OUT"/></root>
</configuration>
"""


_DESCRIPTION = "cluster.json"
_PATIENCE_SECONDS = 25.0
_LOOK_SECONDS = 0.1


def lock_data(folder: Path) -> IO[str]:
    """Take the folder for one cluster; created, for this user alone, if it is not there.

    Waits for one that is just ending, as a killed program's does.

    Returns:
        The locked file. The folder belongs to the process that holds it open.

    Raises:
        SetupError: Another cluster has it, or it cannot be written.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        file = (folder / "lock").open("w")
    except OSError as exc:
        raise SetupError(f"Cannot keep data in {folder} ({exc.strerror}).") from exc
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while not _locked(file):
        if time.monotonic() > deadline:
            file.close()
            raise SetupError(f"Another cluster uses {folder}: stop it, or choose another folder.")
        time.sleep(_LOOK_SECONDS)
    return file


def read_storage_port(folder: Path, *, nodes: int, release: Release) -> int | None:
    """Return the port its nodes know each other by, or None for a new folder.

    Raises:
        SetupError: The data are those of another number of nodes, or of a later release.
    """
    try:
        description = json.loads((folder / _DESCRIPTION).read_text())
        count, port = int(description["nodes"]), int(description["storage_port"])
        written_by = Release(description.get("release", DEFAULT_RELEASE))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as exc:
        raise SetupError(f"{folder / _DESCRIPTION} is not readable: {exc}") from exc
    if count != nodes:
        raise SetupError(
            f"{folder} holds the data of {count} node(s), not of {nodes}:"
            " start as many, or choose another folder."
        )
    # Cassandra reads the files of the releases before, not of those after.
    if written_by > release:
        raise SetupError(
            f"{folder} holds data of Cassandra {written_by}, which {release} can't read:"
            f" start {written_by}, or choose another folder."
        )
    return port


def write_description(folder: Path, *, nodes: int, release: Release, storage_port: int) -> None:
    """Note what a later start must know."""
    description = {"nodes": nodes, "release": release, "storage_port": storage_port}
    (folder / _DESCRIPTION).write_text(json.dumps(description) + "\n")


def can_pass_page_cache(folder: Path) -> bool:
    """Whether files of this folder can be written past the page cache; in memory, say, not."""
    probe = folder / "probe"
    try:
        os.close(os.open(probe, os.O_CREAT | os.O_WRONLY | os.O_DIRECT))
    except OSError:
        return False
    finally:
        probe.unlink(missing_ok=True)
    return True


def _locked(file: IO[str]) -> bool:
    with suppress(BlockingIOError):
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    return False
