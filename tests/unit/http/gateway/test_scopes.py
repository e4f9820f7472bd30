"""Whose idempotency keys are whose."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from cassieq_spark.http.accounts import ALL_RIGHTS, AccountKey, Permission, Right
from cassieq_spark.http.gateway.authorization import scope_of

PUT = frozenset({Right.PUT_MESSAGE})
PRIMARY, SECONDARY = AccountKey("primary", "k"), AccountKey("secondary", "k")
#: Who may put, and no more.
PUTTER = AccountKey("shop", "k", rights=PUT)
OTHER = AccountKey("mill", "k", rights=PUT)
OF_QUEUE = AccountKey("inbox", "k", queue="inbox")
UNTIL = datetime(2027, 1, 1, tzinfo=UTC)


def scope(key: AccountKey, permission: Permission | None = None) -> str:
    return scope_of(key, permission)


def test_the_owners_keys_share_theirs_so_that_either_may_repeat_a_put():
    assert scope(PRIMARY) == scope(SECONDARY) == scope(AccountKey("third", "k"))


def test_a_url_for_everything_is_as_good_as_a_key_for_everything():
    assert scope(PRIMARY, Permission("acme", ALL_RIGHTS, end=UNTIL)) == scope(PRIMARY)


@pytest.mark.parametrize("key", [PUTTER, OTHER, OF_QUEUE])
def test_a_key_that_may_do_less_has_a_scope_of_its_own(key: AccountKey):
    others = {scope(each) for each in (PRIMARY, PUTTER, OTHER, OF_QUEUE) if each is not key}

    assert scope(key) not in others


def test_a_key_that_is_made_anew_under_its_name_keeps_its_scope():
    assert scope(AccountKey("shop", "one", PUT)) == scope(AccountKey("shop", "two", PUT))


def test_urls_of_equal_text_share_theirs_whichever_of_the_owners_keys_has_signed_them():
    url = Permission("acme", PUT, "orders", end=UNTIL)

    assert scope(PRIMARY, url) == scope(SECONDARY, url)


@pytest.mark.parametrize(
    "other",
    [
        Permission("acme", PUT, "orders"),
        Permission("acme", PUT, "letters", end=UNTIL),
        Permission("acme", PUT | {Right.READ_MESSAGE}, "orders", end=UNTIL),
    ],
)
def test_urls_of_other_texts_have_others(other: Permission):
    url = Permission("acme", PUT, "orders", end=UNTIL)

    scopes = {scope(PRIMARY), scope(PUTTER), scope(PRIMARY, url), scope(PRIMARY, other)}
    assert len(scopes) == 4


def test_nobody_gets_into_the_scope_of_another_url_by_signing_its_text():
    url = Permission("acme", PUT, "orders", end=UNTIL)

    scopes = {scope(PRIMARY, url), scope(PUTTER, url), scope(OTHER, url), scope(OF_QUEUE, url)}
    assert len(scopes) == 4


def test_no_scope_is_the_beginning_of_another():
    names = [AccountKey(name, "k", rights=PUT) for name in ("account", "key", "url", "a", "a-b")]
    scopes = [f"{scope(key)}/" for key in (PRIMARY, *names)]

    assert not [(a, b) for a in scopes for b in scopes if a != b and b.startswith(a)]
