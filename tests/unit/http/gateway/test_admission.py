from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.requests import Request

from cassieq_spark.http.serving.bodies import ADMIN, WHOLE, Body, Pool, Sender
from cassieq_spark.http.serving.errors import RefusedError
from cassieq_spark.settings.gateway import Limits

SENDERS = [Sender(account, key) for account in "abc" for key in ("primary", "secondary")]
STEPS = st.lists(st.tuples(st.sampled_from([*SENDERS, ADMIN]), st.integers(-3, 12)), max_size=200)


def pool(in_all: int, of_account: int = 1000, of_key: int = 1000) -> Pool:
    return Pool("requests", "requests under way", in_all, of_account, of_key)


def is_taken(some: Pool, sender: Sender, count: int) -> bool:
    try:
        some.take(sender, count)
    except RefusedError:
        return False
    return True


def fill(some: Pool, sender: Sender) -> tuple[int, RefusedError]:
    for count in range(10_000):
        try:
            some.take(sender)
        except RefusedError as error:
            return count, error
    raise AssertionError("there is no end to it")


@given(STEPS, st.integers(1, 60), st.integers(1, 40), st.integers(1, 30))
def test_whatever_is_taken_no_quota_is_exceeded_and_nothing_is_forgotten(
    steps: list[tuple[Sender, int]], in_all: int, of_account: int, of_key: int
):
    some = pool(in_all, of_account, of_key)
    held: Counter[Sender] = Counter()

    for sender, count in steps:
        if count < 0:
            back = min(held[sender], -count)
            if back:
                some.give(sender, back)
                held[sender] -= back
            continue
        of_its_account = sum(held[each] for each in SENDERS if each.account == sender.account)
        if not is_taken(some, sender, count):
            # Not without a reason.
            assert (
                sum(held.values()) + count + of_its_account > in_all
                or (sender is not ADMIN and of_its_account + count > of_account)
                or (sender is not ADMIN and held[sender] + count > of_key)
            )
        else:
            held[sender] += count
        assert some.taken == sum(held.values()) <= in_all
        for each in SENDERS:
            assert held[each] <= of_key
            assert sum(held[it] for it in SENDERS if it.account == each.account) <= of_account

    for sender, count in held.items():
        if count:
            some.give(sender, count)
    assert some.taken == 0
    fill(some, SENDERS[0])


def test_each_account_leaves_as_much_as_it_has():
    some = pool(100)

    taken = [fill(some, Sender(account, "primary"))[0] for account in "abcdef"]

    assert taken == [50, 25, 13, 6, 3, 2]
    assert fill(some, Sender("g", "primary"))[0] > 0


def test_all_keys_of_an_account_count():
    some = pool(100)

    first, _ = fill(some, Sender("a", "primary"))
    second, refusal = fill(some, Sender("a", "secondary"))

    assert (first, second) == (50, 0)
    assert refusal.quota == ("requests", "share", 100)
    assert "account 'a' has 50 requests under way" in str(refusal)


@pytest.mark.parametrize(
    ("of_account", "of_key", "of", "limit"), [(10, 50, "account", 10), (50, 10, "key", 10)]
)
def test_a_refusal_names_the_quota_and_its_owner(
    of_account: int, of_key: int, of: str, limit: int
):
    some = pool(1000, of_account, of_key)

    count, refusal = fill(some, Sender("a", "primary"))

    assert count == 10
    assert refusal.quota == ("requests", of, limit)
    assert refusal.headers == {"Retry-After": "1"}


def test_the_administrator_takes_what_is_left():
    some = pool(100)
    fill(some, Sender("a", "primary"))

    count, refusal = fill(some, ADMIN)

    assert count == 50
    assert refusal.quota == ("requests", "all", 100)


def test_who_has_signed_a_body_answers_for_its_bytes():
    stranger, signer = Sender("address 127.0.0.1", ""), Sender("a", "primary")
    some, strangers = pool(100, of_key=12), pool(100)
    request = Request({"type": "http", "headers": [], WHOLE: True}, lambda: arrived(b"x" * 10))
    body = Body(strangers, Limits(), request, stranger, 20)
    asyncio.run(body.read())

    body.hand_over(signer, some)

    assert strangers.taken == 0
    assert not is_taken(some, signer, 3)
    body.release()
    assert some.taken == 0


def test_who_has_signed_no_body_answers_for_no_bytes():
    some = pool(100)
    request = Request({"type": "http", "headers": [], WHOLE: True}, lambda: arrived(b""))
    body = Body(some, Limits(), request, Sender("address 127.0.0.1", ""), 20)
    asyncio.run(body.read())

    body.hand_over(Sender("a", "primary"), some)

    body.release()
    assert some.taken == 0


async def arrived(body: bytes) -> dict[str, Any]:
    return {"type": "http.request", "body": body}
