from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta

import pytest

from cassieq_spark import AsyncClient, Client, Message
from cassieq_spark.arrow.receipts import Receipt
from cassieq_spark.client import Action
from cassieq_spark.errors import (
    CassieqError,
    NotAppliedError,
    OutcomeUnknownError,
    QueueStateError,
    StoreError,
)
from cassieq_spark.http.gateway import coalescer as module
from cassieq_spark.http.gateway.coalescer import Coalescer, Settlements
from cassieq_spark.testing.stores import CountingStore
from tests.unit.http.gateway.conftest import PATIENCE, GatedStore

MINUTE = timedelta(minutes=1)


def leased(sync: Client, count: int) -> list[Receipt]:
    sync.put_many("q", map(str, range(count)))
    return [Receipt.parse(each.receipt) for each in sync.receive("q", "g", max=count)]


def test_acks_that_come_while_one_is_under_way_go_together(
    store: CountingStore, gated: GatedStore, sync: Client
):
    receipts = leased(sync, 50)
    store.reset()

    async def program() -> list[list[bool]]:
        async with AsyncClient.from_store(store) as client:
            settlements = Settlements(client, Coalescer(client, 1000, timedelta(0)))
            gated.gate.clear()
            first = asyncio.create_task(settlements.ack(receipts[:1]))
            assert await asyncio.to_thread(gated.arrived.acquire, timeout=PATIENCE)
            others = [asyncio.create_task(settlements.ack([each])) for each in receipts[1:]]
            await asyncio.sleep(0)
            gated.gate.set()
            answers = await asyncio.gather(first, *others)
            await settlements.close()
            return answers

    assert asyncio.run(program()) == [[True]] * 50
    assert store.cas_count == 2
    assert {each.depth for each in sync.stats("q").groups if each.group == "g"} == {0}


def test_of_two_who_show_one_receipt_the_second_comes_too_late(store: CountingStore, sync: Client):
    (receipt,) = leased(sync, 1)

    async def program() -> tuple[list[bool], list[bool]]:
        async with AsyncClient.from_store(store) as client:
            settlements = Settlements(client, Coalescer(client, 1000, timedelta(0)))
            held = await settlements.settle([receipt, receipt], Action("extend", MINUTE))
            done = await settlements.ack([receipt, receipt])
            await settlements.close()
            return held, done

    assert asyncio.run(program()) == ([True, True], [True, False])


def test_each_kind_of_settling_does_what_it_says(store: CountingStore, sync: Client):
    a, b, c, d = leased(sync, 4)

    async def program() -> None:
        async with AsyncClient.from_store(store) as client:
            settlements = Settlements(client, Coalescer(client, 1000, timedelta(0)))
            actions = (
                None,
                Action("release", MINUTE),
                Action("extend", 60 * MINUTE),
                Action("reject", "bad"),
            )
            done = [
                settlements.settle([each], action) if action else settlements.ack([each])
                for each, action in zip((a, b, c, d), actions, strict=True)
            ]
            assert await asyncio.gather(*done) == [[True]] * 4
            await settlements.close()

    asyncio.run(program())

    (figures,) = (each for each in sync.stats("q").groups if each.group == "g")
    assert (figures.depth, figures.waiting, figures.leased) == (2, 1, 1)
    assert [each.reason for each in sync.dead_letters("q").groups] == ["bad"]


def test_of_a_call_only_what_has_failed_is_told_as_failed(
    store: CountingStore, sync: Client, monkeypatch: pytest.MonkeyPatch
):
    first, second, third = (leased(sync, 1)[0] for _ in range(3))
    cas = store.cas
    errors = [NotAppliedError("no node")]

    def fail_once(*given: object) -> bool:
        if errors:
            raise errors.pop()
        return cas(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(store, "cas", fail_once)
    release = Action("release")

    async def program() -> list[object]:
        async with AsyncClient.from_store(store) as client:
            settlements = Settlements(client, Coalescer(client, 1000, timedelta(0)))
            asked = [
                settlements.settle(each, release) for each in ([first], [second], [first, third])
            ]
            told = await asyncio.gather(*asked, return_exceptions=True)
            assert await settlements.settle([first], release) == [True]
            await settlements.close()
            return told

    failed, done, partly = asyncio.run(program())

    assert isinstance(failed, NotAppliedError)
    assert done == [True]
    assert isinstance(partly, OutcomeUnknownError)


def test_messages_of_many_leases_are_settled_by_one_call(store: CountingStore, sync: Client):
    receipts = [leased(sync, 1)[0] for _ in range(5)]
    store.reset()

    async def program() -> list[bool]:
        async with AsyncClient.from_store(store) as client:
            settlements = Settlements(client, Coalescer(client, 1000, timedelta(0)))
            done = await settlements.settle(receipts, Action("extend", MINUTE))
            await settlements.close()
            return done

    assert asyncio.run(program()) == [True] * 5
    # The queue is read once.
    assert (store.cas_count, store.read_count) == (5, 11)


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (NotAppliedError("no node"), OutcomeUnknownError),
        (QueueStateError("no group"), QueueStateError),
    ],
)
def test_acks_of_two_groups_of_which_one_fails_may_be_done(
    sync: Client, store: CountingStore, error: CassieqError, told: type[CassieqError]
):
    (receipt,) = leased(sync, 1)
    of_other = Receipt.parse(sync.receive("q", "h")[0].receipt)

    async def program() -> None:
        async with AsyncClient.from_store(store) as client:
            coalescer = Coalescer(client, 1000, timedelta(0))
            settlements = Settlements(client, coalescer)
            ack = coalescer.ack

            async def acks(queue: str, group: str, receipts: Sequence[Receipt]) -> list[bool]:
                if group == "h":
                    raise error
                return await ack(queue, group, receipts)

            coalescer.ack = acks  # type: ignore[method-assign]
            with pytest.raises(type(error)):
                await settlements.ack([of_other, receipt])
            with pytest.raises(told):
                await settlements.ack([receipt, of_other])
            await settlements.close()

    asyncio.run(program())


def test_an_error_reaches_all_who_asked_and_the_next_go_on(
    store: CountingStore, gated: GatedStore, sync: Client, monkeypatch: pytest.MonkeyPatch
):
    receipts = leased(sync, 3)

    def fail(*_: object) -> bool:
        raise StoreError("no node")

    async def program() -> list[object]:
        async with AsyncClient.from_store(store) as client:
            settlements = Settlements(client, Coalescer(client, 1000, timedelta(0)))
            with monkeypatch.context() as broken:
                broken.setattr(gated, "cas", fail)
                asked = (settlements.ack([each]) for each in receipts)
                failed = await asyncio.gather(*asked, return_exceptions=True)
            assert await settlements.ack(receipts) == [True] * 3
            await settlements.close()
            return failed

    assert [str(each) for each in asyncio.run(program())] == ["no node"] * 3


def received_after(
    store: CountingStore, queue: str, receipt: Receipt, action: Action
) -> list[Message]:
    """What a request gets that waits while a message is settled."""

    async def program() -> list[Message]:
        async with AsyncClient.from_store(store) as client:
            coalescer = Coalescer(client, 1000, timedelta(0))
            settlements = Settlements(client, coalescer)
            hour = timedelta(hours=1)
            waiting = asyncio.create_task(
                coalescer.receive(queue, "g", most=1, lease=hour, wait=hour)
            )
            # The first look is over when an ack of its round, or of the next one, is.
            await asyncio.sleep(0)
            assert await coalescer.ack(queue, "g", []) == []
            await settlements.settle([receipt], action)
            messages = await asyncio.wait_for(waiting, PATIENCE)
            await settlements.close()
            await coalescer.close()
            return messages

    return asyncio.run(program())


def test_in_order_what_follows_a_rejected_message_goes_to_a_request_that_waits_at_once(
    store: CountingStore, sync: Client, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(module, "FIRST_PAUSE", 3600)
    monkeypatch.setattr(module, "longest_pause", lambda _: 3600)
    sync.create_queue("in-order", order="strict", drop_dead=True)
    sync.put_many("in-order", ["bad", "good"])
    (bad,) = sync.receive("in-order", "g", max=1)

    reject = Action("reject", "bad")
    (message,) = received_after(store, "in-order", Receipt.parse(bad.receipt), reject)

    assert message.value == b"good"


def test_what_is_released_goes_to_a_request_that_waits_at_once(
    store: CountingStore, sync: Client, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(module, "FIRST_PAUSE", 3600)
    monkeypatch.setattr(module, "longest_pause", lambda _: 3600)
    (receipt,) = leased(sync, 1)

    (message,) = received_after(store, "q", receipt, Action("release"))

    assert message.delivery_count == 2
