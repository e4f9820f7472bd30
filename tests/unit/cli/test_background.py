from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from cassieq_spark.errors import SetupError
from cassieq_spark.node import Cluster, Release
from cassieq_spark.node.background import Background, Running
from tests.support.command_line import cassieq

PATIENCE = timedelta(seconds=20)

#: Keeps a cluster as ``cassieq node up --detach`` does, without one.
KEEPER = """\
import os, signal, sys
from pathlib import Path
from cassieq_spark.node import Cluster, Release
from cassieq_spark.node.background import Background, Running
signal.signal(signal.SIGTERM, lambda *_: sys.exit())
background = Background(Path(sys.argv[1]))
with background.hold():
    background.announce(Running(pid=os.getpid(), contact_points=["127.0.0.1"], port=9042))
    while True:
        signal.pause()
"""


@pytest.fixture
def background(tmp_path: Path) -> Background:
    return Background(tmp_path / "state")


def make_running(pid: int) -> Running:
    return Running(pid=pid, contact_points=["127.0.0.1"], port=9042)


# The process that launches a keeper ends before it; here it does not.
@pytest.mark.filterwarnings("ignore:subprocess .* is still running:ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_launched_cluster_runs_until_it_is_stopped(background: Background):
    launched = background.launch(["-c", KEEPER, str(background.folder)], timeout=PATIENCE)

    assert background.running() == launched
    assert background.stop(timeout=PATIENCE)
    assert background.running() is None


def test_status_says_how_to_reach_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    background = Background()
    secured = {"username": "admin", "password_file": "/keys/password", "ca_file": "/keys/ca.pem"}
    with background.hold():
        background.announce(replace(make_running(os.getpid()), port=19042, **secured))

        said = cassieq("node", "status").out.splitlines()
        told = json.loads(cassieq("node", "status", "--json").out)

    assert said == [
        f"Cassandra serves at 127.0.0.1:19042 (process {os.getpid()}; the data are temporary).",
        "Administrator: admin; password: in /keys/password",
        "CA of its certificates: /keys/ca.pem",
        "The commands of cassieq use it, unless you name another one.",
        'In Spark: .option("spark.cassandra.connection.port", "19042")',
        "In Python: Client(port=19042)",
    ]
    assert (told["running"], told["port"], told["username"]) == (True, 19042, "admin")


@pytest.mark.parametrize(
    ("words", "begun"),
    [
        ([], f"Starting Cassandra {Release.V5_0.version} ...\n"),
        (
            ["--cassandra-version", "4.1", "--nodes", "3"],
            "Starting Cassandra 4.1.10, 3 nodes ...\n",
        ),
    ],
)
def test_a_start_says_that_it_has_begun_and_then_where_the_node_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], begun: str
):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr(Cluster, "prepare", lambda _: None)
    monkeypatch.setattr(Background, "launch", lambda *_, **__: make_running(1))

    ended = cassieq("node", "up", "--detach", *words)

    assert (ended.code, ended.err) == (0, begun)
    assert ended.out == (
        "Cassandra serves at 127.0.0.1:9042 (process 1; the data are temporary).\n"
        "The commands of cassieq use it, unless you name another one.\n"
        "To stop it: cassieq node down\n"
    )


def test_nothing_runs_and_nothing_is_stopped_at_first(background: Background):
    assert background.running() is None
    assert not background.stop(timeout=PATIENCE)


def test_a_state_that_was_left_behind_names_nobody(background: Background):
    with background.hold():
        background.announce(make_running(os.getpid()))
        left_behind = (background.folder / "node.json").read_text()
    (background.folder / "node.json").write_text(left_behind)

    # Were the pid taken for a keeper's, this test would be ended.
    assert not background.stop(timeout=PATIENCE)


def test_there_is_only_one(background: Background):
    with (
        background.hold(),
        pytest.raises(SetupError, match="cassieq node down"),
        Background(background.folder).hold(),
    ):
        pass


def test_one_that_is_still_starting_is_not_stopped(background: Background):
    with background.hold(), pytest.raises(SetupError, match="try again in a moment"):
        background.stop(timeout=PATIENCE)


def test_a_failed_start_shows_the_end_of_the_log(background: Background):
    with pytest.raises(SetupError, match="no port left"):
        background.launch(["-c", "import sys; sys.exit('no port left')"], timeout=PATIENCE)


def test_a_start_that_takes_too_long_is_ended(background: Background):
    with pytest.raises(SetupError, match="did not start"):
        background.launch(["-c", "import signal; signal.pause()"], timeout=timedelta())


def test_a_state_of_another_version_names_nobody(background: Background):
    with background.hold():
        (background.folder / "node.json").write_text('{"pid": 1, "shape": "round"}')

        assert background.running() is None


def test_the_state_is_in_the_folder_that_the_user_set(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))

    assert Background().folder == tmp_path / "cassieq-spark"


def test_the_command_exits_with_3_when_nothing_runs(tmp_path: Path):
    done = run_cassieq("node", "status", state=tmp_path)

    assert (done.returncode, done.stderr) == (3, "")
    assert done.stdout.startswith("No node runs in the background.")


def run_cassieq(*arguments: str, state: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "cassieq_spark.cli", *arguments],
        env=os.environ | {"XDG_STATE_HOME": str(state)},
        capture_output=True,
        text=True,
        check=False,
    )
