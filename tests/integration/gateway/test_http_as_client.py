"""`HttpQueue` and `AsyncHttpQueue` do what `Client` does: same names, same results."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from cassieq_spark import Client, NewMessage
from cassieq_spark.errors import (
    CassieqError,
    NotFoundError,
    NotYetError,
    OptionError,
    QueueStateError,
)
from cassieq_spark.http.client import AsyncHttpQueue, HttpQueue, HttpStateError
from cassieq_spark.model import Range
from cassieq_spark.store.memory import MemoryStore
from tests.support.gateway import Account

HOUR, MINUTE = timedelta(hours=1), timedelta(minutes=1)
#: Of `Client`, by the names of `HttpQueue`.
OF_QUEUES = {
    "create": "create_queue",
    "delete": "delete_queue",
    "purge": "purge_queue",
    "alter": "alter_queue",
    "pause": "pause_queue",
    "resume": "resume_queue",
    "definition": "queue",
}
#: Of `Client`, and why `HttpQueue` has them not.
NOT_BY_HTTP = {
    "exchange": "for the gateway itself",
    "fix_clocks": "for the operators of Cassandra",
    "from_store": "there is no store",
    "producer": "the gateway collects the puts of many programs",
    "queue_with_attributes": "for the SQS door of the gateway, which spares a read",
    "queue_names": "of all queues, not of one",
    "queues": "of all queues, not of one",
    "receive_table": "needs Arrow, which POST messages/receive answers with",
    "receiver": "for commands",
    "schedule_runner": "gateways run schedules",
    "settle": "for the gateway itself",
    "stored": "a part of stats",
}
#: Arguments of `Client` that HTTP has not, and the other way round.
OTHER_ARGUMENTS = {
    "create": {"queue", "bucket_size", "chunk_size"},
    "put": {"queue"},
    "put_many": {"queue", "txn_app_id", "txn_version"},
    "receive": {"queue", "make_group", "max_bytes"},
    "peek": {"queue", "max_bytes"},
    "redrive": {"across_accounts", "rate"},
    "dead_letters": {"queue"},
}
OF_A_MESSAGE = {"ack", "release", "extend", "reject", "replace", "purge_dead_letters", "close"}


class AsClient:
    """A `Client` of one queue, called as an `HttpQueue`."""

    def __init__(self) -> None:
        self._client = Client.from_store(MemoryStore())

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self._client, OF_QUEUES.get(name, name))
        if name in OF_A_MESSAGE or name == "redrive":
            return method
        return lambda *args, **named: method("orders", *args, **named)


class Awaiting:
    """An `AsyncHttpQueue`, called as an `HttpQueue`."""

    def __init__(self, account: Account) -> None:
        self._runner = asyncio.Runner()
        self._queue = AsyncHttpQueue(account.url, account.name, "orders", key=account.key)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self._queue, name)
        return lambda *args, **named: self._runner.run(method(*args, **named))

    def end(self) -> None:
        self.close()
        self._runner.close()


@pytest.fixture(params=["Client", "HttpQueue", "AsyncHttpQueue"])
def orders(request: pytest.FixtureRequest, account: Account) -> Iterator[Any]:
    """One queue, by each of the three."""
    if request.param == "Client":
        queue: Any = AsClient()
        yield queue
        queue.close()
    elif request.param == "HttpQueue":
        with HttpQueue(account.url, account.name, "orders", key=account.key) as queue:
            yield queue
    else:
        queue = Awaiting(account)
        yield queue
        queue.end()


def methods(of: type) -> set[str]:
    return {name for name, each in inspect.getmembers(of, callable) if not name.startswith("_")}


def test_each_method_of_the_client_is_there():
    wanted = {*methods(Client), *OF_QUEUES} - {*NOT_BY_HTTP, *OF_QUEUES.values()}

    assert methods(HttpQueue) == wanted
    assert methods(AsyncHttpQueue) == wanted


@pytest.mark.parametrize("name", sorted(methods(HttpQueue)))
def test_each_method_takes_the_arguments_of_the_clients(name: str):
    ours = dict(inspect.signature(getattr(HttpQueue, name)).parameters)
    theirs = dict(inspect.signature(getattr(Client, OF_QUEUES.get(name, name))).parameters)
    other = OTHER_ARGUMENTS.get(name, set() if name in OF_A_MESSAGE else {"queue"})

    assert ours.keys() ^ theirs.keys() == other
    kinds = {each: (ours[each].kind, theirs[each].kind) for each in ours.keys() & theirs.keys()}
    assert all(one is another for one, another in kinds.values()), kinds
    doc = inspect.getdoc(getattr(AsyncHttpQueue, name))
    assert doc == inspect.getdoc(getattr(HttpQueue, name)) or name == "close"


def test_settings_are_altered_and_those_that_are_left_out_stay(orders: Any):
    orders.create(max_deliveries=0, order="strict", expire_after=HOUR)

    with pytest.raises(CassieqError, match=r"say where dead messages go.*orders\.dead"):
        orders.alter(max_deliveries=3)
    with pytest.raises(CassieqError, match="cannot be combined with dropping"):
        orders.alter(dead_letter_queue="graves", max_deliveries=3, drop_dead=True)
    altered = orders.alter(
        lease=timedelta(minutes=2),
        max_deliveries=3,
        dead_letter_queue="graves",
        on_dead="stop",
        expire_after=timedelta(0),
        keep_settled=MINUTE,
    )

    assert altered == orders.definition()
    assert (altered.lease, altered.max_deliveries) == (timedelta(minutes=2), 3)
    assert str(altered.dead_letter_queue).endswith("graves")
    assert (altered.on_dead, altered.expire_after, altered.keep_settled) == ("stop", None, MINUTE)
    assert orders.alter(lease=MINUTE) == replace(altered, lease=MINUTE)
    assert orders.alter(drop_dead=True).dead_letter_queue is None


def test_attributes_are_set_and_removed_one_by_one(orders: Any):
    orders.create(drop_dead=True)

    assert orders.attributes() == {}
    assert orders.set_attributes({"team": "payments", "tier": "1"}) == orders.attributes()
    assert orders.set_attributes({"tier": None, "é": ""}) == {"team": "payments", "é": ""}
    with pytest.raises(CassieqError, match="200 attributes of 65536 bytes together"):
        orders.set_attributes({"large": "x" * 65_537})
    with pytest.raises(OptionError, match="1 to 200 characters, not 0"):
        orders.set_attributes({"": "x"})
    assert orders.attributes() == {"team": "payments", "é": ""}


def test_schedules_are_created_shown_paused_and_deleted(orders: Any):
    orders.create(drop_dead=True)
    begin = datetime(2040, 1, 1, tzinfo=UTC)
    made = orders.create_schedule(
        "nightly",
        {"day": "{{date}}"},
        cron="0 3 * * *",
        zone="Asia/Kolkata",
        headers={"lang": "é"},
        start=begin,
        end=begin + timedelta(days=9),
        jitter=MINUTE,
    )
    orders.create_schedule(
        "beat", "x", every=MINUTE, start=begin, count=2, catch_up=0, ahead=MINUTE
    )

    assert [each.schedule.name for each in orders.schedules()] == ["beat", "nightly"]
    assert orders.schedules()[1].schedule == made
    assert (made.queue, made.cron, made.zone, made.catch_up) == (
        "orders",
        "0 3 * * *",
        "Asia/Kolkata",
        1,
    )
    shown = orders.schedule("beat", ticks=3)
    assert (shown.last, shown.lag) == (None, None)
    assert shown.next == (begin, begin + MINUTE)
    assert (orders.pause_schedule("beat"), orders.pause_schedule("beat")) == (True, False)
    assert orders.schedule("beat").next == ()
    assert (orders.resume_schedule("beat"), orders.resume_schedule("beat")) == (True, False)

    assert (int(orders.run_schedule_now("nightly")), int(orders.run_schedule_now("nightly"))) == (
        0,
        1,
    )
    assert [each.key for each in orders.peek()] == [b"nightly"] * 2
    assert orders.peek()[0].headers.items() >= {"lang": "é", "schedule": "nightly"}.items()

    orders.delete_schedule("beat")
    assert [each.schedule.name for each in orders.schedules()] == ["nightly"]
    with pytest.raises(NotFoundError, match="has no schedule 'beat'"):
        orders.delete_schedule("beat")
    with pytest.raises(QueueStateError, match="has a schedule 'nightly' already"):
        orders.create_schedule("nightly", "x", every=MINUTE)


def test_a_schedule_is_altered(orders: Any):
    orders.create(drop_dead=True)
    begin = datetime(2040, 1, 1, tzinfo=UTC)
    made = orders.create_schedule("beat", "x", every=MINUTE, start=begin, headers={"lang": "é"})
    orders.pause_schedule("beat")

    altered = orders.alter_schedule(
        "beat", cron="0 3 * * *", zone="Asia/Kolkata", message={"n": 1}, headers=None, count=2
    )

    assert (altered.identity, altered.key, altered.start) == (made.identity, "beat", begin)
    assert (altered.cron, altered.every, altered.headers) == ("0 3 * * *", None, {})
    assert (altered.message, altered.paused, altered.generation) == ('{"n": 1}', True, 1)
    assert orders.schedule("beat").schedule == altered
    assert orders.alter_schedule("beat", end=None).end is None
    for changes, problem in (
        ({}, "there is nothing to alter"),
        ({"key": "k"}, "the key can't be altered"),
        ({"jitter": 61 * MINUTE}, "jitter must be from 0:00:00 to 1:00:00, not 1:01:00"),
        ({"every": MINUTE, "cron": "@daily"}, "either cron"),
    ):
        with pytest.raises(CassieqError, match=problem):
            orders.alter_schedule("beat", **changes)
    with pytest.raises(NotFoundError, match="has no schedule 'none'"):
        orders.alter_schedule("none", every=MINUTE)


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({}, "either cron"),
        ({"cron": "0 3 * *"}, "not five"),
        ({"every": MINUTE, "zone": "Mars/Olympus"}, "there is no time zone"),
        ({"every": "5m"}, "every must be a timedelta"),
        ({"every": MINUTE, "headers": {"tick": 5}}, "header"),
    ],
)
def test_a_schedule_that_is_not_valid_is_refused(
    orders: Any, settings: dict[str, Any], problem: str
):
    orders.create(drop_dead=True)

    with pytest.raises(CassieqError, match=problem):
        orders.create_schedule("bad", "x", **settings)

    assert orders.schedules() == []


def test_columns_are_added(orders: Any):
    orders.create(drop_dead=True, schema="id bigint")
    orders.put({"id": 1})

    altered = orders.alter(schema="id bigint, fare double")

    assert altered.schema == "id bigint, fare double"
    orders.put({"id": 2, "fare": 0.5})
    assert orders.definition() == altered


def test_of_a_paused_queue_nobody_receives_until_it_is_resumed(orders: Any):
    orders.create(drop_dead=True)
    orders.put("a")

    assert (orders.pause(), orders.pause()) == (True, False)
    assert orders.receive("default") == []
    orders.put("b")
    assert (orders.resume(), orders.resume()) == (True, False)
    received = orders.receive("default", max=9)
    assert [each.value for each in received] == [b"a", b"b"]


def test_a_receive_that_is_repeated_under_its_name_gets_the_same_messages(orders: Any):
    orders.create(drop_dead=True)
    orders.put_many(["a", "b", "c"])

    first = orders.receive("default", max=2, attempt="one")
    again = orders.receive("default", max=2, attempt="one")

    assert [each.value for each in again] == [each.value for each in first] == [b"a", b"b"]
    assert {each.delivery_count for each in again} == {1}
    assert [each.value for each in orders.receive("default", max=9)] == [b"c"]
    assert orders.ack(*first) == [each.receipt for each in first]
    assert orders.ack(*again) == []
    with pytest.raises(OptionError, match="1 to 128 characters, not 129"):
        orders.receive("default", attempt="x" * 129)


def test_messages_with_keys_and_headers_are_put_and_looked_at(orders: Any):
    orders.create(drop_dead=True)
    late = datetime.now(UTC) + timedelta(hours=1)

    assert orders.put("a", key=b"\xff", headers={"Lang": " é "}) == 0
    assert orders.put_many(["b", NewMessage("c", "k", {"n": None})]) == Range(1, 3)
    assert orders.put_many(["d"], visible_at=late) == Range(3, 4)
    assert orders.put("e", delay=MINUTE) == 4

    a, b, c, d, e = orders.peek()
    assert [each.value for each in (a, b, c, d, e)] == [b"a", b"b", b"c", b"d", b"e"]
    assert (a.key, a.headers) == (b"\xff", {"Lang": " é "})
    assert (c.key, c.headers, c.monoton, c.partition) == (b"k", {"n": None}, 2, 0)
    assert orders.peek(max=1, start=1) == [b]
    assert orders.peek(start="latest") == []
    assert orders.message(2) == c
    with pytest.raises(NotYetError, match="position 5"):
        orders.message(5)
    (got, *_) = orders.receive("default", max=9, lease=MINUTE)
    assert (got.group, got.delivery_count, got.key) == ("default", 1, b"\xff")
    assert got.published_at == a.published_at
    assert timedelta(0) < got.lease_until - datetime.now(UTC) <= MINUTE


def test_the_definition_says_what_was_created(orders: Any):
    settings: dict[str, Any] = {
        "lease": timedelta(seconds=45),
        "max_deliveries": 7,
        "dead_letter_queue": "bad",
        "order": "key",
        "partitions": 3,
        "on_dead": "stop",
        "expire_after": timedelta(days=9),
        "keep_settled": timedelta(hours=1),
        "schema": "a int",
    }

    orders.create(**settings)

    found = orders.definition()
    assert {name: getattr(found, name) for name in settings} == settings
    assert (found.name, found.version) == ("orders", 1)
    assert found.created_at is not None
    assert (found.bucket_size, found.chunk_size) == (16_384, 4096)


def test_a_dict_is_a_message_of_a_queue_with_a_schema(orders: Any):
    orders.create(schema="vendor string, fare decimal(10,2)", drop_dead=True)
    row = {"vendor": "v", "fare": Decimal("1.50")}

    assert orders.put(row) == 0
    assert orders.put_many([row, NewMessage(row, "k")]) == Range(1, 3)

    assert len(orders.peek()) == 3


def test_groups_are_created_listed_moved_and_deleted(orders: Any):
    orders.create(drop_dead=True)
    orders.put_many(["a", "b", "c"])

    orders.create_group("late", "latest")
    orders.create_group("from", 1)

    counts = [(each.group, each.depth, each.floor) for each in orders.groups()]
    assert counts == [("from", 2, 1), ("late", 0, 3)]
    assert orders.seek_group("late", 1) == 1
    assert orders.seek_group("late", "earliest", partition=0) == 0
    assert len(orders.receive("late", max=9)) == 3
    with pytest.raises(Exception, match="hold") as refused:
        orders.seek_group("late", 0)
    assert not isinstance(orders, HttpQueue) or isinstance(refused.value, HttpStateError)
    assert orders.seek_group("late", datetime(2026, 1, 1, tzinfo=UTC), force=True) == 0
    assert orders.delete_group("late", force=True)
    assert not orders.delete_group("late")
    with pytest.raises(NotFoundError):
        orders.seek_group("late", 0)
    with pytest.raises(OptionError, match="group name"):
        orders.create_group("no name")


def test_a_group_that_has_stopped_is_shown_and_resumed(orders: Any):
    orders.create(order="strict", on_dead="stop")
    orders.put_many(["a", "b"])
    (bad,) = orders.receive("default")
    orders.reject(bad, reason="broken")
    assert orders.receive("default") == []

    (stopped,) = orders.stopped("default")

    assert (stopped.partition, str(stopped.monotons), stopped.deliveries) == (None, "0-1", 1)
    assert stopped.reason == "broken"
    assert stopped.last_delivered_at is not None
    assert orders.resume_group("default", "retry") == 1
    assert orders.stopped("default") == []
    assert [each.value for each in orders.receive("default")] == [b"a"]


def test_counts_are_the_same_objects(orders: Any):
    orders.create(drop_dead=True, partitions=2, order="key")
    orders.create_group("g")
    orders.put_many([NewMessage(f"{number}", str(number)) for number in range(20)])
    orders.ack(*orders.receive("g", max=20)[:5])

    stats = orders.stats()

    (group,) = stats.groups
    assert (stats.next, stats.finalised, group.depth) == (20, 0, 15)
    assert stats.settled == sum(each.settled for each in stats.partitions)
    assert [each.queue_id.partition(".")[2] for each in stats.partitions] == ["0", "1"]
    assert group.oldest_age is not None
    (listed,) = orders.groups()
    assert listed == replace(group, oldest_age=listed.oldest_age)


def test_messages_are_replaced_once(orders: Any):
    orders.create(drop_dead=True)
    orders.put("old", key="k")
    (old,) = orders.receive("default")

    done = orders.replace(old, b"\xff", key=b"\x00", headers={"n": "1"}, delay=MINUTE)
    again = orders.replace(old.receipt, "newer")

    assert (done, again) == ([], [old.receipt])
    new = orders.message(1)
    assert (new.value, new.key, new.headers) == (b"\xff", b"\x00", {"n": "1"})
    assert orders.receive("default") == []


def test_a_queue_is_purged_by_force_only_and_deleted(orders: Any):
    orders.create(drop_dead=True)
    orders.put("a")
    orders.receive("default")

    with pytest.raises(Exception, match="hold"):
        orders.purge()
    purged = orders.purge(force=True)

    assert (purged.name, purged.version) == ("orders", 2)
    orders.put("b")
    orders.receive("default")
    with pytest.raises(Exception, match="hold"):
        orders.delete()
    orders.delete(force=True)
    with pytest.raises(NotFoundError):
        orders.definition()


def test_the_history_says_who_had_a_message(orders: Any):
    orders.create(history=HOUR)
    orders.put_many(["a", "b"])
    held = orders.receive("default", max=2)
    orders.extend(held[0], by=MINUTE)
    orders.reject(held[0], reason="no address")

    found = polled(lambda: orders.history(0), 3)

    assert [(str(each.did), each.deliveries, each.detail) for each in found] == [
        ("leased", 1, None),
        ("extended", None, None),
        ("rejected", None, "no address"),
    ]
    assert [str(each.monotons) for each in found] == ["0-2", "0-1", "0-1"]
    assert all(each.by and each.group == "default" for each in found)
    assert len({each.lease for each in found}) == 1
    assert abs(found[0].at - datetime.now(UTC)) < HOUR
    assert orders.history(2) == []
    with pytest.raises(CassieqError, match=r"monoton must be"):
        orders.history(-1)


def polled(ask: Callable[[], list[Any]], count: int) -> list[Any]:
    """An answer of this length at the least, as soon as there is one."""
    end = time.monotonic() + 60
    while len(found := ask()) < count:
        assert time.monotonic() < end, found
    return found


def test_dead_letters_are_found_redriven_and_purged(orders: Any):
    orders.create()
    orders.put_many([*"abcd"])
    for message, reason in zip(orders.receive("default", max=4), (*"xxyz",), strict=True):
        orders.reject(message, reason=reason)

    every = orders.dead_letters()
    found = orders.dead_letters(reason="x", group="default", limit=1)

    assert [(each.reason, each.monotons.count) for each in every.groups] == [
        ("x", 2),
        ("y", 1),
        ("z", 1),
    ]
    assert all((each.origin_queue or "").endswith("orders") for each in every.groups)
    assert orders.dead_letters(since=datetime.now(UTC) + MINUTE).groups == ()
    done = orders.redrive(found)
    assert (done.redriven, done.missed, done.is_stopped) == ({"orders": 1}, 0, False)
    assert orders.redrive(found).missed == 1
    assert orders.redrive(orders.dead_letters(reason="none")).redriven == {}
    (again,) = orders.receive("default", max=9)
    assert (again.value, again.delivery_count) == (b"a", 1)
    orders.create_group("other")
    with pytest.raises(Exception, match="other"):
        orders.redrive(orders.dead_letters(reason="x"))
    assert orders.redrive(orders.dead_letters(reason="x"), force=True).redriven == {"orders": 1}
    assert orders.purge_dead_letters(orders.dead_letters(reason="none")).purged == 0
    purged = orders.purge_dead_letters(every)
    assert (purged.purged, purged.missed) == (2, 2)
    assert orders.dead_letters().groups == ()


def test_what_a_list_has_shown_is_redriven_and_nothing_else(account: Account):
    with account.queue() as orders:
        orders.put_many([*"ab"])
        first, second = orders.receive(max=2)
        orders.reject(first, reason="x")
        found = orders.dead_letters()
        orders.reject(second, reason="x")

        assert orders.redrive(found).redriven == {"orders": 1}

        assert [each.value for each in orders.receive(max=9)] == [b"a"]
        assert orders.dead_letters().monotons.count == 1


def test_dead_letters_of_another_version_of_their_queue_are_left_alone(account: Account):
    with account.queue() as orders, account.queue("orders.dead") as dead:
        orders.put_many([*"ab"])
        first, second = orders.receive(max=2)
        orders.reject(first, reason="x")
        found = orders.dead_letters()
        dead.purge()
        orders.reject(second, reason="x")

        with pytest.raises(HttpStateError, match="list the dead letters again"):
            orders.purge_dead_letters(found)

        assert orders.dead_letters().monotons.count == 1


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"monotons": "0-1"}, 422),
        ({"queueId": "x", "monotons": "1-0"}, 409),
        ({"queueId": "x", "monotons": "0"}, 422),
        ({"queueId": "x", "monotons": ""}, 422),
        ({}, 200),
    ],
)
def test_a_selection_that_is_none_is_refused(account: Account, body: Any, status: int):
    account.queue().close()

    for what in ("redrive", "purge"):
        answer = account.ask("POST", f"/orders/dead/{what}", json=body)
        assert answer.status_code == status, answer.text


def test_a_range_that_ends_before_it_begins_is_refused(account: Account):
    with account.queue() as orders:
        orders.put("a")
        orders.reject(*orders.receive(), reason="x")
        queue_id = orders.dead_letters().queue_id

        body = {"queueId": queue_id, "monotons": "1-0"}
        assert account.ask("POST", "/orders/dead/purge", json=body).status_code == 422
