"""Reads the tables of a keyspace, the nodes of its cluster, and one setting of the nodes."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from cassandra.cluster import Cluster, Session
from cassandra.query import SimpleStatement

from cassieq_spark.store.cassandra.mapping import DRIVER_ERRORS
from cassieq_spark.store.cassandra.upgrade import VERSIONED_TABLE
from cassieq_spark.store.tables import GRACE, Shape

_COLUMNS = (
    "SELECT table_name, column_name, kind, position, type FROM system_schema.columns "
    "WHERE keyspace_name = %s"
)
_TABLES = (
    "SELECT table_name, comment, gc_grace_seconds FROM system_schema.tables "
    "WHERE keyspace_name = %s"
)
_KEYS = ("partition_key", "clustering")
_PURGING = "SELECT value FROM system_views.settings WHERE name = 'paxos_state_purging'"
_MEMBERS = "SELECT dc, status, status_with_port FROM system_views.gossip_info"
#: The states of nodes that have left the cluster, or are being removed from it.
_GONE = ("LEFT", "REMOV")
_TIMEOUT_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class KeyspaceLayout:
    """The tables of a keyspace.

    Attributes:
        tables: All tables by name, including those of other programs.
        comment: The comment of the table that records the version; empty if there is no comment.
    """

    tables: dict[str, Shape]
    comment: str


def read_layout(session: Session, keyspace: str) -> KeyspaceLayout:
    """Read the tables of a keyspace by two reads of one node's memory.

    Raises:
        Exception: An error of the driver, one of `DRIVER_ERRORS`.
    """
    comments: dict[str, str] = {}
    graces: dict[str, int] = {}
    for table, comment, grace in session.execute(_TABLES, (keyspace,)):
        comments[table], graces[table] = comment or "", grace
    columns: defaultdict[str, list[_Column]] = defaultdict(list)
    for table, *column in session.execute(_COLUMNS, (keyspace,)):
        columns[table].append(_Column(*column))
    # A table that was created between the two reads has the grace that it was created with.
    tables = {table: _shape(found, graces.get(table, GRACE)) for table, found in columns.items()}
    return KeyspaceLayout(tables, comments.get(VERSIONED_TABLE, ""))


def count_nodes(cluster: Cluster, session: Session) -> Counter[str]:
    """The number of nodes in each data centre, including nodes that are starting. One read.

    The driver does not know a node before the node has its tokens, a second or more after
    other nodes know of it. If that list of nodes can't be read (Cassandra 4.0, or the role
    may not read ``system_views``), only the nodes that the driver knows are counted.
    """
    known = Counter(host.datacenter for host in cluster.metadata.all_hosts())
    try:
        members = session.execute(_MEMBERS, timeout=_TIMEOUT_SECONDS).all()
    except DRIVER_ERRORS:
        return known
    return known | Counter(
        data_centre
        for data_centre, *statuses in members
        if data_centre and not any((text or "").upper().startswith(_GONE) for text in statuses)
    )


def read_purging(session: Session) -> dict[str, str | None]:
    """Read how each connected node purges the state of LWTs: its setting ``paxos_state_purging``.

    One read per node, of the node's memory. Nodes of other data centres are left out.

    Returns:
        Settings by address; None where the setting is unknown: the node has Cassandra 4.0 or does
        not answer, or the role may not read ``system_views``.
    """
    found: dict[str, str | None] = {}
    for host in session.get_pool_state():
        try:
            statement = SimpleStatement(_PURGING)
            row = session.execute(statement, timeout=_TIMEOUT_SECONDS, host=host).one()
        except DRIVER_ERRORS:
            row = None
        found[str(host.address)] = row[0] if row else None
    return found


def purging_warnings(settings: Mapping[str, str | None]) -> tuple[str, ...]:
    """Warnings about nodes that forget too early what LWTs have written.

    >>> purging_warnings({"10.0.0.1": "gc_grace"})
    ()

    Args:
        settings: The settings, as `read_purging` returns them.
    """
    advice = "set paxos_state_purging: gc_grace in cassandra.yaml of every node"
    warnings = []
    if legacy := ", ".join(sorted(node for node, value in settings.items() if value == "legacy")):
        warnings.append(
            "after a clock that was ahead by more than a day, LWTs lose their effect on "
            f"{legacy}, where paxos_state_purging is legacy: {advice}"
        )
    if unknown := ", ".join(sorted(node for node, value in settings.items() if value is None)):
        warnings.append(
            f"whether paxos_state_purging is legacy on {unknown} can't be read: {advice}"
        )
    return tuple(warnings)


class _Column(NamedTuple):
    name: str
    kind: str
    position: int
    cql_type: str


def _shape(columns: Iterable[_Column], gc_grace_seconds: int) -> Shape:
    ordered = sorted(columns, key=lambda column: column.position)
    partition, clustering = (
        tuple(column.name for column in ordered if column.kind == kind) for kind in _KEYS
    )
    rest = {column.name: column.cql_type for column in ordered if column.kind not in _KEYS}
    return Shape(partition, clustering, rest, gc_grace_seconds)
