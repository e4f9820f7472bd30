from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from cassieq_spark import backoff
from cassieq_spark.errors import ExistsError, NotFoundError, OptionError, QueueStateError
from cassieq_spark.http.accounts import ALL_RIGHTS, Accounts, Right, Secrets
from cassieq_spark.store.memory import MemoryStore
from cassieq_spark.store.protocol import Delete, Insert, Update, When, partition_of_account
from cassieq_spark.store.tables import Table
from cassieq_spark.testing.faults import Fault, FaultyStore

OLD, NEW = "old-secret-" * 3, "new-secret-" * 3


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backoff, "_LONGEST_PAUSE", 0.0)


@pytest.fixture
def store() -> FaultyStore:
    return FaultyStore(MemoryStore())


@pytest.fixture
def accounts(store: FaultyStore) -> Accounts:
    return Accounts(store, Secrets((OLD,)))


def keys_of(accounts: Accounts, name: str) -> dict[str, str | None]:
    return {each.name: each.key for each in accounts.read(name).keys}


def test_an_account_begins_with_two_keys_that_no_other_has(accounts: Accounts):
    made = accounts.create("acme")
    other = accounts.create("other")

    keys = [each.key for each in (*made.keys, *other.keys)]
    assert [each.name for each in made.keys] == ["primary", "secondary"]
    assert len(set(keys)) == 4
    assert {len(str(key)) for key in keys} == {86}, "64 bytes, as CassieQ's"
    assert accounts.list() == [made, other]


def test_no_key_is_in_the_store(accounts: Accounts, store: FaultyStore):
    keys = [str(each.key) for each in accounts.create("acme").keys]

    told = str([list(row.values()) for row in store.scan(Table.ACCOUNT)])
    assert not [key for key in keys if key[:10] in told]
    assert OLD not in told


def test_whoever_has_the_store_and_not_the_secret_has_no_key(
    accounts: Accounts, store: FaultyStore
):
    accounts.create("acme")

    assert keys_of(Accounts(store, Secrets((NEW,))), "acme") == {
        "primary": None,
        "secondary": None,
    }


def test_a_secret_is_replaced_while_both_are_there(accounts: Accounts, store: FaultyStore):
    before = accounts.create("acme").keys[0].key
    both = Accounts(store, Secrets((NEW, OLD)))
    after = both.add_key("acme", "next").key

    assert keys_of(both, "acme")["primary"] == before
    assert keys_of(Accounts(store, Secrets((NEW,))), "acme") == {
        "next": after,
        "primary": None,
        "secondary": None,
    }


def row_of(store: FaultyStore) -> dict[str, Any]:
    (row,) = store.scan(Table.ACCOUNT)
    return {name: row[name] for name in ("status", "version", "keys", "seal", "secret")}


def write(store: FaultyStore, **values: Any) -> None:
    """As a role of Cassandra that may MODIFY the table, and has no secret."""
    now = When("version", "=", row_of(store)["version"])
    assert store.cas(partition_of_account("acme"), [Update((), values, (now,))])


@pytest.mark.parametrize(
    "change",
    [
        lambda row: {"keys": row["keys"].replace('"rights":"p"', '"rights":"rpuagcdm"')},
        lambda row: {"keys": row["keys"].replace('"queue":"orders"', '"queue":null')},
        lambda row: {"keys": row["keys"].replace('"2026-', '"2126-', 1)},
        lambda row: {"keys": row["keys"].replace('"name":"narrow"', '"name":"other"')},
        lambda _: {"status": "active "},
        lambda row: {"version": row["version"] + 1},
        lambda _: {"seal": "none"},
        lambda _: {"keys": "[]"},
        lambda _: {"keys": '{"a": [{}]}'},
        lambda _: {"keys": '[{"name": 1}]'},
    ],
    ids=range(10),
)
def test_what_is_changed_in_the_table_lets_nobody_in(
    accounts: Accounts, store: FaultyStore, change: Callable[[dict[str, Any]], dict[str, Any]]
):
    accounts.create("acme")
    end = datetime(2026, 12, 24, tzinfo=UTC)
    accounts.add_key("acme", "narrow", rights={Right.PUT_MESSAGE}, queue="orders", expires_at=end)
    changed = change(row_of(store))
    assert row_of(store).items() & changed.items() != changed.items()

    write(store, **changed)

    for reader in (accounts, Accounts(store, Secrets((OLD,)))):
        found = reader.find("acme")
        assert found is not None
        assert {each.key for each in found.keys} <= {None}
    with pytest.raises(QueueStateError, match="is sealed with a secret"):
        accounts.delete_key("acme", "narrow")


def test_a_key_that_was_deleted_does_not_come_back_with_its_row(
    accounts: Accounts, store: FaultyStore
):
    accounts.create("acme")
    accounts.add_key("acme", "third")
    before = row_of(store)
    accounts.delete_key("acme", "third")
    after = row_of(store)

    write(store, keys=before["keys"])
    assert not [each for each in accounts.read("acme").keys if each.key]
    write(store, **before)
    assert not [each for each in accounts.read("acme").keys if each.key], "a gateway remembers"
    accounts.add_key("acme", "fourth")
    assert list(keys_of(accounts, "acme")) == ["fourth"]
    assert row_of(store)["version"] > after["version"]


def test_an_account_that_was_deleted_does_not_come_back_with_its_row(
    accounts: Accounts, store: FaultyStore
):
    accounts.create("acme")
    before = row_of(store)
    accounts.begin_deletion("acme")
    accounts.end_deletion("acme")

    write(store, status="active")
    assert not [each for each in accounts.read("acme").keys if each.key]
    write(store, **before)
    assert not [each for each in accounts.read("acme").keys if each.key]


def test_a_row_that_somebody_emptied_is_told(accounts: Accounts, store: FaultyStore):
    accounts.create("acme")
    store.cas(partition_of_account("acme"), [Delete(())])
    store.cas(partition_of_account("acme"), [Insert((), {"status": "active"}, if_absent=True)])

    with pytest.raises(QueueStateError, match="changed by hand"):
        accounts.find("acme")


def test_a_key_that_is_made_anew_is_another_one(accounts: Accounts):
    first = {each.name: each.key for each in accounts.create("acme").keys}["primary"]
    accounts.delete_key("acme", "primary")
    accounts.delete_key("acme", "primary")

    assert accounts.add_key("acme", "primary").key != first


def test_a_key_may_do_less_for_a_time(accounts: Accounts):
    accounts.create("acme")
    until = datetime(2026, 12, 24, tzinfo=UTC)

    made = accounts.add_key(
        "acme", "readers", rights={Right.READ_MESSAGE}, queue="orders", expires_at=until
    )

    assert (made.rights, made.queue, made.expires_at) == ({Right.READ_MESSAGE}, "orders", until)
    assert not made.runs(until)
    assert accounts.read("acme").keys[0].rights == ALL_RIGHTS


@pytest.mark.parametrize("fault", Fault)
def test_a_lost_answer_makes_one_account_and_one_key(
    accounts: Accounts, store: FaultyStore, fault: Fault
):
    store.fault = fault
    made = accounts.create("acme")
    store.fault = fault
    key = accounts.add_key("acme", "third")

    assert accounts.read("acme").keys == (*made.keys[:2], key)
    with pytest.raises(ExistsError):
        accounts.create("acme")
    with pytest.raises(ExistsError):
        accounts.add_key("acme", "third")


@pytest.mark.parametrize("fault", [None, *Fault])
def test_an_account_that_is_being_deleted_lets_nobody_in_and_is_forgotten_in_the_end(
    accounts: Accounts, store: FaultyStore, fault: Fault | None
):
    accounts.create("acme")
    store.fault = fault
    accounts.begin_deletion("acme")

    assert not accounts.read("acme").is_active
    with pytest.raises(NotFoundError):
        accounts.add_key("acme", "third")
    with pytest.raises(ExistsError):
        accounts.create("acme")
    store.fault = fault
    accounts.end_deletion("acme")
    assert accounts.find("acme") is None
    assert accounts.create("acme").is_active


@pytest.mark.parametrize(
    "call",
    [
        lambda accounts: accounts.read("nobody"),
        lambda accounts: accounts.add_key("nobody", "k"),
        lambda accounts: accounts.delete_key("nobody", "k"),
        lambda accounts: accounts.begin_deletion("nobody"),
    ],
    ids=["read", "add_key", "delete_key", "begin_deletion"],
)
def test_an_account_that_does_not_exist_is_told_as_such(
    accounts: Accounts, call: Callable[[Accounts], object]
):
    with pytest.raises(NotFoundError, match="nobody"):
        call(accounts)


@pytest.mark.parametrize("name", ["", "a:b", "a/b", "-a", "a" * 51, "ä"])
def test_what_can_not_be_a_name_is_refused(accounts: Accounts, name: str):
    with pytest.raises(OptionError, match="not valid"):
        accounts.create(name)


def test_a_key_that_allows_nothing_is_refused(accounts: Accounts):
    accounts.create("acme")

    with pytest.raises(OptionError, match="at least one right"):
        accounts.add_key("acme", "third", rights=())


@pytest.mark.parametrize("text", ["", "\n", "short", f"{OLD}\nshort", "# only a comment"])
def test_a_secret_that_can_be_guessed_is_refused(text: str):
    with pytest.raises(OptionError, match="at least 32 characters"):
        Secrets.parse(text)


@pytest.mark.parametrize(
    "line",
    [
        "/etc/cassieq/the-secret-of-the-gateways",
        "the secret of the gateways, made in november",
        "-" * 40,
        "// the secret of the gateways: keep it safe",
    ],
)
def test_a_line_that_is_something_else_is_no_secret(line: str):
    for text in (line, f"{line}\n{OLD}", f"{OLD}\n{line}"):
        with pytest.raises(OptionError, match=r"secret \d of the gateway is not valid") as refused:
            Secrets.parse(text)
        assert line not in str(refused.value)


def test_a_comment_is_no_secret():
    plain = Secrets.parse(f"{NEW}\n{OLD}\n")

    assert Secrets.parse(f"# made in november, for all\n\n {NEW}\n  # before\n{OLD}") == plain


def test_the_newest_secret_alone_makes_a_key_of_the_admin():
    old, both = Secrets((OLD,)), Secrets((NEW, OLD))

    assert both.admin_key == Secrets((NEW,)).admin_key
    assert both.admin_key != old.admin_key


def test_secrets_do_not_show():
    assert OLD not in repr(Secrets.parse(f"{OLD}\n{NEW}\n"))
