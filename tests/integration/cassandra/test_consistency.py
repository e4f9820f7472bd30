from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from uuid import uuid1, uuid4

import pytest

from cassieq_spark.errors import OptionError, StoreError
from cassieq_spark.model import BucketSlice, Chunk, QueueId
from cassieq_spark.node import Cluster
from cassieq_spark.settings.connection import ConnectionOptions, Consistency
from cassieq_spark.store import open_store
from cassieq_spark.store.cassandra import schema
from cassieq_spark.store.cassandra.schema import apply_schema, check_schema
from cassieq_spark.store.cassandra.session import connect
from cassieq_spark.store.protocol import Insert, Update, When, partition_of_ledger
from cassieq_spark.store.tables import Table

HEAD = ("head", 0, "")


@pytest.fixture(scope="module")
def by_data_centre(connection: ConnectionOptions) -> ConnectionOptions:
    """A keyspace whose replicas belong to data centres; there is one."""
    options = replace(connection, keyspace=f"cassieq_test_{uuid4().hex[:12]}")
    apply_schema(options, "1")
    return options


@pytest.mark.parametrize("consistency", Consistency)
def test_every_request_works_at_every_level(
    by_data_centre: ConnectionOptions, consistency: Consistency
):
    store = open_store(replace(by_data_centre, consistency=consistency))
    queue_id, block = QueueId(f"{uuid4()}@1"), uuid1()
    ledger = partition_of_ledger(queue_id)
    update = Update(HEAD, {"next": 1}, (When("next", "=", 0),))

    assert store.cas(ledger, [Insert(HEAD, {"next": 0}, if_absent=True)])
    assert [store.cas(ledger, [update]) for _ in range(2)] == [True, False]
    assert store.read_rows(ledger).rows[0]["next"] == 1
    assert store.read_rows(ledger, serial=True).rows[0]["next"] == 1
    store.write_chunks(queue_id, block, [Chunk(0, 0, 1, b"data")])
    found = store.read_chunks(queue_id, [BucketSlice(block, 0, 0, 1)])
    assert [chunk.data for _, chunk in found] == [b"data"]
    assert queue_id in {row["queue_id"] for row in store.scan(Table.CHUNK)}
    store.delete_buckets(queue_id, [(block, 0)])

    store.close()


def test_a_check_warns_of_fewer_replicas_than_the_nodes_could_keep(
    by_data_centre: ConnectionOptions, monkeypatch: pytest.MonkeyPatch
):
    assert not any("replica" in each for each in check_schema(by_data_centre).warnings)

    monkeypatch.setattr(schema, "count_nodes", lambda *_: Counter({"datacenter1": 3}))

    few, *_ = check_schema(by_data_centre).warnings
    assert "1 replica(s) in data centre 'datacenter1', which has 3 nodes" in few


# Two data centres of one node each


@pytest.fixture(scope="module")
def far_and_near() -> Iterator[Cluster]:
    with Cluster(nodes=2, data_centres=2) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def near(far_and_near: Cluster) -> ConnectionOptions:
    """Keyspaces with replicas in both data centres, in one, and in whichever."""
    options = ConnectionOptions(
        contact_points=tuple(far_and_near.contact_points[:1]),
        port=far_and_near.port,
        local_dc="0",
        patience=timedelta(milliseconds=200),
        keyspace="both",
    )
    while data_centres(options) != {"0", "1"}:
        pass
    apply_schema(options, "0=1,1=1")
    apply_schema(replace(options, keyspace="one"), "0=1")
    apply_schema(replace(options, keyspace="whichever"), "SimpleStrategy=2")
    return options


@pytest.fixture(scope="module")
def far(near: ConnectionOptions, far_and_near: Cluster) -> ConnectionOptions:
    return replace(near, contact_points=tuple(far_and_near.contact_points[1:]), local_dc="1")


def data_centres(options: ConnectionOptions) -> set[str]:
    cluster, _ = connect(options)
    found = {host.datacenter for host in cluster.metadata.all_hosts()}
    cluster.shutdown()
    return found


def refusal(options: ConnectionOptions) -> str:
    with pytest.raises(OptionError) as refused:
        open_store(options)
    return str(refused.value)


def test_a_local_quorum_needs_to_know_where(near: ConnectionOptions, far: ConnectionOptions):
    assert "the local one must be named" in refusal(replace(near, local_dc=None))
    for elsewhere in (far, replace(far, local_dc=None)):
        assert "no replica in data centre '1'" in refusal(replace(elsewhere, keyspace="one"))
    assert "use QUORUM" in refusal(replace(near, keyspace="whichever"))


def test_what_one_data_centre_does_the_other_sees_at_once(
    near: ConnectionOptions, far: ConnectionOptions
):
    here, there = (
        open_store(replace(each, consistency=Consistency.QUORUM)) for each in (near, far)
    )
    queue_id = QueueId(f"{uuid4()}@1")
    ledger = partition_of_ledger(queue_id)
    assert here.cas(ledger, [Insert(HEAD, {"next": 0}, if_absent=True)])

    for count in range(20):
        first, second = (here, there) if count % 2 else (there, here)
        update = Update(HEAD, {"next": count + 1}, (When("next", "=", count),))
        assert first.cas(ledger, [update])
        assert not second.cas(ledger, [update])
        assert second.read_rows(ledger).rows[0]["next"] == count + 1

    here.close()
    there.close()


def test_replicas_are_for_nodes_that_are_starting_as_well(near: ConnectionOptions):
    """A node without tokens, as it is for a second when it starts, is not known to the driver."""
    starting = replace(near, keyspace="starting")
    cluster, session = connect(near)
    tokens, *peer = session.execute("SELECT tokens, peer, peer_port FROM system.peers_v2").one()
    change = "UPDATE system.peers_v2 SET tokens = %s WHERE peer = %s AND peer_port = %s"
    session.execute(change, (None, *peer))
    try:
        assert data_centres(near) == {"0"}
        apply_schema(starting, "0=1,1=1")
        assert check_schema(starting).missing == ()
    finally:
        session.execute(change, (tokens, *peer))
        cluster.shutdown()


def test_when_a_data_centre_is_lost_only_a_local_quorum_goes_on(
    near: ConnectionOptions, far_and_near: Cluster
):
    options = {each: replace(near, consistency=each) for each in Consistency}
    stores = {each: open_store(one) for each, one in options.items()}
    queue_id, block = QueueId(f"{uuid4()}@1"), uuid1()
    ledger = partition_of_ledger(queue_id)
    head = [Insert(HEAD, {"next": 0}, if_absent=True)]
    far_and_near.kill(1)
    try:
        assert stores[Consistency.LOCAL_QUORUM].cas(ledger, head)
        assert stores[Consistency.LOCAL_QUORUM].read_rows(ledger).rows
        with pytest.raises(StoreError, match=r"QUORUM|SERIAL"):
            stores[Consistency.QUORUM].cas(ledger, head)
        with pytest.raises(StoreError, match="QUORUM"):
            stores[Consistency.QUORUM].write_chunks(queue_id, block, [Chunk(0, 0, 1, b"data")])
    finally:
        far_and_near.start(1)
        for store in stores.values():
            store.close()
