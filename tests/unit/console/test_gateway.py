"""The console as a gateway serves it: below ``/console``, for administrators."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from cassieq_spark.console import Console
from cassieq_spark.http.gateway.app import make_app
from cassieq_spark.store.memory import MemoryStore
from tests.unit.console.visitor import Visitor, forms_of, words_of

KEY = "the-admin-key-of-these-gateways"


@asynccontextmanager
async def _no_lifespan(_: object) -> AsyncIterator[None]:
    yield


def gateway_of(console: Console, origins: tuple[str, ...] = ()) -> Any:
    def no_gateway() -> Any:
        raise AssertionError("a page of the console needs nothing of the gateway")

    return make_app(no_gateway, _no_lifespan, origins, console)


@pytest.fixture(params=[(), ("*",)], ids=["as it is", "with any origin allowed"])
def administrator(request: pytest.FixtureRequest, store: MemoryStore) -> Iterator[Visitor]:
    """Somebody at a gateway whose console may change queues; not logged in yet."""
    console = Console(store, admin_key=KEY, allow_changes=True, reads_per_second=1e9)
    visitor = Visitor(console, app=gateway_of(console, request.param))
    visitor.look()
    yield visitor
    visitor.close()


def log_in(visitor: Visitor) -> None:
    asked = visitor.get("/console/queues/orders")
    assert asked.headers["location"] == "/console/login?to=%2Fconsole%2Fqueues%2Forders"
    text = visitor.get(asked.headers["location"]).text
    done = visitor.submit(text, "/console/login", key=KEY)
    assert done.headers["location"] == "/console/queues/orders"
    assert "Path=/console" in done.headers["set-cookie"]


def test_it_asks_for_the_admin_key_and_then_shows_the_queues(administrator: Visitor):
    log_in(administrator)

    words = words_of(administrator.page("/console/"))

    assert "orders billing 16" in words
    assert administrator.get("/console").headers["location"] == "console/"
    for path in ("/console/login/", "/health/", "/api/v1/accounts/acme/queues/"):
        assert administrator.get(path, host="evil.example").headers.get("location") in {
            None,
            "/console/login?to=%2Fconsole%2Flogin%2F",
        }


def test_every_link_and_form_of_its_pages_stays_below_it(administrator: Visitor):
    log_in(administrator)
    for page in ("/", "/queues/orders", "/queues/orders/messages", "/queues/orders/dead"):
        text = administrator.page("/console" + page)

        links = [part.split('"')[0] for part in text.split('href="')[1:]]
        places = [*links, *(form.action for form in forms_of(text) if form.action)]
        assert {each for each in places if not each.startswith(("/console/", "#"))} == set()
        for name in ("console.css", "console.js"):
            (address,) = [each for each in (*links, *_scripts(text)) if name in each]
            assert administrator.get(address).status_code == 200


def test_a_change_goes_through(administrator: Visitor):
    log_in(administrator)
    asked = administrator.submit(administrator.page("/console/queues/orders"), "/change/pause")

    done = administrator.confirm(asked)

    assert "Queue orders is paused." in words_of(done.text)


def test_a_page_of_an_origin_that_may_use_the_gateway_may_not_use_the_console(
    administrator: Visitor,
):
    log_in(administrator)
    token = forms_of(administrator.page("/console/queues/orders"))[-1].fields["token"]

    answer = administrator.post(
        "/console/queues/orders/change/pause", {"token": token}, origin="https://pages.example"
    )

    assert answer.status_code == 403
    assert "access-control-allow-credentials" not in answer.headers


def test_a_program_looks_with_the_same_header_as_at_the_routes_of_administrators(
    administrator: Visitor,
):
    assert administrator.get("/console/", authorization=f"Key {KEY}").status_code == 200
    assert administrator.get("/console/", authorization="Key x").status_code == 303


def test_a_gateway_without_a_console_has_no_such_page(store: MemoryStore):
    with_console = Console(store, admin_key=KEY)
    visitor = Visitor(with_console, app=make_app(lambda: None, _no_lifespan))  # type: ignore[arg-type,return-value]

    assert visitor.get("/console/").status_code == 404
    visitor.close()


def _scripts(text: str) -> list[str]:
    return [part.split('"')[0] for part in text.split('<script src="')[1:]]
