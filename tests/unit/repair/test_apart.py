"""One queue's trouble is its own: the repair goes on with all the others, and tells of it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from datetime import timedelta

import pytest

from cassieq_spark.cli import repair as job
from cassieq_spark.errors import (
    CassieqError,
    ConnectError,
    InvariantError,
    MissingSchemaError,
    NotAppliedError,
    QueueStateError,
    StoreError,
)
from cassieq_spark.model import QueueId
from cassieq_spark.queues import create_queue
from cassieq_spark.repair.context import Checkpoint
from cassieq_spark.repair.report import Counts, Outcome, Report
from cassieq_spark.repair.runs import read_history
from cassieq_spark.repair.scan import DriverScan
from cassieq_spark.repair.steps import Step, run_once
from cassieq_spark.store.memory import MemoryStore
from cassieq_spark.store.protocol import (
    EVERYTHING,
    Partition,
    Row,
    RowKey,
    Rows,
    Slice,
    Store,
    partition_of_ledger,
)
from cassieq_spark.store.tables import Table
from cassieq_spark.testing.stores import WrappedStore
from tests.support.ailing_queue import AilingQueueStore, copy_of
from tests.unit.repair.repaired_queue import WRITE_TIMEOUT, RepairedQueue, make_busy

#: More than a repair run ever touches of one queue.
ALWAYS_WELL = 10_000
DAY = timedelta(days=1)


@pytest.fixture(scope="module")
def store() -> MemoryStore:
    """Three queues with the same to do; the one in the middle is to ail."""
    first: RepairedQueue | None = None
    for name in ("a", "b", "c"):
        queue = RepairedQueue(name, beside=first, max_deliveries=1, expire_after=DAY)
        first = first or queue
        make_busy(queue)
    assert first is not None
    first.clock.advance(timedelta(hours=3))
    return first.store


B = QueueId("b@2")
#: What becomes of the others, what is done to each, how often the one is touched for it.
Expected = tuple[dict[object, object], dict[str, Counts], int]
TOKENS = {"lease", "change"}
WHOLE_WORK = {
    "finalised",
    "settled_buckets",
    "trimmed_blocks",
    "fences_raised",
    "unpublished_blocks",
    "dead_lettered",
    "expired",
    "retired_versions",
}


def repair(store: Store, *steps: Step) -> Report:
    return run_once(
        store, scan=DriverScan(store), steps=steps or tuple(Step), write_timeout=WRITE_TIMEOUT
    )


def state_of(store: MemoryStore, names: Iterable[str]) -> dict[object, object]:
    """What queues hold, but for the tokens that each repair run draws."""
    ours = {f"{name}@{version}" for name in names for version in (1, 2)} | set(names)
    rows: dict[object, object] = {
        partition: {
            key: {name: value for name, value in row.items() if name not in TOKENS}
            for key, row in found.items()
        }
        for partition, found in store._rows.items()
        if partition.key[0] in ours
    }
    return rows | {key: chunks for key, chunks in store._chunks.items() if key[0] in ours}


@pytest.fixture(scope="module")
def expected(store: MemoryStore) -> Expected:
    well = copy_of(store)
    watching = AilingQueueStore(well, B, StoreError("never"), after=ALWAYS_WELL)
    report = repair(watching)
    assert report.outcome is Outcome.DONE
    done = {name: report.queues[name].counts for name in "ac"}
    assert all(getattr(done["c"], name) for name in WHOLE_WORK), done
    return state_of(well, "ac"), done, watching.touched


ERRORS = (
    NotAppliedError("too many tombstones"),
    InvariantError("contradicts itself"),
    QueueStateError("is not what it was"),
    ValueError("not a status"),
)


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_whatever_fails_in_one_queue_wherever_the_others_are_repaired_as_if_it_were_well(
    store: MemoryStore,
    expected: Expected,
    error: Exception,
):
    others, done, touched = expected
    for after in range(ERRORS.index(error), touched, len(ERRORS)):
        tried = copy_of(store)

        report = repair(AilingQueueStore(tried, B, error, after=after))

        assert state_of(tried, "ac") == others, after
        assert {name: report.queues[name].counts for name in "ac"} == done
        assert set(report.failed) <= {"b"}
        assert report.outcome is (Outcome.SOME_FAILED if report.failed else Outcome.DONE)


@pytest.mark.parametrize("step", [Step.EXPIRE, Step.FINALISE, Step.FENCE])
def test_a_queue_that_can_not_be_read_fails_in_each_step_that_reads_it(
    store: MemoryStore, step: Step
):
    tried = copy_of(store)

    report = repair(AilingQueueStore(tried, B, ERRORS[0]), step)

    assert report.failed == ["b"]
    assert report.queues["b"].error == f"{step}: NotAppliedError: too many tombstones"


def test_what_was_done_to_it_before_is_told_and_the_steps_after_it_are_left_out(
    store: MemoryStore, caplog: pytest.LogCaptureFixture
):
    tried = copy_of(store)
    steps = {
        step: AilingQueueStore(copy_of(store), B, StoreError("never"), after=ALWAYS_WELL)
        for step in Step
    }
    repair(steps[Step.REDELIVER], Step.REDELIVER)

    report = repair(AilingQueueStore(tried, B, ERRORS[1], after=steps[Step.REDELIVER].touched + 1))

    ailing = report.queues["b"]
    assert ailing.error == "expire: InvariantError: contradicts itself"
    assert (ailing.counts.dead_lettered, ailing.counts.finalised) == (12, 0)
    (told,) = (record for record in caplog.records if record.exc_info)
    assert told.action == "repair.queue_failed"  # type: ignore[attr-defined]


@pytest.mark.parametrize("error", [ConnectError("no node"), MissingSchemaError("no table")])
@pytest.mark.parametrize("after", [0, 8, 30])
def test_what_is_wrong_with_all_of_them_ends_it(
    store: MemoryStore, error: CassieqError, after: int
):
    with pytest.raises(type(error), match=str(error)):
        repair(AilingQueueStore(copy_of(store), B, error, after=after))


def test_a_lock_that_can_not_be_asked_is_no_queues_fault(store: MemoryStore):
    class Lock:
        def is_held(self) -> bool:
            return True

        def confirm(self) -> bool:
            raise StoreError("too few replicas")

    tried = copy_of(store)

    with pytest.raises(StoreError, match="too few replicas"):
        run_once(tried, scan=DriverScan(tried), checkpoint=Checkpoint(Lock()))


STRANGE: list[tuple[Partition, RowKey, dict[str, object]]] = [
    (partition_of_ledger(B), ("head", 0, ""), {"status": "ajar"}),
    (Partition(Table.GROUP_STATE, (B, "billing")), ("head", 0, 0), {"pointer": "far"}),
    (Partition(Table.GROUP_STATE, (B, "dying")), ("slot", 0, 0), {"ranges": "1 to 5"}),
]


@pytest.mark.parametrize(("partition", "key", "values"), STRANGE)
def test_rows_that_nobody_can_make_sense_of_are_their_queues_trouble(
    store: MemoryStore,
    expected: Expected,
    partition: Partition,
    key: RowKey,
    values: dict[str, object],
):
    tried = copy_of(store)
    tried._rows[partition][key] |= values  # type: ignore[arg-type]

    report = repair(tried)

    assert state_of(tried, "ac") == expected[0]
    assert report.failed == ["b"]
    assert "Error: " in str(report.queues["b"].error)


def test_it_is_told_to_people_to_programs_to_the_history_and_to_who_has_started_it(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    ailing = AilingQueueStore(copy_of(store), B, ERRORS[0])
    monkeypatch.setattr(job, "open_store", lambda _: ailing)

    status = job.main(["--scan", "driver", "--json", "-"])

    told = capsys.readouterr()
    report = json.loads(told.out)
    what = "redeliver: NotAppliedError: too many tombstones"
    assert status == job.SOME_FAILED
    assert (report["outcome"], report["failed"]) == ("some queues failed", ["b"])
    assert report["queues"]["b"]["error"] == what
    assert report["queues"]["a"]["error"] is None
    assert f"b: {what}; nothing more was done to this queue" in told.err
    assert "1 queue(s) failed; the others are done" in told.err
    (run,) = read_history(ailing, 1)
    assert run.outcome is Outcome.SOME_FAILED
    assert f"b: {what}; nothing more was done to this queue" in run.problems


def test_a_queue_whose_ledger_has_a_hole_fails_and_its_loss_is_told_in_each_run():
    queue = RepairedQueue()
    queue.publish(4)
    queue.publish(4)
    queue.publish(4)
    queue.settle("billing", 12)
    ledger = queue.store._rows[partition_of_ledger(queue.queue_id)]
    del ledger[sorted(key for key in ledger if key[0] == "block")[1]]

    for _ in range(2):
        report = repair(queue.store)

        ailing = report.queues["orders"]
        assert str(ailing.error).startswith("finalise: InvariantError: ")
        assert [str(each.monotons) for each in ailing.findings] == ["[4, 8)"]
        assert not report.is_whole


def test_if_the_audit_fails_as_well_the_first_error_is_told(
    store: MemoryStore, caplog: pytest.LogCaptureFixture
):
    report = repair(AilingQueueStore(copy_of(store), B, ERRORS[0]))

    assert str(report.queues["b"].error).startswith("redeliver: ")
    warnings = [each.getMessage() for each in caplog.records if "as well" in each.getMessage()]
    assert warnings == ["queue b@2: read the ledger failed as well: too many tombstones"]


def test_a_loss_goes_before_a_queue_that_failed(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
):
    tried = copy_of(store)
    ledger = tried._rows[partition_of_ledger(QueueId("a@2"))]
    lost = ledger[max(key for key in ledger if key[0] == "block")]["block"]
    for key in [key for key in tried._chunks if key[1] == lost]:
        del tried._chunks[key]
    monkeypatch.setattr(job, "open_store", lambda _: AilingQueueStore(tried, B, ERRORS[0]))

    assert job.main(["--scan", "driver", "--steps", "audit"]) == job.LOSS


def test_again_and_again_the_worst_that_a_run_has_found_is_told_at_the_end(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
):
    ends = {
        (job.SOME_FAILED, job.WHOLE): job.SOME_FAILED,
        (job.SOME_FAILED, job.LOSS, job.SOME_FAILED): job.LOSS,
        (job.FAILED, job.BUSY, job.WHOLE): job.WHOLE,
    }
    monkeypatch.setattr(job, "open_store", lambda _: store)

    for statuses, expected in ends.items():
        monkeypatch.setattr(job, "rounds", lambda *_, each=statuses: each)
        ended = iter(statuses)
        monkeypatch.setattr(job, "_repair", lambda *_, each=ended: next(each))

        assert job.main(["--scan", "driver", "--every", "1ms"]) == expected


class GoneStore(WrappedStore):
    """A cluster that is gone once the queues are known: each request takes its time, and fails."""

    touched = 0

    def read_rows(
        self, partition: Partition, which: Slice = EVERYTHING, *, serial: bool = False
    ) -> Rows:
        self.touched += 1
        raise NotAppliedError(f"{partition}: timed out")

    def scan(self, table: Table, kinds: Sequence[str] = ()) -> Iterator[Row]:
        if table is not Table.QUEUE:
            raise NotAppliedError("timed out")
        return super().scan(table, kinds)


def test_if_the_cluster_is_gone_the_repair_does_not_wait_for_each_queue():
    memory = MemoryStore()
    for number in range(100):
        create_queue(memory, f"q{number}")
    gone = GoneStore(memory)

    with pytest.raises(StoreError, match=r"failed 10 times, .* queues cannot be read"):
        repair(gone)

    assert gone.touched < 50


def test_if_many_queues_fail_and_others_do_not_the_repair_goes_on():
    memory = MemoryStore()
    for number in range(30):
        create_queue(memory, f"q{number}")
        if number:
            memory._rows[partition_of_ledger(QueueId(f"q{number}@1"))].clear()

    report = repair(memory)

    assert len(report.failed) == 29
