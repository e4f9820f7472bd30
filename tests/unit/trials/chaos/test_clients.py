"""The clients of a chaos run tell what they do, and the judge finds nothing wrong with it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any

import pytest

from cassieq_spark import Client
from cassieq_spark.errors import NotAppliedError, OutcomeUnknownError
from cassieq_spark.groups.history import flush_history
from cassieq_spark.store.memory import MemoryStore
from trials.chaos import clients as clients_module
from trials.chaos.client_checker import judge_clients, sent_by
from trials.chaos.clients import Clerk, Scribe
from trials.chaos.history import ends_of, entries_of
from trials.chaos.history_checker import judge_history
from trials.chaos.records import STOP, Notebook

QUEUE, GROUP = "q", "g"
LEASE = timedelta(seconds=10)
WINDOW = timedelta(minutes=3)
HOUR = timedelta(hours=1)


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture(autouse=True)
def client(store: MemoryStore) -> Iterator[Client]:
    with Client.from_store(store) as client:
        client.create_queue(
            QUEUE, order="key", partitions=4, lease=LEASE, deduplicate=WINDOW, history=HOUR
        )
        client.create_group(QUEUE, GROUP)
        yield client


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clients_module, "_pass", lambda _: None)
    monkeypatch.setattr(clients_module, "_WAIT", timedelta(0))
    monkeypatch.setattr(clients_module, "_MOST_DELAY_SECONDS", 0.0)
    monkeypatch.setattr(clients_module, "_DEATHS", 0.0)
    monkeypatch.setattr(clients_module, "_STANDSTILLS", 0.0)
    monkeypatch.setattr(clients_module, "_FORGOTTEN", 0.0)


def scribe(client: Client, folder: Path, seed: int = 0) -> Scribe:
    return Scribe(client, QUEUE, Notebook(folder), chance=Random(seed))


def clerk(client: Client, folder: Path, seed: int = 0) -> Clerk:
    return Clerk(
        client, QUEUE, Notebook(folder), GROUP, LEASE.total_seconds(), chance=Random(seed)
    )


def test_what_scribes_put_clerks_receive_and_the_judge_is_content(client: Client, tmp_path: Path):
    scribes = [scribe(client, tmp_path / "scribe" / f"s{n}", n) for n in range(2)]
    clerks = [clerk(client, tmp_path / "clerk" / f"c{n}", n) for n in range(2)]

    for _ in range(20):
        for each in (*scribes, *clerks):
            each.step()
    while client.stats(QUEUE).groups[0].depth:
        for each in clerks:
            each.step()

    verdict = judge_clients(
        [sent_by(each.notebook.name, each.notebook.events()) for each in scribes],
        [event for each in scribes for event in each.notebook.events()],
        [each.notebook.events() for each in clerks],
        [],
        window=WINDOW.total_seconds(),
    )
    assert verdict.is_fine, verdict
    assert verdict.client_acked == sum(each._next for each in scribes)
    assert verdict.client_repeats
    assert verdict.client_redelivered


def test_the_history_is_what_clerks_have_told_and_lacks_nothing(
    store: MemoryStore, tmp_path: Path
):
    clients = {name: Client.from_store(store, name=name) for name in ("c0", "c1")}
    one = scribe(clients["c0"], tmp_path / "scribe" / "s")
    clerks = [
        clerk(client, tmp_path / "clerk" / name, seed)
        for seed, (name, client) in enumerate(clients.items())
    ]
    for _ in range(20):
        for each in (one, *clerks):
            each.step()

    flush_history(store, timedelta(minutes=1))
    entries = [*entries_of(store, QUEUE, GROUP, {})]
    told = {each.notebook.name: each.notebook.events() for each in clerks}
    verdict = judge_history(
        entries, told, one.notebook.events(), group=GROUP, ends=ends_of(store, QUEUE)
    )

    assert (verdict.history_wrong, verdict.history_missing) == (0, 0)
    assert {each.did for each in entries} == {"leased", "acked", "released", "extended"}
    assert {each.by for each in entries} == {"c0", "c1"}


def test_a_clerk_whose_clock_is_off_has_its_events_at_the_time_of_the_machine(
    store: MemoryStore, client: Client, tmp_path: Path
):
    client.put(QUEUE, "x", key="k")
    before = time.monotonic()
    Client.from_store(store, name="c").receive(QUEUE, GROUP)
    flush_history(store, timedelta(minutes=1))

    ahead = {"c": timedelta(hours=1), "d": timedelta(hours=2)}
    (found,) = entries_of(store, QUEUE, GROUP, ahead)

    assert abs(found.at + 3600 - before) < 600
    assert ends_of(store, QUEUE)[found.place[0]] == 1


def test_what_may_be_put_or_not_is_put_again_by_the_successor_and_is_there_once(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def loses_its_answer(*given: Any) -> None:
        put_many(*given)
        raise OutcomeUnknownError("lost")

    put_many = client.put_many
    monkeypatch.setattr(client, "put_many", loses_its_answer)
    assert not scribe(client, tmp_path / "s")._put("s", range(3))
    monkeypatch.undo()

    successor = scribe(client, tmp_path / "s")
    successor.step()

    puts = [each for each in successor.notebook.events() if each["event"] == "putting"]
    assert [each["numbers"][0] for each in puts[:2]] == [0, 0]
    assert len(client.peek(QUEUE, max=100)) == max(3, successor._next)


def test_a_clerk_repeats_a_receive_under_its_name_and_gets_its_messages(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(clients_module, "_NAMED", 1.0)
    lost: list[Any] = []

    def loses_its_first_answer(*given: Any, **named: Any) -> Any:
        found = receive(*given, **named)
        if not lost:
            lost.append(found)
            raise OutcomeUnknownError("lost")
        return found

    receive = client.receive
    monkeypatch.setattr(client, "receive", loses_its_first_answer)
    one = clerk(client, tmp_path / "c")
    one.client.put(QUEUE, "x", key="k")

    one.step()

    received = next(each for each in one.notebook.events() if each["event"] == "received")
    assert received["messages"] == [[None, lost[0][0].partition, 0, 1]]


def test_a_scribe_whose_puts_fail_ends_when_it_is_told_to(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def fails(*_: Any) -> None:
        (tmp_path / STOP).touch()
        raise NotAppliedError("the fence is ahead")

    monkeypatch.setattr(client, "put", fails)
    monkeypatch.setattr(client, "put_many", fails)

    one = scribe(client, tmp_path / "s")
    one.go_on()

    assert [each["event"] for each in one.notebook.events()] == ["putting", "failed"]
    assert sent_by("s", one.notebook.events()).acknowledged == 0


def test_clients_end_when_they_are_told_to(client: Client, tmp_path: Path):
    (tmp_path / STOP).touch()

    scribe(client, tmp_path / "s").go_on()
    clerk(client, tmp_path / "c").go_on()

    assert Notebook(tmp_path / "s").events() == Notebook(tmp_path / "c").events() == []
