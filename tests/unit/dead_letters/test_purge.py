from __future__ import annotations

import logging

import pytest

from cassieq_spark import Client
from cassieq_spark.dead_letters import claims as claims_module
from cassieq_spark.dead_letters import purge as purge_module
from cassieq_spark.dead_letters.letters import Filter
from cassieq_spark.dead_letters.purge import PURGED, PurgeReport, purge
from cassieq_spark.dead_letters.survey import survey
from cassieq_spark.errors import OptionError
from cassieq_spark.groups.partitions import ADMIN_GROUP
from cassieq_spark.groups.registration import read_group_states
from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.testing.faults import Fault
from tests.support.gateway import InProcess
from tests.unit.dead_letters.dead_queue import DeadQueue

#: Two windows.
ORIGINS = ["orders", "payments"] * 6


@pytest.fixture(autouse=True, scope="module")
def _small_portions():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(claims_module, "WINDOW", 8)
        yield


def run(queue: DeadQueue, name: str = "dead", criteria: Filter | None = None) -> PurgeReport:
    return purge(queue.memory, survey(queue.memory, name, criteria))


def test_what_is_purged_is_not_dead_any_more_and_went_nowhere(caplog: pytest.LogCaptureFixture):
    queue = DeadQueue(ORIGINS)
    caplog.set_level(logging.INFO)

    assert run(queue) == PurgeReport(12, missed=0, is_stopped=False)

    assert queue.left() == queue.arrived("orders") == queue.arrived("payments") == []
    state = read_group_states(Ledger(queue.memory, queue.dead.queue_id))[ADMIN_GROUP]
    assert state.floor == 12
    purged = [
        record.count  # type: ignore[attr-defined]
        for record in caplog.records
        if record.name == purge_module.__name__ and record.action == PURGED  # type: ignore[attr-defined]
    ]
    assert purged == [8, 4]


def test_only_what_is_meant_is_purged():
    queue = DeadQueue([*ORIGINS, None])
    queue.add(["orders"], reason="other")

    assert run(queue, "orders", Filter(reason="too often")).purged == 6
    assert queue.left() == [1, 3, 5, 7, 9, 11, 12, 13]
    assert run(queue, "orders").purged == 1
    assert run(queue).purged == 7

    assert queue.left() == []


def test_nothing_to_purge_makes_no_group():
    queue = DeadQueue(ORIGINS)
    before = queue.everything()

    assert run(queue, criteria=Filter(group="none")) == PurgeReport(0, 0, is_stopped=False)
    assert queue.everything() == before


def test_what_others_have_purged_meanwhile_is_missed():
    queue = DeadQueue(ORIGINS)
    found = survey(queue.memory, "dead")
    run(queue, "orders")

    assert purge(queue.memory, found) == PurgeReport(6, missed=6, is_stopped=False)
    assert purge(queue.memory, found) == PurgeReport(0, missed=12, is_stopped=False)


def test_a_purge_stops_between_two_batches():
    queue = DeadQueue(ORIGINS)
    answers = iter([False, True])
    seen: list[tuple[str, int, int]] = []

    report = purge(
        queue.memory,
        survey(queue.memory, "dead"),
        wait=lambda _: next(answers),
        watch=lambda *told: seen.append(told),
    )

    assert report == PurgeReport(8, missed=0, is_stopped=True)
    assert seen == [("purging", 0, 12), ("purging", 8, 12)]
    assert queue.left() == [8, 9, 10, 11]


@pytest.mark.parametrize("fault", Fault)
@pytest.mark.parametrize("number", range(4))
def test_a_lost_answer_is_resolved(fault: Fault, number: int):
    queue = DeadQueue(ORIGINS)
    queue.fail(fault, after=number)

    report = purge(queue.store, survey(queue.memory, "orders"))
    queue.store.arrive()

    assert queue.store.troubles == 1
    assert report == PurgeReport(6, missed=0, is_stopped=False)
    assert queue.left() == [1, 3, 5, 7, 9, 11]


@pytest.mark.parametrize("after", range(20))
def test_a_crash_loses_nothing_that_was_not_meant(after: int):
    queue = DeadQueue(ORIGINS)

    def crash() -> None:
        raise KeyboardInterrupt

    queue.store.interrupt(crash, after=after)
    with pytest.raises(KeyboardInterrupt):
        purge(queue.store, survey(queue.memory, "orders"))

    run(queue, "orders")

    assert queue.left() == [1, 3, 5, 7, 9, 11]


def test_a_log_record_names_ten_of_many_ranges(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(claims_module, "WINDOW", 4096)
    queue = DeadQueue(["orders", "payments"] * 30)
    caplog.set_level(logging.INFO)

    assert run(queue, "orders").purged == 30

    (told,) = [each.getMessage() for each in caplog.records if each.name == purge_module.__name__]
    assert "0, 2, 4" in told
    assert ", 18 and 20 more were purged" in told


@pytest.mark.parametrize("is_made", [True, False])
def test_no_reader_can_discard_dead_letters_by_reading_where_they_are_claimed(is_made: bool):
    queue = DeadQueue(ORIGINS)
    if is_made:
        run(queue, "payments")
    before = queue.left()
    client = Client.from_store(queue.memory)

    with pytest.raises(OptionError, match="reserved"):
        client.receive("dead", ADMIN_GROUP, max=100)
    with pytest.raises(OptionError, match="reserved"):
        client.create_group("dead", ADMIN_GROUP, "latest")
    with InProcess(queue.memory) as gateway:
        gateway.queue("dead").create()
        for refused in (
            gateway.ask("PUT", f"/dead/groups/{ADMIN_GROUP}", json={"start": "latest"}),
            gateway.ask("POST", f"/dead/messages/receive?group={ADMIN_GROUP}"),
            gateway.ask("GET", f"/dead/messages/next?group={ADMIN_GROUP}"),
        ):
            assert (refused.status_code, "reserved" in refused.text) == (400, True), refused.text

    assert queue.left() == before
    assert queue.held() == []
