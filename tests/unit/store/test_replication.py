from __future__ import annotations

import pytest

from cassieq_spark.errors import OptionError
from cassieq_spark.store.consistency import parse_replication, resolve_replication

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
