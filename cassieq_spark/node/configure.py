"""The configuration files of a node, and the data folder of a cluster.

The settings are small: a node of 512 MB is for tests, the demo and laptops. Only one cluster at a
time uses a data folder, and always one with the same number of nodes.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from cassieq_spark.errors import SetupError
from cassieq_spark.node.jars import DEFAULT_RELEASE, Release

_RING = 2**64


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeTls:
    """TLS for clients, which then must use it; between nodes there is no encryption.

    Attributes:
        identity: File of a node's private key and certificate, with the chain up to the CA: PEM,
            or a PKCS 12 key store if there is a password.
        ca: PEM file of the CA.
        client_certificates: True if clients must have a certificate of the CA; not with a key
            store.
        password: The password of the key store.
    """

    identity: Path
    ca: Path
    client_certificates: bool = False
    password: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSettings:
    """One node of a cluster; see `Cluster` for ``heap_mb`` to ``write_through``.

    Attributes:
        folder: The folder of all files of this node: ``conf``, ``storage``, ``node.log``.
        address: The address of the node.
        members: The addresses of all nodes of the cluster, this node included.
        synced: True if the commit log is forced to disk; not needed if the data are temporary.
        direct_log: True if the commit log bypasses the page cache, which costs less. 4.1 cannot;
            not used together with ``write_through``.
    """

    folder: Path
    address: str
    members: tuple[str, ...]
    native_port: int
    storage_port: int
    cluster_name: str = "cassieq"
    heap_mb: int = 512
    authentication: bool = False
    tls: NodeTls | None = None
    write_through: bool = False
    synced: bool = True
    direct_log: bool = False


def initial_tokens(nodes: int) -> tuple[int, ...]:
    """The tokens of nodes that have equal parts of the ring.

    >>> initial_tokens(3)
    (-9223372036854775808, -3074457345618258603, 3074457345618258602)
    """
    return tuple(number * _RING // nodes - _RING // 2 for number in range(nodes))


def cassandra_yaml(settings: NodeSettings) -> str:
    """The text of ``cassandra.yaml``; the other settings keep Cassandra's defaults."""
    # All nodes are seeds, so they can start in any order, and while others are down.
    seeds = ",".join(f"{member}:{settings.storage_port}" for member in settings.members)
    seed_provider = {
        "class_name": "org.apache.cassandra.locator.SimpleSeedProvider",
        "parameters": [{"seeds": seeds}],
    }
    several = len({member.split(".")[1] for member in settings.members}) > 1
    tokens = initial_tokens(len(settings.members))
    values: dict[str, object] = {
        "cluster_name": settings.cluster_name,
        "num_tokens": 1,
        "initial_token": str(tokens[settings.members.index(settings.address)]),
        "partitioner": "org.apache.cassandra.dht.Murmur3Partitioner",
        "endpoint_snitch": "RackInferringSnitch" if several else "SimpleSnitch",
        "seed_provider": [seed_provider],
        "listen_address": settings.address,
        "rpc_address": settings.address,
        "storage_port": settings.storage_port,
        "native_transport_port": settings.native_port,
        "auto_bootstrap": False,
        "paxos_variant": "v2",
        # The default forgets writes of an LWT that a clock ahead has timed, before that time.
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
        # The defaults, heap / 10 and heap / 40, would delay a few large chunks in flight.
        "native_transport_max_request_data_in_flight": "256MiB",
        "native_transport_max_request_data_in_flight_per_ip": "128MiB",
    }
    if settings.write_through:
        values["commitlog_sync"] = "batch"
    else:
        values |= {"commitlog_sync": "periodic", "commitlog_sync_period": "10000ms"}
        if settings.direct_log:
            # A kill loses what is not in the page cache, so the log goes to disk as often as it
            # would go to the page cache.
            values |= {"commitlog_sync_period": "100ms", "commitlog_disk_access_mode": "direct"}
    if settings.authentication:
        values |= {"authenticator": "PasswordAuthenticator", "authorizer": "CassandraAuthorizer"}
    if settings.tls:
        values["client_encryption_options"] = _encryption(settings.tls)
    # JSON is YAML, and json.dumps quotes and nests correctly.
    return "".join(f"{key}: {json.dumps(value)}\n" for key, value in values.items())


def _encryption(tls: NodeTls) -> dict[str, object]:
    keys = {"enabled": True, "optional": False, "keystore": str(tls.identity.absolute())}
    if tls.password is not None:
        return keys | {"keystore_password": tls.password, "store_type": "PKCS12"}
    return keys | {
        "ssl_context_factory": {
            "class_name": "org.apache.cassandra.security.PEMBasedSslContextFactory"
        },
        "truststore": str(tls.ca.absolute()),
        "require_client_auth": tls.client_certificates,
    }


#: ``logback.xml``: one line per event, to standard output. Without this file, logback would print
#: all DEBUG events, and slow the start down.
LOGBACK_XML = """\
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
    """Lock a data folder for one cluster; create it, for this user only, if it is missing.

    Waits a while for another cluster that is ending, such as that of a killed program.

    Returns:
        The locked file; the lock lasts as long as a process has the file open.

    Raises:
        SetupError: Another cluster has the folder, or it cannot be written.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        file = (folder / "lock").open("w")
    except OSError as exc:
        raise SetupError(f"Cannot keep data in {folder} ({exc.strerror}).") from exc
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while True:
        with suppress(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return file
        if time.monotonic() > deadline:
            file.close()
            raise SetupError(f"Another cluster uses {folder}: stop it, or choose another folder.")
        time.sleep(_LOOK_SECONDS)


def read_storage_port(folder: Path, *, nodes: int, release: Release) -> int | None:
    """The storage port of the nodes whose data are in the folder; None for a new folder.

    Raises:
        SetupError: The data are of another number of nodes, or of a later release.
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
    # Cassandra reads the files of earlier releases, not of later ones.
    if written_by > release:
        raise SetupError(
            f"{folder} holds data of Cassandra {written_by}, which {release} can't read:"
            f" start {written_by}, or choose another folder."
        )
    return port


def write_description(folder: Path, *, nodes: int, release: Release, storage_port: int) -> None:
    """Write what a later start must know."""
    description = {"nodes": nodes, "release": release, "storage_port": storage_port}
    (folder / _DESCRIPTION).write_text(json.dumps(description) + "\n")


def can_pass_page_cache(folder: Path) -> bool:
    """True if writes to this folder can bypass the page cache; False, for example, in memory."""
    probe = folder / "probe"
    try:
        os.close(os.open(probe, os.O_CREAT | os.O_WRONLY | os.O_DIRECT))
    except OSError:
        return False
    finally:
        probe.unlink(missing_ok=True)
    return True
