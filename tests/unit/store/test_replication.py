from __future__ import annotations

import pytest

from cassieq_spark.errors import OptionError
from cassieq_spark.store.consistency import (
    parse_replication,
    replication_warnings,
    resolve_replication,
)

NODES = {"dc1": 4, "dc2": 2}


def test_a_number_is_for_the_data_centre_connected_to():
    assert resolve_replication("2", NODES, "dc2") == {
        "class": "NetworkTopologyStrategy",
        "dc2": 2,
    }


def test_data_centres_are_named_with_their_replicas():
    expected = {"class": "NetworkTopologyStrategy", "dc1": 3, "dc2": 2}

    assert resolve_replication("dc1=3, dc2=2", NODES, "dc1") == expected
    assert resolve_replication({"dc1": 3, "dc2": 2}, NODES, "dc1") == expected


@pytest.mark.parametrize(("local_dc", "replicas"), [("dc1", 3), ("dc2", 2)])
def test_the_default_is_three_replicas_or_as_many_as_there_are_nodes(local_dc: str, replicas: int):
    assert resolve_replication(None, NODES, local_dc) == {
        "class": "NetworkTopologyStrategy",
        local_dc: replicas,
    }


def test_one_node_may_have_the_simple_strategy():
    assert resolve_replication("SimpleStrategy=1", NODES, "dc1") == {
        "class": "SimpleStrategy",
        "replication_factor": 1,
    }


@pytest.mark.parametrize("text", ["", "0", "-1", "three", "dc1=", "dc1=0", "=3", "dc1=3,dc1=3"])
def test_anything_else_is_not_a_replication(text: str):
    with pytest.raises(OptionError, match="not valid"):
        parse_replication(text)


def test_an_unknown_data_centre_is_refused_and_the_known_ones_are_named():
    with pytest.raises(OptionError, match="no data centre 'dc3'; the cluster has dc1, dc2"):
        resolve_replication("dc3=1", NODES, "dc1")


def test_more_replicas_than_nodes_are_refused():
    with pytest.raises(OptionError, match="3 replicas do not fit data centre 'dc2'"):
        resolve_replication("dc1=3,dc2=3", NODES, "dc1")


def test_fewer_replicas_than_the_nodes_could_keep_are_warned_of():
    (warning,) = replication_warnings({"class": "NetworkTopologyStrategy", "dc1": "2"}, NODES)

    assert "the keyspace has 2 replica(s) in data centre 'dc1', which has 4 nodes" in warning
    assert "for 3, ALTER KEYSPACE" in warning


@pytest.mark.parametrize("replicas", [{"dc1": "3"}, {"dc2": "2"}, {"dc1": "5", "dc2": "2"}, {}])
def test_as_many_replicas_as_nodes_or_three_are_not_warned_of(replicas: dict[str, str]):
    replication = {"class": "NetworkTopologyStrategy", **replicas}

    assert replication_warnings(replication, NODES) == ()
