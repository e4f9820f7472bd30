from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from cassieq_spark import AsyncClient, Client, Message, NewMessage
from cassieq_spark.arrow.receipts import Receipt
from cassieq_spark.client.async_client import AsyncExchange
from cassieq_spark.consumer.prefetch import PrefetchBudget
from cassieq_spark.errors import NotAppliedError, NotFoundError
from cassieq_spark.http.gateway import coalescer as module
from cassieq_spark.http.gateway.coalescer import Coalescer
from cassieq_spark.producer.partitioner import partition_of_key
from cassieq_spark.testing.stores import CountingStore
from tests.support.partly_down import PartlyDownStore
from tests.unit.http.gateway.conftest import PATIENCE, GatedStore

NOW = timedelta(0)
HOUR = timedelta(hours=1)
LINGER = timedelta(milliseconds=2)


async def arrival(gated: GatedStore) -> None:
    assert await asyncio.to_thread(gated.arrived.acquire, timeout=PATIENCE)


def receive(
    coalescer: Coalescer,
    *,
    most: int = 1,
    lease: timedelta = HOUR,
    wait: timedelta = NOW,
    group="g",
):
    return asyncio.create_task(coalescer.receive("q", group, most=most, lease=lease, wait=wait))


def test_receives_that_come_while_a_round_is_under_way_share_the_next(
    store: CountingStore, gated: GatedStore, sync: Client
):
    async def program() -> list[list[Message]]:
        async with AsyncClient.from_store(store) as client:
            coalescer = Coalescer(client, 1000, LINGER)
            await receive(coalescer)
            await asyncio.to_thread(sync.put_many, "q", map(str, range(50)))
            store.reset()
            gated.gate.clear()
            first = receive(coalescer)
            await arrival(gated)
            others = [receive(coalescer) for _ in range(20)]
            await asyncio.sleep(0)
            gated.gate.set()
            answers = await asyncio.gather(first, *others)
            await coalescer.close()
            return answers

    answers = asyncio.run(program())

    assert sorted(message.monoton for (message,) in answers) == list(range(21))
    assert store.cas_count == 2


def test_a_receive_that_finds_nothing_takes_no_lwt_and_does_not_wait(store: CountingStore):
    async def program() -> None:
        async with AsyncClient.from_store(store) as client:
            coalescer = Coalescer(client, 1000, LINGER)
            await receive(coalescer)
            store.reset()

            assert await asyncio.gather(*(receive(coalescer) for _ in range(10))) == [[]] * 10
            await coalescer.close()

    asyncio.run(program())

    assert store.cas_count == 0


def test_whoever_waits_has_a_message_as_soon_as_one_is_told_of(
    store: CountingStore, sync: Client, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(module, "FIRST_PAUSE", 3600)
    monkeypatch.setattr(module, "longest_pause", lambda _: 3600)

    async def program() -> list[list[Message]]:
        async with AsyncClient.from_store(store) as client:
            coalescer = Coalescer(client, 1000, LINGER)
            waiting = [
                receive(coalescer, wait=HOUR),
                receive(coalescer, wait=HOUR, lease=2 * HOUR),
            ]
            while not waiting[0].done():
                await asyncio.to_thread(sync.put, "q", "a")
                coalescer.wake("q")
                await asyncio.wait(waiting, timeout=0.1, return_when=asyncio.FIRST_COMPLETED)
            await asyncio.to_thread(sync.put, "q", "b")
            coalescer.wake("q")
            answers = await asyncio.wait_for(asyncio.gather(*waiting), PATIENCE)
            await coalescer.close()
            return answers

    answers = asyncio.run(program())

    assert len({message.monoton for (message,) in answers}) == 2


def test_messages_that_come_again_and_fresh_ones_serve_all_who_ask_at_once(
    store: CountingStore, sync: Client
):
    sync.put_many("q", ["again"])
    sync.release(*sync.receive("q", "g"))
    sync.put_many("q", ["fresh"])

    async def program() -> list[list[Message]]:
        async with AsyncClient.from_store(store) as client:
            coalescer = Coalescer(client, 1000, LINGER)
            answers = await asyncio.gather(
                receive(coalescer), receive(coalescer), receive(coalescer)
            )
            await coalescer.close()
            return answers

    values = [message.value for messages in asyncio.run(program()) for message in messages]

    assert sorted(values) == [b"again", b"fresh"]


def test_what_was_leased_for_a_request_that_is_cancelled_comes_again_at_once_uncounted(
    store: CountingStore, gated: GatedStore, sync: Client
):
    async def program() -> list[Message]:
        async with AsyncClient.from_store(store) as client:
            coalescer = Coalescer(client, 1000, LINGER)
            await receive(coalescer)
            await asyncio.to_thread(sync.put, "q", "a")
            gated.gate.clear()
            gone = receive(coalescer)
            await arrival(gated)
            gone.cancel()
            gated.gate.set()
            messages = await receive(coalescer, wait=HOUR)
            await coalescer.close()
            return messages

    (message,) = asyncio.run(program())

    assert (message.value, message.delivery_count) == (b"a", 1)


def test_nothing_is_leased_for_requests_that_were_cancelled_before_the_round(
    store: CountingStore, sync: Client
):
    async def program() -> Message:
        async with AsyncClient.from_store(store) as client:
            coalescer = Coalescer(client, 1000, LINGER)
            waiting = [receive(coalescer, wait=HOUR) for _ in range(3)]
            # By then a round has looked for them.
            assert await receive(coalescer) == []
            for each in waiting:
                each.cancel()
            await asyncio.wait(waiting)
            await asyncio.to_thread(sync.put_many, "q", map(str, range(4)))
            store.reset()
            coalescer.wake("q")
            (message,) = await receive(coalescer)
            await coalescer.close()
            return message

    message = asyncio.run(program())

    assert (message.value, message.delivery_count) == (b"0", 1)
    assert store.cas_count == 1


def test_no_round_is_made_for_requests_that_were_all_cancelled(store: CountingStore, sync: Client):
    async def program() -> None:
        async with AsyncClient.from_store(store) as client:
            coalescer = Coalescer(client, 1000, LINGER)
            waiting = receive(coalescer, wait=HOUR)
            assert await receive(coalescer) == []
            waiting.cancel()
            await asyncio.wait([waiting])
            await asyncio.to_thread(sync.put, "q", "a")
            store.reset()
            coalescer.wake("q")
            await coalescer.close()

    asyncio.run(program())

    assert (store.read_count, store.cas_count) == (0, 0)


def test_in_strict_order_what_was_leased_for_a_request_that_is_cancelled_goes_to_one_other(
    store: CountingStore, gated: GatedStore, sync: Client
):
    sync.create_queue("q2", order="strict", max_deliveries=9)
    sync.create_group("q2", "g")

    async def program() -> list[Message]:
        async with AsyncClient.from_store(store) as client:
            coalescer = Coalescer(client, 1000, LINGER)
            await coalescer.receive("q2", "g", most=1, lease=HOUR, wait=NOW)
            await asyncio.to_thread(sync.put_many, "q2", map(str, range(3)))
            gated.gate.clear()
            asked = [
                asyncio.create_task(coalescer.receive("q2", "g", most=most, lease=HOUR, wait=HOUR))
                for most in (3, 1, 1)
            ]
            await arrival(gated)
            asked[0].cancel()
            gated.gate.set()
            messages = await asked[1]
            assert not asked[2].done()
            coalescer.stop()
            assert await asyncio.wait_for(asked[2], PATIENCE) == []
            await coalescer.close()
            return messages

    (message,) = asyncio.run(program())

    assert (message.monoton, message.delivery_count) == (0, 1)
    assert sync.ack(message) == []
    # They were leased in the same round, and left over.
    assert [each.delivery_count for each in sync.receive("q2", "g", max=9)] == [1, 1]


def test_in_strict_order_a_round_leases_for_one_request_so_nothing_is_given_back(
    store: CountingStore, sync: Client
):
    sync.create_queue("q2", order="strict")
    sync.create_group("q2", "g")

    async def program() -> list[list[Message]]:
        async with AsyncClient.from_store(store) as client:
            coalescer = Coalescer(client, 1000, LINGER)
            await coalescer.receive("q2", "g", most=1, lease=HOUR, wait=NOW)
            await asyncio.to_thread(sync.put_many, "q2", map(str, range(9)))
            store.reset()
            asked = (coalescer.receive("q2", "g", most=2, lease=HOUR, wait=NOW) for _ in range(3))
            answers = await asyncio.gather(*asked)
            await coalescer.close()
            return answers

    assert [[each.monoton for each in messages] for messages in asyncio.run(program())] == [
        [0, 1],
        [],
        [],
    ]
    assert store.cas_count == 1


def test_an_error_reaches_all_who_asked(store: CountingStore, sync: Client):
    async def program() -> list[object]:
        async with AsyncClient.from_store(store) as client:
            coalescer = Coalescer(client, 1000, LINGER)
            asked = (coalescer.receive("no", "g", most=1, lease=HOUR, wait=HOUR) for _ in range(3))
            answers = await asyncio.gather(*asked, return_exceptions=True)
            await coalescer.close()
            return answers

    assert [type(each) for each in asyncio.run(program())] == [NotFoundError] * 3


def test_the_end_lets_nobody_wait(store: CountingStore):
    async def program() -> None:
        async with AsyncClient.from_store(store) as client:
            coalescer = Coalescer(client, 1000, LINGER)
            waiting = [receive(coalescer, wait=HOUR, group=group) for group in "gh"]
            await asyncio.sleep(0)
            coalescer.stop()

            assert await asyncio.wait_for(asyncio.gather(*waiting), PATIENCE) == [[], []]
            assert await receive(coalescer, wait=HOUR) == []
            await coalescer.close()

    asyncio.run(program())


def test_the_end_lets_no_receive_with_a_name_wait(store: CountingStore):
    async def program() -> None:
        async with AsyncClient.from_store(store) as client:
            coalescer = Coalescer(client, 1000, LINGER)
            waiting = asyncio.create_task(
                coalescer.receive("q", "g", most=1, lease=HOUR, wait=HOUR, attempt="one")
            )
            await asyncio.sleep(0)
            coalescer.stop()

            assert await asyncio.wait_for(waiting, PATIENCE) == []
            await coalescer.close()

    asyncio.run(program())


def test_a_receive_with_a_name_waits_for_a_message(store: CountingStore, sync: Client):
    async def program() -> list[Message]:
        async with AsyncClient.from_store(store) as client:
            coalescer = Coalescer(client, 1000, LINGER)
            waiting = asyncio.create_task(
                coalescer.receive("q", "g", most=1, lease=HOUR, wait=HOUR, attempt="one")
            )
            await asyncio.to_thread(sync.put, "q", "a")
            first = await asyncio.wait_for(waiting, PATIENCE)
            again = await coalescer.receive("q", "g", most=1, lease=None, wait=NOW, attempt="one")
            await coalescer.close()
            return [*first, *again]

    first, again = asyncio.run(program())

    assert (first.monoton, first.delivery_count) == (again.monoton, again.delivery_count) == (0, 1)
    assert sync.ack(first, again) == [first.receipt]


def test_a_round_leases_no_more_than_its_limit(store: CountingStore, sync: Client):
    sync.put_many("q", map(str, range(10)))

    async def program() -> list[Message]:
        async with AsyncClient.from_store(store) as client:
            coalescer = Coalescer(client, 3, LINGER)
            messages = await receive(coalescer, most=10)
            await coalescer.close()
            return messages

    assert len(asyncio.run(program())) == 3


def test_the_default_group_is_made_by_itself_and_others_are_not(store: CountingStore):
    async def program() -> None:
        async with AsyncClient.from_store(store) as client:
            coalescer = Coalescer(client, 3, LINGER)
            assert await receive(coalescer, group="default") == []
            with pytest.raises(NotFoundError, match="no group 'other'"):
                await receive(coalescer, group="other")
            await coalescer.close()

    asyncio.run(program())


def test_acks_and_receives_share_a_round_and_the_next_one_waits_for_those_who_were_answered(
    store: CountingStore, sync: Client
):
    sync.put_many("q", map(str, range(40)))

    async def client_of(coalescer: Coalescer) -> list[int]:
        received = []
        for _ in range(4):
            (message,) = await receive(coalescer)
            received.append(message.monoton)
            receipt = Receipt.parse(message.receipt)
            assert await coalescer.ack("q", "g", [receipt, receipt]) == [True, False]
        return received

    async def program() -> list[list[int]]:
        async with AsyncClient.from_store(store) as client:
            coalescer = Coalescer(client, 1000, HOUR)
            answers = await asyncio.gather(*(client_of(coalescer) for _ in range(10)))
            await coalescer.close()
            return answers

    received = asyncio.run(program())

    assert sorted(monoton for each in received for monoton in each) == list(range(40))
    # Ten clients, in step: a round for each of their requests.
    assert store.cas_count == 1 + 8
    assert {each.depth for each in sync.stats("q").groups if each.group == "g"} == {0}


def test_a_request_that_came_during_a_round_waits_for_those_who_were_answered(
    store: CountingStore, gated: GatedStore, sync: Client
):
    async def program() -> None:
        async with AsyncClient.from_store(store) as client:
            coalescer = Coalescer(client, 1000, HOUR)
            await receive(coalescer)
            await asyncio.to_thread(sync.put_many, "q", map(str, range(3)))
            store.reset()
            gated.gate.clear()
            first = receive(coalescer)
            await arrival(gated)
            meanwhile = receive(coalescer)
            await asyncio.sleep(0)
            gated.gate.set()
            await first
            answers = await asyncio.wait_for(
                asyncio.gather(meanwhile, receive(coalescer)), PATIENCE
            )
            assert [message.monoton for (message,) in answers] == [1, 2]
            await coalescer.close()

    asyncio.run(program())

    # Not two halves that take turns.
    assert store.cas_count == 2


def test_acks_go_on_while_others_wait_for_messages(store: CountingStore, sync: Client):
    sync.put_many("q", ["a"])
    (message,) = sync.receive("q", "g")

    async def program() -> None:
        async with AsyncClient.from_store(store) as client:
            coalescer = Coalescer(client, 1000, LINGER)
            waiting = receive(coalescer, wait=HOUR)
            await asyncio.sleep(0)
            receipt = Receipt.parse(message.receipt)
            assert await asyncio.wait_for(coalescer.ack("q", "g", [receipt]), PATIENCE) == [True]
            assert not waiting.done()
            coalescer.stop()
            assert await asyncio.wait_for(waiting, PATIENCE) == []
            await coalescer.close()

    asyncio.run(program())


def test_groups_that_nobody_uses_are_forgotten(
    store: CountingStore, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(module, "_MOST_GROUPS", 1)

    async def program() -> None:
        async with AsyncClient.from_store(store) as client:
            coalescer = Coalescer(client, 1000, LINGER)
            for group in "ghg":
                assert await receive(coalescer, group=group) == []
            waiting = receive(coalescer, wait=HOUR)
            assert await receive(coalescer, group="h") == []
            coalescer.stop()
            assert await asyncio.wait_for(waiting, PATIENCE) == []
            await coalescer.close()

    asyncio.run(program())


def test_of_a_round_only_what_has_failed_is_told_as_failed(sync: Client, store: CountingStore):
    sync.create_queue("parts", partitions=2)
    down = PartlyDownStore(store)
    keys = {partition_of_key(key, 2): key for key in map(str, range(9))}
    sync.put_many("parts", [NewMessage("1", keys[0]), NewMessage("2", keys[1])])
    held = {
        each.partition: Receipt.parse(each.receipt) for each in sync.receive("parts", "g", max=2)
    }

    async def program() -> list[object]:
        async with AsyncClient.from_store(down) as client:
            coalescer = Coalescer(client, 1000, LINGER)
            await coalescer.receive("parts", "g", most=1, lease=HOUR, wait=NOW)
            down.down = {("cas", "parts@1.0")}
            answers = await asyncio.gather(
                coalescer.ack("parts", "g", [held[0]]),
                coalescer.ack("parts", "g", [held[1]]),
                coalescer.ack("parts", "g", [held[1], held[0]]),
                return_exceptions=True,
            )
            await coalescer.close()
            return answers

    first, second, both = asyncio.run(program())

    assert isinstance(first, NotAppliedError)
    assert second == [True]
    assert isinstance(both, NotAppliedError)
    assert sync.stats("parts").groups[0].depth == 1


def test_messages_are_handed_out_though_another_partition_fails(
    sync: Client, store: CountingStore
):
    sync.create_queue("parts", partitions=2)
    sync.create_group("parts", "g")
    down = PartlyDownStore(store)
    keys = {partition_of_key(key, 2): key for key in map(str, range(9))}
    # The first round begins with the second partition.
    sync.put_many("parts", [NewMessage("1", keys[0]), NewMessage("2", keys[1])])
    down.down = {("cas", "parts@1.0")}

    async def program() -> list[object]:
        async with AsyncClient.from_store(down) as client:
            coalescer = Coalescer(client, 1000, LINGER)
            asked = (
                coalescer.receive("parts", "g", most=1, lease=HOUR, wait=HOUR) for _ in range(2)
            )
            answers = await asyncio.gather(*asked, return_exceptions=True)
            await coalescer.close()
            return answers

    served, failed = asyncio.run(program())

    assert [each.value for each in served] == [b"2"]
    assert isinstance(failed, NotAppliedError)
    assert [each.delivery_count for each in sync.receive("parts", "g", max=9)] == [1]


def test_groups_of_an_account_share_what_may_be_read_ahead(store: CountingStore):
    async def program() -> list[PrefetchBudget]:
        async with AsyncClient.from_store(store) as client:
            coalescer = Coalescer(client, 1000, LINGER)
            names = [("a:x", "g"), ("a:y", "h"), ("ab:x", "g")]
            return [
                coalescer._rounds(queue, group).exchange._exchange._ahead for queue, group in names
            ]

    first, second, other = asyncio.run(program())

    assert first is second
    assert other is not first
    assert first._within is other._within is not None


def test_a_group_for_which_nobody_asks_keeps_nothing_that_was_read_ahead(
    store: CountingStore, sync: Client, monkeypatch: pytest.MonkeyPatch
):
    """A key may ask once for each of a thousand groups, whose messages are large."""
    monkeypatch.setattr(module, "RESTS_AFTER", 0.01)
    sync.put_many("q", map(str, range(50)))

    async def program() -> list[int]:
        async with AsyncClient.from_store(store) as client:
            coalescer = Coalescer(client, 1000, LINGER)
            rested, rest = asyncio.Event(), AsyncExchange.rest
            monkeypatch.setattr(AsyncExchange, "rest", lambda it: (rest(it), rested.set()))
            first = await receive(coalescer)
            exchange = coalescer._rounds("q", "g").exchange._exchange
            kept = [part._prefetch._messages for part in exchange._parts.values()]
            await asyncio.wait_for(rested.wait(), PATIENCE)
            assert not any(kept)
            second = await receive(coalescer)
            await coalescer.close()
            return [each.monoton for each in (*first, *second)]

    assert asyncio.run(program()) == [0, 1]
