"""Groups that begin anywhere, are moved and deleted."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from datetime import timedelta

import pytest

from cassieq_spark.errors import ContentionError, OptionError, QueueStateError
from cassieq_spark.groups import seek
from cassieq_spark.groups.group import ConsumerGroup
from cassieq_spark.groups.registration import (
    BEGINS_LATER,
    create_group,
    delete_group,
    ensure_group,
    read_group_states,
)
from cassieq_spark.groups.seek import seek_group
from cassieq_spark.groups.state import Settlement
from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.ledger.publish import publish
from cassieq_spark.model import QueueId, Range, Ranges
from cassieq_spark.store.memory import MemoryStore
from cassieq_spark.store.protocol import (
    Delete,
    Slice,
    Store,
    partition_of_group,
    partition_of_ledger,
)
from cassieq_spark.testing.faults import Fault, FaultyStore
from cassieq_spark.testing.stores import CountingStore
from tests.support.builders import (
    LEASE,
    make_clocked_store,
    make_group,
    make_pending,
    make_queue,
    make_request,
    monotons_of,
    register_half,
)

CALLS_OF_A_SEEK = 12
MOMENT = timedelta(milliseconds=1)


class Scene:
    """A queue of thirty messages; group ``g`` has settled twenty of them, group ``slow`` five."""

    def __init__(self) -> None:
        memory, self.clock = make_clocked_store()
        self.store = FaultyStore(memory)
        self.queue_id: QueueId = make_queue(memory, [13, 17]).queue_id
        self.g = self.settle("g", 20)
        self.settle("slow", 5)
        self.repair()

    def settle(self, name: str, stop: int) -> ConsumerGroup:
        group = make_group(self.store, self.queue_id, name)
        lease = group.lease(make_request(stop=stop))
        group.lease(make_request(held=lease.token, stop=0))
        return group

    def repair(self, *, meanwhile: Callable[[], None] = lambda: None) -> None:
        """As the repair job does: head, floors, and the move conditioned on the head."""
        head = Ledger(self.store, self.queue_id).read_head(serial=True)
        floors = [
            each.floor for each in read_group_states(Ledger(self.store, self.queue_id)).values()
        ]
        meanwhile()
        if floors:
            Ledger(self.store, self.queue_id).finalise(head, min(floors))

    def pointer(self, name: str = "g") -> int:
        return read_group_states(Ledger(self.store, self.queue_id))[name].head.pointer

    @property
    def finalised(self) -> int:
        return Ledger(self.store, self.queue_id).read_head().finalised

    @property
    def seek_pins(self) -> int:
        which = Slice(kinds=("seek_pin",))
        return len(self.store.read_rows(partition_of_ledger(self.queue_id), which).rows)

    def check(self) -> None:
        for state in read_group_states(Ledger(self.store, self.queue_id)).values():
            assert self.finalised <= state.floor, "I7"


@pytest.fixture
def scene() -> Scene:
    return Scene()


# -- where a group begins -------------------------------------------------------------------------


def test_a_group_begins_at_a_monoton(scene: Scene):
    ensure_group(ConsumerGroup(Ledger(scene.store, scene.queue_id), "new"), starting=12)
    ensure_group(ConsumerGroup(Ledger(scene.store, scene.queue_id), "next"), starting=30)

    assert (scene.pointer("new"), scene.pointer("next")) == (12, 30)


def test_a_monoton_that_is_not_there_yet_is_refused_with_those_that_are(scene: Scene):
    with pytest.raises(QueueStateError, match=r"no monoton 31 yet: it holds \[5, 30\)"):
        ensure_group(ConsumerGroup(Ledger(scene.store, scene.queue_id), "new"), starting=31)
    assert "new" not in read_group_states(Ledger(scene.store, scene.queue_id))


@pytest.mark.parametrize("late", [timedelta(0), LEASE, 2 * LEASE])
def test_a_group_begins_with_the_first_block_published_at_an_instant_or_later(late: timedelta):
    store, clock = make_clocked_store()
    begun = clock.now
    queue_id = make_queue(store).queue_id
    for _ in range(3):
        publish(Ledger(store, queue_id), make_pending([4]))
        clock.advance(LEASE)

    ensure_group(ConsumerGroup(Ledger(store, queue_id), "at"), starting=begun + late)
    ensure_group(ConsumerGroup(Ledger(store, queue_id), "after"), starting=begun + late + MOMENT)

    pointers = {
        name: each.head.pointer
        for name, each in read_group_states(Ledger(store, queue_id)).items()
    }
    first = 4 * (late // LEASE)
    assert pointers == {"at": first, "after": first + 4}


def test_blocks_published_by_a_clock_that_is_behind_do_not_hide_earlier_ones():
    store, clock = make_clocked_store()
    begun = clock.now
    queue_id = make_queue(store).queue_id
    for step in (LEASE, -LEASE, 2 * LEASE):
        clock.advance(step)
        publish(Ledger(store, queue_id), make_pending([4]))

    ensure_group(ConsumerGroup(Ledger(store, queue_id), "g"), starting=begun + LEASE)

    assert read_group_states(Ledger(store, queue_id))["g"].head.pointer == 0


def test_a_position_that_is_deleted_already_is_refused_with_what_is_gone(scene: Scene):
    with pytest.raises(QueueStateError, match=r"begin at 3, but monotons \[3, 5\) .* failOnData"):
        ensure_group(ConsumerGroup(Ledger(scene.store, scene.queue_id), "new"), starting=3)
    with pytest.raises(QueueStateError, match=r"\[0, 5\)"):
        ensure_group(
            ConsumerGroup(Ledger(scene.store, scene.queue_id), "new"), starting=scene.clock.now
        )

    assert "new" not in read_group_states(Ledger(scene.store, scene.queue_id))


def test_or_it_begins_with_what_still_exists_and_says_so(
    scene: Scene, caplog: pytest.LogCaptureFixture
):
    with caplog.at_level(logging.WARNING):
        ensure_group(
            ConsumerGroup(Ledger(scene.store, scene.queue_id), "new"),
            starting=3,
            fail_on_data_loss=False,
        )

    assert scene.pointer("new") == 5
    (record,) = [each for each in caplog.records if vars(each).get("action") == BEGINS_LATER]
    assert "[3, 5)" in record.getMessage()


# -- create ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", [None, *Fault])
@pytest.mark.parametrize("after", range(6))
def test_a_group_is_created_once(scene: Scene, fault: Fault | None, after: int):
    scene.store.interrupt(lambda: setattr(scene.store, "fault", fault), after=after)

    create_group(ConsumerGroup(Ledger(scene.store, scene.queue_id), "new"), "latest")
    scene.store.calm()
    scene.store.arrive()

    assert scene.pointer("new") == 30
    with pytest.raises(QueueStateError, match=r"exists already; .* group seek"):
        create_group(ConsumerGroup(Ledger(scene.store, scene.queue_id), "new"), "latest")


def test_a_group_needs_a_name(scene: Scene):
    with pytest.raises(OptionError, match="not valid"):
        create_group(ConsumerGroup(Ledger(scene.store, scene.queue_id), "no spaces"), "latest")


# -- seek -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("to", "expected"), [("earliest", 5), ("latest", 30), (5, 5), (20, 20), (22, 22), (30, 30)]
)
def test_a_group_goes_on_from_where_it_is_sought(scene: Scene, to, expected: int):
    assert seek_group(ConsumerGroup(Ledger(scene.store, scene.queue_id), "g"), to) == expected

    assert scene.pointer() == expected
    lease = scene.g.lease(make_request(stop=30))
    assert [each.start for each in monotons_of(lease.leased)] == [expected][: 30 - expected]
    assert [each.deliveries for each in lease.leased] == [1][: 30 - expected]
    assert scene.seek_pins == 0


def test_a_seek_costs_three_lwts(scene: Scene):
    store = CountingStore(scene.store)

    seek_group(ConsumerGroup(Ledger(store, scene.queue_id), "g"), 10)

    assert store.cas_count == 3


@pytest.mark.parametrize("after", range(CALLS_OF_A_SEEK))
def test_what_is_held_on_to_while_the_group_moves_has_one_holder(scene: Scene, after: int):
    lease = scene.g.lease(make_request(stop=30))
    extended = Settlement(extended={LEASE: Ranges.parse("22-23")})
    scene.store.interrupt(lambda: scene.g.settle(lease.token, extended), after=after)

    seek_group(ConsumerGroup(Ledger(scene.store, scene.queue_id), "g"), 20, force=True)

    assert not any(slot.monotons for slot in scene.g.read().slots)


def test_a_group_that_begins_at_an_instant_misses_no_publish_of_one_replica(scene: Scene):
    scene.clock.advance(timedelta(hours=1))
    instant = scene.clock.now
    with scene.store.replicas.tearing():
        publish(Ledger(scene.store, scene.queue_id), make_pending([4]))
    # The ledger's head is read from the replica that has it, the blocks from the others.
    scene.store.replicas.draw("sfs")

    ensure_group(ConsumerGroup(Ledger(scene.store, scene.queue_id), "new"), starting=instant)

    assert scene.pointer("new") == 30


def test_what_is_finalised_cannot_be_sought(scene: Scene):
    with pytest.raises(QueueStateError, match=r"\[4, 5\) is settled .* back to 5"):
        seek_group(ConsumerGroup(Ledger(scene.store, scene.queue_id), "g"), 4)
    with pytest.raises(QueueStateError, match="no monoton 31"):
        seek_group(ConsumerGroup(Ledger(scene.store, scene.queue_id), "g"), 31)
    with pytest.raises(QueueStateError, match="no group 'nobody'"):
        seek_group(ConsumerGroup(Ledger(scene.store, scene.queue_id), "nobody"), 20)
    assert (scene.pointer(), scene.seek_pins) == (20, 0)


def test_messages_that_are_held_are_moved_by_force_only(scene: Scene):
    held = scene.g.lease(make_request(stop=25))

    with pytest.raises(QueueStateError, match="hold messages 20 to 24 until 2026"):
        seek_group(ConsumerGroup(Ledger(scene.store, scene.queue_id), "g"), 10)
    assert (scene.pointer(), scene.seek_pins) == (25, 0)
    seek_group(ConsumerGroup(Ledger(scene.store, scene.queue_id), "g"), 10, force=True)

    after = scene.g.lease(make_request(held=held.token, stop=30))
    assert after.acked == 0
    assert [each.start for each in monotons_of(after.leased)] == [10]
    assert not scene.g.extend(held.token, held.leased, by=LEASE)


def test_of_many_ranges_that_are_held_the_error_names_ten(scene: Scene):
    slow = make_group(scene.store, scene.queue_id, "slow")
    lease = slow.lease(make_request(stop=30))
    every_other = Ranges.of(*(Range(at, at + 1) for at in range(6, 30, 2)))
    slow.settle(lease.token, Settlement(acked=every_other))

    with pytest.raises(QueueStateError, match=r"hold messages 5, 7, .*, 23 and 3 more until 2026"):
        seek_group(slow, 10)


def test_what_is_due_or_waits_is_forgotten(scene: Scene):
    scene.g.lease(make_request(stop=28))
    scene.clock.advance(2 * LEASE)
    scene.g.lease(make_request(stop=28, max_messages=2))
    scene.clock.advance(2 * LEASE)

    seek_group(ConsumerGroup(Ledger(scene.store, scene.queue_id), "g"), 29)

    state = scene.g.read(every_waiting=True)
    assert (state.floor, state.waiting) == (29, ())
    assert not any(slot.monotons for slot in state.slots)


def test_a_group_registered_only_half_can_be_sought(scene: Scene):
    register_half(Ledger(scene.store, scene.queue_id), "half")

    seek_group(ConsumerGroup(Ledger(scene.store, scene.queue_id), "half"), 17)

    assert scene.pointer("half") == 17


@pytest.mark.parametrize("after", range(CALLS_OF_A_SEEK))
@pytest.mark.parametrize("what", ["repair", "lease", "seek", "lower", "settle slow"])
def test_whoever_comes_between_nothing_owed_is_finalised(scene: Scene, what: str, after: int):
    def catch_up() -> None:
        scene.settle("slow", 20)
        scene.repair()

    meanwhile: dict[str, Callable[[], object]] = {
        "repair": scene.repair,
        "lease": lambda: scene.g.lease(make_request(stop=22)),
        "seek": lambda: seek_group(ConsumerGroup(Ledger(scene.store, scene.queue_id), "g"), 15),
        "lower": lambda: seek_group(ConsumerGroup(Ledger(scene.store, scene.queue_id), "g"), 6),
        "settle slow": catch_up,
    }
    scene.store.interrupt(lambda: meanwhile[what]() and None, after=after)

    with contextlib.suppress(QueueStateError):
        seek_group(ConsumerGroup(Ledger(scene.store, scene.queue_id), "g"), 8, force=True)
    scene.store.calm()

    assert scene.seek_pins == 0
    assert scene.pointer() in ((20, 8) if what == "settle slow" else (8, 15, 6, 22))
    assert (scene.pointer() == 20) == (scene.finalised > 8)
    scene.check()
    scene.settle("slow", 30)
    scene.repair()
    scene.check()


@pytest.mark.parametrize("after", range(CALLS_OF_A_SEEK))
def test_a_repair_that_is_overtaken_by_a_seek_finalises_nothing(scene: Scene, after: int):
    scene.settle("slow", 20)
    scene.store.interrupt(
        lambda: (
            seek_group(ConsumerGroup(Ledger(scene.store, scene.queue_id), "g"), "earliest")
            and None
        ),
        after=after,
    )

    scene.repair()
    scene.store.calm()

    scene.check()


class Crash(Exception):  # noqa: N818
    """The process is gone."""


def crash() -> None:
    raise Crash


@pytest.mark.parametrize("after", range(CALLS_OF_A_SEEK))
def test_a_seek_that_breaks_off_loses_nothing_and_is_completed_by_another(
    scene: Scene, after: int
):
    scene.store.interrupt(crash, after=after)
    with contextlib.suppress(Crash):
        seek_group(ConsumerGroup(Ledger(scene.store, scene.queue_id), "g"), 8)
    scene.store.calm()
    scene.settle("slow", 30)

    scene.repair()
    scene.check()
    at = max(8, scene.finalised)
    assert seek_group(ConsumerGroup(Ledger(scene.store, scene.queue_id), "g"), at) == at

    scene.check()
    assert (scene.pointer(), scene.seek_pins) == (at, 0)


@pytest.mark.parametrize("fault", Fault)
@pytest.mark.parametrize("after", range(CALLS_OF_A_SEEK))
@pytest.mark.parametrize("arrives", ["at once", "after another seek"])
def test_lost_answers_of_a_seek_do_not_matter(
    scene: Scene, fault: Fault, after: int, arrives: str
):
    scene.store.interrupt(lambda: setattr(scene.store, "fault", fault), after=after)

    seek_group(ConsumerGroup(Ledger(scene.store, scene.queue_id), "g"), 8)
    scene.store.calm()
    expected = 8
    if arrives == "after another seek":
        expected = seek_group(ConsumerGroup(Ledger(scene.store, scene.queue_id), "g"), 18)
    scene.store.arrive()

    assert (scene.pointer(), scene.seek_pins) == (expected, 0)
    scene.check()


def test_losing_every_race_to_move_is_contention(scene: Scene, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(seek, "attempts", lambda: range(2))
    monkeypatch.setattr(seek, "_move", lambda *_, **__: [Delete(("slot", 99, 0))])

    with pytest.raises(ContentionError, match="changes too fast"):
        seek_group(ConsumerGroup(Ledger(scene.store, scene.queue_id), "g"), 8)

    assert scene.seek_pins == 0


# -- delete ---------------------------------------------------------------------------------------


def names_of(store: Store, queue_id: QueueId) -> list[str]:
    return [group.name for group in Ledger(store, queue_id).read_groups()]


def test_a_deleted_group_is_gone_and_its_readers_stop(scene: Scene):
    assert delete_group(ConsumerGroup(Ledger(scene.store, scene.queue_id), "slow"))

    assert names_of(scene.store, scene.queue_id) == ["g"]
    rows = scene.store.read_rows(partition_of_group(scene.queue_id, "slow")).rows
    assert not rows
    with pytest.raises(QueueStateError, match="does not exist"):
        ConsumerGroup(Ledger(scene.store, scene.queue_id), "slow").lease(make_request())
    scene.repair()
    assert scene.finalised == 20


def test_deleting_what_is_not_there_says_so(scene: Scene):
    assert not delete_group(ConsumerGroup(Ledger(scene.store, scene.queue_id), "nobody"))
    assert delete_group(ConsumerGroup(Ledger(scene.store, scene.queue_id), "g"))
    assert not delete_group(ConsumerGroup(Ledger(scene.store, scene.queue_id), "g"))


def test_a_group_whose_messages_are_held_is_deleted_by_force_only(scene: Scene):
    held = scene.g.lease(make_request(stop=25))

    with pytest.raises(QueueStateError, match="stop them"):
        delete_group(ConsumerGroup(Ledger(scene.store, scene.queue_id), "g"))
    assert delete_group(ConsumerGroup(Ledger(scene.store, scene.queue_id), "g"), force=True)

    assert not scene.g.extend(held.token, held.leased, by=LEASE)


def test_a_group_made_again_begins_anew(scene: Scene):
    held = scene.g.lease(make_request(stop=25))
    delete_group(ConsumerGroup(Ledger(scene.store, scene.queue_id), "g"), force=True)
    ensure_group(ConsumerGroup(Ledger(scene.store, scene.queue_id), "g"), starting="earliest")

    after = scene.g.lease(make_request(held=held.token, stop=30))

    assert after.acked == 0
    assert [each.start for each in monotons_of(after.leased)] == [5]


@pytest.mark.parametrize("after", range(9))
def test_a_deletion_that_breaks_off_is_completed_by_another_or_by_a_new_group(after: int):
    for again in ("delete", "make anew"):
        scene = Scene()
        scene.store.interrupt(crash, after=after)
        with contextlib.suppress(Crash):
            delete_group(ConsumerGroup(Ledger(scene.store, scene.queue_id), "g"))
        scene.store.calm()
        scene.settle("slow", 28)
        scene.repair()
        scene.check()

        if again == "delete":
            delete_group(ConsumerGroup(Ledger(scene.store, scene.queue_id), "g"))
            assert names_of(scene.store, scene.queue_id) == ["slow"]
            assert not scene.store.read_rows(partition_of_group(scene.queue_id, "g")).rows
        ensure_group(ConsumerGroup(Ledger(scene.store, scene.queue_id), "g"), starting="latest")
        scene.check()
        deleted = scene.finalised == 28 or again == "delete"
        assert scene.pointer() == (30 if deleted else 20)


@pytest.mark.parametrize("fault", Fault)
@pytest.mark.parametrize("after", range(9))
def test_lost_answers_of_a_deletion_do_not_matter(scene: Scene, fault: Fault, after: int):
    scene.store.interrupt(lambda: setattr(scene.store, "fault", fault), after=after)

    assert delete_group(ConsumerGroup(Ledger(scene.store, scene.queue_id), "g"))
    scene.store.calm()
    ensure_group(ConsumerGroup(Ledger(scene.store, scene.queue_id), "g"), starting="latest")
    scene.store.arrive()

    assert scene.pointer() == 30
    scene.check()


@pytest.mark.parametrize("what", ["seek", "repair"])
@pytest.mark.parametrize("after", range(9))
def test_a_group_deleted_while_it_is_sought_or_repaired_stays_deleted(
    scene: Scene, what: str, after: int
):
    scene.store.interrupt(
        lambda: (
            delete_group(ConsumerGroup(Ledger(scene.store, scene.queue_id), "g"), force=True)
            and None
        ),
        after=after,
    )

    with contextlib.suppress(QueueStateError):
        if what == "seek":
            seek_group(ConsumerGroup(Ledger(scene.store, scene.queue_id), "g"), 8)
        else:
            scene.repair()
    scene.store.calm()

    if scene.store.troubles:
        assert names_of(scene.store, scene.queue_id) == ["slow"]
    assert scene.seek_pins == 0
    scene.check()


@pytest.mark.parametrize("after", range(9))
def test_a_late_beginning_of_a_deleted_group_is_not_taken_for_a_new_one(after: int):
    # I7: it begins below what is finalised by then.
    memory, _ = make_clocked_store()
    store = FaultyStore(memory)
    queue_id = make_queue(memory, [10]).queue_id
    make_group(memory, queue_id, "slow")

    def delete_and_repair() -> None:
        delete_group(ConsumerGroup(Ledger(memory, queue_id), "g"))
        slow = ConsumerGroup(Ledger(memory, queue_id), "slow")
        lease = slow.lease(make_request(stop=6))
        slow.lease(make_request(held=lease.token, stop=0))
        floors = [each.floor for each in read_group_states(Ledger(memory, queue_id)).values()]
        Ledger(memory, queue_id).finalise(Ledger(memory, queue_id).read_head(), min(floors))

    store.interrupt(delete_and_repair, after=after)

    ensure_group(ConsumerGroup(Ledger(store, queue_id), "g"), starting="earliest")
    store.calm()
    ensure_group(ConsumerGroup(Ledger(store, queue_id), "g"), starting="earliest")

    states = read_group_states(Ledger(memory, queue_id))
    if "g" in states:
        assert states["g"].floor >= Ledger(memory, queue_id).read_head().finalised
        assert states["g"] == ConsumerGroup(Ledger(memory, queue_id), "g").read(every_waiting=True)


def test_a_move_that_arrives_in_another_group_of_that_name_is_refused(scene: Scene):
    # I7: pointer and waiting version are what the move was conditioned on, by chance.
    def lose_the_move_and_die() -> None:
        scene.store.fault = Fault.REQUEST_LATE
        scene.store.interrupt(crash, after=1)

    scene.store.interrupt(lose_the_move_and_die, after=8)
    with contextlib.suppress(Crash):
        seek_group(ConsumerGroup(Ledger(scene.store, scene.queue_id), "g"), 8)
    scene.store.calm()
    assert (scene.pointer(), scene.seek_pins, len(scene.store.late)) == (20, 1, 1)
    delete_group(ConsumerGroup(Ledger(scene.store, scene.queue_id), "g"))
    scene.settle("slow", 20)
    scene.repair()
    ensure_group(ConsumerGroup(Ledger(scene.store, scene.queue_id), "g"), starting=20)

    scene.store.arrive()

    assert (scene.pointer(), scene.finalised) == (20, 20)


def test_what_an_earlier_group_of_that_name_was_owed_does_not_count(scene: Scene):
    # I7: the repair would go by the pointer of a group that is deleted.
    def lose_the_beginning_and_die() -> None:
        scene.store.fault = Fault.REQUEST_LATE
        scene.store.interrupt(crash, after=1)

    scene.store.interrupt(lose_the_beginning_and_die, after=7)
    with contextlib.suppress(Crash):
        ensure_group(ConsumerGroup(Ledger(scene.store, scene.queue_id), "new"), starting="latest")
    scene.store.calm()
    assert len(scene.store.late) == 1
    delete_group(ConsumerGroup(Ledger(scene.store, scene.queue_id), "new"))
    register_half(Ledger(scene.store, scene.queue_id), "new")
    scene.store.arrive()
    scene.settle("slow", 20)

    scene.repair()

    assert scene.finalised == 5
    ensure_group(ConsumerGroup(Ledger(scene.store, scene.queue_id), "new"), starting="latest")
    assert scene.pointer("new") == 5


@pytest.mark.parametrize("after", range(4))
def test_a_group_made_while_nothing_is_found_to_delete_stays_whole(scene: Scene, after: int):
    scene.store.interrupt(
        lambda: make_group(scene.store, scene.queue_id, "new") and None, after=after
    )

    with contextlib.suppress(QueueStateError):
        delete_group(ConsumerGroup(Ledger(scene.store, scene.queue_id), "new"))
    scene.store.calm()

    rows = scene.store.read_rows(partition_of_group(scene.queue_id, "new")).rows
    assert bool(rows) == ("new" in names_of(scene.store, scene.queue_id))


def test_memory_has_no_groups_without_a_queue():
    with pytest.raises(QueueStateError, match="cassieq queue create"):
        delete_group(ConsumerGroup(Ledger(MemoryStore(), QueueId("q@1")), "g"))
