"""Counts the LWTs of a cluster by the writes of its nodes to the log of Paxos."""

from __future__ import annotations

from cassandra.cluster import Session

#: Writes of each replica for an LWT: promise, proposal and commit.
_WRITES = 3
_QUERY = (
    "SELECT count FROM system_views.local_write_latency "
    "WHERE keyspace_name = 'system' AND table_name = 'paxos'"
)


def count_lwts(cql: Session, *, replicas: int = 1) -> float:
    """How many LWTs the nodes have carried out since they started.

    A refused LWT counts for a half, and a serial read for a third: they end after the proposal or
    the promise (measured with ``paxos_variant: v2`` and no contention).
    """
    hosts = cql.cluster.metadata.all_hosts()
    if len(hosts) < replicas:
        raise AssertionError(f"the driver knows {len(hosts)} nodes, expected {replicas} at least")
    writes = sum(count for host in hosts for (count,) in cql.execute(_QUERY, host=host))
    return writes / replicas / _WRITES
