"""Creates the keyspace and its tables; run by an operator, never by a job."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from cassandra.cluster import Cluster, Session

from cassieq_spark.errors import StoreError
from cassieq_spark.store.cassandra.mapping import DRIVER_ERRORS, Request, translate
from cassieq_spark.store.cassandra.named_texts import named_texts
from cassieq_spark.store.cassandra.replication import resolve_replication
from cassieq_spark.store.cassandra.session import connect
from cassieq_spark.store.connection import ConnectionOptions

#: The first major release with UnifiedCompactionStrategy.
_UNIFIED_COMPACTION = 5
#: Creating a table waits until all nodes agree on it.
_TIMEOUT_SECONDS = 60.0

Replication = str | Mapping[str, int] | None


def schema_statements(
    keyspace: str, replication: Mapping[str, str | int], server_version: str
) -> list[str]:
    """What creates a keyspace and its tables, in order. Pure.

    Args:
        keyspace: A valid keyspace name.
        replication: As ``CREATE KEYSPACE`` takes it: ``class`` and replicas.
        server_version: Such as ``5.0.8``; decides what the tables are compacted with.
    """
    texts = named_texts("schema.cql").values()
    parts = {
        "keyspace": keyspace,
        "replication": _literal(replication),
        "compaction": _literal({"class": _compaction(server_version)}),
    }
    return [text.substitute(parts) for text in texts]


def plan_schema(options: ConnectionOptions, replication: Replication = None) -> list[str]:
    """The statements for one cluster: its release and its data centres. Connects, changes nothing.

    Args:
        options: Cluster and keyspace.
        replication: See `resolve_replication`.

    Raises:
        OptionError: Replication that this cluster cannot keep.
        ConnectError: Nobody answers, or the credentials are refused.
    """
    with _connected(options) as (cluster, _):
        return _statements(options, replication, cluster)


def apply_schema(options: ConnectionOptions, replication: Replication = None) -> None:
    """Create what is missing of the keyspace and its tables; what exists is left as it is.

    Returns when all nodes agree. Safe to repeat.

    Raises:
        OptionError: Replication that this cluster cannot keep.
        ConnectError: Nobody answers, or the credentials are refused.
        StoreError: Cassandra refuses, or the nodes do not agree in time.
    """
    with _connected(options) as (cluster, session):
        existing = _existing(cluster, options.keyspace)
        statements = _statements(options, replication, cluster)
        for name, statement in zip(named_texts("schema.cql"), statements, strict=True):
            # A role that may not create keyspaces can use one that was made for it.
            if name not in existing:
                doing = f"creation of {name} ({options.keyspace})"
                try:
                    session.execute(statement, timeout=_TIMEOUT_SECONDS)
                except DRIVER_ERRORS as error:
                    raise translate(error, Request.DDL, doing, options) from error
                _await_agreement(cluster, doing)


def _await_agreement(cluster: Cluster, doing: str) -> None:
    # The driver's own flag for it is false whenever it keeps no schema itself.
    if not cluster.control_connection.wait_for_schema_agreement(wait_time=_TIMEOUT_SECONDS):
        raise StoreError(f"{doing}: the nodes do not agree on the schema yet; repeat it later")


def _existing(cluster: Cluster, keyspace: str) -> set[str]:
    cluster.refresh_schema_metadata(max_schema_agreement_wait=0)
    found = cluster.metadata.keyspaces.get(keyspace)
    return {"keyspace", *found.tables} if found else set()


def _statements(
    options: ConnectionOptions, replication: Replication, cluster: Cluster
) -> list[str]:
    hosts = cluster.metadata.all_hosts()
    nodes = Counter(host.datacenter for host in hosts)
    connected = cluster.get_control_connection_host()
    local_dc = options.local_dc or connected.datacenter
    resolved = resolve_replication(replication, nodes, local_dc)
    return schema_statements(options.keyspace, resolved, connected.release_version)


@contextmanager
def _connected(options: ConnectionOptions) -> Iterator[tuple[Cluster, Session]]:
    cluster, session = connect(options)
    try:
        yield cluster, session
    finally:
        cluster.shutdown()


def _compaction(server_version: str) -> str:
    major = int(server_version.partition(".")[0])
    unified = major >= _UNIFIED_COMPACTION
    return "UnifiedCompactionStrategy" if unified else "SizeTieredCompactionStrategy"


def _literal(options: Mapping[str, str | int]) -> str:
    return "{" + ", ".join(f"'{key}': '{value}'" for key, value in options.items()) + "}"
