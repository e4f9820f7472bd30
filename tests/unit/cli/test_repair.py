"""The job as a user runs it, on a store in memory."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from datetime import timedelta
from pathlib import Path

import pytest

from cassieq_spark.cli import repair as job
from cassieq_spark.errors import ConnectError
from cassieq_spark.lock.bakery import Bakery
from cassieq_spark.repair import runs
from cassieq_spark.repair.report import Outcome
from cassieq_spark.repair.runs import REPAIR, read_history
from cassieq_spark.repair.scan import DriverScan, Scan
from cassieq_spark.signals import Stop
from cassieq_spark.store.memory import MemoryStore
from cassieq_spark.store.protocol import Store
from cassieq_spark.testing.stores import CountingStore
from tests.unit.repair.repaired_queue import WRITE_TIMEOUT, RepairedQueue

NONE: frozenset[int] = frozenset()
SCAN = ("--scan", "driver", "--write-timeout", f"{WRITE_TIMEOUT.total_seconds():.0f}s")


@pytest.fixture
def queue(monkeypatch: pytest.MonkeyPatch) -> RepairedQueue:
    queue = RepairedQueue()
    queue.publish(6, 10)
    queue.settle("billing", 6)
    use(monkeypatch, queue.store)
    return queue


@pytest.fixture
def heard(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Set as soon as the job has taken notice of a signal."""
    heard, original = threading.Event(), Stop.set

    def set_and_tell(stop: Stop) -> None:
        original(stop)
        heard.set()

    monkeypatch.setattr(Stop, "set", set_and_tell)
    return heard


def use(monkeypatch: pytest.MonkeyPatch, store: Store) -> None:
    monkeypatch.setattr(job, "open_store", lambda _: store)


def reports(capsys: pytest.CaptureFixture[str]) -> list[dict[str, object]]:
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_a_repair_is_done_told_and_remembered(
    queue: RepairedQueue, capsys: pytest.CaptureFixture[str]
):
    assert job.main([*SCAN, "--json", "-"]) == job.WHOLE

    (report,) = reports(capsys)
    assert (report["outcome"], report["epoch"], report["whole"]) == ("done", 1, True)
    assert queue.finalised == 6
    (run,) = read_history(queue.store, 9)
    assert run.outcome is Outcome.DONE
    assert run.counts == {
        "finalised": 6,
        "settled_buckets": 2,
        "trimmed_blocks": 1,
        "audited_messages": 10,
    }


def test_the_report_goes_to_a_file(queue: RepairedQueue, tmp_path: Path):
    file = tmp_path / "report.json"

    assert job.main([*SCAN, "--json", str(file)]) == job.WHOLE

    assert json.loads(file.read_text())["queues"]["orders"]["finalised"] == 6


def test_a_dry_run_takes_no_lock_and_writes_nothing(
    queue: RepairedQueue,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    store = CountingStore(queue.store)
    use(monkeypatch, store)

    assert job.main([*SCAN, "--dry-run", "--json", "-"]) == job.WHOLE

    (report,) = reports(capsys)
    assert report["epoch"] is None
    assert store.cas_count == 0
    assert queue.finalised == 0
    assert read_history(queue.store, 9) == []


def test_a_loss_has_a_status_of_its_own(queue: RepairedQueue):
    (block,) = queue.publish(4)
    queue.damage(block, lambda chunk: chunk.start != 0)

    assert job.main([*SCAN]) == job.LOSS
    assert read_history(queue.store, 1)[0].problems


def test_another_repair_at_work_is_named(
    queue: RepairedQueue, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setitem(runs.run_alone.__kwdefaults__, "patience", timedelta(0))
    held = Bakery(queue.store, REPAIR, owner="otherhost:77").enter(timedelta(0))
    assert held is not None

    assert job.main([*SCAN]) == job.BUSY

    assert (
        "another repair run is at work (otherhost:77, since 2026-11-20" in capsys.readouterr().err
    )
    assert queue.finalised == 0


def test_again_and_again_until_a_signal(
    queue: RepairedQueue,
    heard: threading.Event,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    use(monkeypatch, SignalsAfter(queue.store, heard, runs=3))

    assert job.main([*SCAN, "--every", "1ms", "--json", "-"]) == job.WHOLE

    assert [report["epoch"] for report in reports(capsys)] == [1, 2, 3]
    assert [run.outcome for run in read_history(queue.store, 9)][1:] == [Outcome.DONE] * 2


def test_a_signal_ends_one_repair_between_two_actions(
    queue: RepairedQueue, heard: threading.Event, monkeypatch: pytest.MonkeyPatch
):
    use(monkeypatch, SignalsAfter(queue.store, heard, runs=1))

    assert job.main([*SCAN]) == job.FAILED

    assert read_history(queue.store, 9)[0].outcome is Outcome.STOPPED
    assert queue.finalised == 0


def test_an_error_of_one_round_does_not_end_the_others(
    queue: RepairedQueue,
    heard: threading.Event,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    use(monkeypatch, SignalsAfter(queue.store, heard, runs=4, failing=frozenset({2, 3})))

    assert job.main([*SCAN, "--every", "1ms"]) == job.WHOLE

    assert capsys.readouterr().err.count("repair: no node") == 2
    assert [run.outcome for run in read_history(queue.store, 9)][1:3] == [Outcome.FAILED] * 2


def test_a_report_that_cannot_be_written_is_no_loss(
    queue: RepairedQueue, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    assert job.main([*SCAN, "--json", str(tmp_path)]) == job.FAILED

    assert "repair: [Errno 21]" in capsys.readouterr().err
    assert queue.finalised == 6


def test_a_report_that_cannot_be_written_does_not_end_the_rounds(
    queue: RepairedQueue,
    heard: threading.Event,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
):
    use(monkeypatch, SignalsAfter(queue.store, heard, runs=3))

    assert job.main([*SCAN, "--every", "1ms", "--json", str(tmp_path)]) == job.WHOLE

    assert len(read_history(queue.store, 9)) == 3


def test_an_error_that_nobody_expected_is_no_loss_and_shows_where_it_was(
    queue: RepairedQueue, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    def fail(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(job, "_spark_scan", fail)

    assert job.main([]) == job.FAILED
    assert "Traceback" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "scans"),
    [("", "Spark"), ('[repair]\nscan = "driver"\n', "driver")],
)
def test_as_a_job_it_scans_with_spark_unless_its_file_says_otherwise(
    queue: RepairedQueue, text: str, scans: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    file = tmp_path / "cassieq.toml"
    file.write_text('[cassandra]\nkeyspace = "k"\n' + text)
    asked: list[str] = []

    def scan_of(name: str) -> Callable[..., object]:
        def scan(*_: object) -> AbstractContextManager[Scan]:
            asked.append(name)
            return nullcontext(DriverScan(queue.store))

        return scan

    monkeypatch.setattr(job, "_spark_scan", scan_of("Spark"))
    monkeypatch.setattr(job, "_driver_scan", scan_of("driver"))

    assert job.main(["--config", str(file)]) == job.WHOLE
    assert asked == [scans]


def test_no_such_queue_ends_it_at_once(queue: RepairedQueue, capsys: pytest.CaptureFixture[str]):
    assert job.main([*SCAN, "--every", "1ms", "--queue", "order"]) == job.USAGE

    assert "there is no queue 'order'; there are: orders" in capsys.readouterr().err


def test_no_cassandra_is_told_apart(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    def refuse(_: object) -> MemoryStore:
        raise ConnectError("no node answers")

    monkeypatch.setattr(job, "open_store", refuse)

    assert job.main([*SCAN]) == job.USAGE
    assert "repair: no node answers" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--every", "soon"], "must be a duration such as"),
        (["--every", "0s"], "must be a duration such as"),
        (["--keep-history", "1500ms"], "must be whole seconds"),
        (["--steps", "finalise,repair"], "the steps are redeliver, expire, finalise"),
        (["--scan", "spark"], "must be connector or driver, not 'spark'"),
        (["--json", "no-such-folder/report.json"], "there is no folder no-such-folder"),
    ],
)
def test_what_cannot_be_is_refused(
    arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
):
    assert job.main(arguments) == job.USAGE

    assert complaint in " ".join(capsys.readouterr().err.split())


class SignalsAfter(CountingStore):
    """Sends SIGTERM to this process when the queue's ledger is read in the last of some runs."""

    def __init__(
        self, store: Store, heard: threading.Event, runs: int, failing: frozenset[int] = NONE
    ) -> None:
        super().__init__(store)
        self._heard = heard
        self._runs = runs
        self._failing = failing
        self._run = 0

    def read_rows(self, partition, *arguments, **options):  # type: ignore[no-untyped-def]
        if partition.table == "ledger" and self._is_new():
            if self._run in self._failing:
                raise ConnectError("no node")
            if self._run == self._runs:
                os.kill(os.getpid(), signal.SIGTERM)
                assert self._heard.wait(30)
        return super().read_rows(partition, *arguments, **options)

    def _is_new(self) -> bool:
        (latest, *_) = read_history(self._store, 1)
        is_new = latest.epoch > self._run
        self._run = latest.epoch
        return is_new
