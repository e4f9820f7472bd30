"""Readers give their names to their leases, so that people see who has which messages."""

from __future__ import annotations

import asyncio
from copy import copy
from datetime import timedelta

import pytest

from cassieq_spark import AsyncClient, Client, NewMessage
from cassieq_spark.errors import OptionError, QueueStateError
from cassieq_spark.groups.group import ConsumerGroup
from cassieq_spark.groups.state import Settlement
from cassieq_spark.http.gateway.coalescer import Coalescer
from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.processes import process_name
from cassieq_spark.queues import read_queue
from cassieq_spark.settings import SourceOptions
from cassieq_spark.spark.source.views import read_view
from cassieq_spark.store.memory import MemoryStore
from tests.support.builders import LEASE, make_clocked_store, make_group, make_queue, make_request
from tests.support.faults import FakeClock
from tests.support.snapshots import read_snapshot


@pytest.fixture
def store_and_clock() -> tuple[MemoryStore, FakeClock]:
    """A queue ``q`` with ten messages, and its group ``g``."""
    store, clock = make_clocked_store()
    make_group(store, make_queue(store).queue_id)
    Client.from_store(store).put_many("q", [NewMessage(str(each)) for each in range(10)])
    return store, clock


@pytest.fixture
def store(store_and_clock: tuple[MemoryStore, FakeClock]) -> MemoryStore:
    return store_and_clock[0]


@pytest.fixture
def clock(store_and_clock: tuple[MemoryStore, FakeClock]) -> FakeClock:
    return store_and_clock[1]


@pytest.fixture
def group(store: MemoryStore) -> ConsumerGroup:
    return ConsumerGroup(Ledger(store, read_queue(store, "q").queue_id), "g")


def holders(group: ConsumerGroup) -> dict[str, str | None]:
    """Who has which messages, as far as the state says."""
    return {str(slot.monotons): slot.by for slot in group.read().slots if slot.monotons}


def test_a_lease_has_the_name_of_its_client(store: MemoryStore, group: ConsumerGroup):
    Client.from_store(store, name="billing").receive("q", "g", max=2)
    Client.from_store(store).receive("q", "g", max=3)

    assert holders(group) == {"0-2": "billing", "2-5": process_name()}


def test_a_client_that_is_sent_to_another_process_keeps_its_name(
    store: MemoryStore, group: ConsumerGroup
):
    # As pickle does, but for the store, which only this process has.
    sent = copy(Client.from_store(store, name="billing"))

    sent.receive("q", "g", max=2)

    assert holders(group) == {"0-2": "billing"}


def test_a_client_that_was_sent_keeps_its_name(store: MemoryStore, group: ConsumerGroup):
    kind, parts = Client.from_store(store, name="billing").__reduce__()

    kind(*parts).receive("q", "g", max=2)

    assert holders(group) == {"0-2": "billing"}


def test_a_client_for_asyncio_has_a_name_too(store: MemoryStore, group: ConsumerGroup):
    async def program() -> None:
        async with AsyncClient.from_store(store, name="billing") as client:
            await client.receive("q", "g", max=2)

    asyncio.run(program())

    assert holders(group) == {"0-2": "billing"}


@pytest.mark.parametrize("name", ["", "  ", "a" * 101, 7, "a\nb", "\x1b[2J", "\u202ea"])
def test_a_name_that_no_slot_should_have_is_refused(name: str):
    with pytest.raises(OptionError, match="name"):
        Client.from_store(MemoryStore(), name=name)


def test_a_slot_never_shows_the_name_of_an_earlier_lease(
    store: MemoryStore, group: ConsumerGroup, clock: FakeClock
):
    Client.from_store(store, name="billing").receive("q", "g", max=2)
    clock.advance(2 * LEASE)

    # As an earlier release leases, which does not know the column.
    group.lease(make_request(stop=2, max_messages=2))

    assert holders(group) == {"0-2": None}


def test_a_replay_has_the_name_of_the_process_that_took_the_batch_up(group: ConsumerGroup):
    lease = group.lease(make_request(stop=4, by="before"))

    group.take_again(make_request(held=lease.token, by="after"))

    assert holders(group) == {"0-4": "after"}


def test_a_receive_that_is_repeated_has_the_name_of_the_client_that_repeats_it(
    store: MemoryStore, group: ConsumerGroup
):
    Client.from_store(store, name="before").receive("q", "g", max=2, attempt="one")

    Client.from_store(store, name="after").receive("q", "g", max=2, attempt="one")

    assert holders(group) == {"0-2": "after"}


def test_messages_that_are_held_beyond_their_batch_keep_the_name(group: ConsumerGroup):
    lease = group.lease(make_request(stop=4, by="billing"))
    kept = Settlement(extended={timedelta(hours=1): lease.leased[0].monotons.split(1)[0]})
    group.settle(lease.token, kept)

    group.lease(make_request(held=lease.token, max_messages=0))

    assert set(holders(group).values()) == {"billing"}


def test_who_deletes_or_moves_a_group_learns_who_has_its_messages(store: MemoryStore):
    client = Client.from_store(store, name="billing")
    client.receive("q", "g", max=2)

    with pytest.raises(QueueStateError, match=r"hold messages 0 to 1 until \S+ \(billing\); stop"):
        client.delete_group("q", "g")


def test_the_view_of_leases_and_the_figures_for_people_have_the_names(
    store: MemoryStore, clock: FakeClock
):
    Client.from_store(store, name="billing").receive("q", "g", max=2)
    Client.from_store(store, name="audit").receive("q", "g", max=2)

    options = SourceOptions.parse({"queue": "q", "view": "leases"})
    (found,) = read_snapshot(store).queues

    assert [row[-1] for row in read_view(store, options)] == ["billing", "audit"]
    assert found.holders == {"g": ("audit", "billing")}
    clock.advance(2 * LEASE)
    assert read_snapshot(store).queues[0].holders == {"g": ()}


@pytest.mark.parametrize("attempt", [None, "one"])
def test_a_gateway_leases_under_the_name_of_the_key(
    store: MemoryStore, group: ConsumerGroup, attempt: str | None
):
    async def program() -> None:
        async with AsyncClient.from_store(store) as client:
            coalescer = Coalescer(client, 1000, timedelta(0))
            await coalescer.receive(
                "q", "g", most=2, lease=LEASE, wait=timedelta(0), key="third", attempt=attempt
            )
            await coalescer.close()

    asyncio.run(program())

    assert holders(group) == {"0-2": "key third"}


def test_a_round_of_a_gateway_has_the_names_of_all_its_keys(
    store: MemoryStore, group: ConsumerGroup
):
    async def program() -> None:
        async with AsyncClient.from_store(store) as client:
            coalescer = Coalescer(client, 1000, timedelta(seconds=1))
            receives = (
                coalescer.receive("q", "g", most=1, lease=LEASE, wait=timedelta(0), key=key)
                for key in ("b", "a")
            )
            await asyncio.gather(*receives)
            await coalescer.close()

    asyncio.run(program())

    assert holders(group) == {"0-2": "key a, b"}


def test_a_query_has_the_name_that_its_option_says():
    options = SourceOptions.parse({"queue": "q", "clientName": "orders to lake"})

    assert options.lease_limits["by"] == "orders to lake"
