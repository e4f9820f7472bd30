from __future__ import annotations

import asyncio

import pytest

from cassieq_spark import AsyncClient, Client
from cassieq_spark.errors import ExistsError, NotFoundError, OptionError, QueueStateError
from cassieq_spark.testing.stores import CountingStore


def test_queues_are_listed_by_the_beginning_of_their_names(client: Client):
    client.create_queue("acme:b", drop_dead=True)
    client.create_queue("acme:a", drop_dead=True)

    assert [each.name for each in client.queues("acme:")] == ["acme:a", "acme:b"]
    assert [each.name for each in client.queues()] == ["acme:a", "acme:b", "q", "q.dead"]


def test_a_queue_that_is_deleted_is_gone_for_everybody(client: Client):
    client.delete_queue("q")

    assert [each.name for each in client.queues()] == ["q.dead"]
    with pytest.raises(NotFoundError):
        client.put("q", "a")
    client.delete_queue("q")
    with pytest.raises(NotFoundError):
        client.delete_queue("nothing")


def test_what_somebody_holds_is_purged_by_force_only(client: Client):
    client.put("q", "a")
    (message,) = client.receive("q", "g")

    with pytest.raises(QueueStateError, match="hold"):
        client.purge_queue("q")
    purged = client.purge_queue("q", force=True)

    assert purged.version == 2
    assert client.ack(message) == [message.receipt]
    assert client.receive("q", "g") == []


def test_a_group_begins_where_it_is_told_to_and_can_be_moved(client: Client):
    client.put_many("q", ["a", "b", "c"])
    client.create_group("q", "g", 1)

    assert [each.value for each in client.receive("q", "g", max=9)] == [b"b", b"c"]
    with pytest.raises(QueueStateError, match="hold"):
        client.seek_group("q", "g", 2)
    assert client.seek_group("q", "g", 2, force=True) == 2
    assert [each.value for each in client.receive("q", "g", max=9)] == [b"c"]
    with pytest.raises(ExistsError):
        client.create_group("q", "g")


def test_a_group_is_deleted_once(client: Client):
    client.create_group("q", "g")

    assert client.delete_group("q", "g")
    assert not client.delete_group("q", "g")
    with pytest.raises(NotFoundError):
        client.seek_group("q", "g", "latest")


def test_dead_letters_are_seen_and_sent_back_or_given_up(client: Client):
    client.put_many("q", ["a", "b"])
    one, other = client.receive("q", "g", max=2)
    client.reject(one, reason="no address")
    client.reject(other, reason="unreadable")

    with pytest.raises(OptionError, match=r"rate must be at least 0\.0001 per second, not 0"):
        client.redrive(client.dead_letters("q"), rate=0)
    back = client.redrive(client.dead_letters("q", reason="address"), rate=1000)
    gone = client.purge_dead_letters(client.dead_letters("q"))

    assert (back.redriven, gone.purged) == ({"q": 1}, 1)
    assert [each.value for each in client.receive("q", "g", max=9)] == [b"a"]
    assert client.dead_letters("q").groups == ()


def test_the_same_as_coroutines(client: Client, store: CountingStore):
    async def program() -> None:
        async with AsyncClient.from_store(store) as queues:
            await queues.put("q", "a")
            await queues.create_group("q", "g", "earliest")
            assert await queues.seek_group("q", "g", 0) == 0
            await queues.reject(*await queues.receive("q", "g"), reason="bad")
            found = await queues.dead_letters("q", group="g", limit=1)
            assert (await queues.redrive(found)).redriven == {"q": 1}
            await queues.reject(*await queues.receive("q", "g"), reason="bad")
            assert (await queues.purge_dead_letters(await queues.dead_letters("q"))).purged == 1
            assert await queues.delete_group("q", "g")
            assert (await queues.purge_queue("q")).version == 2
            await queues.delete_queue("q")
            assert [each.name for each in await queues.queues()] == ["q.dead"]

    asyncio.run(program())
