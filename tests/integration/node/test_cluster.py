from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from cassandra.auth import PlainTextAuthProvider
from cassandra.cluster import (
    EXEC_PROFILE_DEFAULT,
    ConsistencyLevel,
    ExecutionProfile,
    NoHostAvailable,
    Session,
)
from cassandra.cluster import Cluster as Driver
from cassandra.policies import WhiteListRoundRobinPolicy

from cassieq_spark.errors import SetupError
from cassieq_spark.node import Cluster
from cassieq_spark.node.configure import can_pass_page_cache
from cassieq_spark.node.node import answers_cql

#: Opens a cluster, tells the pid of its Java, and waits to be killed.
PARENT = """\
import sys
from cassieq_spark.node import Cluster
with Cluster() as cluster:
    print(cluster.folder, cluster.pid(0), flush=True)
    sys.stdin.read()
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(write_through=True) as cluster:
        yield cluster


@contextmanager
def session_of(points: list[str], port: int, **options: object) -> Iterator[Session]:
    profile = ExecutionProfile(
        load_balancing_policy=WhiteListRoundRobinPolicy(points),
        consistency_level=ConsistencyLevel.QUORUM,
    )
    driver = Driver(
        points,
        port=port,
        protocol_version=5,
        execution_profiles={EXEC_PROFILE_DEFAULT: profile},
        **options,
    )
    try:
        yield driver.connect()
    finally:
        driver.shutdown()


def make_table(session: Session, *, replicas: int = 1) -> str:
    keyspace = f"k{uuid.uuid4().hex}"
    session.execute(
        f"CREATE KEYSPACE {keyspace} WITH replication ="
        f" {{'class': 'SimpleStrategy', 'replication_factor': {replicas}}}"
    )
    session.execute(f"CREATE TABLE {keyspace}.t (id int PRIMARY KEY, v int)")
    return f"{keyspace}.t"


def test_a_killed_node_starts_again_with_its_data(cluster: Cluster):
    with session_of(cluster.contact_points, cluster.port) as session:
        table = make_table(session)
        session.execute(f"INSERT INTO {table} (id, v) VALUES (1, 10) IF NOT EXISTS")

    cluster.kill(0)
    assert not cluster.is_running(0)
    cluster.start(0)

    with session_of(cluster.contact_points, cluster.port) as session:
        assert session.execute(f"SELECT v FROM {table} WHERE id = 1").one().v == 10


def test_a_paused_node_answers_after_it_is_resumed(cluster: Cluster):
    cluster.pause(0)
    paused = answers_cql("127.0.0.1", cluster.port)
    cluster.resume(0)

    assert not paused
    assert answers_cql("127.0.0.1", cluster.port)


def test_a_second_cluster_gets_other_ports_and_an_occupied_one_is_refused(cluster: Cluster):
    with pytest.raises(SetupError, match=f"Port {cluster.port} is in use"):
        Cluster(port=cluster.port).open()


def test_nothing_is_left_when_the_parent_is_killed():
    with subprocess.Popen(
        [sys.executable, "-c", PARENT],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as parent:
        folder, pid = parent.stdout.readline().split()
        assert "CassandraDaemon" in Path(f"/proc/{pid}/cmdline").read_text()

        parent.kill()
        # The supervisor has our pipe as its standard error: it has ended when that does.
        assert parent.stderr.read() == ""

    assert not Path(f"/proc/{pid}").exists()
    assert not Path(folder).exists()


def wait_for_peers(session: Session, count: int) -> None:
    """A node that has seen others come up writes them down a moment later."""
    deadline = time.monotonic() + 30
    while len(found := session.execute("SELECT peer FROM system.peers_v2").all()) != count:
        assert time.monotonic() < deadline, f"expected {count} peers, the node tells {found}"
        time.sleep(0.1)


def test_three_nodes_agree_and_go_on_without_one():
    with Cluster(nodes=3) as cluster:
        for point in cluster.contact_points:
            with session_of([point], cluster.port) as session:
                wait_for_peers(session, 2)
        with session_of(cluster.contact_points[:1], cluster.port) as session:
            table = make_table(session, replicas=3)
            cluster.kill(2)
            session.execute(f"INSERT INTO {table} (id, v) VALUES (1, 10) IF NOT EXISTS")
            assert session.execute(f"SELECT v FROM {table} WHERE id = 1").one().v == 10


def test_with_authentication_a_wrong_password_is_refused():
    with Cluster(authentication=True) as cluster:
        right = PlainTextAuthProvider("cassandra", "cassandra")
        with session_of(cluster.contact_points, cluster.port, auth_provider=right) as session:
            assert session.execute("SELECT role FROM system_auth.roles").one().role == "cassandra"

        wrong = PlainTextAuthProvider("cassandra", "guess")
        with (
            pytest.raises(NoHostAvailable, match="Bad credentials"),
            session_of(cluster.contact_points, cluster.port, auth_provider=wrong),
        ):
            pass


def test_the_command_keeps_a_node_in_the_background_and_its_data_where_told(tmp_path: Path):
    def cassieq(*arguments: str, code: int = 0) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "cassieq_spark.cli", "node", *arguments],
            env=os.environ | {"XDG_STATE_HOME": str(tmp_path / "state")},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == code, done.stderr
        return done.stdout + done.stderr

    data_dir = tmp_path / "data"
    assert json.loads(cassieq("status", "--json", code=3)) == {"running": False}
    cassieq("up", "--detach", "--data-dir", str(data_dir))
    state = json.loads(cassieq("status", "--json"))
    assert state["running"]
    assert "runs in the background already" in cassieq("up", "--detach", code=1)
    with session_of(state["contact_points"], state["port"]) as session:
        table = make_table(session)
        session.execute(f"INSERT INTO {table} (id, v) VALUES (1, 10)")
    cassieq("down")
    assert json.loads(cassieq("status", "--json", code=3)) == {"running": False}
    assert not answers_cql("127.0.0.1", state["port"])

    with Cluster(data_dir=data_dir) as cluster:
        settings = (cluster.folder / "127.0.0.1" / "conf" / "cassandra.yaml").read_text()
        passes = 'commitlog_disk_access_mode: "direct"' in settings
        assert passes == can_pass_page_cache(tmp_path)
        with session_of(cluster.contact_points, cluster.port) as session:
            assert session.execute(f"SELECT v FROM {table} WHERE id = 1").one().v == 10
            written = write_for_a_second(session, table)

        cluster.kill(0)
        cluster.start(0)

        with session_of(cluster.contact_points, cluster.port) as session:
            left = {row.id for row in session.execute(f"SELECT id FROM {table}")}
    assert left >= set(range(written // 2)), "a killed node forgets a tenth of a second, not more"


def write_for_a_second(session: Session, table: str) -> int:
    """Write rows from id 0 on; how many."""
    end, written = time.monotonic() + 1, 0
    while time.monotonic() < end:
        session.execute(f"INSERT INTO {table} (id, v) VALUES ({written}, 10)")
        written += 1
    return written
