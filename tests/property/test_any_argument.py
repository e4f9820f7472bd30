"""Whatever is given for any argument of the public API: it is taken, or refused by our own error.

Methods and their arguments are found by their signatures, so what is new is covered, too; for an
argument of a new name, `GOOD` has to say what a good one is.
"""

from __future__ import annotations

import asyncio
import inspect
import os
from collections.abc import Callable, Iterator
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

import httpx
import pytest

import cassieq_spark
from cassieq_spark import (
    AsyncClient,
    CassieqError,
    Client,
    Message,
    NewMessage,
    Producer,
    Progress,
)
from cassieq_spark.arrow.receipts import Receipt
from cassieq_spark.client import Action, AsyncProducer, LeaseRequest
from cassieq_spark.client.exchange import Exchange
from cassieq_spark.consumer.prefetch import PrefetchBudget
from cassieq_spark.dead_letters.survey import Survey
from cassieq_spark.http.client import AsyncHttpQueue, HttpQueue, HttpSurvey
from cassieq_spark.http.gateway.responses import queue_json
from cassieq_spark.model import QueueDefinition
from cassieq_spark.settings.connection import Connection, connection_options
from cassieq_spark.store.memory import MemoryStore
from tests.support.ailing_queue import copy_of

SECOND = timedelta(seconds=1)


class Hostile:
    """Fails by whatever is done with it."""

    def _fail(self, *_: object) -> Any:
        raise ZeroDivisionError("hostile")

    __eq__ = __lt__ = __gt__ = __hash__ = __repr__ = __str__ = __bool__ = _fail  # type: ignore[assignment]
    __len__ = __index__ = __int__ = __add__ = _fail


BAD: dict[str, Callable[[], Any]] = {
    "None": lambda: None,
    "True": lambda: True,
    "zero": lambda: 0,
    "minus one": lambda: -1,
    "five": lambda: 5,
    "huge": lambda: 10**30,
    "a fraction": lambda: 2.5,
    "no number": lambda: float("nan"),
    "endless": lambda: float("inf"),
    "no text": lambda: "",
    "text": lambda: "x",
    "a name of dots": lambda: "..",
    "text with a line feed": lambda: "x\n",
    "long text": lambda: "x" * 300,
    "half of a pair": lambda: "\ud800",
    "no bytes": lambda: b"",
    "bytes": lambda: b"\xff",
    "a buffer": lambda: bytearray(b"x"),
    "an empty list": list,
    "a list": lambda: [1, None],
    "a list of half of a pair": lambda: ["\ud800"],
    "a list of hostile objects": lambda: [Hostile()],
    "a dict": lambda: {"a": 0},
    "a dict without a name": lambda: {"": "x"},
    "a dict of half of a pair": lambda: {"a": "\ud800"},
    "a set": lambda: {1},
    "an object": object,
    "a hostile object": Hostile,
    "a class": lambda: dict,
    "a function": lambda: len,
    "an error": lambda: ValueError("x"),
    "a negative time": lambda: timedelta(seconds=-1),
    "a moment": lambda: timedelta(microseconds=1),
    "an age": lambda: timedelta.max,
    "no time zone": lambda: datetime(2026, 1, 1),  # noqa: DTZ001 (that is it)
    "the first instant": lambda: datetime.min.replace(tzinfo=UTC),
    "the last instant": lambda: datetime.max.replace(tzinfo=UTC),
    "a receipt of nothing": lambda: "a/b/c/d",
    "a message of nothing": lambda: NewMessage(None),  # type: ignore[arg-type]
}


#: What a new message is made of.
PARTS = [each.name for each in fields(NewMessage)]
FUNCTIONS = ["options_from_session", "progress", "register", "watch"]
PRODUCERS = {Producer, AsyncProducer}
BY_HTTP = {HttpQueue, AsyncHttpQueue}
#: Of a queue, as a gateway answers.
DEFINITION = queue_json(QueueDefinition("acme:q", 1, created_at=datetime(2026, 1, 1, tzinfo=UTC)))


def of_message(part: str, make: Callable[[], Any]) -> Callable[[], NewMessage]:
    """A message of which a part is bad."""
    return lambda: NewMessage(**({"value": "v"} | {part: make()}))


@cache
def furnished() -> tuple[MemoryStore, Message, Survey]:
    """A queue with a schedule, and a group that holds a message; to be copied."""
    store = MemoryStore()
    client = Client.from_store(store)
    client.create_queue("q")
    client.put("q", "first")
    (held,) = client.receive("q", "g")
    client.create_schedule("q", "there", "x", every=60 * SECOND)
    return store, held, client.dead_letters("q")


class Scene:
    """A client with a queue, a group and a message that is held; and good arguments by name."""

    def __init__(self) -> None:
        template, self.held, dead = furnished()
        self.store = store = copy_of(template)
        self.others: list[bytes] = []
        self.client = Client.from_store(store)
        self.good: dict[str, Any] = {
            "action": Action("release"),
            "across_accounts": True,
            "ahead": PrefetchBudget(),
            "drop_columns": True,
            "bucket_size": 64,
            "changes": {"team": "payments"},
            "by": SECOND,
            "chunk_size": 8,
            "dead_letter_queue": "d",
            "delay": SECOND,
            "drop_dead": False,
            "dry_run": True,
            "expire_after": 60 * SECOND,
            "force": True,
            "found": dead,
            "group": "g",
            "headers": {"a": "b"},
            "how": "drop",
            "on_dead": "continue",
            "idempotency_key": None,
            "keep_settled": 60 * SECOND,
            "history": 60 * SECOND,
            "attempt": None,
            "deduplicate": 60 * SECOND,
            "unique_per": "key",
            "unique_id": None,
            "schema": "a int, b string",
            "key": b"k",
            "lease": SECOND,
            "limit": 3,
            "linger": SECOND,
            "longest": SECOND,
            "make_group": True,
            "max": 2,
            "max_batch": 5,
            "max_bytes": 500,
            "max_deliveries": 3,
            "message": self.held,
            "monoton": 0,
            "messages": ["a", NewMessage("b")],
            "order": "none",
            "partition": None,
            "partitions": 2,
            "prefix": "q",
            "queue": "q",
            "rate": 5.0,
            "reason": "bad",
            "receipts": [Receipt.parse(self.held.receipt)],
            "since": datetime(2026, 1, 1, tzinfo=UTC),
            "start": "earliest",
            "store": store,
            "threads": 1,
            "to": "earliest",
            "txn_app_id": None,
            "txn_version": None,
            "until": datetime(2026, 1, 1, tzinfo=UTC),
            "value": b"v",
            "visible_at": None,
            "wait": timedelta(0),
            "request": LeaseRequest(max_messages=1),
            "only_news": True,
            "name": "s",
            "cron": None,
            "every": 60 * SECOND,
            "zone": "UTC",
            "end": datetime(2040, 1, 1, tzinfo=UTC),
            "count": 3,
            "catch_up": 3,
            "jitter": SECOND,
            "ticks": 2,
        }
        self.of_schedule: dict[str, Any] = {
            "message": "{{tick}}",
            "start": datetime(2039, 1, 1, tzinfo=UTC),
            "key": "k",
            "ahead": SECOND,
        }

    def stored(self) -> list[bytes]:
        """What is in the queue, but for what others have put."""
        found = [each.value for each in self.client.peek("q", max=1000)]
        return [each for each in found if each not in self.others]

    def arguments(self, of: type, name: str, method: Callable[..., Any]) -> dict[str, Any]:
        """Good ones for all that it takes."""
        good = {each: self.good[each] for each in parameters(method)}
        if "schedule" in name:
            good |= {each: self.of_schedule[each] for each in self.of_schedule if each in good}
        if name == "create_queue":
            good |= {"queue": "new"}
        if name in {"schedule", "run_schedule_now", "alter_schedule"} or name.endswith(
            "e_schedule"
        ):
            good |= {"name": "new" if name == "create_schedule" else "there"}
        if name in {"ack", "extend", "reject", "release", "settle"}:
            good["messages"] = [self.held]
        if name == "redrive":
            good |= {"to": None}
        if of in BY_HTTP and "found" in good:
            good["found"] = HttpSurvey("q.dead@1", good["found"].groups)
        if of in PRODUCERS:
            good["message"] = "v"
        return good


def parameters(method: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    found = dict(inspect.signature(method).parameters)
    found.pop("self", None)
    return found


def methods(of: type) -> list[str]:
    return [
        name
        for name, each in inspect.getmembers(of, inspect.isfunction)
        if not name.startswith("_") and parameters(each)
    ]


def bound(method: Callable[..., Any], given: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """Arguments as they are to be passed."""
    args: list[Any] = []
    named: dict[str, Any] = {}
    for name, parameter in parameters(method).items():
        if name not in given:
            continue
        if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
            args += given[name]
        elif parameter.kind is inspect.Parameter.VAR_KEYWORD:
            named |= given[name]
        elif parameter.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD:
            args.append(given[name])
        else:
            named[name] = given[name]
    return args, named


def cases(of: type) -> Iterator[Any]:
    for name in methods(of):
        for parameter in parameters(getattr(of, name)):
            yield pytest.param(of, name, parameter, id=f"{of.__name__}-{name}-{parameter}")


#: What a gateway answers, by the end of the path.
ANSWERS: dict[str, Any] = {
    "next": 0,
    "seek": {"next": 0},
    "groups": [],
    "stopped": [],
    "resume": {"resumed": 0},
    "dead": [],
    "redrive": {"queues": {}, "missed": 0},
    "purge": {"purged": 0, "missed": 0},
}
STORED = {
    "monoton": 0,
    "message": "a",
    "encoding": "text",
    "key": None,
    "headers": {},
    "publishedAt": "2026-11-20T12:00:00Z",
    "partition": 0,
}


def answer(request: httpx.Request) -> httpx.Response:
    """What a gateway answers, as far as the client looks at it."""
    path = request.url.path
    if path.endswith("/receive"):
        return httpx.Response(204)
    if request.method == "GET" and "/messages" in path:
        return httpx.Response(200, json=[STORED] if path.endswith("/messages") else STORED)
    if path.endswith("/q/purge"):
        return httpx.Response(200, json=DEFINITION)
    told = {"monoton": 0, "start": 0, "stop": 1, "stale": []}
    return httpx.Response(200, json=ANSWERS.get(path.rpartition("/")[2], told))


def of_http_queue(scene: Scene, name: str, args: list[Any], named: dict[str, Any]) -> None:
    with HttpQueue("http://127.0.0.1:1", "acme", "q", key="k") as queue:
        queue._by_process[os.getpid()] = httpx.Client(
            base_url="http://127.0.0.1:1", transport=httpx.MockTransport(answer)
        )
        getattr(queue, name)(*args, **named)


def of_async_http_queue(scene: Scene, name: str, args: list[Any], named: dict[str, Any]) -> None:
    async def run() -> None:
        async with AsyncHttpQueue("http://127.0.0.1:1", "acme", "q", key="k") as queue:
            queue._requests.http = httpx.AsyncClient(
                base_url="http://127.0.0.1:1", transport=httpx.MockTransport(answer)
            )
            await getattr(queue, name)(*args, **named)

    asyncio.run(run())


Call = Callable[[Scene, str, list[Any], dict[str, Any]], object]


def try_each(of: type, name: str, parameter: str, call: Call) -> None:
    method = getattr(of, name)
    kind = parameters(method)[parameter].kind
    bad = SOME if of in DELEGATING else BAD
    if of in PRODUCERS and parameter == "message":
        bad = bad | {
            f"{what} as its {it}": of_message(it, bad[what]) for what in bad for it in PARTS
        }
    for what, make in bad.items():
        scene = Scene()
        given = scene.arguments(of, name, method) | {parameter: make()}
        if kind is inspect.Parameter.VAR_POSITIONAL:
            given[parameter] = [given[parameter]]
        args, named = bound(method, given)
        before = scene.stored()
        try:
            call(scene, name, args, named)
        except CassieqError:
            assert scene.stored() == before, f"{what} for {parameter!r} is refused, but was put"
        except Exception as error:
            raise AssertionError(f"{what} for {parameter!r} raises {error!r}") from error


def of_client(scene: Scene, name: str, args: list[Any], named: dict[str, Any]) -> None:
    getattr(scene.client, name)(*args, **named)


def of_producer(scene: Scene, name: str, args: list[Any], named: dict[str, Any]) -> None:
    with scene.client.producer("q") as producer:
        others = producer.put("others")
        try:
            made = getattr(producer, name)(*args, **named)
            producer.flush()
            if name in {"put", "try_put"}:
                made.result()
        finally:
            assert others.result() == 1, "what others put arrives"
            scene.others = [b"others"]


def of_exchange(scene: Scene, name: str, args: list[Any], named: dict[str, Any]) -> None:
    getattr(scene.client.exchange("q", "g"), name)(*args, **named)


def of_async_client(scene: Scene, name: str, args: list[Any], named: dict[str, Any]) -> None:
    async def run() -> None:
        async with AsyncClient.from_store(scene.store) as client:
            made = getattr(client, name)(*args, **named)
            if name == "producer":
                async with made:
                    pass
            elif inspect.isawaitable(made):
                await made

    asyncio.run(run())


def of_async_producer(scene: Scene, name: str, args: list[Any], named: dict[str, Any]) -> None:
    async def run() -> None:
        async with (
            AsyncClient.from_store(scene.store) as client,
            client.producer("q", linger=timedelta(0)) as producer,
        ):
            made = getattr(producer, name)(*args, **named)
            if inspect.isawaitable(made):
                await made

    asyncio.run(run())


CALLS: dict[type, Call] = {
    Client: of_client,
    Producer: of_producer,
    Exchange: of_exchange,
    AsyncClient: of_async_client,
    AsyncProducer: of_async_producer,
    HttpQueue: of_http_queue,
    AsyncHttpQueue: of_async_http_queue,
}


#: They hand over to the others what they are given.
DELEGATING = {AsyncClient, AsyncHttpQueue, AsyncProducer}
SOME = {
    what: BAD[what]
    for what in ("None", "True", "huge", "half of a pair", "an age", "a hostile object")
}


@pytest.mark.parametrize(("of", "name", "parameter"), [case for of in CALLS for case in cases(of)])
def test_any_argument_is_taken_or_refused(of: type, name: str, parameter: str):
    try_each(of, name, parameter, CALLS[of])


@pytest.mark.parametrize("name", Connection.__annotations__)
def test_any_way_to_connect_is_taken_or_refused(name: str):
    for what, make in BAD.items():
        try:
            connection_options({name: make()})  # type: ignore[misc]
        except CassieqError:
            pass
        except Exception as error:
            raise AssertionError(f"{what} for {name!r} raises {error!r}") from error


@pytest.mark.parametrize(
    "parameter", sorted({*parameters(HttpQueue), "key", "signed_url"} - {"ca_file"})
)
def test_any_gateway_is_taken_or_refused(parameter: str):
    good = {"url": "http://127.0.0.1:1", "account": "acme", "queue": "q"}
    for what, make in BAD.items():
        given = {"key": "k", **good} | {parameter: make()}
        if parameter == "signed_url":
            del given["key"]
        try:
            HttpQueue(**given).close()
        except CassieqError:
            pass
        except Exception as error:
            raise AssertionError(f"{what} for {parameter!r} raises {error!r}") from error


@pytest.mark.parametrize("name", FUNCTIONS)
def test_any_object_is_taken_or_refused_by_what_the_package_offers(name: str):
    for what, make in BAD.items():
        try:
            getattr(cassieq_spark, name)(make())
        except CassieqError:
            pass
        except Exception as error:
            raise AssertionError(f"{what} raises {error!r}") from error


def test_all_that_is_offered_is_tried():
    offered = {getattr(cassieq_spark, name) for name in cassieq_spark.__all__}
    functions = {each.__name__ for each in offered if inspect.isfunction(each)}
    classes = {each for each in offered if inspect.isclass(each)}

    assert functions == set(FUNCTIONS)
    assert {each for each in classes if methods(each)} <= CALLS.keys() | {Progress}
