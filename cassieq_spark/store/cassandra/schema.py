"""Creates the keyspace and its tables, or missing columns; for operators, never for jobs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

from cassandra.cluster import Cluster, Session

from cassieq_spark.errors import StoreError
from cassieq_spark.settings.connection import ConnectionOptions
from cassieq_spark.store.cassandra.inspection import (
    count_nodes,
    purging_warnings,
    read_layout,
    read_purging,
)
from cassieq_spark.store.cassandra.mapping import DRIVER_ERRORS, Request, translate
from cassieq_spark.store.cassandra.session import connect
from cassieq_spark.store.cassandra.upgrade import (
    Difference,
    check_usable,
    compare,
    upgrade_statements,
    version_statement,
)
from cassieq_spark.store.consistency import replication_warnings, resolve_replication
from cassieq_spark.store.tables import GRACE, ROW_GRACE, named_texts

#: The first major release with UnifiedCompactionStrategy.
_UNIFIED_COMPACTION = 5
#: How long a change of a table waits until all nodes agree on it, in seconds.
_TIMEOUT_SECONDS = 60.0
_KEYSPACE = "SELECT replication FROM system_schema.keyspaces WHERE keyspace_name = %s"

Replication = str | Mapping[str, int] | None


def schema_statements(
    keyspace: str, replication: Mapping[str, str | int], server_version: str
) -> list[str]:
    """The statements that create a keyspace and its tables, in order.

    Args:
        keyspace: A valid keyspace name.
        replication: The replication map of ``CREATE KEYSPACE``: ``class`` and replicas.
        server_version: A version such as ``5.0.8``; decides the compaction strategy of the tables.
    """
    parts = {
        "keyspace": keyspace,
        "replication": _literal(replication),
        "compaction": _literal({"class": _compaction(server_version)}),
    }
    return [
        text.substitute(parts, grace=GRACE, row_grace=ROW_GRACE)
        for text in named_texts("schema.cql").values()
    ]


def needed_statements(options: ConnectionOptions, replication: Replication = None) -> list[str]:
    """The statements that one cluster needs, given its release, data centres and tables.

    Connects, changes nothing. The statements can be carried out even if a table exists by then.

    Args:
        options: Cluster and keyspace.
        replication: See `resolve_replication`.

    Raises:
        OptionError: The cluster cannot keep the replication.
        ConnectError: No node answers, or the credentials are refused.
        MissingSchemaError: The tables that exist have another version, or can't be changed into
            those that this release needs.
    """
    with _connected(options) as (cluster, session):
        difference = _difference(session, options)
        check_usable(difference, options.keyspace)
        return [
            *_statements(options, replication, cluster, session).values(),
            *upgrade_statements(options.keyspace, difference),
            *_versions(options, difference),
        ]


def check_schema(options: ConnectionOptions) -> Difference:
    """Find how the keyspace differs from what this release needs. Connects, changes nothing.

    The result warns of too few replicas and of settings of nodes; that takes one read per node.

    Raises:
        ConnectError: No node answers, or the credentials are refused.
    """
    with _connected(options) as (cluster, session):
        few = replication_warnings(
            _read_replication(session, options) or {}, count_nodes(cluster, session)
        )
        warnings = (*few, *purging_warnings(read_purging(session)))
        return replace(_difference(session, options), warnings=warnings)


def apply_schema(options: ConnectionOptions, replication: Replication = None) -> tuple[str, ...]:
    """Create the keyspace, its tables and their columns, as far as they are missing.

    Nothing is dropped, and nothing that exists is changed, except a ``gc_grace_seconds`` that is
    too short. Earlier releases that do not know new tables or columns may run meanwhile. Returns
    when all nodes agree. Safe to repeat.

    Returns:
        What was missing, in words.

    Raises:
        OptionError, ConnectError, MissingSchemaError: See `needed_statements`.
        StoreError: Cassandra refuses, or the nodes do not agree in time.
    """
    with _connected(options) as (cluster, session):
        difference = _difference(session, options)
        check_usable(difference, options.keyspace)
        # Only what is missing: a role that may not create keyspaces can use one made for it.
        lacking = {*difference.tables, *(("keyspace",) if difference.keyspace else ())}
        created = _statements(options, replication, cluster, session).items()
        changed = upgrade_statements(options.keyspace, difference)
        wanted = [
            *((f"creation of {name}", text) for name, text in created if name in lacking),
            *(("change of a table", text) for text in changed),
            # Last, so that a program that finds the version finds all that belongs to it.
            *(("record of the version", text) for text in _versions(options, difference)),
        ]
        for what, statement in wanted:
            doing = f"{what} ({options.keyspace})"
            try:
                session.execute(statement, timeout=_TIMEOUT_SECONDS)
            except DRIVER_ERRORS as error:
                raise translate(error, Request.DDL, doing, options) from error
            _await_agreement(cluster, doing)
        return difference.missing


def _await_agreement(cluster: Cluster, doing: str) -> None:
    # The flag that the driver has for this is always false if it keeps no schema itself.
    if not cluster.control_connection.wait_for_schema_agreement(wait_time=_TIMEOUT_SECONDS):
        raise StoreError(f"{doing}: the nodes do not agree on the schema yet; repeat it later")


def _difference(session: Session, options: ConnectionOptions) -> Difference:
    if _read_replication(session, options) is None:
        return compare(None)
    with _translated(options):
        found = read_layout(session, options.keyspace)
    return compare(found.tables, found.comment)


def _read_replication(session: Session, options: ConnectionOptions) -> dict[str, str] | None:
    """The replication of the keyspace in the cluster; None if there is no such keyspace."""
    with _translated(options):
        row = session.execute(_KEYSPACE, (options.keyspace,)).one()
    return None if row is None else dict(row[0])


@contextmanager
def _translated(options: ConnectionOptions) -> Iterator[None]:
    try:
        yield
    except DRIVER_ERRORS as error:
        doing = f"reading of the schema ({options.keyspace})"
        raise translate(error, Request.READ, doing, options) from error


def _versions(options: ConnectionOptions, difference: Difference) -> list[str]:
    """The statement that records the version, if no version is recorded."""
    return [version_statement(options.keyspace, difference)] if difference.lacks_version else []


def _statements(
    options: ConnectionOptions, replication: Replication, cluster: Cluster, session: Session
) -> dict[str, str]:
    """The statements that create the keyspace and each table, by name."""
    nodes = count_nodes(cluster, session)
    connected = cluster.get_control_connection_host()
    local_dc = options.local_dc or connected.datacenter
    resolved = resolve_replication(replication, nodes, local_dc)
    statements = schema_statements(options.keyspace, resolved, connected.release_version)
    return dict(zip(named_texts("schema.cql"), statements, strict=True))


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
