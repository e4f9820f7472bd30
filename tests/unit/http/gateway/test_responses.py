from __future__ import annotations

import asyncio
import threading
from collections import defaultdict
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from cassieq_spark.client import StoredMessage
from cassieq_spark.http.gateway import responses
from cassieq_spark.http.gateway.admission import Admission
from cassieq_spark.http.gateway.requests import ENDPOINTS, Endpoint
from cassieq_spark.http.gateway.responses import (
    LargeResponse,
    answer_with,
    json_array,
    json_object,
    stored_json,
)
from cassieq_spark.http.serving.errors import RefusedError
from cassieq_spark.settings.gateway import Limits
from cassieq_spark.store.memory import MemoryStore
from tests.support.gateway import InProcess

MIB = 1 << 20
NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)


def message(value: bytes, **headers: str) -> StoredMessage:
    return StoredMessage("q", 0, None, value, headers, NOON)


def encoded(messages: Sequence[StoredMessage]) -> bytes:
    return json_array(map(stored_json, messages))


@pytest.fixture
def room() -> Admission:
    return Admission(Limits(held_bytes=8 * MIB))


@pytest.mark.parametrize(
    "value",
    [
        b"\0" * MIB,
        b'"' * MIB,
        (b"\0" + b'"' * 4) * (MIB // 5),
        "\U0001f600".encode() * (MIB // 4),
        bytes(range(256)) * 4096,
    ],
    ids=["controls", "quotes", "both", "emoji", "bytes"],
)
def test_json_takes_less_than_thrice_what_is_stored(value: bytes):
    assert len(encoded([message(value)])) < 3 * len(value)


@pytest.mark.parametrize("value", [b'{"a": "b"}\n' * MIB, b"\x1b[1m", b"a\0b", b"a" * MIB + b"\0"])
def test_what_is_text_for_the_most_part_goes_as_text(value: bytes):
    assert stored_json(message(value))["encoding"] == "text"


def test_a_large_answer_is_encoded_in_a_thread_and_a_small_one_is_not(room: Admission):
    threads: list[threading.Thread] = []

    def encode(messages: Sequence[StoredMessage]) -> bytes:
        threads.append(threading.current_thread())
        return encoded(messages)

    async def ask(*messages: StoredMessage) -> None:
        await answer_with(messages, encode, "application/json", admission=room, account="a")

    asyncio.run(ask(message(b"a")))
    asyncio.run(ask(message(b"a" * MIB)))
    asyncio.run(ask(message(b"a", h="x" * MIB)))

    assert [each is threading.main_thread() for each in threads] == [True, False, False]


def test_a_large_answer_counts_until_it_is_sent(room: Admission):
    sent: list[Any] = []
    counted: list[int] = []

    async def send(part: Any) -> None:
        sent.append(part)
        counted.append(room.answers["a"])

    body = encoded([message(b"a" * MIB)])
    asyncio.run(LargeResponse(200, [], body, room, "a")({}, _nothing, send))

    assert b"".join(part.get("body", b"") for part in sent) == body
    assert [part["more_body"] for part in sent[1:]] == [*[True] * (len(sent) - 2), False]
    assert dict(sent[0]["headers"])[b"content-length"] == str(len(body)).encode()
    assert set(counted) == {len(body)}
    assert not room.answers


def test_who_does_not_read_an_answer_is_cut_off(room: Admission, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(responses, "_PATIENCE", timedelta(milliseconds=1))
    sent: list[Any] = []

    async def send(part: Any) -> None:
        sent.append(part)
        if len(sent) > 2:
            await asyncio.Event().wait()

    asyncio.run(LargeResponse(200, [], b"a" * 4 * MIB, room, "a")({}, _nothing, send))

    assert len(sent) == 3
    assert not room.answers


def test_who_does_not_read_answers_gets_no_more_and_others_do(room: Admission):
    with room.answer("a", 3 * MIB):
        with pytest.raises(RefusedError) as caught:
            room.check_answers("a")
        room.check_answers("b")
        with room.answer("b", 6 * MIB), pytest.raises(RefusedError):
            room.check_answers("c")

    assert caught.value.status == 429
    room.check_answers("a")


def test_objects_are_utf_8():
    assert json_object({"a": "é"}) == '{"a":"é"}'.encode()


async def _nothing() -> Any:
    raise AssertionError


@pytest.fixture(scope="module")
def answering() -> Iterator[InProcess]:
    with InProcess(MemoryStore()) as queues:
        queues.queue("orders")
        yield queues


@pytest.mark.parametrize("endpoint", ENDPOINTS, ids=lambda each: f"{each.method} {each.path}")
def test_no_cache_may_keep_an_answer_and_no_browser_guess_what_it_is(
    endpoint: Endpoint, answering: InProcess
):
    path = endpoint.path.format_map(defaultdict(lambda: "x", account="acme", queue="orders"))

    for key in ("wrong", answering.key):
        request = answering._http.request(
            endpoint.method, path, headers={"Authorization": f"Key {key}"}
        )
        answer = answering._runner.run(request)
        assert answer.headers["cache-control"] == "no-store"
        assert answer.headers["x-content-type-options"] == "nosniff"
