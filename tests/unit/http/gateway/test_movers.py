"""A message move task meets every failure of Cassandra, and moves each letter once."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

from cassieq_spark import Client
from cassieq_spark.client import Action, AsyncClient, receiver
from cassieq_spark.client.settling import SettleResult
from cassieq_spark.errors import NotAppliedError, OutcomeUnknownError
from cassieq_spark.http.accounts import Accounts, Secrets
from cassieq_spark.http.gateway.gateway import Gateway
from cassieq_spark.http.gateway.sqs.movers import Movers, tasks_in
from cassieq_spark.http.gateway.sqs.settings import TASK, TO_END
from cassieq_spark.http.serving.connections import ConnectionLimiter
from cassieq_spark.http.sqs.move_tasks import MoveTask
from cassieq_spark.settings.gateway import Limits
from cassieq_spark.store.memory import MemoryStore
from cassieq_spark.store.protocol import Store
from cassieq_spark.testing.faults import FaultyStore
from tests.support.gateway import SECRET

DEAD, ORDERS = "shop:dead", "shop:orders"
BODIES = [b"a", b"b", b"c"]
NUMBER = "0" * 32
KEY = "primary"
#: More calls than a task of three letters makes.
CALLS = 60
LEASE = timedelta(seconds=1)
SOON = timedelta(milliseconds=20)


def with_letters() -> MemoryStore:
    """A store with a queue whose messages are all dead, and one of them settled."""
    store = MemoryStore()
    Accounts(store, Secrets((SECRET,))).create("shop")
    with Client.from_store(store) as client:
        client.create_queue(DEAD, lease=LEASE)
        client.create_queue(ORDERS, max_deliveries=1, dead_letter_queue=DEAD)
        client.create_group(DEAD, "default")
        client.create_group(ORDERS, "default")
        client.put_many(ORDERS, BODIES)
        client.reject(*client.receive(ORDERS, "default", max=3), reason="bad")
        assert client.receive(ORDERS, "default") == []
        assert client.stats(DEAD).next == 3
    return store


def task_of(runner: str, **more: object) -> MoveTask:
    now = int(datetime.now(UTC).timestamp() * 1000) + 60_000
    row = {"id": NUMBER, "runner": runner, "started": now, "beat": now, "to_move": 3}
    return MoveTask.model_validate(row | more)


async def moved(
    store: Store, beside: Callable[[Movers], None] = lambda _: None, **more: object
) -> None:
    """Run a task until it ends, or another one runs it."""
    accounts, limits = Accounts(store, Secrets((SECRET,))), Limits()
    async with AsyncClient.from_store(store) as client:
        gateway = Gateway(client, accounts, limits, ConnectionLimiter(limits))
        movers = Movers(gateway, lease=LEASE, pause=SOON)
        task = task_of(movers.id, **more)
        await client.set_attributes(DEAD, {TASK + NUMBER: task.text})
        movers.run(DEAD, task, KEY, is_new=True)
        beside(movers)
        await movers.finish()
        await gateway.close()


def task_in(store: Store) -> MoveTask:
    with Client.from_store(store) as client:
        return tasks_in(client.attributes(DEAD))[NUMBER]


def values_of(store: Store, queue: str) -> list[bytes]:
    """The messages that a reader of a queue gets."""
    with Client.from_store(store) as client:
        return [each.value for each in client.receive(queue, "default", max=10)]


class Failing:
    """Lets some calls of a store fail, one after the other."""

    def __init__(self, store: FaultyStore, error: type[Exception], first: int, count: int) -> None:
        self._store, self._error, self._left = store, error, count
        store.interrupt(self._fail, after=first)

    def _fail(self) -> None:
        self._left -= 1
        if self._left:
            self._store.interrupt(self._fail, after=0)
        raise self._error("as the test says")


@pytest.mark.parametrize("error", [NotAppliedError, OutcomeUnknownError])
@pytest.mark.parametrize("count", [1, 6])
def test_whatever_call_fails_each_letter_is_moved_once(
    error: type[Exception], count: int, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(receiver, "READ_AGAIN_AFTER", LEASE)

    async def one(first: int) -> tuple[str, list[bytes], list[bytes]]:
        store = FaultyStore(with_letters())
        await moved(store, lambda _: Failing(store, error, first, count))
        store.calm()
        return task_in(store).status, values_of(store, ORDERS), values_of(store, DEAD)

    async def every() -> list[tuple[str, list[bytes], list[bytes]]]:
        return await asyncio.gather(*map(one, range(CALLS)))

    assert set(map(str, asyncio.run(every()))) == {str(("COMPLETED", BODIES, []))}


def test_letters_that_were_redriven_and_not_deleted_are_deleted_when_they_come_again(
    monkeypatch: pytest.MonkeyPatch,
):
    settle, asked = AsyncClient.settle, []

    async def fail_at_first(client: AsyncClient, *receipts: str, action: Action) -> SettleResult:
        asked.append(len(receipts))
        if len(asked) == 1:
            error = NotAppliedError("as the test says")
            return SettleResult(stale=[], failed=dict.fromkeys(receipts, error))
        return await settle(client, *receipts, action=action)

    monkeypatch.setattr(AsyncClient, "settle", fail_at_first)
    store = with_letters()

    asyncio.run(moved(store))

    assert asked == [3, 3]
    assert task_in(store).status == "COMPLETED"
    assert (values_of(store, ORDERS), values_of(store, DEAD)) == (BODIES, [])


def test_a_task_that_another_gateway_has_taken_over_ends_here():
    store = with_letters()

    def taken(movers: Movers) -> None:
        row = json.loads(task_of("another").text)
        with Client.from_store(store) as client:
            client.set_attributes(DEAD, {TASK + NUMBER: json.dumps(row)})

    asyncio.run(moved(store, taken))

    assert (task_in(store).runner, task_in(store).status) == ("another", "RUNNING")
    assert values_of(store, ORDERS) == []


def test_a_gateway_that_ends_leaves_the_task_to_others_at_once():
    store = with_letters()
    closing: list[asyncio.Task[None]] = []

    asyncio.run(
        moved(store, lambda movers: closing.append(asyncio.create_task(movers.close())), rate=1)
    )

    task = task_in(store)
    assert (task.status, task.beat) == ("RUNNING", 0)
    assert task.is_abandoned(int(datetime.now(UTC).timestamp() * 1000))


def test_a_task_that_is_to_end_moves_nothing():
    store = with_letters()
    with Client.from_store(store) as client:
        client.set_attributes(DEAD, {TO_END + NUMBER: "true"})

    asyncio.run(moved(store))

    assert task_in(store).status == "CANCELLED"
    assert values_of(store, ORDERS) == []
    assert values_of(store, DEAD) == BODIES


def test_a_task_whose_key_is_revoked_fails():
    store = with_letters()
    Accounts(store, Secrets((SECRET,))).delete_key("shop", KEY)

    asyncio.run(moved(store))

    assert task_in(store).status == "FAILED"
    assert "denied" in str(task_in(store).reason)
    assert values_of(store, DEAD) == BODIES


def test_letters_that_came_after_the_start_stay():
    store = with_letters()

    asyncio.run(moved(store, started=1))

    assert task_in(store).status == "COMPLETED"
    assert values_of(store, DEAD) == BODIES


def test_what_the_groups_of_the_queue_forbid_is_said():
    store = with_letters()
    with Client.from_store(store) as client:
        client.create_group(ORDERS, "billing")

    asyncio.run(moved(store))

    assert task_in(store).status == "FAILED"
    assert "billing" in str(task_in(store).reason)
    assert values_of(store, DEAD) == BODIES
