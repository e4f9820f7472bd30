from __future__ import annotations

from cassieq_spark.store.cassandra.inspection import purging_warnings


def test_nodes_that_forget_what_lwts_have_written_are_named_with_what_to_do():
    settings = {"10.0.0.2": "legacy", "10.0.0.1": "legacy", "10.0.0.3": "repaired"}

    (warning,) = purging_warnings(settings)

    assert "10.0.0.1, 10.0.0.2, where paxos_state_purging is legacy" in warning
    assert "10.0.0.3" not in warning
    assert "set paxos_state_purging: gc_grace" in warning


def test_a_node_whose_setting_cannot_be_read_is_named_as_well():
    (warning,) = purging_warnings({"10.0.0.1": None, "10.0.0.2": "gc_grace"})

    assert "on 10.0.0.1 can't be read" in warning
