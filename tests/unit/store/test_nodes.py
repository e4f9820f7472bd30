"""How many nodes a cluster has, for the default replication."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from cassandra import InvalidRequest
from cassandra.cluster import Cluster, Session

from cassieq_spark.store.cassandra.inspection import count_nodes


def count(known: list[str], members: list[tuple[str | None, ...]] | None) -> dict[str, int]:
    """Count with a driver that knows nodes, and a node that knows others by gossip."""

    def execute(*_: object, **__: object) -> Any:
        if members is None:
            raise InvalidRequest("table gossip_info does not exist")
        return SimpleNamespace(all=lambda: members)

    hosts = [SimpleNamespace(datacenter=name) for name in known]
    cluster = SimpleNamespace(metadata=SimpleNamespace(all_hosts=lambda: hosts))
    session = SimpleNamespace(execute=execute)
    return dict(count_nodes(cast("Cluster", cluster), cast("Session", session)))


def test_a_node_that_starts_counts_before_the_driver_knows_it():
    members = [("dc1", None, "NORMAL,-1"), ("dc1", None, None), ("dc2", None, "BOOT,7")]

    assert count(["dc1"], members) == {"dc1": 2, "dc2": 1}


@pytest.mark.parametrize("status", ["LEFT,-1,1795595986", "removing,x", "removed,x,1"])
@pytest.mark.parametrize("column", [0, 1])
def test_a_node_that_has_left_or_is_removed_does_not_count(status: str, column: int):
    statuses = (status, None) if column == 0 else (None, status)

    assert count(["dc1"], [("dc1", None, "NORMAL,-1"), ("dc1", *statuses)]) == {"dc1": 1}


def test_a_stopped_node_counts():
    assert count(["dc1"], [("dc1", None, "NORMAL,-1"), ("dc1", None, "shutdown,true")]) == {
        "dc1": 2
    }


@pytest.mark.parametrize("members", [None, [], [(None, None, "NORMAL,-1")]])
def test_where_gossip_cannot_be_read_the_nodes_that_the_driver_knows_count(
    members: list[tuple[str | None, ...]] | None,
):
    assert count(["dc1", "dc1"], members) == {"dc1": 2}
