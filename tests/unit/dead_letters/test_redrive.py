from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest

from cassieq_spark.dead_letters import claims as claims_module
from cassieq_spark.dead_letters import redrive as redrive_module
from cassieq_spark.dead_letters.claims import CLAIM_RESOLVED, is_token_for, token_for
from cassieq_spark.dead_letters.dead_letter import dead_letter_messages
from cassieq_spark.dead_letters.letters import Filter
from cassieq_spark.dead_letters.purge import purge
from cassieq_spark.dead_letters.redrive import (
    REDRIVEN,
    TAKEN_OVER,
    RedriveReport,
    read_routes,
    redrive,
)
from cassieq_spark.dead_letters.survey import survey
from cassieq_spark.errors import (
    ContentionError,
    MessageError,
    NotFoundError,
    OptionError,
    QueueStateError,
)
from cassieq_spark.groups.group import ConsumerGroup
from cassieq_spark.groups.partitions import ADMIN_GROUP
from cassieq_spark.groups.registration import create_group, ensure_group
from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.model import QueueId, Ranges
from cassieq_spark.queues import create_queue, delete_queue, purge_queue
from cassieq_spark.store.protocol import partition_of_queue
from cassieq_spark.testing.faults import Fault
from tests.support.builders import LEASE, make_request
from tests.unit.dead_letters.dead_queue import MOMENT, DeadQueue, read_all

#: Three batches: two to orders, one to payments.
ORIGINS = ["orders", "orders", "payments", "orders", "orders", "payments"]
HOME = {"orders": [0, 1, 3, 4], "payments": [2, 5]}


@pytest.fixture(autouse=True, scope="module")
def _small_portions():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(claims_module, "WINDOW", 8)
        patch.setattr(redrive_module, "BATCH", 3)
        yield


def run(queue: DeadQueue, name: str = "dead", **how: Any) -> RedriveReport:
    """As another process would, undisturbed."""
    return redrive(queue.memory, survey(queue.memory, name), **how)


def homes(queue: DeadQueue) -> dict[str, list[int]]:
    """Where which letters went; in order, as the second one goes on elsewhere."""
    return {name: sorted(queue.arrived(name)) for name in HOME}


def told(caplog: pytest.LogCaptureFixture) -> list[tuple[str, int]]:
    return [
        (record.action, record.count)  # type: ignore[attr-defined]
        for record in caplog.records
        if hasattr(record, "count")
    ]


def test_each_letter_goes_home(caplog: pytest.LogCaptureFixture):
    queue = DeadQueue(ORIGINS)
    caplog.set_level(logging.INFO)

    report = run(queue)

    assert report == RedriveReport({"orders": 4, "payments": 2}, missed=0, is_stopped=False)
    assert homes(queue) == HOME
    assert queue.left() == queue.held() == []
    assert told(caplog) == [(REDRIVEN, 3), (REDRIVEN, 1), (REDRIVEN, 2)]


def test_a_letter_that_goes_home_is_the_message_that_it_was_and_a_count():
    queue = DeadQueue(["orders"])

    run(queue)

    (message,) = queue.messages("orders")
    assert (message["key"], message["value"]) == (b"k0", b"0")
    assert message["headers"] == [("own", "h0"), ("cassieq.redrives", "1")]


def test_a_name_of_a_queue_stands_for_its_own_letters_only():
    queue = DeadQueue(ORIGINS)

    run(queue, "payments")

    assert homes(queue) == {"orders": [], "payments": [2, 5]}
    assert queue.left() == [0, 1, 3, 4]


def test_all_can_go_to_one_other_queue_with_those_that_have_no_origin():
    queue = DeadQueue([*ORIGINS, None])
    other = create_queue(queue.memory, "other")
    ensure_group(ConsumerGroup(Ledger(queue.memory, other.queue_id), "x"), starting="earliest")

    report = run(queue, to="other")

    assert report.redriven == {"other": 7}
    assert [row["value"] for row in read_all(queue.memory, other)] == [
        str(number).encode() for number in range(7)
    ]
    assert homes(queue) == {"orders": [], "payments": []}


def test_what_has_no_origin_stays_unless_it_is_told_where_to_go():
    queue = DeadQueue([None, "orders", None])

    assert run(queue).redriven == {"orders": 1}

    assert queue.left() == [0, 2]
    assert run(queue).redriven == {}


def test_letters_that_stand_for_unreadable_messages_stay_unless_it_is_told_where_to_go():
    queue = DeadQueue(["orders"])
    queue.add(["orders", "payments"], unreadable="5-7")
    queue.add(["orders"])

    assert run(queue).redriven == {"orders": 2}
    assert queue.left() == [1, 2]

    assert run(queue, to="payments").redriven == {"payments": 2}
    assert queue.arrived("payments") == [1, 2]


def test_letters_that_cannot_be_copied_are_named_and_can_be_redriven_at_once(
    monkeypatch: pytest.MonkeyPatch,
):
    queue = DeadQueue(["orders"] * 2)

    def refuse(*_: object, **__: object) -> None:
        raise MessageError("column 'vendor', row 0: it is null")

    with monkeypatch.context() as patch:
        patch.setattr(redrive_module, "write_block", refuse)
        with pytest.raises(MessageError, match="it is null") as caught:
            run(queue)

    assert caught.value.__notes__ == ["dead letters 0 to 1: none of them is redriven"]
    assert queue.held() == []
    assert run(queue) == RedriveReport({"orders": 2}, missed=0, is_stopped=False)


def test_only_what_is_meant_goes_and_the_rest_can_go_later():
    queue = DeadQueue(ORIGINS)
    queue.add(["orders", "orders"], reason="other")

    redrive(queue.memory, survey(queue.memory, "dead", Filter(reason="other")))
    assert homes(queue) == {"orders": [6, 7], "payments": []}
    redrive(queue.memory, survey(queue.memory, "dead", limit=2))
    assert homes(queue) == {"orders": [0, 1, 6, 7], "payments": []}
    run(queue)

    assert homes(queue) == {"orders": [0, 1, 3, 4, 6, 7], "payments": [2, 5]}
    assert queue.left() == []


def test_other_groups_are_named_and_get_nothing_again_unless_it_is_forced():
    queue = DeadQueue(ORIGINS)
    for name in ("audit", "z", ADMIN_GROUP):
        create_group(ConsumerGroup(Ledger(queue.memory, queue.orders.queue_id), name), "earliest")
    before = queue.everything()

    with pytest.raises(QueueStateError, match=r"'orders' has other .*again: audit, z;.*--force"):
        run(queue)
    assert queue.everything() == before
    assert run(queue, "payments").redriven == {"payments": 2}
    assert run(queue, force=True).redriven == {"orders": 4}


def test_a_second_group_with_dead_letters_is_another_group_too():
    queue = DeadQueue(["orders"])
    create_group(ConsumerGroup(Ledger(queue.memory, queue.orders.queue_id), "h"), "earliest")
    queue.add(["orders"], origin_group="h")

    with pytest.raises(QueueStateError, match="again: g, h;"):
        run(queue)


def test_what_can_not_go_anywhere_is_told_before_anything_is_touched():
    queue = DeadQueue([*ORIGINS, "gone"])
    before = queue.everything()

    with pytest.raises(QueueStateError, match=r"can't go to queue 'gone': there is no .*--to"):
        run(queue)
    with pytest.raises(OptionError, match="can't be redriven to 'dead'"):
        run(queue, to="dead")
    with pytest.raises(OptionError, match=r"rate must be at least 0\.0001 per second, not 0"):
        run(queue, rate=0)
    assert queue.everything() == before


def test_looking_changes_nothing():
    queue = DeadQueue(ORIGINS)
    before = queue.everything()

    routes = read_routes(queue.memory, survey(queue.memory, "dead"))

    assert [(each.target.name, str(each.monotons)) for each in routes] == [
        ("orders", "0-2,3-5"),
        ("payments", "2-3,5-6"),
    ]
    assert queue.everything() == before


def test_nothing_to_do_makes_no_group():
    queue = DeadQueue()
    before = queue.everything()

    assert run(queue) == RedriveReport({}, 0, is_stopped=False)
    assert queue.everything() == before


class Clock:
    """Seconds, which pass only by waiting; stops when so many waits are over."""

    def __init__(self, stop_after: int = 1000) -> None:
        self.now = 0.0
        self.waits: list[float] = []
        self.stop_after = stop_after

    def __call__(self) -> float:
        return self.now

    def wait(self, seconds: float) -> bool:
        self.waits.append(seconds)
        self.now += seconds
        return len(self.waits) > self.stop_after


def test_a_rate_is_kept_in_small_steps():
    queue = DeadQueue(["orders"] * 8)
    clock = Clock()

    run(queue, rate=2, wait=clock.wait, clock=clock)

    assert clock.waits == [0, 1, 1, 1]
    assert homes(queue)["orders"] == list(range(8))


def test_a_rate_below_one_waits_for_each():
    queue = DeadQueue(["orders"] * 3)
    clock = Clock()

    run(queue, rate=0.25, wait=clock.wait, clock=clock)

    assert clock.waits == [0, 4, 4]


def test_time_that_a_batch_takes_is_not_waited_for_again():
    queue = DeadQueue(["orders"] * 4)
    clock = Clock()
    queue.store.interrupt(lambda: setattr(clock, "now", 0.4), after=20)

    redrive(queue.store, survey(queue.memory, "dead"), rate=2, wait=clock.wait, clock=clock)

    assert queue.store.troubles == 1
    assert clock.waits == [0, 0.6]


def test_time_that_was_lost_is_not_made_up_for_by_a_rush():
    queue = DeadQueue(["orders"] * 6)
    clock = Clock()
    queue.store.interrupt(lambda: setattr(clock, "now", 100.0), after=20)

    redrive(queue.store, survey(queue.memory, "dead"), rate=2, wait=clock.wait, clock=clock)

    assert queue.store.troubles == 1
    assert clock.waits == [0, 0, 1]


def test_a_run_that_is_stopped_holds_nothing_and_tells_what_it_did():
    queue = DeadQueue(ORIGINS)
    clock = Clock(stop_after=1)

    report = run(queue, wait=clock.wait)

    assert report == RedriveReport({"orders": 3, "payments": 0}, missed=0, is_stopped=True)
    assert queue.held() == []
    assert queue.left() == [2, 4, 5]


def test_progress_is_told():
    queue = DeadQueue(ORIGINS)
    seen: list[tuple[str, int, int]] = []

    run(queue, watch=lambda *told: seen.append(told))

    assert seen == [("redriving", 0, 6), ("redriving", 3, 6), ("redriving", 4, 6)]


def redrive_troubled(queue: DeadQueue) -> RedriveReport:
    return redrive(queue.store, survey(queue.memory, "dead"))


def calls_of_a_redrive() -> int:
    """How often a run that goes well calls the store; the last call acks."""
    queue, calls = DeadQueue(ORIGINS), 0

    def count() -> None:
        nonlocal calls
        calls += 1
        queue.store.interrupt(count, after=0)

    queue.store.interrupt(count, after=0)
    redrive_troubled(queue)
    return calls


CALLS = calls_of_a_redrive()


def crash() -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("after", range(CALLS))
def test_a_crash_anywhere_publishes_nothing_twice_and_loses_nothing(after: int):
    queue = DeadQueue(ORIGINS)
    queue.store.interrupt(crash, after=after)
    with pytest.raises(KeyboardInterrupt):
        redrive_troubled(queue)

    at_once = run(queue)
    queue.lapse()
    later = run(queue)

    assert homes(queue) == HOME
    assert queue.left() == queue.held() == []
    assert at_once.missed == sum(later.redriven.values())


def crash_after_publish(queue: DeadQueue) -> None:
    """Between the first publish, to orders, and its ack."""

    def watch(partition: Any) -> None:
        if partition.key == (queue.orders.queue_id,):
            crash()

    queue.store._watch = watch
    with pytest.raises(KeyboardInterrupt):
        redrive_troubled(queue)


def test_what_was_published_before_a_crash_is_not_dead_any_more(
    caplog: pytest.LogCaptureFixture,
):
    queue = DeadQueue(ORIGINS)
    crash_after_publish(queue)
    caplog.set_level(logging.INFO)

    assert queue.arrived("orders") == [0, 1, 3]
    assert queue.held() == ["0-2,3-4"]
    assert queue.left() == [2, 4, 5], "though not acked, and the lease runs"
    assert run(queue) == RedriveReport({"orders": 1, "payments": 2}, missed=0, is_stopped=False)

    assert told(caplog)[0] == (CLAIM_RESOLVED, 3)
    assert homes(queue) == HOME


def test_what_was_published_before_a_crash_is_acked_when_nothing_else_is_left():
    queue = DeadQueue(ORIGINS[:2])
    crash_after_publish(queue)
    assert queue.left() == []

    run(queue)

    assert queue.held() == []
    assert homes(queue)["orders"] == [0, 1]


def test_another_target_or_filter_after_a_crash_publishes_nothing_twice():
    queue = DeadQueue(ORIGINS)
    other = create_queue(queue.memory, "other")
    crash_after_publish(queue)
    queue.lapse()

    run(queue, to="other")

    assert queue.arrived("orders") == [0, 1, 3]
    assert [row["value"] for row in read_all(queue.memory, other)] == [b"2", b"4", b"5"]


@pytest.mark.parametrize("end", [purge_queue, delete_queue])
def test_what_was_published_before_a_crash_is_not_dead_after_its_target_was_purged_or_deleted(
    end: Callable[..., object],
):
    queue = DeadQueue(ORIGINS[:2])
    crash_after_publish(queue)
    queue.lapse()

    end(queue.memory, "orders", force=True)

    assert queue.left() == []
    assert run(queue).redriven == {}
    assert queue.held() == queue.left() == []


@pytest.mark.parametrize("published", [True, False])
def test_a_claim_whose_target_cannot_be_read_is_left_alone_until_it_can_be(
    caplog: pytest.LogCaptureFixture, published: bool
):
    queue = DeadQueue(ORIGINS[:2])
    if published:
        crash_after_publish(queue)
    else:
        queue.store.interrupt(crash, after=before_the_publish(queue))
        with pytest.raises(KeyboardInterrupt):
            redrive_troubled(queue)
    queue.lapse()
    row = queue.memory._rows[partition_of_queue("orders")][()]
    readable = row["on_dead"]
    row["on_dead"] = "of a newer release"
    queue.add(["payments"])

    run(queue, to="payments")

    assert queue.held() == ["0-2"], "nobody can tell what became of them"
    assert "perhaps for a queue whose row can't be read" in caplog.text
    row["on_dead"] = readable
    run(queue)
    assert sorted(queue.arrived("orders")) == [0, 1]
    assert queue.arrived("payments") == [2]
    assert queue.held() == queue.left() == []


def test_what_was_published_before_a_crash_is_not_purged():
    queue = DeadQueue(ORIGINS)
    found = survey(queue.memory, "dead")
    crash_after_publish(queue)

    report = purge(queue.memory, found)

    assert (report.purged, report.missed) == (3, 3)
    assert homes(queue) == {"orders": [0, 1, 3], "payments": []}


@pytest.mark.parametrize("fault", Fault)
@pytest.mark.parametrize("number", range(11))
def test_a_lost_answer_publishes_nothing_twice_and_loses_nothing(fault: Fault, number: int):
    queue = DeadQueue(ORIGINS)
    queue.fail(fault, after=number)

    report = redrive_troubled(queue)
    queue.store.arrive()
    queue.lapse()
    run(queue)

    assert queue.store.troubles == 1
    assert report.missed == 0
    assert homes(queue) == HOME
    assert queue.left() == queue.held() == []


@pytest.mark.parametrize("after", range(CALLS))
def test_two_runs_at_a_time_publish_nothing_twice(after: int):
    queue = DeadQueue(ORIGINS)
    others: list[RedriveReport] = []
    queue.store.interrupt(lambda: others.append(run(queue)), after=after)

    report = redrive_troubled(queue)

    assert homes(queue) == HOME
    assert queue.left() == queue.held() == []
    both = [sum(each.redriven.values()) for each in (report, *others)]
    assert sum(both) == 6
    assert report.missed == 6 - both[0]


@pytest.mark.parametrize("after", range(CALLS))
def test_a_run_that_sleeps_beyond_its_lease_publishes_nothing_that_another_one_has(after: int):
    queue = DeadQueue(ORIGINS)

    def meanwhile() -> None:
        queue.lapse()
        run(queue)

    queue.store.interrupt(meanwhile, after=after)

    redrive_troubled(queue)

    assert homes(queue) == HOME
    assert queue.left() == queue.held() == []


def test_a_run_that_slept_tells_that_another_one_has_its_messages(
    caplog: pytest.LogCaptureFixture,
):
    queue = DeadQueue(["orders"])
    other = create_queue(queue.memory, "other")
    publishing = before_the_publish(queue)
    queue.store.interrupt(
        lambda: (queue.lapse(), run(queue, to="other")),  # type: ignore[arg-type]
        after=publishing,
    )
    caplog.set_level(logging.INFO)

    report = redrive_troubled(queue)

    assert report == RedriveReport({"orders": 0}, missed=1, is_stopped=False)
    assert len(read_all(queue.memory, other)) == 1
    assert told(caplog) == [(CLAIM_RESOLVED, 1), (REDRIVEN, 1), (TAKEN_OVER, 1)]


def test_letters_stay_if_their_queue_is_deleted_before_they_are_published():
    queue = DeadQueue(["orders"])
    queue.store.interrupt(
        lambda: delete_queue(queue.memory, "orders"), after=before_the_publish(queue)
    )

    with pytest.raises(NotFoundError, match="queue orders@1 was deleted"):
        redrive_troubled(queue)

    assert queue.left() == [0]


def before_the_publish(queue: DeadQueue) -> int:
    """How many calls of the store a run on such a queue makes before it publishes."""
    twin = DeadQueue(["orders"])
    calls = 0
    ended = False

    def count() -> None:
        nonlocal calls
        if not ended:
            calls += 1
            twin.store.interrupt(count, after=0)

    def watch(partition: Any) -> None:
        nonlocal ended
        ended = ended or partition.key == (queue.orders.queue_id,)

    twin.store._watch = watch
    twin.store.interrupt(count, after=0)
    redrive_troubled(twin)
    return calls - 1


def test_a_claim_whose_name_can_not_be_closed_stays(monkeypatch: pytest.MonkeyPatch):
    queue = DeadQueue(["orders"])
    queue.store.interrupt(crash, after=before_the_publish(queue))
    with pytest.raises(KeyboardInterrupt):
        redrive_troubled(queue)
    queue.lapse()
    cas = queue.store.cas

    def troubled(partition: Any, ops: Any) -> bool:
        if partition.key == (queue.orders.queue_id,):
            queue.store.fault = Fault.REQUEST_LOST
        return cas(partition, ops)

    monkeypatch.setattr(queue.store, "cas", troubled)
    with pytest.raises(ContentionError, match="gave no answer about redrive:dead@1:"):
        redrive_troubled(queue)

    assert queue.held() == ["0-1"]
    assert homes(queue)["orders"] == []


def test_a_lease_that_is_not_ours_is_respected_until_it_runs_out():
    queue = DeadQueue(ORIGINS)
    ensure_group(
        ConsumerGroup(Ledger(queue.memory, queue.dead.queue_id), ADMIN_GROUP), starting="earliest"
    )
    stranger = ConsumerGroup(Ledger(queue.memory, queue.dead.queue_id), ADMIN_GROUP)
    stranger.lease(make_request(max_messages=2, stop=6))

    assert run(queue).missed == 2
    queue.lapse()
    run(queue)

    assert homes(queue) == HOME


def test_a_token_tells_its_target_only_to_those_who_know_it():
    target, other = QueueId("orders@1"), QueueId("orders@2")
    token = token_for(target)

    assert is_token_for(token, target)
    assert not is_token_for(token, other)
    assert token_for(target) != token


@pytest.mark.parametrize("deaths", [1, 3])
def test_a_message_that_dies_again_keeps_count(deaths: int):
    # From death to death, as it really happens.
    queue = DeadQueue()
    group = ConsumerGroup(Ledger(queue.memory, queue.orders.queue_id), "g")
    queue.add(["orders"])
    for death in range(1, deaths + 1):
        run(queue)
        message = queue.messages("orders")[-1]
        assert message["headers"] == [("own", "h0"), ("cassieq.redrives", str(death))]
        die(queue, group, stop=death)

    letter = queue.messages("dead")[-1]
    headers = dict(letter["headers"])
    assert (letter["key"], letter["value"]) == (b"k0", b"0")
    assert headers["cassieq.redrives"] == str(deaths)
    assert headers["cassieq.origin-queue"] == "orders"
    (found,) = survey(queue.memory, "orders", Filter(reason="5 deliveries")).groups
    assert (found.origin_group, found.monotons) == ("g", Ranges.parse(f"{deaths}-{deaths + 1}"))


def die(queue: DeadQueue, group: ConsumerGroup, *, stop: int) -> None:
    for _ in range(5):
        lease = group.lease(make_request(stop=stop, max_deliveries=5))
        assert lease.leased
        queue.clock.advance(LEASE + MOMENT)
    dead = group.lease(make_request(stop=stop, max_deliveries=5)).dead
    assert dead_letter_messages(queue.memory, queue.orders, group, dead) == 1


def test_the_group_is_made_on_the_first_change_from_the_earliest_on():
    queue = DeadQueue(ORIGINS)
    assert Ledger(queue.memory, queue.dead.queue_id).read_groups() == []

    run(queue)

    (group,) = Ledger(queue.memory, queue.dead.queue_id).read_groups()
    assert (group.name, group.starts_at) == (ADMIN_GROUP, 0)


def test_each_batch_costs_three_lwts():
    queue = DeadQueue(ORIGINS[:2])
    run(queue)
    queue.add(ORIGINS[:2])
    applied: list[str] = []
    queue.store._watch = lambda partition: applied.append(partition.table)

    redrive_troubled(queue)

    assert applied == ["group_state", "ledger", "group_state"]


def test_what_comes_meanwhile_stays_for_the_next_run():
    queue = DeadQueue(["orders"])
    add: Callable[[], None] = lambda: queue.add(["orders"])  # noqa: E731 (an action)
    queue.store.interrupt(add, after=10)

    redrive_troubled(queue)
    assert queue.left() == [1]
    run(queue)

    assert homes(queue)["orders"] == [0, 1]


def queue_of(queue: DeadQueue, name: str, dead: str | None = None) -> None:
    create_queue(queue.memory, name, max_deliveries=5, dead_letter_queue=dead)


def test_nothing_goes_to_another_account_unless_that_is_allowed():
    queue = DeadQueue(["orders", "acme:orders"])
    queue_of(queue, "acme:orders", "dead")
    before = queue.everything()

    with pytest.raises(
        OptionError, match=r"to acme:orders, which is of another account.*--across"
    ):
        run(queue)
    with pytest.raises(OptionError, match="to acme:orders, which is of another account"):
        run(queue, to="acme:orders")
    assert queue.everything() == before

    assert run(queue, across_accounts=True).redriven == {"orders": 1, "acme:orders": 1}


def test_within_an_account_nothing_need_be_allowed():
    queue = DeadQueue()
    for name, dead in (("acme:orders", "acme:dead"), ("acme:late", "acme:dead")):
        queue_of(queue, name, dead)
    found = survey(queue.memory, "acme:dead")

    assert read_routes(queue.memory, found, to="acme:late") == ()
