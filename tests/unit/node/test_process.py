from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cassieq_spark.errors import SetupError
from cassieq_spark.node.node import Supervisor

SLEEP = ["sleep", "600"]

#: Opens a supervisor, tells where and what it keeps, and waits to be killed.
PARENT = """\
import sys
from pathlib import Path
from cassieq_spark.node.node import Supervisor
supervisor = Supervisor()
log = supervisor.folder / "log"
pid = supervisor.launch("a", ["sleep", "600"], log=log)
print(supervisor.folder, pid, flush=True)
sys.stdin.read()
"""

#: Says that it is ready once it has 20 threads that are never still.
BUSY_THREADS = """\
import threading
def turn():
    while True:
        pass
for _ in range(20):
    threading.Thread(target=turn).start()
print("ready", flush=True)
"""


@pytest.fixture
def supervisor() -> Iterator[Supervisor]:
    supervisor = Supervisor()
    yield supervisor
    supervisor.close()


def wait_for_end(pid: int) -> None:
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    ended, _, _ = select.select([handle], [], [], 20)
    os.close(handle)
    assert ended, f"process {pid} is still there"


def exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_output_goes_to_the_log(supervisor: Supervisor):
    log = supervisor.folder / "log"
    wait_for_end(supervisor.launch("a", ["sh", "-c", "echo out; echo err >&2; exit 3"], log=log))

    assert supervisor.exit_code("a") == 3
    assert log.read_text() == "out\nerr\n"


def test_a_signal_reaches_the_process(supervisor: Supervisor):
    pid = supervisor.launch("a", SLEEP, log=supervisor.folder / "log")

    assert supervisor.exit_code("a") is None
    assert supervisor.send("a", signal.SIGKILL)
    wait_for_end(pid)
    assert supervisor.exit_code("a") == -signal.SIGKILL


def test_a_process_that_was_told_to_stop_has_stopped_with_all_its_threads(
    supervisor: Supervisor, tmp_path: Path
):
    log = tmp_path / "log"
    pid = supervisor.launch("a", [sys.executable, "-c", BUSY_THREADS], log=log)
    while "ready" not in log.read_text():
        pass

    supervisor.send("a", signal.SIGSTOP)

    stats = [task.joinpath("stat").read_text() for task in Path(f"/proc/{pid}/task").iterdir()]
    assert [stat.rpartition(") ")[2][0] for stat in stats] == ["T"] * 21


def test_a_process_that_has_ended_gets_no_signal(supervisor: Supervisor):
    wait_for_end(supervisor.launch("a", ["true"], log=supervisor.folder / "log"))

    assert not supervisor.send("a", signal.SIGKILL)


def test_a_program_that_is_missing_is_named(supervisor: Supervisor):
    with pytest.raises(SetupError, match="Cannot start /nowhere/java"):
        supervisor.launch("a", ["/nowhere/java"], log=supervisor.folder / "log")


def test_closing_ends_everything_and_removes_the_temporary_folder(supervisor: Supervisor):
    pids = [supervisor.launch(name, SLEEP, log=supervisor.folder / name) for name in "ab"]

    supervisor.close()
    supervisor.close()

    assert not any(map(exists, pids))
    assert not supervisor.folder.exists()


def test_even_a_paused_process_is_ended(supervisor: Supervisor):
    pid = supervisor.launch("a", SLEEP, log=supervisor.folder / "log")
    supervisor.send("a", signal.SIGSTOP)

    supervisor.close()

    assert not exists(pid)


def test_a_given_folder_is_kept_and_processes_end_gently(tmp_path: Path):
    log, ready = tmp_path / "log", tmp_path / "ready"
    os.mkfifo(ready)
    supervisor = Supervisor(keep=tmp_path)
    script = f"trap 'echo in order; exit' TERM; echo > {ready}; while :; do sleep 0.01; done"
    supervisor.launch("a", ["sh", "-c", script], log=log)
    ready.read_text()

    supervisor.close()

    assert log.read_text() == "in order\n"


def test_a_supervisor_that_is_gone_is_said_so(supervisor: Supervisor):
    supervisor.close()

    with pytest.raises(SetupError, match="has ended"):
        supervisor.exit_code("a")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_nothing_is_left_when_the_parent_is_killed(number: signal.Signals):
    with start_parent() as parent:
        folder, pid = read_line(parent)

        parent.send_signal(number)
        # The supervisor has our pipe as its standard error: it has ended when that does.
        assert parent.stderr.read() == ""

    assert not exists(pid)
    assert not folder.exists()


@pytest.mark.skipif(sys.platform != "linux", reason="no death signal")
def test_no_process_is_left_when_the_supervisor_is_killed():
    with start_parent() as parent:
        folder, pid = read_line(parent)

        os.kill(int(Path(f"/proc/{pid}/stat").read_text().split()[3]), signal.SIGKILL)
        wait_for_end(pid)
        parent.kill()

    assert folder.exists()
    (folder / "log").unlink()
    folder.rmdir()


def start_parent() -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", PARENT],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def read_line(parent: subprocess.Popen[str]) -> tuple[Path, int]:
    folder, pid = parent.stdout.readline().split()
    return Path(folder), int(pid)
