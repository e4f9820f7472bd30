"""What CassieQ had no words for: batches, groups, dead letters, purges, idempotency."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

from tests.support.arrow_streams import stream_of
from tests.support.gateway import Account

ARROW = "application/vnd.apache.arrow.stream"


@pytest.fixture
def orders(account: Account) -> Account:
    """An account with a queue ``orders``."""
    assert account.ask("POST", json={"queueName": "orders"}).status_code == 201
    return account


def lines(*messages: object) -> str:
    return "".join(json.dumps(each) + "\n" for each in messages)


def put(account: Account, *messages: object, **more):
    return account.ask("POST", "/orders/messages/batch", content=lines(*messages), **more)


def got(account: Account, **query: object) -> list[dict[str, object]]:
    answer = account.ask("POST", "/orders/messages/receive", params=query)
    return [json.loads(line) for line in answer.text.splitlines()]


def settle(account: Account, what: str, messages: list[dict[str, object]], **more: object):
    receipts = [each["popReceipt"] for each in messages]
    return account.ask("POST", f"/orders/messages/{what}", json={"popReceipts": receipts, **more})


def test_lines_go_in_together_and_come_out_in_order(orders: Account):
    answer = put(
        orders,
        {"message": "a", "key": "k", "headers": {"h": "1", "none": None}},
        {"message": "/wA=", "encoding": "base64"},
    )

    assert (answer.status_code, answer.json()) == (201, {"start": 0, "stop": 2})
    first, second = got(orders, max=10)
    assert (first["message"], first["key"], first["headers"]) == (
        "a",
        "k",
        {"h": "1", "none": None},
    )
    assert (second["message"], second["encoding"]) == ("/wA=", "base64")
    assert orders.ask("POST", "/orders/messages/receive").status_code == 204
    assert settle(orders, "ack", [first, second]).json() == {"stale": []}
    assert len(settle(orders, "ack", [first, second]).json()["stale"]) == 2


def test_arrow_goes_in_and_comes_out(orders: Account):
    table = pa.table(
        {
            "value": pa.array(["a", "b"]),
            "key": pa.array([b"k", None]),
            "headers": pa.array([[("h", "1")], None], pa.map_(pa.string(), pa.string())),
        }
    )

    put_them = orders.ask(
        "POST",
        "/orders/messages/batch",
        content=stream_of(table),
        headers={"Content-Type": ARROW},
    )
    answer = orders.ask("POST", "/orders/messages/receive", headers={"Accept": ARROW})

    assert (put_them.status_code, answer.headers["content-type"]) == (201, ARROW)
    found = pa.ipc.open_stream(answer.content).read_all().to_pylist()
    assert [(each["value"], each["key"], each["headers"]) for each in found] == [
        (b"a", b"k", [("h", "1")]),
        (b"b", None, []),
    ]
    assert settle(orders, "ack", found).json() == {"stale": []}


@pytest.mark.parametrize(
    ("content", "kind", "status"),
    [
        ("", None, 400),
        ("{}", None, 400),
        ("[1]", None, 400),
        ('{"message": "a"}\n{', None, 400),
        ('{"message": "a", "encoding": "base64"}', None, 400),
        ('{"message": "a", "headers": {"h": 1}}', None, 400),
        ('{"message": "a"}', "text/html", 415),
        ("no arrow", ARROW, 400),
        (stream_of(pa.table({"body": ["a"]})), ARROW, 400),
        (stream_of(pa.table({"value": [1.5]})), ARROW, 400),
        (stream_of(pa.table({"value": pa.array([], pa.string())})), ARROW, 400),
        (stream_of(pa.table({"value": pa.array([None, "a"])})), ARROW, 400),
    ],
    ids=range(12),
)
def test_a_batch_that_is_not_right_in_every_part_is_refused_as_a_whole(
    orders: Account, content, kind: str | None, status: int
):
    headers = {"Content-Type": kind} if kind else {}

    answer = orders.ask("POST", "/orders/messages/batch", content=content, headers=headers)

    assert answer.status_code == status, answer.text
    assert orders.ask("GET", "/orders/statistics").json()["stored"] == 0


def test_what_is_put_under_one_idempotency_key_is_there_once(orders: Account):
    named = {"Idempotency-Key": "3f0c"}

    single = [orders.ask("POST", "/orders/messages", content="a", headers=named) for _ in range(2)]
    batch = [put(orders, {"message": "b"}, headers={"Idempotency-Key": "x"}) for _ in range(2)]

    assert [each.status_code for each in (*single, *batch)] == [201, 200, 201, 200]
    assert [each.json()["monoton"] for each in single] == [0, None]
    assert [each.json()["repeated"] for each in single] == [False, True]
    assert [each["message"] for each in got(orders)] == ["a", "b"]
    empty = orders.ask("POST", "/orders/messages", content="a", headers={"Idempotency-Key": ""})
    assert empty.status_code == 400


def test_another_put_under_an_idempotency_key_is_refused(orders: Account):
    named = {"Idempotency-Key": "3f0c"}
    put(orders, {"message": "a", "key": "k"}, headers=named)

    others = [
        put(orders, {"message": "a", "key": "l"}, headers=named),
        put(orders, {"message": "b", "key": "k"}, headers=named),
        orders.ask("POST", "/orders/messages", content="a", headers=named),
    ]

    assert [each.status_code for each in others] == [409] * 3
    assert others[0].json()["reason"] == "Conflict"
    assert "used for a put with another content" in others[0].json()["message"]
    same = {"content": "a", "headers": named, "params": {"key": "k"}}
    assert orders.ask("POST", "/orders/messages", **same).status_code == 200
    assert [each["message"] for each in got(orders)] == ["a"]


def test_key_and_headers_of_a_single_message_come_back(orders: Account):
    orders.ask(
        "POST",
        "/orders/messages",
        content="a",
        params={"key": "k"},
        headers={"X-Cassieq-Header-Lang": "en"},
    )

    (message,) = got(orders)

    assert (message["key"], message["headers"]) == ("k", {"lang": "en"})


def test_messages_are_given_back_held_and_rejected(orders: Account):
    put(orders, *({"message": each} for each in "abc"))
    a, b, c = got(orders)

    assert settle(orders, "release", [a], delaySeconds=3600).json() == {"stale": []}
    assert settle(orders, "extend", [b], seconds=600).json() == {"stale": []}
    assert settle(orders, "reject", [c], reason="bad").json() == {"stale": []}

    (group,) = orders.ask("GET", "/orders/groups").json()
    assert (group["group"], group["waiting"], group["leased"]) == ("default", 1, 1)
    (group,) = orders.ask("GET", "/orders/dead").json()
    assert (group["reason"], group["count"], group["originGroup"]) == ("bad", 1, "default")


@pytest.mark.parametrize(
    ("what", "body", "status"),
    [
        ("ack", {}, 422),
        ("ack", {"popReceipts": []}, 422),
        ("ack", {"popReceipts": ["x"]}, 400),
        ("release", {"popReceipts": ["x"], "delaySeconds": -1}, 422),
        ("extend", {"popReceipts": ["x"], "seconds": 0}, 422),
        ("reject", {"popReceipts": ["x"]}, 422),
        ("reject", {"popReceipts": ["x"], "reason": " "}, 422),
    ],
)
def test_what_can_not_be_settled_is_refused(orders: Account, what: str, body, status: int):
    assert orders.ask("POST", f"/orders/messages/{what}", json=body).status_code == status


def test_each_group_gets_every_message(orders: Account):
    put(orders, {"message": "a"}, {"message": "b"})

    assert orders.ask("PUT", "/orders/groups/late", json={"start": "1"}).status_code == 201
    assert [each["message"] for each in got(orders, group="late")] == ["b"]
    assert orders.ask("GET", "/orders/messages/next", params={"group": "all"}).status_code == 404
    assert orders.ask("PUT", "/orders/groups/all", json={}).status_code == 201
    assert [each["message"] for each in got(orders, group="all")] == ["a", "b"]
    assert orders.ask("PUT", "/orders/groups/late", json={}).status_code == 409
    assert orders.ask("PUT", "/orders/groups/new", json={"start": "noon"}).status_code == 400
    assert orders.ask("PUT", "/orders/groups/new", json={"start": "99"}).status_code == 409
    assert orders.ask("PUT", "/orders/groups/no%20name", json={}).status_code == 400
    held = orders.ask("POST", "/orders/groups/late/seek", json={"to": "earliest"})
    assert held.status_code == 409
    moved = orders.ask("POST", "/orders/groups/late/seek", json={"to": "0", "force": True})
    assert moved.json() == {"next": 0}
    assert orders.ask("POST", "/orders/groups/no/seek", json={"to": "0"}).status_code == 404
    assert orders.ask("DELETE", "/orders/groups/all").status_code == 409
    assert orders.ask("DELETE", "/orders/groups/late").status_code == 204
    assert orders.ask("DELETE", "/orders/groups/late").status_code == 404


def test_a_group_that_stops_at_a_dead_message_is_resumed(account: Account):
    queue = {"queueName": "ledger", "order": "strict", "onDead": "stop"}
    assert account.ask("POST", "", json=queue).status_code == 201
    assert account.ask("GET", "/ledger").json()["onDead"] == "stop"
    account.ask("POST", "/ledger/messages/batch", content=lines({"message": "bad"}))
    account.ask("POST", "/ledger/messages/batch", content=lines({"message": "behind"}))
    bad = account.ask("GET", "/ledger/messages/next").json()
    rejected = {"popReceipts": [bad["popReceipt"]], "reason": "no such account"}
    account.ask("POST", "/ledger/messages/reject", json=rejected)
    path = "/ledger/groups/default/resume"

    stopped = account.ask("GET", "/ledger/messages/next").status_code
    unknown = account.ask("POST", path, json={"how": "drop"}).status_code
    resumed = account.ask("POST", path, json={"how": "dead-letter"}).json()

    assert (stopped, unknown, resumed) == (204, 422, {"resumed": 1})
    assert account.ask("GET", "/ledger/messages/next").json()["message"] == "behind"


def test_looking_holds_nothing(orders: Account):
    put(orders, *({"message": each} for each in "abc"))

    seen = orders.ask("GET", "/orders/messages", params={"start": "1", "max": 1}).json()

    assert [each["message"] for each in seen] == ["b"]
    assert "popReceipt" not in seen[0]
    assert len(got(orders)) == 3
    assert orders.ask("GET", "/orders/messages", params={"start": "99"}).status_code == 409
    assert orders.ask("GET", "/orders/messages", params={"start": "noon"}).status_code == 400
    assert orders.ask("GET", "/orders/messages", params={"max": 0}).status_code == 400


def test_a_queue_is_emptied_and_goes_on(orders: Account):
    put(orders, {"message": "a"})
    got(orders)

    assert orders.ask("POST", "/orders/purge").status_code == 409
    purged = orders.ask("POST", "/orders/purge", params={"force": "true"})

    assert (purged.status_code, purged.json()["version"]) == (200, 2)
    put(orders, {"message": "b"})
    assert [each["message"] for each in got(orders)] == ["b"]


def test_dead_letters_are_sent_back_or_given_up(orders: Account):
    put(orders, *({"message": each} for each in "abc"))
    messages = got(orders)
    for message, reason in zip(messages, ("one", "two", "three"), strict=True):
        settle(orders, "reject", [message], reason=reason)

    back = orders.ask("POST", "/orders/dead/redrive", params={"reason": "one"})
    aside = orders.ask("POST", "/orders/dead/redrive", params={"reason": "two", "to": "no"})
    gone = orders.ask("POST", "/orders/dead/purge", params={"reason": "two"})

    assert (back.status_code, back.json()) == (
        200,
        {"redriven": 1, "queues": {"orders": 1}, "missed": 0},
    )
    assert aside.status_code == 409
    assert gone.json() == {"purged": 1, "missed": 0}
    assert [each["message"] for each in got(orders)] == ["a"]
    assert [each["reason"] for each in orders.ask("GET", "/orders/dead").json()] == ["three"]
    assert orders.ask("GET", "/orders/dead", params={"since": "noon"}).status_code == 400
    assert orders.ask("GET", "/orders.dead/dead", params={"limit": 1}).status_code == 200
