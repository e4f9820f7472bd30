"""A password is nowhere: not in logs, event logs, plans, checkpoints, errors, reprs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import pytest

from cassieq_spark.queues import create_queue
from cassieq_spark.repair.spark_scan import connector_options
from cassieq_spark.settings.connection import ConnectionOptions, Consistency
from cassieq_spark.store import open_store
from cassieq_spark.store.grants import User, grant_statements
from tests.support.secure_cluster import SecureCluster, secure_cluster
from tests.support.spark_session import recommended_settings

#: Spark's own debug log shows the session's configuration as it is; no option is in it.
OF_THE_SESSION = b" DEBUG org.apache.spark.sql.internal.SharedState Applying other initial session"
PROGRAM = Path(__file__).parent / "programs" / "use_a_password.py"
FORMS = ("literal", "environment")
LOG_EVERYTHING = """\
rootLogger.level = debug
rootLogger.appenderRef.file.ref = file
appender.file.type = File
appender.file.name = file
appender.file.fileName = {file}
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d %p %c %m%n%ex
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureCluster]:
    with secure_cluster(tmp_path_factory.mktemp("keys")) as cluster:
        yield cluster


def test_a_password_is_nowhere(cluster: SecureCluster, tmp_path: Path):
    """One program uses both forms, and a wrong one, so that all that is left is searched once."""
    secrets = {form: f"hunter2-{form}-{uuid4()}" for form in FORMS}
    options = {
        form: of_a_consumer(cluster, f"role-{form}", each) for form, each in secrets.items()
    }
    options["literal"]["spark.cassandra.auth.password"] = secrets["literal"]
    options["environment"]["spark.cassandra.auth.password"] = "env:CASSANDRA_PASSWORD"

    done = run(options, tmp_path, {"CASSANDRA_PASSWORD": secrets["environment"]})

    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    (tmp_path / "stdout").write_text(done.stdout)
    (tmp_path / "stderr").write_text(done.stderr)
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    # All the places where it might be are there, and are not empty.
    assert b" DEBUG org.apache.spark.sql." in (tmp_path / "log").read_bytes()
    assert any("events" in path.parts and path.stat().st_size for path in files)
    for form in FORMS:
        assert any({form, "offsets"} <= {*path.parts} for path in files)
    assert "cassieq" in done.stdout
    for user in ("nobody", *(f"role-{form}" for form in FORMS)):
        assert f"ConnectError: the cluster refuses user '{user}'" in done.stdout
    found = [
        (str(path), line)
        for path in files
        for line in path.read_bytes().splitlines()
        if b"hunter2" in line
    ]
    environment = [each for each in found if secrets["environment"].encode() in each[1]]
    assert environment == []
    assert [each for each in found if OF_THE_SESSION not in each[1]] == []


def of_a_consumer(cluster: SecureCluster, role: str, password: str) -> dict[str, str]:
    """The options of a role that may read and write, for a queue of its own; no password."""
    connection = cluster.login(role, password)
    cluster.execute(*grant_statements(User.CONSUMER, role, "queues"))
    store = open_store(cluster.superuser)
    queue = create_queue(store, f"q-{uuid4().hex[:12]}")
    store.close()
    return options_of(connection, queue.name)


def options_of(connection: ConnectionOptions, queue: str) -> dict[str, str]:
    return {
        "spark.cassandra.connection.host": ",".join(connection.contact_points),
        "spark.cassandra.connection.port": str(connection.port),
        "spark.cassandra.auth.username": str(connection.username),
        "sslCaFile": str(connection.ssl_ca_file),
        "sslCertFile": str(connection.ssl_cert_file),
        "sslKeyFile": str(connection.ssl_key_file),
        "keyspace": connection.keyspace,
        "queue": queue,
    }


def run(
    options: dict[str, dict[str, str]], left: Path, environment: dict[str, str]
) -> subprocess.CompletedProcess[str]:
    """Run the program with logs at their most talkative; all it leaves goes into the folder."""
    (left / "events").mkdir()
    (left / "log4j2.properties").write_text(LOG_EVERYTHING.format(file=left / "log"))
    java = f"-Dlog4j2.configurationFile={(left / 'log4j2.properties').as_uri()}"
    settings = recommended_settings() | {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.extraJavaOptions": java,
        "spark.eventLog.enabled": "true",
        "spark.eventLog.compress": "false",
        "spark.eventLog.dir": (left / "events").as_uri(),
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(left / "warehouse"),
        "spark.ui.enabled": "false",
    }
    words = [word for key, value in settings.items() for word in ("--conf", f"{key}={value}")]
    arguments = " ".join(f'"{word}"' for word in ["--master", "local[2]", *words, "pyspark-shell"])
    return subprocess.run(
        [sys.executable, str(PROGRAM), json.dumps(options), str(left / "checkpoints")],
        env=os.environ | environment | {"PYSPARK_SUBMIT_ARGS": arguments},
        cwd=left,
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_connector_gets_the_secret_itself_and_how_to_reach_the_same_cluster(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setenv("OF_A_TEST", "hunter2")
    connection = ConnectionOptions(
        username="ann",
        password="env:OF_A_TEST",
        ssl_ca_file="ca.pem",
        consistency=Consistency.QUORUM,
    )

    options = connector_options(connection)

    assert options["spark.cassandra.auth.password"] == "hunter2"
    assert options["spark.cassandra.connection.ssl.enabled"] == "true"
    assert options["spark.cassandra.input.consistency.level"] == "QUORUM"
    plain = connector_options(replace(connection, ssl_ca_file=None, username=None, password=None))
    assert plain["spark.cassandra.connection.ssl.enabled"] == "false"
    assert "spark.cassandra.auth.password" not in plain


def test_the_connector_gets_a_bundle_in_place_of_an_address():
    options = connector_options(ConnectionOptions(secure_connect_bundle="/secrets/bundle.zip"))

    assert options["spark.cassandra.connection.config.cloud.path"] == "file:///secrets/bundle.zip"
    assert "spark.cassandra.connection.host" not in options
