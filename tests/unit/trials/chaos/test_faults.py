"""What is struck stands still or ends, and what has ended is started again."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import psutil
import pytest

from cassieq_spark.node import Cluster
from trials.chaos.clocks import NodeClocks
from trials.chaos.faults import WRONG_BY, Fault, How, Striker, Victim
from trials.processes import Program, supervise, wait_until

FOR_EVER = "import signal; signal.pause()"
SECONDS = 60


@pytest.fixture
def application(tmp_path: Path) -> Iterator[Callable[[str], Program]]:
    made = []

    def make(program: str) -> Program:
        command = [sys.executable, "-I", "-c", program]
        made.append(Program("a", command, log=tmp_path / "a.log"))
        return made[-1]

    yield make
    for each in made:
        each.kill()


def striker_of(repair: Program) -> Striker:
    clocks = NodeClocks(repair.log.parent)
    return Striker(Cluster(nodes=3), clocks, [], [], [repair])


def fault(how: How, seconds: float = 0) -> Fault:
    return Fault(timedelta(0), Victim.REPAIR, 0, how, timedelta(seconds=seconds))


def process_of(application: Program) -> psutil.Process | None:
    children = psutil.Process(application.pid).children()
    return children[0] if children else None


def test_what_is_killed_is_started_again(application):
    repair = application(FOR_EVER)
    supervise([repair], for_ever=False)
    striker = striker_of(repair)

    striker.strike(fault(How.KILLED))
    striker.wait()

    assert wait_until(lambda: not repair.is_running, SECONDS)
    assert supervise([repair], for_ever=False)
    assert repair.starts == 2
    assert striker.struck == {"repair_killed": 1}


def test_what_is_stopped_stands_still_and_goes_on(application):
    repair = application(FOR_EVER)
    supervise([repair], for_ever=True)
    assert wait_until(lambda: process_of(repair) is not None, SECONDS)
    process = process_of(repair)
    striker = striker_of(repair)

    striker.strike(fault(How.PAUSED, 1))

    assert wait_until(lambda: process.status() == psutil.STATUS_STOPPED, SECONDS)
    striker.wait()
    assert wait_until(lambda: process.status() != psutil.STATUS_STOPPED, SECONDS)
    assert striker.struck == {"repair_paused": 1}
    assert repair.starts == 1


def test_what_has_ended_in_good_order_is_left_alone_where_that_is_wanted(application):
    program = application("pass")
    supervise([program], for_ever=False)
    assert wait_until(lambda: program.exit_code == 0, SECONDS)

    assert not supervise([program], for_ever=False)
    assert program.starts == 1
    supervise([program], for_ever=True)
    assert program.starts == 2


def test_what_has_failed_is_started_again_in_any_case(application):
    program = application("raise SystemExit(1)")
    supervise([program], for_ever=False)
    assert wait_until(lambda: not program.is_running, SECONDS)

    assert supervise([program], for_ever=False)
    assert program.starts == 2


#: A Java that has started Python as Spark does: by daemons, and once without, and a program; and
#: that has a child that it does not know of, and so never reaps, as `spark-class` leaves one.
LIKE_SPARK = """
import os, signal, subprocess, sys, time
nap = "import time; time.sleep(600)"
daemon = "import os, time; os.fork(); time.sleep(600)"
if os.fork() == 0:
    os._exit(0)
for command in (
    [daemon, "pyspark.daemon", "pyspark.sql.worker.python_streaming_sink_runner"],
    [daemon, "pyspark.daemon", "pyspark.sql.worker.create_data_source"],
    [nap, "pyspark.sql.streaming.python_streaming_source_runner"],
    [nap, "program.py"],
):
    subprocess.Popen([sys.executable, "-I", "-c", *command])
signal.pause()
"""
SOURCE = "pyspark.sql.streaming.python_streaming_source_runner"
SINK = "pyspark.sql.worker.python_streaming_sink_runner"


def test_the_java_of_a_driver_is_struck_without_what_it_has_started(tmp_path: Path):
    java = tmp_path / "java"
    java.symlink_to(sys.executable)
    driver = Program("a", [str(java), "-I", "-c", LIKE_SPARK], log=tmp_path / "a.log")
    striker = Striker(Cluster(nodes=3), NodeClocks(tmp_path), [driver], [], [])
    supervise([driver], for_ever=False)

    def is_found() -> bool:
        groups = [[*group] for group in striker._find[Victim.JVM]()]
        assert all(len(group) == 1 for group in groups)
        return any(LIKE_SPARK in java.cmdline() for [java] in groups)

    try:
        assert wait_until(is_found, SECONDS)
    finally:
        driver.kill()


def test_only_python_that_works_for_a_stream_is_struck_beside_a_driver(tmp_path: Path):
    java = tmp_path / "java"
    java.symlink_to(sys.executable)
    driver = Program("a", [str(java), "-I", "-c", LIKE_SPARK], log=tmp_path / "a.log")
    clocks = NodeClocks(tmp_path)
    striker = Striker(Cluster(nodes=3), clocks, [driver], [], [])
    supervise([driver], for_ever=False)

    def readers() -> list[list[psutil.Process]]:
        return list(striker._find[Victim.READER]())

    try:
        assert wait_until(lambda: len(readers()) == 2, SECONDS)
        modules = {process.cmdline()[-1] for [process] in readers()}
        parents = {process.ppid() for [process] in readers()}
    finally:
        driver.kill()

    assert modules == {SOURCE, SINK}
    assert len(parents) == 2


class Nodes:
    """Stands in for a cluster: notes what is done to it, and how its clocks are then."""

    contact_points = ("127.0.0.1", "127.0.0.2")

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.done: list[tuple[str, int, str]] = []

    def kill(self, number: int) -> None:
        self._note("kill", number)

    def start(self, number: int) -> None:
        self._note("start", number)

    def _note(self, what: str, number: int) -> None:
        clock = self.folder / f"{self.contact_points[number]}.clock"
        self.done.append((what, number, clock.read_text()))


@pytest.mark.parametrize(("how", "days"), [(How.AHEAD, 1), (How.BEHIND, -1)])
def test_a_clock_is_wrong_for_a_while_and_its_node_starts_anew_with_the_right_one(
    tmp_path: Path, how: How, days: int
):
    nodes, clocks = Nodes(tmp_path), NodeClocks(tmp_path)
    striker = Striker(nodes, clocks, [], [], [])  # type: ignore[arg-type]
    wrong = tmp_path / "127.0.0.2.clock"

    striker.strike(Fault(timedelta(0), Victim.NODE, 1, how, timedelta(seconds=1)))

    seconds = f"{days * WRONG_BY.total_seconds():+.3f}"
    assert wait_until(lambda: wrong.exists() and wrong.read_text() == seconds, SECONDS)
    striker.wait()
    anew = [("kill", 1, "+0.000"), ("start", 1, "+0.000")]
    # A node whose clock is set back while it runs lets its time stand still.
    behind = [("kill", 1, seconds), ("start", 1, seconds)] if how is How.BEHIND else []
    assert nodes.done == [*behind, *anew]
    assert striker.struck == {f"node_{how}": 1}
