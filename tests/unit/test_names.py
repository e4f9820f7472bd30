"""Names that can be given, and reached."""

from __future__ import annotations

import pytest

from cassieq_spark.errors import OptionError
from cassieq_spark.http.accounts import full_name
from cassieq_spark.http.accounts.account import check_account
from cassieq_spark.model import validate_name


@pytest.mark.parametrize("name", [".", "..", "...", "a/b", "a:b", "", "ä", "a\n", "a" * 141])
def test_an_account_has_no_queue_that_a_url_could_not_name(name: str):
    with pytest.raises(OptionError, match="queue name"):
        full_name("acme", name)


@pytest.mark.parametrize("name", [".a", "..a", "a.", "a..", "-", "_", "a" * 140])
def test_dots_are_fine_beside_others(name: str):
    assert full_name("acme", name) == validate_name("queue", f"acme:{name}")


@pytest.mark.parametrize("kind", ["queue", "group"])
@pytest.mark.parametrize(
    "name", [".", "..", "acme:.", "acme:..", "a:b:...", "", "\ud800", "a" * 201]
)
def test_no_queue_or_group_is_dots_alone_in_its_account(kind: str, name: str):
    with pytest.raises(OptionError, match=f"{kind} name"):
        validate_name(kind, name)


@pytest.mark.parametrize("name", [".", "..", "a:b", "a/b", ""])
def test_no_account_or_key_is_dots_alone(name: str):
    with pytest.raises(OptionError, match="account or key name"):
        check_account(name)


@pytest.mark.parametrize("name", [None, 5, b"q", ["q"]], ids=repr)
def test_a_name_is_text(name: object):
    with pytest.raises(OptionError, match="must be a str"):
        validate_name("queue", name)  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="must be a str"):
        full_name("acme", name)  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="must be a str"):
        check_account(name)  # type: ignore[arg-type]
