"""`cassieq group seek --dry-run` says what the move does, and changes nothing."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest

from cassieq_spark import Client, NewMessage
from cassieq_spark.cli import group as group_commands
from cassieq_spark.errors import OptionError, QueueStateError
from cassieq_spark.queues.moves import Move, read_move
from cassieq_spark.store.memory import MemoryStore
from tests.support.command_line import cassieq


@pytest.fixture
def store() -> MemoryStore:
    """Twenty messages: 0 to 3 are settled, 4 and 5 are leased, 6 waits, 7 is due again."""
    store = MemoryStore()
    client = Client.from_store(store)
    client.create_queue("q")
    client.put_many("q", [str(each) for each in range(20)])
    client.ack(*client.receive("q", "g", max=4))
    client.receive("q", "g", max=2)
    client.release(*client.receive("q", "g"), delay=timedelta(hours=1))
    client.release(*client.receive("q", "g"))
    return store


def owed(store: MemoryStore) -> int:
    (group,) = Client.from_store(store).groups("q")
    return group.depth


@pytest.mark.parametrize(
    ("position", "expected"),
    [
        ("earliest", Move(position=0, again=4, skipped=0, owed=20, leased=2)),
        (2, Move(position=2, again=2, skipped=0, owed=18, leased=2)),
        (4, Move(position=4, again=0, skipped=0, owed=16, leased=2)),
        (7, Move(position=7, again=0, skipped=3, owed=13, leased=2)),
        ("latest", Move(position=20, again=0, skipped=16, owed=0, leased=2)),
    ],
)
def test_the_figures_are_what_the_move_then_does(
    store: MemoryStore, position: str | int, expected: Move
):
    before = owed(store)

    assert read_move(store, "q", "g", position) == expected  # type: ignore[arg-type]

    assert owed(store) == before == expected.owed - expected.again + expected.skipped
    moved = Client.from_store(store).seek_group("q", "g", position, force=True)  # type: ignore[arg-type]
    assert (moved, owed(store)) == (expected.position, expected.owed)


def test_partitions_are_summed_or_one_is_chosen():
    store = MemoryStore()
    client = Client.from_store(store)
    client.create_queue("q", partitions=4)
    client.create_group("q", "g")
    client.put_many("q", [NewMessage(str(each), str(each)) for each in range(40)])
    sizes = [each.next for each in client.stats("q").partitions]

    everywhere = read_move(store, "q", "g", "latest")
    of_one = read_move(store, "q", "g", "latest", partition=2)

    assert everywhere == Move(position=40, skipped=40)
    assert of_one == Move(position=sizes[2], skipped=sizes[2])
    with pytest.raises(OptionError, match="each with monotons of its own"):
        read_move(store, "q", "g", 3)


@pytest.mark.parametrize(
    ("queue", "group", "complaint"),
    [("q", "nobody", "group 'nobody' of queue q@1 does not exist"), ("p", "g", "no queue 'p'")],
)
def test_what_does_not_exist_is_not_moved(
    store: MemoryStore, queue: str, group: str, complaint: str
):
    with pytest.raises(QueueStateError, match=complaint):
        read_move(store, queue, group, "latest")


def test_a_dry_run_tells_what_would_happen_and_changes_nothing(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(group_commands, "open_store", lambda _: store)
    before = owed(store)

    told = cassieq("group", "seek", "q", "g", "--to", "7", "--dry-run")
    as_json = cassieq("group", "seek", "q", "g", "--to", "earliest", "--dry-run", "--json")

    assert told.out == (
        "Group g of queue q would continue from monoton 7, and be owed 13 message(s). 0 that it "
        "has settled would be delivered again, and 3 that it is owed would be skipped. Readers "
        "hold 2 message(s): stop them first, or give --force.\n"
    )
    assert json.loads(as_json.out) == {
        "queue": "q",
        "group": "g",
        "dry_run": True,
        "position": 0,
        "again": 4,
        "skipped": 0,
        "owed": 20,
        "leased": 2,
    }
    assert owed(store) == before
