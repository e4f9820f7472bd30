"""The judge of a soak finds what is planted: losses, duplicates, leftovers, growth."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from random import Random
from uuid import UUID, uuid4

import pytest

from cassieq_spark import Client
from cassieq_spark.errors import StoreError
from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.ledger.publish import publish
from cassieq_spark.ledger.state import HEAD, block_key
from cassieq_spark.model import BucketSlice, QueueDefinition, QueueId, SinkBatch
from cassieq_spark.queues import create_queue, delete_queue, list_records, purge_queue
from cassieq_spark.repair.scan import DriverScan
from cassieq_spark.repair.steps import Step, run_once
from cassieq_spark.store.memory import MemoryStore
from cassieq_spark.store.protocol import (
    Delete,
    Insert,
    Op,
    Partition,
    Update,
    When,
    partition_of_group,
    partition_of_ledger,
)
from cassieq_spark.store.tables import Table
from cassieq_spark.testing.stores import WrappedStore
from tests.support.builders import make_pending
from tests.support.faults import FakeClock
from trials.soak.actors import World
from trials.soak.checker import (
    DeadLetter,
    Delivery,
    Journal,
    Outcome,
    Owed,
    Put,
    Settle,
    Verdict,
    judge,
)
from trials.soak.leftovers import Sample, Tables, find_leftovers, trend_of
from trials.soak.operators import repair
from trials.stores import Abandoned, MortalStore

QUEUE = QueueId("q@1")
START = datetime(2026, 11, 20, 12, tzinfo=UTC)
HOLD = timedelta(seconds=5)
LIMIT = 5
WRITE_TIMEOUT = timedelta(minutes=1)
LEASE, OTHER = uuid4(), uuid4()


def after(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def make_put(number: int = 0, **changes: object) -> Put:
    return replace(Put(number, Outcome.VISIBLE, QUEUE, number, START), **changes)  # type: ignore[arg-type]


def make_delivery(monoton: int = 0, at: float = 1, **changes: object) -> Delivery:
    delivery = Delivery(
        QUEUE, "g", monoton, monoton, LEASE, 1, after(at), after(at), after(at) + HOLD
    )
    return replace(delivery, **changes)  # type: ignore[arg-type]


def make_ack(monoton: int = 0, at: float = 2, lease: UUID = LEASE) -> Settle:
    return Settle(lease, frozenset([monoton]), after(at), after(at), settled=True)


def make_debt(stop: int = 1, **changes: object) -> Owed:
    return replace(Owed(QUEUE, "g", 0, stop, depth=0, expired=0), **changes)  # type: ignore[arg-type]


def make_journal(messages: int = 3) -> Journal:
    """All went well."""
    return Journal(
        [make_put(number) for number in range(messages)],
        [make_delivery(number) for number in range(messages)],
        [make_ack(number) for number in range(messages)],
    )


def found(journal: Journal, *owed: Owed, letters: tuple[DeadLetter, ...] = ()) -> set[str]:
    return set(verdict(journal, *owed, letters=letters).wrong)


def verdict(journal: Journal, *owed: Owed, letters: tuple[DeadLetter, ...] = ()) -> Verdict:
    return judge(journal, owed, letters, max_deliveries=LIMIT)


def test_nothing_is_wrong_with_what_went_well() -> None:
    result = verdict(make_journal(), make_debt(3))

    assert result.is_fine
    assert result.figures["messages_processed"] == 3
    assert result.figures["processed_again"] == 0


def test_a_message_that_no_consumer_got_is_lost() -> None:
    journal = make_journal()
    del journal.deliveries[1]

    assert found(journal, make_debt(3)) == {"lost"}


def test_a_message_that_one_of_two_groups_never_got_is_lost() -> None:
    journal = make_journal()

    assert found(journal, make_debt(3), make_debt(3, group="other")) == {"lost"}


def test_a_message_of_unknown_fate_that_is_visible_must_be_delivered_as_well() -> None:
    journal = make_journal(1)
    journal.puts.append(make_put(1, outcome=Outcome.UNKNOWN, monoton=None))

    assert found(journal, make_debt(1)) == set()
    assert found(journal, make_debt(2)) == {"lost"}


def test_a_message_beyond_the_end_of_its_queue_is_lost() -> None:
    journal = make_journal(1)
    journal.puts.append(make_put(1))

    assert found(journal, make_debt(1)) == {"lost"}


def test_a_group_is_not_owed_what_was_before_its_time() -> None:
    journal = make_journal()
    del journal.deliveries[0]

    assert found(journal, make_debt(3, start=1)) == set()


def test_a_dead_letter_accounts_for_its_message_and_its_group_only() -> None:
    journal = make_journal()
    del journal.deliveries[1]
    letter = DeadLetter(1, "q", "g", 1)

    assert found(journal, make_debt(3), letters=(letter,)) == set()
    assert found(journal, make_debt(3), letters=(replace(letter, group="other"),)) == {"lost"}
    assert found(journal, make_debt(3), letters=(replace(letter, origin="p"),)) == {"lost"}


def test_a_dead_letter_of_an_earlier_version_accounts_for_nothing() -> None:
    journal = make_journal()
    del journal.deliveries[1]
    journal.puts.append(make_put(7, queue_id=QueueId("q@0")))

    assert found(journal, make_debt(3), letters=(DeadLetter(7, "q", "g", 1),)) == {"lost"}


def test_two_dead_letters_of_one_message_and_group_are_one_too_many() -> None:
    letter = DeadLetter(1, "q", "g", 1)

    assert found(make_journal(), letters=(letter, replace(letter, group="h"))) == set()
    assert found(make_journal(), letters=(letter, letter)) == {"dead-lettered twice"}


def test_only_so_many_messages_may_be_missing_as_have_expired() -> None:
    journal = make_journal()
    del journal.deliveries[:2]

    assert found(journal, make_debt(3, expired=2)) == set()
    assert found(journal, make_debt(3, expired=1)) == {"lost"}


def test_a_group_that_is_owed_something_is_not_drained() -> None:
    assert found(make_journal(), make_debt(3, depth=1)) == {"not drained"}


def test_a_duplicate_is_counted_and_no_fault_once_its_lease_ran_out() -> None:
    journal = make_journal(1)
    journal.settles = [make_ack(at=11, lease=OTHER)]
    journal.deliveries.append(make_delivery(at=10, lease=OTHER, count=2))

    result = verdict(journal, make_debt())

    assert result.is_fine
    assert result.figures["processed_again"] == 1


def test_nothing_is_delivered_after_it_was_settled() -> None:
    journal = make_journal(1)
    journal.deliveries.append(make_delivery(at=10, lease=OTHER, count=2))

    assert found(journal, make_debt()) == {"delivered after it was settled"}


def test_nothing_is_settled_under_two_leases() -> None:
    journal = make_journal(1)
    journal.deliveries.append(make_delivery(at=1.5, lease=OTHER, count=2))
    journal.deliveries[0] = make_delivery(until=after(1.2))
    journal.settles.append(make_ack(at=3, lease=OTHER))

    assert found(journal, make_debt()) == {"settled twice"}


def test_two_do_not_hold_a_message_at_once() -> None:
    journal = make_journal(1)
    journal.settles = []
    journal.deliveries.append(make_delivery(at=3, lease=OTHER, count=2))

    assert found(journal, make_debt()) == {"held by two"}


def test_an_answer_that_comes_after_its_lease_is_over_holds_nothing() -> None:
    journal = make_journal(1)
    journal.settles = []
    journal.deliveries = [
        make_delivery(at=4, until=after(2)),
        make_delivery(at=3, lease=OTHER, count=2, until=after(9)),
    ]

    assert found(journal, make_debt()) == set()

    journal.deliveries[0] = make_delivery(at=4, until=after(3.5))

    assert found(journal, make_debt()) == {"held by two"}


def test_another_may_have_what_its_holder_releases() -> None:
    journal = make_journal(2)
    journal.settles = [Settle(LEASE, frozenset([0]), after(2), after(2), settled=False)]
    journal.deliveries.append(make_delivery(0, at=3, lease=OTHER, count=2))

    assert found(journal, make_debt(2)) == set()

    journal.deliveries.append(make_delivery(1, at=3, lease=OTHER, count=2))

    assert found(journal, make_debt(2)) == {"held by two"}


def test_one_lease_may_deliver_again_what_it_holds() -> None:
    journal = make_journal(1)
    journal.settles = []
    journal.deliveries.append(make_delivery(at=3, count=2))

    assert found(journal, make_debt()) == set()


def test_each_delivery_has_a_count_of_its_own() -> None:
    journal = make_journal(1)
    journal.settles = []
    journal.deliveries.append(make_delivery(at=10, lease=OTHER))

    assert found(journal, make_debt()) == {"two deliveries with one count"}


def test_nothing_is_delivered_more_often_than_the_limit() -> None:
    journal = make_journal(1)
    journal.deliveries[0] = make_delivery(count=LIMIT + 1)

    assert found(journal, make_debt()) == {"delivered too often"}


def test_nothing_is_delivered_that_was_never_put() -> None:
    journal = make_journal(1)
    journal.puts.clear()

    assert found(journal, make_debt()) == {"delivered, but never put"}


def test_nothing_is_delivered_that_was_said_to_be_never_visible() -> None:
    journal = make_journal(1)
    journal.puts[0] = make_put(outcome=Outcome.NEVER, monoton=None)

    assert found(journal, make_debt()) == {"delivered, but said to be never visible"}


def test_the_last_note_on_a_message_counts() -> None:
    journal = make_journal(1)
    journal.puts.insert(0, make_put(outcome=Outcome.NEVER, monoton=None))

    result = verdict(journal, make_debt())

    assert result.is_fine
    assert result.figures["put_visible"] == 1


def test_nothing_is_delivered_before_its_time() -> None:
    journal = make_journal(1)
    journal.puts[0] = make_put(not_before=after(1.5))

    assert found(journal, make_debt()) == {"delivered too early"}


def test_a_message_has_the_monoton_that_its_publisher_was_told() -> None:
    journal = make_journal(1)
    journal.puts[0] = make_put(monoton=4)

    assert "delivered elsewhere than it was put" in found(journal, make_debt())


def test_a_message_is_in_one_place_only() -> None:
    journal = make_journal(2)
    journal.puts = [make_put(0, monoton=None), make_put(1, monoton=None)]
    journal.deliveries[1] = make_delivery(1, number=0)

    assert found(journal, make_debt(2)) == {"published twice"}


def test_a_monoton_is_that_of_one_message_only() -> None:
    journal = make_journal(1)
    journal.puts.append(make_put(1, monoton=None))
    journal.deliveries.append(make_delivery(number=1, group="other"))

    assert found(journal, make_debt()) == {"two messages with one monoton"}


def test_an_alarm_of_an_actor_is_passed_on() -> None:
    journal = make_journal()
    journal.alarms.append("I1")

    assert found(journal, make_debt(3)) == {"alarm"}


# -- what is left in the tables -------------------------------------------------------------------


class Scene:
    """A store in which queues have come and gone, all of it repaired."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.store = MemoryStore(self.clock)
        self.client = Client.from_store(self.store)
        self.drained = create_queue(self.store, "drained", bucket_size=8, chunk_size=4)
        self.kept = create_queue(self.store, "kept", bucket_size=8, chunk_size=4)
        self.gone = create_queue(self.store, "gone", bucket_size=8, chunk_size=4)
        for queue in (self.drained, self.kept, self.gone):
            self.client.put_many(queue.name, [b"x"] * 20)
        for name in ("drained", "gone"):
            self.client.ack(*self.client.receive(name, "g", max=20))
        purge_queue(self.store, "gone")
        delete_queue(self.store, "gone")
        self.clock.advance(2 * WRITE_TIMEOUT)
        self.repair()

    def repair(self) -> None:
        for _ in range(2):
            run_once(self.store, scan=DriverScan(self.store), write_timeout=WRITE_TIMEOUT)

    def leftovers(self) -> list[str]:
        tables = Tables(
            list_records(self.store),
            list(self.store.scan(Table.LEDGER)),
            list(self.store.scan(Table.GROUP_STATE)),
            list(self.store.scan(Table.CHUNK)),
        )
        # Blocks have the time of the machine, all else that of the scene.
        return find_leftovers(tables, now=datetime.now(UTC), write_timeout=WRITE_TIMEOUT)

    def change(self, queue_id: QueueId, *ops: Op) -> None:
        """Change a ledger by hand."""
        unchanged = (When("next", ">", -1),)
        head: dict[str, int] = {}
        for op in ops:
            if isinstance(op, Update) and op.row == HEAD:
                head = dict(op.values)  # type: ignore[arg-type]
        others = [op for op in ops if not (isinstance(op, Update) and op.row == HEAD)]
        paused = head or {"paused": False}
        assert self.store.cas(
            partition_of_ledger(queue_id), [Update(HEAD, paused, unchanged), *others]
        )


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_a_store_that_was_repaired_has_no_leftovers(scene: Scene) -> None:
    assert scene.leftovers() == []


def publish_by_hand(scene: Scene, queue: QueueDefinition, count: int = 4) -> UUID:
    """A block in the ledger, of which nothing is stored."""
    (written,) = make_pending([count], scene.clock.now)
    publish(Ledger(scene.store, queue.queue_id), [written], batch=SinkBatch("app:a", 0))
    return written.block


def test_a_block_that_is_not_stored_is_found(scene: Scene) -> None:
    publish_by_hand(scene, scene.kept)

    (told,) = scene.leftovers()

    assert "kept@1: 0 message(s) are stored" in told


def test_a_chunk_that_is_gone_is_found(scene: Scene) -> None:
    (block, *_) = {row["block"] for row in scene.store.scan(Table.CHUNK)}
    assert isinstance(block, UUID)
    scene.store.delete_buckets(scene.kept.queue_id, [(block, 1)])

    (told,) = scene.leftovers()

    assert "kept@1: 12 message(s) are stored" in told


def test_a_hole_in_a_ledger_is_found(scene: Scene) -> None:
    scene.client.put("kept", b"y")
    scene.change(scene.kept.queue_id, Delete(block_key(0)))

    told = " ".join(scene.leftovers())

    assert "ledger kept@1 has no row for [0, 20)" in told
    assert "20 message(s) of block" not in told, "it is young"


def test_what_was_settled_and_not_finalised_is_found(scene: Scene) -> None:
    scene.client.put("drained", b"y")

    told = " ".join(scene.leftovers())

    assert "ledger drained@1 keeps [20, 21), which is settled" in told


@pytest.mark.parametrize("age", [timedelta(0), 3 * WRITE_TIMEOUT])
def test_what_was_never_published_is_found_once_it_is_old(scene: Scene, age: timedelta) -> None:
    (written,) = make_pending([4], datetime.now(UTC) - age)
    chunks = [chunk for _, chunk in _chunks_of(scene)]
    scene.store.write_chunks(scene.kept.queue_id, written.block, chunks[:1])

    told = scene.leftovers()

    assert [f"4 message(s) of block {written.block} of kept@1 are in no ledger"] * bool(
        age
    ) == told


def _chunks_of(scene: Scene) -> list[tuple[object, object]]:
    (block, *_) = {row["block"] for row in scene.store.scan(Table.CHUNK)}
    assert isinstance(block, UUID)
    return list(scene.store.read_chunks(scene.kept.queue_id, [BucketSlice(block, 0, 0, 8)]))


@pytest.mark.parametrize("queue_id", ["nobodys@1", "kept@2", "gone@2"])
def test_chunks_of_no_living_version_are_found(scene: Scene, queue_id: str) -> None:
    (written,) = make_pending([4], datetime.now(UTC) - 3 * WRITE_TIMEOUT)
    chunks = [chunk for _, chunk in _chunks_of(scene)]
    scene.store.write_chunks(QueueId(queue_id), written.block, chunks[:1])

    assert scene.leftovers() == [
        f"4 message(s) of block {written.block} of {queue_id} are in no ledger"
    ]


@pytest.mark.parametrize("queue_id", ["nobodys@1", "kept@2"])
def test_a_ledger_of_no_queue_is_found(scene: Scene, queue_id: str) -> None:
    row = {"next": 0, "finalised": 0, "fence": START, "groups_version": 0}
    scene.store.cas(partition_of_ledger(QueueId(queue_id)), [Insert(HEAD, row, if_absent=True)])

    assert scene.leftovers() == [f"ledger {queue_id} is of no queue"]


def test_more_than_the_closed_head_of_a_version_that_is_over_is_found(scene: Scene) -> None:
    scene.change(QueueId("gone@1"), Insert(("sink", 0, "app:a"), {"batch_id": 1}))

    (told,) = scene.leftovers()

    assert "ledger gone@1 is over, and more than a closed head is left" in told


def test_a_ledger_that_was_not_closed_is_found(scene: Scene) -> None:
    scene.change(QueueId("gone@1"), Update(HEAD, {"status": "open"}, ()))  # type: ignore[dict-item]

    assert any("ledger gone@1 is over" in told for told in scene.leftovers())


def test_a_pin_that_a_seek_left_is_found(scene: Scene) -> None:
    scene.change(scene.kept.queue_id, Insert(("seek_pin", 1, "g"), {"starts_at": 0}))

    assert scene.leftovers() == ["ledger kept@1 has 1 row(s) of kind seek_pin"]


def test_a_queue_that_is_not_retired_is_found(scene: Scene) -> None:
    delete_queue(scene.store, "kept")

    assert any(told.startswith("queue kept is deleting") for told in scene.leftovers())


@pytest.mark.parametrize(
    ("queue_id", "group", "row", "complaint"),
    [
        ("nobodys@1", "g", ("slot", 0, 0), "is of no queue"),
        ("gone@1", "g", ("slot", 0, 0), "is over, and has a row of kind slot"),
        ("kept@1", "stranger", ("registration", 1, 0), "is of no group"),
        ("drained@1", "g", ("waiting", 5, 0), "still has waiting 0-4"),
        ("drained@1", "g", ("slot", 9, 0), "still has slot 0-4"),
    ],
)
def test_the_state_of_no_group_is_found(
    scene: Scene, queue_id: str, group: str, row: tuple[str, int, int], complaint: str
) -> None:
    values: Mapping[str, str | int] = {"ranges": "0-4", "deliveries": 1}
    partition = partition_of_group(QueueId(queue_id), group)
    scene.store.cas(partition, [Insert(row, values, if_absent=True)])

    (told,) = scene.leftovers()

    assert complaint in told


# -- the disk -------------------------------------------------------------------------------------


def samples(disk: list[int], live: list[int] | None = None) -> list[Sample]:
    live = live or [0] * len(disk)
    return [Sample(at * 20.0, *each) for at, each in enumerate(zip(disk, live, strict=True))]


MIB = 1 << 20


@pytest.mark.parametrize(
    ("disk", "live", "is_flat"),
    [
        ([50 * MIB] * 20, [0] * 20, True),
        ([at * 10 * MIB for at in range(20)], [0] * 20, False),
        ([at * 10 * MIB for at in range(20)], [at * 10 * MIB for at in range(20)], True),
        ([min(at, 8) * 10 * MIB for at in range(20)], [0] * 20, True),
        ([(40 + 20 * (at % 3)) * MIB for at in range(20)], [0] * 20, True),
    ],
    ids=["constant", "grows", "grows with what lives", "grew at first", "up and down"],
)
def test_the_disk_may_grow_by_what_lives(disk: list[int], live: list[int], is_flat: bool) -> None:
    trend = trend_of(samples(disk, live))

    assert trend is not None
    assert trend.is_flat is is_flat


def test_of_a_short_run_the_trend_is_not_known() -> None:
    assert trend_of([]) is None
    assert trend_of(samples([1, 2, 3])) is None


# -- the store that fails its user ----------------------------------------------------------------


def test_a_mortal_store_dies_before_or_after_any_call_and_stays_dead() -> None:
    applied = set()
    for seed in range(40):
        memory = MemoryStore()
        mortal = MortalStore(memory, Random(seed), 4)
        with suppress(Abandoned):
            create_queue(mortal, "q")
        mortal.kill()
        applied.add((len(list_records(memory)), len(list(memory.scan(Table.LEDGER)))))
        with pytest.raises(Abandoned):
            list_records(mortal)

    assert {(0, 0), (0, 1), (1, 1)} <= applied, "between any two calls, and within them"


def test_a_store_that_is_killed_is_dead_also_if_it_was_to_live_for_ever() -> None:
    mortal = MortalStore(MemoryStore(), Random(1), None)
    create_queue(mortal, "q")

    mortal.kill()

    assert mortal.is_dead
    with pytest.raises(Abandoned):
        list_records(mortal)


def test_a_repair_that_dies_is_no_alarm(scene: Scene) -> None:
    world = World(scene.store, Journal(), 1)
    died = 0
    for calls in range(1, 200, 5):
        scene.client.put("kept", b"y")
        mortal = MortalStore(scene.store, Random(calls), None)
        mortal.kill(after=calls)
        try:
            repair(world, mortal, tuple(Step), WRITE_TIMEOUT)
        except Abandoned:
            died += 1

    assert world.journal.alarms == []
    assert died


def test_a_repair_that_fails_is_an_alarm(scene: Scene) -> None:
    class Failing(WrappedStore):
        def cas(self, partition: Partition, ops: Sequence[Op]) -> bool:
            raise StoreError("no node answers")

    world = World(scene.store, Journal(), 1)
    scene.client.put("drained", b"y")
    scene.client.ack(*scene.client.receive("drained", "g", max=1))

    repair(world, Failing(scene.store), tuple(Step), WRITE_TIMEOUT)

    assert any("no node answers" in alarm for alarm in world.journal.alarms)
