from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from cassieq_spark.errors import OptionError, SetupError
from cassieq_spark.node import Cluster
from cassieq_spark.node.configure import (
    LOGBACK_XML,
    NodeSettings,
    NodeTls,
    cassandra_yaml,
    initial_tokens,
)
from cassieq_spark.node.java import java_command

MEMBERS = ("127.0.0.1", "127.0.0.2", "127.0.0.3")
SETTINGS = NodeSettings(
    folder=Path("/data/a folder"),
    address="127.0.0.2",
    members=MEMBERS,
    native_port=9042,
    storage_port=7000,
)
JARS = [Path("/lib/cassandra-all-5.0.8.jar"), Path("/lib/jamm-0.4.0.jar")]


def values_of(settings: NodeSettings):
    return {
        key: json.loads(value)
        for key, _, value in (
            line.partition(": ") for line in cassandra_yaml(settings).splitlines()
        )
    }


def test_a_node_listens_on_its_own_address_and_names_all_members_as_seeds():
    values = values_of(SETTINGS)

    assert (values["listen_address"], values["rpc_address"]) == ("127.0.0.2", "127.0.0.2")
    assert (values["native_transport_port"], values["storage_port"]) == (9042, 7000)
    assert values["seed_provider"][0]["parameters"] == [
        {"seeds": "127.0.0.1:7000,127.0.0.2:7000,127.0.0.3:7000"}
    ]


def test_lightweight_transactions_use_the_second_variant():
    assert values_of(SETTINGS)["paxos_variant"] == "v2"


def test_timestamps_of_transactions_that_lie_ahead_are_not_forgotten():
    assert values_of(SETTINGS)["paxos_state_purging"] == "gc_grace"


def test_a_name_with_quotes_is_still_one_value():
    assert values_of(replace(SETTINGS, cluster_name='a "b": #c'))["cluster_name"] == 'a "b": #c'


@pytest.mark.parametrize("nodes", [1, 2, 3])
def test_the_ring_is_cut_into_equal_parts(nodes: int):
    tokens = initial_tokens(nodes)

    assert tokens[0] == -(2**63)
    assert all(-(2**63) <= token < 2**63 for token in tokens)
    widths = [after - before for before, after in zip(tokens, [*tokens[1:], 2**63], strict=True)]
    assert max(widths) - min(widths) <= 1


def test_each_member_has_a_token_of_its_own():
    tokens = {values_of(replace(SETTINGS, address=member))["initial_token"] for member in MEMBERS}

    assert tokens == {str(token) for token in initial_tokens(3)}


def test_a_data_centre_is_the_second_number_of_an_address_if_there_are_several():
    elsewhere = replace(SETTINGS, members=("127.0.0.1", "127.0.0.2", "127.1.0.3"))

    assert values_of(SETTINGS)["endpoint_snitch"] == "SimpleSnitch"
    assert values_of(elsewhere)["endpoint_snitch"] == "RackInferringSnitch"


@pytest.mark.parametrize("data_centres", [0, 3])
def test_there_is_a_node_for_every_data_centre(data_centres: int):
    assert Cluster(nodes=3, data_centres=2).contact_points == [
        "127.0.0.1",
        "127.1.0.2",
        "127.0.0.3",
    ]
    with pytest.raises(OptionError, match="data centres must be 1 to 2"):
        Cluster(nodes=2, data_centres=data_centres)


def test_nobody_is_asked_for_a_password_unless_authentication_is_wanted():
    assert "authenticator" not in values_of(SETTINGS)


def test_with_authentication_passwords_and_rights_are_checked():
    values = values_of(replace(SETTINGS, authentication=True))

    assert values["authenticator"] == "PasswordAuthenticator"
    assert values["authorizer"] == "CassandraAuthorizer"


@pytest.mark.parametrize("asked", [False, True])
def test_with_tls_nobody_is_served_in_the_clear(asked: bool):
    tls = NodeTls(
        identity=Path("/keys/node.pem"), ca=Path("/keys/ca.pem"), client_certificates=asked
    )
    encryption = values_of(replace(SETTINGS, tls=tls))["client_encryption_options"]

    assert "client_encryption_options" not in values_of(SETTINGS)
    assert (encryption["enabled"], encryption["optional"]) == (True, False)
    assert (encryption["keystore"], encryption["truststore"]) == (
        "/keys/node.pem",
        "/keys/ca.pem",
    )
    assert encryption["require_client_auth"] == asked


@pytest.mark.parametrize(("write_through", "mode"), [(False, "periodic"), (True, "batch")])
def test_writes_are_logged_before_they_are_acknowledged_if_wanted(write_through: bool, mode: str):
    settings = replace(SETTINGS, write_through=write_through)

    assert values_of(settings)["commitlog_sync"] == mode


def test_what_passes_the_page_cache_is_on_disk_as_soon_as_a_killed_node_needs_it():
    cached, direct = values_of(SETTINGS), values_of(replace(SETTINGS, direct_log=True))

    assert "commitlog_disk_access_mode" not in cached
    assert direct["commitlog_disk_access_mode"] == "direct"
    assert (direct["commitlog_sync"], direct["commitlog_sync_period"]) == ("periodic", "100ms")


def test_the_log_configuration_is_well_formed():
    root = ET.fromstring(LOGBACK_XML)

    assert root.find("root").get("level") == "INFO"


def test_the_command_names_the_files_of_the_node():
    command = java_command(SETTINGS, java=Path("/jre/bin/java"), jars=JARS)

    assert command[0] == "/jre/bin/java"
    assert command[-1] == "org.apache.cassandra.service.CassandraDaemon"
    assert "-Dcassandra.config=file:///data/a%20folder/conf/cassandra.yaml" in command
    assert "-Dcassandra.storagedir=/data/a folder/storage" in command
    assert "-javaagent:/lib/jamm-0.4.0.jar" in command
    assert "/lib/cassandra-all-5.0.8.jar:/lib/jamm-0.4.0.jar" in command


def test_only_data_that_are_thrown_away_may_skip_the_disk():
    kept = java_command(SETTINGS, java=Path("java"), jars=JARS)
    thrown_away = java_command(replace(SETTINGS, synced=False), java=Path("java"), jars=JARS)

    assert "-Dcassandra.skip_sync=true" not in kept
    assert "-Dcassandra.skip_sync=true" in thrown_away


def test_more_options_of_java_are_taken_from_where_cassandra_s_scripts_have_them():
    given = {"JVM_EXTRA_OPTS": "-XX:TieredStopAtLevel=1 '-Da=b c'"}
    command = java_command(SETTINGS, java=Path("java"), jars=JARS, environment=given)

    at = command.index("-classpath")
    assert command[at - 2 : at] == ["-XX:TieredStopAtLevel=1", "-Da=b c"]
    with pytest.raises(SetupError, match='JVM_EXTRA_OPTS is "\'-Da": No closing quotation'):
        java_command(
            SETTINGS, java=Path("java"), jars=JARS, environment={"JVM_EXTRA_OPTS": "'-Da"}
        )


def test_a_class_path_without_the_memory_meter_is_refused():
    with pytest.raises(SetupError, match="jamm"):
        java_command(SETTINGS, java=Path("java"), jars=JARS[:1])
