"""Who may do what: keys, signed requests, signed URLs, administrators."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from cassieq_spark.http.accounts import ALL_RIGHTS, Permission, Right, sign_request, sign_url
from cassieq_spark.http.accounts.signing import cassieq_text, show_time, signature
from cassieq_spark.http.gateway.app import ENDPOINTS
from cassieq_spark.http.gateway.requests import Endpoint
from tests.support.gateway import ADMIN, HTTP, Account, RunningGateway, running_on_memory

SECOND = timedelta(seconds=1)
OF_ACCOUNTS = [each for each in ENDPOINTS if each.right is not None]
OF_ADMINS = [each for each in ENDPOINTS if each.right is None]


def named(endpoint: object) -> str:
    return endpoint.operation if isinstance(endpoint, Endpoint) else ""


def ask(gateway: RunningGateway, endpoint: Endpoint, account: Account, **more) -> httpx.Response:
    """Ask for an endpoint in a way that changes nothing: there is no such queue, no such body."""
    path = endpoint.path.format(
        account=account.name, queue="nothing", group="g", key="k", monoton=0, schedule="s"
    )
    return HTTP.request(endpoint.method, gateway.url + path, **more)


def signed(account: Account, method: str, path: str, at: datetime, **more: Any) -> dict[str, str]:
    path = urlsplit(account.queues + path).path
    return sign_request(account.key, account.name, method, path, at, **more)


def url_of(account: Account, path: str, levels=ALL_RIGHTS, key: str | None = None, **more) -> str:
    permission = Permission(account.name, frozenset(levels), **more)
    return f"{account.queues}{path}?{sign_url(key or account.key, permission)}"


def key_with(gateway: RunningGateway, account: Account, **options: object) -> Account:
    """The account, with another key."""
    answer = HTTP.post(
        f"{gateway.url}/admin/api/v1/accounts/{account.name}/keys",
        headers=ADMIN,
        json={"keyName": "other", **options},
    )
    assert answer.status_code == 201, answer.text
    return Account(account.url, account.name, answer.json()["key"])


@pytest.mark.parametrize("endpoint", OF_ACCOUNTS, ids=named)
def test_each_endpoint_takes_a_key_and_its_own_right(
    gateway: RunningGateway, account: Account, endpoint: Endpoint
):
    assert endpoint.right is not None
    enough = sign_url(account.key, Permission(account.name, frozenset({endpoint.right})))
    rest = sign_url(account.key, Permission(account.name, ALL_RIGHTS - {endpoint.right}))

    without = ask(gateway, endpoint, account)
    wrong = ask(gateway, endpoint, account, headers={"Authorization": "Key " + "x" * 86})
    of_admin = ask(gateway, endpoint, account, headers=ADMIN)
    refused = ask(gateway, endpoint, account, params=httpx.QueryParams(rest))
    let_in = ask(gateway, endpoint, account, params=httpx.QueryParams(enough))
    with_key = ask(gateway, endpoint, account, headers={"Authorization": f"Key {account.key}"})

    assert [each.status_code for each in (without, wrong, of_admin)] == [401] * 3
    assert without.headers["www-authenticate"] == "Key"
    assert refused.status_code == 403
    assert endpoint.right.title in refused.json()["message"]
    assert let_in.status_code not in {401, 403, 500}
    assert with_key.status_code not in {401, 403, 500}


@pytest.mark.parametrize("endpoint", OF_ADMINS, ids=named)
def test_the_admins_part_takes_the_admins_key(
    gateway: RunningGateway, account: Account, endpoint: Endpoint
):
    mine = {"Authorization": f"Key {account.key}"}
    admins = ADMIN["Authorization"].partition(" ")[2]

    refused = [
        ask(gateway, endpoint, account, headers=headers)
        for headers in ({}, mine, {"Authorization": f"Bearer {admins}"})
    ]

    assert [each.status_code for each in refused] == [401] * 3


def test_a_key_is_good_for_its_own_account_only(gateway: RunningGateway, account: Account):
    other = gateway.account()

    assert Account(other.url, other.name, account.key).ask("GET").status_code == 401
    assert Account(other.url, "nobody", account.key).ask("GET").status_code == 401


def test_a_request_is_signed_instead_of_sending_the_key(account: Account):
    now = datetime.now(UTC)

    def ask(headers: dict[str, str], path: str = "") -> int:
        return HTTP.get(account.queues + path, headers=headers).status_code

    assert ask(signed(account, "GET", "", now)) == 200
    assert ask(signed(account, "GET", "", now - 50 * SECOND)) == 200
    assert ask(signed(account, "GET", "", now - 61 * SECOND)) == 401, "too old"
    assert ask(signed(account, "GET", "", now + 120 * SECOND)) == 401, "from the future"
    assert ask(signed(account, "POST", "", now)) == 401, "signed for another verb"
    assert ask(signed(account, "GET", "/orders", now)) == 401, "signed for another path"
    headers = signed(account, "GET", "", now)
    assert ask({**headers, "x-cassieq-request-time": "noon"}) == 401
    assert ask({"Authorization": headers["Authorization"]}) == 401
    assert [ask(headers) for _ in range(2)] == [200, 401], "sent again"


def test_a_captured_signature_deletes_no_other_queue_through_the_host_header(account: Account):
    for name in ("small", "orders"):
        account.ask("POST", json={"queueName": name})
    captured = signed(account, "DELETE", "/small", datetime.now(UTC))
    served = urlsplit(account.queues + "/small").path

    for host in (f"x{served}?", f"x{served}#", f"x/..{served}?"):
        answer = HTTP.delete(f"{account.queues}/orders", headers={**captured, "Host": host})
        assert answer.status_code in {400, 401}

    assert account.ask("GET", "/orders").status_code == 200


def test_the_body_and_the_query_of_a_signed_request_are_as_they_were_signed(account: Account):
    account.ask("POST", json={"queueName": "orders"})
    url = f"{account.queues}/orders/messages"

    def put(body: bytes, query: bytes, sent: bytes) -> int:
        headers = signed(
            account, "POST", "/orders/messages", datetime.now(UTC), query=b"key=k", body=body
        )
        return HTTP.post(f"{url}?{query.decode()}", headers=headers, content=sent).status_code

    assert put(b"hello", b"key=k", b"hello") == 201
    assert put(b"hello", b"key=k", b"evil!") == 401
    assert put(b"hello", b"key=x", b"hello") == 401
    assert account.ask("GET", "/orders/statistics").json()["size"] == 1


def test_what_cassieqs_clients_sign_is_let_in_if_the_gateway_is_told_so(
    account: Account, tmp_path: Path
):
    with running_on_memory(tmp_path / "log", "cassieq_signatures=1") as older:
        own = older.account()
        now = datetime.now(UTC)
        for each, status in ((account, 401), (own, 200)):
            path = urlsplit(each.queues).path
            sig = signature(each.key, cassieq_text(each.name, "GET", path, now))
            headers = {"Authorization": f"Signed {sig}", "x-cassieq-request-time": show_time(now)}
            assert HTTP.get(each.queues, headers=headers).status_code == status


def test_a_signed_url_allows_what_it_says_as_long_as_it_says(account: Account):
    now = datetime.now(UTC)
    account.ask("POST", json={"queueName": "orders"})
    account.ask("POST", json={"queueName": "other"})

    def status(method: str, url: str) -> int:
        return HTTP.request(method, url, content=None if method == "GET" else "x").status_code

    put = {Right.PUT_MESSAGE}
    assert status("POST", url_of(account, "/orders/messages", put)) == 201
    assert status("POST", url_of(account, "/orders/messages", put, queue="orders")) == 201
    assert status("POST", url_of(account, "/other/messages", put, queue="orders")) == 401
    assert status("GET", url_of(account, "", queue="orders")) == 401, "not of one queue"
    assert status("GET", url_of(account, "/orders/messages/next", put)) == 403
    runs = url_of(account, "/orders", start=now - 60 * SECOND, end=now + 60 * SECOND)
    assert status("GET", runs) == 200
    assert status("GET", url_of(account, "/orders", end=now - SECOND)) == 401
    assert status("GET", url_of(account, "/orders", start=now + 60 * SECOND)) == 401
    assert status("GET", url_of(account, "/orders", {Right.PUT_MESSAGE}) + "&auth=g") == 401
    assert status("GET", runs.replace("et=", "et=x")) == 401
    assert status("GET", url_of(account, "/orders").replace("auth=r", "auth=")) == 401
    assert status("GET", f"{account.queues}?auth=g&sig=x") == 401


def test_a_key_may_do_less_than_its_account(gateway: RunningGateway, account: Account):
    account.ask("POST", json={"queueName": "orders"})
    account.ask("POST", json={"queueName": "other"})
    putter = key_with(gateway, account, levels=["PutMessage"], queueName="orders")

    assert putter.ask("POST", "/orders/messages", content="a").status_code == 201
    assert putter.ask("GET", "/orders/messages/next").status_code == 403
    assert putter.ask("POST", "/other/messages", content="a").status_code == 401
    more_than_its_key = url_of(account, "/orders/messages/next", key=putter.key)
    assert HTTP.get(more_than_its_key).status_code == 403


def test_a_key_runs_out(gateway: RunningGateway, account: Account):
    now = datetime.now(UTC)
    over = key_with(gateway, account, expiresAt=(now - SECOND).isoformat())

    assert over.ask("GET").status_code == 401
    assert HTTP.get(url_of(account, "", key=over.key)).status_code == 401


def test_a_deleted_key_takes_its_urls_along(gateway: RunningGateway, account: Account):
    other = key_with(gateway, account)
    url = url_of(account, "", key=other.key)
    assert HTTP.get(url).status_code == 200

    of_account = f"{gateway.url}/admin/api/v1/accounts/{account.name}"
    deleted = [HTTP.delete(f"{of_account}/keys/other", headers=ADMIN) for _ in range(2)]

    assert [each.status_code for each in deleted] == [204, 204]
    assert HTTP.get(url).status_code == 401
    assert other.ask("GET").status_code == 401
    assert account.ask("GET").status_code == 200


def test_administrators_see_accounts_and_not_their_keys(gateway: RunningGateway, account: Account):
    of_all = HTTP.get(f"{gateway.url}/admin/api/v1/accounts", headers=ADMIN)
    of_one = HTTP.get(f"{gateway.url}/admin/api/v1/accounts/{account.name}", headers=ADMIN)
    of_none = HTTP.get(f"{gateway.url}/admin/api/v1/accounts/nobody", headers=ADMIN)

    assert of_one.json() in of_all.json()
    assert [each["keyName"] for each in of_one.json()["keys"]] == ["primary", "secondary"]
    assert account.key not in of_all.text
    assert of_none.status_code == 404


@pytest.mark.parametrize(("body", "status"), [("", 400), ('"a b"', 400), (b"\xff", 400)])
def test_what_can_not_be_an_account_is_refused(gateway: RunningGateway, body, status: int):
    answer = HTTP.post(f"{gateway.url}/admin/api/v1/accounts", headers=ADMIN, content=body)

    assert answer.status_code == status


def test_an_account_is_made_once_and_deleted_with_its_queues(gateway: RunningGateway):
    account = gateway.account()
    account.ask("POST", json={"queueName": "orders"})
    of_account = f"{gateway.url}/admin/api/v1/accounts/{account.name}"
    again = HTTP.post(f"{gateway.url}/admin/api/v1/accounts", headers=ADMIN, content=account.name)

    gone = [HTTP.delete(of_account, headers=ADMIN) for _ in range(2)]

    assert again.status_code == 409
    assert [each.status_code for each in gone] == [204, 404]
    assert account.ask("GET").status_code == 401
    anew = HTTP.post(
        f"{gateway.url}/admin/api/v1/accounts", headers=ADMIN, content=account.name
    ).json()
    assert anew["keys"]["primary"] != account.key
    assert Account(account.url, account.name, anew["keys"]["primary"]).ask("GET").json() == []


def test_an_administrator_signs_urls_for_others(gateway: RunningGateway, account: Account):
    account.ask("POST", json={"queueName": "orders"})
    given = {
        "accountName": account.name,
        "keyName": "secondary",
        "levels": ["PutMessage", "g"],
        "endTime": "2126-01-01T00:00:00Z",
        "queueName": "orders",
    }
    where = f"{gateway.url}/admin/api/v1/permissions"

    made = HTTP.post(where, headers=ADMIN, json=given)

    query = made.json()["queryParam"]
    assert made.status_code == 201
    assert HTTP.get(f"{account.queues}/orders?{query}").status_code == 200
    assert HTTP.get(f"{account.queues}/orders/messages/next?{query}").status_code == 403
    for change, status in (
        ({"keyName": "no"}, 404),
        ({"accountName": "nobody"}, 404),
        ({"levels": ["Everything"]}, 422),
        ({"levels": []}, 400),
        ({"endTime": "soon"}, 422),
    ):
        refused = HTTP.post(where, headers=ADMIN, json=given | change)
        assert refused.status_code == status, refused.text
    levels = HTTP.get(f"{where}/supportedAuthorizationLevels", headers=ADMIN).json()
    assert {"level": "ReadMessage", "shortForm": "r"} in levels
    assert len(levels) == len(ALL_RIGHTS)


FORGED = {"x-cassieq-header-cassieq.origin-queue": "other:orders"}


@pytest.mark.parametrize(
    ("path", "sent"),
    [
        ("", {"headers": FORGED}),
        ("", {"headers": {"x-cassieq-headers": '{"cassieq.origin-queue": "other:orders"}'}}),
        ("", {"headers": {**FORGED, "idempotency-key": "once"}}),
        ("/batch", {"json": {"message": "a", "headers": {"cassieq.reason": "forged"}}}),
    ],
    ids=["header", "headers", "once", "line"],
)
def test_nobody_puts_headers_that_say_where_a_dead_letter_came_from(
    account: Account, path: str, sent: dict[str, Any]
):
    account.ask("POST", json={"queueName": "orders"})
    body = {} if "json" in sent else {"content": "evil"}
    lines = {"headers": {"content-type": "application/x-ndjson"}} if "json" in sent else {}

    answer = account.ask("POST", f"/orders.dead/messages{path}", **body, **sent, **lines)

    assert answer.status_code == 400, answer.text
    assert "are reserved" in answer.json()["message"]
    assert account.ask("GET", "/orders.dead/statistics").json()["size"] == 0


def test_how_often_a_message_was_redriven_may_be_copied(account: Account):
    account.ask("POST", json={"queueName": "orders"})
    copied = {"x-cassieq-header-cassieq.redrives": "9" * 5000}

    assert account.ask("POST", "/orders/messages", content="a", headers=copied).status_code == 201
    reject(account, "orders")
    redriven = account.ask("POST", "/orders/dead/redrive")

    assert redriven.json() == {"redriven": 1, "queues": {"orders": 1}, "missed": 0}
    (message,) = account.ask("GET", "/orders/messages").json()[1:]
    assert message["headers"] == {"cassieq.redrives": "1"}


def reject(account: Account, queue: str) -> None:
    """Let the next message of a queue become a dead letter."""
    receipt = account.ask("GET", f"/{queue}/messages/next").json()["popReceipt"]
    body = {"popReceipts": [receipt], "reason": "bad"}
    assert account.ask("POST", f"/{queue}/messages/reject", json=body).json() == {"stale": []}
    account.ask("GET", f"/{queue}/messages/next")


def test_a_key_for_one_queue_redrives_to_that_queue_only(
    gateway: RunningGateway, account: Account
):
    account.ask("POST", json={"queueName": "orders"})
    account.ask("POST", json={"queueName": "other"})
    account.ask("POST", "/orders/messages", content="a")
    reject(account, "orders")
    of_one = {"levels": ["RedriveMessage"], "queueName": "orders"}
    narrow = key_with(gateway, account, **of_one)
    of_dead = url_of(account, "/orders.dead/dead/redrive", queue="orders.dead")

    elsewhere = narrow.ask("POST", "/orders/dead/redrive", params={"to": "other"})
    from_the_dead = HTTP.post(of_dead)
    of_another = narrow.ask("POST", "/other/dead/redrive")
    back = narrow.ask("POST", "/orders/dead/redrive")

    assert [elsewhere.status_code, from_the_dead.status_code] == [403, 403]
    assert "may not redrive to queue" in elsewhere.json()["message"]
    assert of_another.status_code == 401
    assert account.ask("GET", "/other/statistics").json()["size"] == 0
    assert back.json() == {"redriven": 1, "queues": {"orders": 1}, "missed": 0}


def test_to_put_is_not_to_redrive(gateway: RunningGateway, account: Account):
    account.ask("POST", json={"queueName": "orders"})
    putter = key_with(gateway, account, levels=["PutMessage"])

    assert putter.ask("POST", "/orders/dead/redrive").status_code == 403
