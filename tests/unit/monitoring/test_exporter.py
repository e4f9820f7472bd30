from __future__ import annotations

import logging
import socket
import urllib.request
from collections.abc import Callable
from datetime import timedelta

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from cassieq_spark.client import Client
from cassieq_spark.errors import (
    CassieqError,
    ConnectError,
    MissingSchemaError,
    NotAppliedError,
    OptionError,
    QueueStateError,
)
from cassieq_spark.groups.partitions import ADMIN_GROUP
from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.ledger.publish import publish
from cassieq_spark.lock.bakery import Bakery
from cassieq_spark.model import QueueId, Range
from cassieq_spark.monitoring.exporter import READ_FAILED, Exporter, export, serve
from cassieq_spark.monitoring.metrics import EXPORTED
from cassieq_spark.queues import create_queue, pause_queue, read_queue
from cassieq_spark.repair.context import Checkpoint
from cassieq_spark.repair.diagnosis import Finding, Problem
from cassieq_spark.repair.report import Counts, QueueReport, Report
from cassieq_spark.repair.runs import REPAIR, Recorder, read_history, run_alone
from cassieq_spark.repair.scan import DriverScan
from cassieq_spark.repair.steps import Step, run_once
from cassieq_spark.schedules import Runner, create_schedule, pause_schedule
from cassieq_spark.schedules.changes import UNREADABLE
from cassieq_spark.signals import Stop
from cassieq_spark.store.grants import User
from cassieq_spark.store.memory import MemoryStore
from cassieq_spark.store.protocol import Update, When, partition_of_queue
from cassieq_spark.store.tables import Table
from tests.support.builders import make_clocked_store, make_group, make_pending, make_request
from tests.support.faults import FakeClock
from tests.support.role_store import RoleStore
from tests.unit.monitoring.watched import AilingStore, make_busy_queue

MINUTE = timedelta(minutes=1)
Samples = dict[tuple[str, tuple[str, ...]], float]


def published(exporter: Exporter) -> Samples:
    """What Prometheus reads, by name and values of the labels, in the order of their names."""
    registry = CollectorRegistry()
    registry.register(exporter)
    text = generate_latest(registry).decode()
    return {
        (sample.name, tuple(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def names(samples: Samples) -> set[str]:
    return {name for name, _ in samples}


def make_repair(store: MemoryStore, clock: FakeClock, steps: tuple[str, ...], *found: Finding):
    bakery = Bakery(store, REPAIR, owner="host:1", clock=lambda: clock().timestamp())
    held = bakery.enter(timedelta(0))
    assert held is not None
    orders = QueueReport(QueueId("orders@1"), Counts(finalised=1200), findings=list(found))
    recorder = Recorder(store, held, runner="host:1", steps=steps, kept=timedelta(days=1))
    recorder.begin()
    recorder.end(Report(steps, dry_run=False, queues={"orders": orders}, seconds=1.5))
    held.leave()


def make_schedule(store: MemoryStore, clock: FakeClock, queue: str) -> None:
    """A schedule with a tick each minute, one of which was published."""
    create_schedule(store, queue, "beat", "{}", every=MINUTE)
    clock.advance(MINUTE)
    runner = Runner(store, prefix=queue, clock=clock.here, politeness=timedelta(0))
    assert len(runner.run_once()) == 1


@pytest.fixture
def ailing() -> AilingStore:
    store, _ = make_clocked_store()
    make_busy_queue(store)
    return AilingStore(store)


@pytest.fixture
def exporter(ailing: AilingStore) -> Exporter:
    return Exporter(lambda: ailing)


def test_a_viewer_exports_all_figures_also_without_the_grant_for_chunks():
    store, clock = make_clocked_store()
    make_busy_queue(store)
    create_queue(store, "q", max_deliveries=3, dead_letter_queue="q.dead")
    dead = Ledger(store, read_queue(store, "q.dead").queue_id)
    publish(dead, make_pending([4]))
    make_group(store, dead.queue_id, ADMIN_GROUP).lease(make_request(stop=4))
    make_repair(store, clock, (Step.AUDIT,))
    make_schedule(store, clock, "orders")
    role = RoleStore(store, User.VIEWER)

    found = Exporter(lambda: role).read()

    assert found is not None
    assert len(found.schedules) == 1
    assert not found.errors
    assert role.tables == set(Table) - {Table.ACCOUNT, Table.CHUNK}


def test_the_figures_of_a_queue_and_its_groups_are_published(exporter: Exporter):
    exporter.read()

    samples = published(exporter)

    assert samples["cassieq_up", ()] == 1
    assert samples["cassieq_read_timestamp_seconds", ()] > 0
    of_queue = {name: value for (name, labels), value in samples.items() if labels == ("orders",)}
    assert of_queue == {
        "cassieq_scrape_errors_total": 0,
        "cassieq_queue_messages_published_total": 10,
        "cassieq_queue_messages_finalised_total": 0,
        "cassieq_queue_stored_messages": 10,
        "cassieq_queue_settled_messages": 3,
        "cassieq_queue_paused": 0,
        "cassieq_queue_fence_timestamp_seconds": 0,
    }
    of_group = {n: value for (n, labels), value in samples.items() if labels == ("g", "orders")}
    assert of_group == {
        "cassieq_group_depth_messages": 7,
        "cassieq_group_leased_messages": 2,
        "cassieq_group_due_messages": 0,
        "cassieq_group_waiting_messages": 0,
        "cassieq_group_unexamined_messages": 0,
        "cassieq_group_dead_messages": 0,
        "cassieq_group_stopped_partitions": 0,
        "cassieq_group_settled_messages": 3,
        "cassieq_group_oldest_age_seconds": 0,
        "cassieq_group_pointer": 5,
        "cassieq_group_leases": 1,
    }


def test_the_lag_of_schedules_is_published():
    store, clock = make_clocked_store()
    make_busy_queue(store)
    create_queue(store, "other")
    make_schedule(store, clock, "orders")
    for name in ("idle", "late"):
        create_schedule(store, "other", name, "{}", every=MINUTE, catch_up=2)
    pause_schedule(store, "other", "idle")
    ticked = clock.now
    clock.advance(10 * MINUTE)
    exporter = Exporter(lambda: store)
    exporter.read()

    samples = published(exporter)

    found = {name: it for name, it in samples.items() if "_schedule_" in name[0]}
    assert found == {
        ("cassieq_schedule_lag_seconds", ("orders", "beat")): 540,
        ("cassieq_schedule_lag_seconds", ("other", "idle")): 0,
        ("cassieq_schedule_lag_seconds", ("other", "late")): 540,
        ("cassieq_schedule_last_tick_timestamp_seconds", ("orders", "beat")): ticked.timestamp(),
        ("cassieq_schedule_paused", ("orders", "beat")): 0,
        ("cassieq_schedule_paused", ("other", "idle")): 1,
        ("cassieq_schedule_paused", ("other", "late")): 0,
    }
    only = Exporter(lambda: store, ["orders"])
    only.read()
    lags = {it for it in published(only) if it[0] == "cassieq_schedule_lag_seconds"}
    assert lags == {("cassieq_schedule_lag_seconds", ("orders", "beat"))}


def test_schedules_that_can_not_be_read_hide_no_figures(caplog: pytest.LogCaptureFixture):
    store, clock = make_clocked_store()
    for name in ("broken", "gone", "orders"):
        make_busy_queue(store, name)
        make_schedule(store, clock, name)
    by_hand = Update((), {"schedules": "[1]"}, when=(When("version", "=", 1),))
    store.cas(partition_of_queue("broken"), [by_hand])
    ailing = AilingStore(store)
    exporter = Exporter(lambda: ailing)
    ailing.broken["gone@1"] = NotAppliedError("too few replicas")

    exporter.read()

    samples = published(exporter)
    assert samples["cassieq_queue_stored_messages", ("broken",)] == 11
    assert samples["cassieq_scrape_errors_total", ("gone",)] == 1
    lags = {labels for name, labels in samples if name == "cassieq_schedule_lag_seconds"}
    assert lags == {("orders", "beat")}
    assert [it.action for it in caplog.records] == [UNREADABLE, READ_FAILED]  # type: ignore[attr-defined]


def test_a_message_that_is_released_for_later_is_old_and_all_that_is_owed_waits():
    """An alert for groups that stand still tells such a group by this."""
    store, clock = make_clocked_store()
    client = Client.from_store(store)
    client.create_queue("orders")
    client.put("orders", "a")
    client.release(*client.receive("orders", "g"), delay=timedelta(hours=2))
    clock.advance(timedelta(hours=1))
    exporter = Exporter(lambda: store)
    exporter.read()

    samples = published(exporter)

    assert samples["cassieq_group_oldest_age_seconds", ("g", "orders")] == 3600
    assert samples["cassieq_group_depth_messages", ("g", "orders")] == 1
    assert samples["cassieq_group_waiting_messages", ("g", "orders")] == 1


def test_the_last_run_of_each_step_is_published():
    store, clock = make_clocked_store()
    make_repair(store, clock, ("audit",), Finding(Problem.MISSING, Range(0, 3), None))
    clock.advance(timedelta(hours=1))
    make_repair(store, clock, ("finalise",))
    exporter = Exporter(lambda: store)
    exporter.read()

    samples = published(exporter)

    ended = {
        step: samples["cassieq_repair_last_success_timestamp_seconds", (step,)] for step in Step
    }
    now = clock().timestamp()
    assert ended.pop("finalise") == now + 1.5
    assert ended.pop("audit") == now + 1.5 - 3600
    assert set(ended.values()) == {0}
    assert samples["cassieq_repair_last_duration_seconds", ("audit",)] == 1.5
    assert samples["cassieq_repair_last_count", ("finalised", "finalise")] == 1200
    assert samples["cassieq_repair_problems", ("audit",)] == 1
    assert samples["cassieq_repair_problems", ("finalise",)] == 0


def repair_alone(store: MemoryStore, *steps: Step, queues: tuple[str, ...] = ()) -> None:
    def repair(checkpoint: Checkpoint) -> Report:
        scan = DriverScan(store)
        return run_once(store, scan=scan, queues=queues, steps=steps, checkpoint=checkpoint)

    assert run_alone(store, repair, steps=steps, stop=Stop()) is not None


def repair_figures(store: MemoryStore) -> dict[str, float | None]:
    exporter = Exporter(lambda: store)
    exporter.read()
    samples = published(exporter)
    names = ("last_success_timestamp_seconds", "problems")
    return {name: samples.get((f"cassieq_repair_{name}", ("audit",))) for name in names}


def test_messages_that_have_expired_are_no_problem_of_the_audit():
    store, clock = make_clocked_store()
    create_queue(store, "q", expire_after=timedelta(hours=1))
    make_group(store, QueueId("q@1"))
    publish(Ledger(store, QueueId("q@1")), make_pending([3], clock()))
    clock.advance(timedelta(hours=2))

    repair_alone(store, Step.EXPIRE, Step.FINALISE, Step.AUDIT)

    (run,) = read_history(store, 1)
    assert len(run.problems) == 1, "the note that some have expired"
    assert repair_figures(store)["problems"] == 0


def test_the_history_counts_a_queue_with_several_partitions_once():
    store, _ = make_clocked_store()
    create_queue(store, "q", partitions=4)
    create_queue(store, "one")

    repair_alone(store, Step.FINALISE, Step.AUDIT)

    (run,) = read_history(store, 1)
    assert run.queues == 2


def test_a_run_of_one_queue_hides_no_problem_of_another_and_is_no_success_of_all():
    store, clock = make_clocked_store()
    for name in "ab":
        create_queue(store, name)
    # Nothing is stored of it, so the audit misses it.
    publish(Ledger(store, QueueId("b@1")), make_pending([3], clock()))
    repair_alone(store, Step.AUDIT)
    before = repair_figures(store)
    clock.advance(timedelta(hours=1))

    repair_alone(store, Step.AUDIT, queues=("a",))

    assert before["problems"] == 1
    assert repair_figures(store) == before
    repair_alone(store, Step.AUDIT, queues=("a", "b"))
    assert repair_figures(store) != before, "these are all queues"


def test_everything_declared_is_published_and_nothing_else():
    store, clock = make_clocked_store()
    make_busy_queue(store)
    create_queue(store, "q", max_deliveries=3, dead_letter_queue="q.dead")
    wide = create_queue(store, "wide", partitions=2)
    make_group(store, wide.of_partition(0).queue_id)
    make_repair(store, clock, ("finalise",))
    make_schedule(store, clock, "orders")
    exporter = Exporter(lambda: store)
    exporter.read()

    assert names(published(exporter)) == {family.name for family in EXPORTED}


def test_what_is_published_follows_the_next_reading(exporter: Exporter, ailing: AilingStore):
    exporter.read()
    pause_queue(ailing, "orders")

    assert published(exporter)["cassieq_queue_paused", ("orders",)] == 0
    exporter.read()
    assert published(exporter)["cassieq_queue_paused", ("orders",)] == 1


def test_before_the_first_reading_and_while_cassandra_is_away_there_are_no_figures(
    exporter: Exporter, ailing: AilingStore
):
    no_figures = {"cassieq_up", "cassieq_scrape_errors_total"}
    assert names(published(exporter)) == no_figures

    exporter.read()
    ailing.away = ConnectError("nobody answers")
    with pytest.raises(ConnectError):
        exporter.read()

    samples = published(exporter)
    assert names(samples) == no_figures
    assert (samples["cassieq_up", ()], samples["cassieq_scrape_errors_total", ("",)]) == (0, 1)

    ailing.away = None
    exporter.read()
    samples = published(exporter)
    assert (samples["cassieq_up", ()], samples["cassieq_scrape_errors_total", ("",)]) == (1, 1)
    assert samples["cassieq_group_depth_messages", ("g", "orders")] == 7


def test_an_error_of_one_queue_is_counted_and_logged_and_the_others_are_published(
    exporter: Exporter, ailing: AilingStore, caplog: pytest.LogCaptureFixture
):
    make_busy_queue(ailing, "broken")
    ailing.broken["broken@1"] = NotAppliedError("too few replicas")
    for _ in range(2):
        exporter.read()

    samples = published(exporter)

    assert samples["cassieq_up", ()] == 1
    assert samples["cassieq_scrape_errors_total", ("broken",)] == 2
    assert samples["cassieq_scrape_errors_total", ("orders",)] == 0
    assert ("cassieq_queue_stored_messages", ("broken",)) not in samples
    assert samples["cassieq_queue_stored_messages", ("orders",)] == 10
    assert [(record.action, record.queue) for record in caplog.records] == [
        (READ_FAILED, "broken")
    ] * 2


def test_a_history_that_cannot_be_read_hides_no_queue(exporter: Exporter, ailing: AilingStore):
    ailing.broken[REPAIR] = NotAppliedError("too few replicas")
    exporter.read()

    samples = published(exporter)

    assert samples["cassieq_scrape_errors_total", ("",)] == 1
    assert samples["cassieq_queue_stored_messages", ("orders",)] == 10


def test_it_connects_as_soon_as_it_can():
    store, errors = MemoryStore(), [ConnectError("not yet")]

    def connect() -> MemoryStore:
        if errors:
            raise errors.pop()
        return store

    exporter = Exporter(connect)
    with pytest.raises(ConnectError):
        exporter.read()
    exporter.read()

    assert published(exporter)["cassieq_up", ()] == 1


@pytest.fixture
def stop():
    stop = Stop()
    yield stop
    stop.close()


def refuse(error: CassieqError) -> Callable[[], MemoryStore]:
    def connect() -> MemoryStore:
        raise error

    return connect


def test_arguments_that_are_wrong_end_it_at_once(stop: Stop):
    with pytest.raises(MissingSchemaError):
        export(Exporter(refuse(MissingSchemaError("no keyspace"))), timedelta(0), stop)
    with pytest.raises(QueueStateError, match="no queue 'nobody'"):
        export(Exporter(MemoryStore, ["nobody"]), timedelta(0), stop)


def test_a_queue_that_is_deleted_later_does_not_end_it(stop: Stop, caplog: object):
    store = MemoryStore()
    create_queue(store, "a")
    readings: list[str] = []

    class Watched(AilingStore):
        def scan(self, table, kinds=()):
            readings.append(str(table))
            if len(readings) == 2:
                return []
            if len(readings) == 3:
                stop.set()
            return super().scan(table, kinds)

    exporter = Exporter(lambda: Watched(store), ["a"])
    export(exporter, timedelta(0), stop)

    assert len(readings) == 3
    assert published(exporter)["cassieq_scrape_errors_total", ("a",)] == 1


def test_a_cassandra_that_is_away_does_not_end_it(stop: Stop, caplog: pytest.LogCaptureFixture):
    attempts: list[int] = []

    def connect() -> MemoryStore:
        attempts.append(1)
        if len(attempts) == 3:
            stop.set()
        raise ConnectError("nobody answers")

    export(Exporter(connect), timedelta(0), stop)

    assert len(attempts) == 3
    assert {record.levelno for record in caplog.records} == {logging.WARNING}


def test_a_reading_that_is_broken_off_by_the_end_counts_for_nothing(exporter: Exporter):
    exporter.read()
    before = published(exporter)

    assert exporter.read(may_continue=lambda: False) is None
    assert published(exporter) == before


def test_it_answers_over_http_until_the_end(exporter: Exporter):
    exporter.read()

    with serve(exporter, "127.0.0.1", 0) as url:
        with urllib.request.urlopen(url) as answer:
            text = answer.read().decode()
        assert url.endswith("/metrics")

    assert 'cassieq_queue_messages_published_total{queue="orders"} 10.0' in text
    with pytest.raises(OSError, match="refused"):
        urllib.request.urlopen(url)


def test_an_address_that_is_taken_is_said_so(exporter: Exporter):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]

        with pytest.raises(OptionError, match=f"port {port}.*--listen"):
            serve(exporter, "127.0.0.1", port).__enter__()
