from __future__ import annotations

import re
from itertools import product
from pathlib import Path

import pytest

from cassieq_spark.errors import OptionError
from cassieq_spark.store.grants import User, grant_statements
from cassieq_spark.store.tables import Table

DOCS = Path(__file__).parents[3] / "docs" / "security.md"


@pytest.mark.parametrize("user", User)
def test_nobody_is_granted_more_than_reading_and_writing_but_the_admin(user: User):
    words = {text.split()[1] for text in grant_statements(user, "r", "queues")}

    assert (words <= {"SELECT", "MODIFY"}) == (user is not User.ADMIN)


def test_a_producer_reads_no_message_and_knows_no_group():
    statements = grant_statements(User.PRODUCER, "r", "queues")

    assert 'GRANT SELECT ON TABLE queues.chunk TO "r"' not in statements
    assert not [text for text in statements if str(Table.GROUP_STATE) in text]


@pytest.mark.parametrize("user", [User.PRODUCER, User.CONSUMER])
def test_neither_producer_nor_consumer_defines_queues_or_takes_the_lock_of_the_repair(user: User):
    statements = grant_statements(user, "r", "queues")

    assert 'GRANT MODIFY ON TABLE queues.queue TO "r"' not in statements
    assert not [text for text in statements if ".lock " in text or ".repair " in text]


def tables_of(user: User) -> set[str]:
    statements = grant_statements(user, "r", "queues")
    return {text.split(".")[1].split()[0] for text in statements}


def test_the_repair_reaches_all_that_a_queue_leaves_and_no_account():
    assert tables_of(User.REPAIR) == set(Table) - {Table.ACCOUNT}


def test_the_gateway_reaches_queues_and_accounts_and_nothing_of_the_repair():
    assert tables_of(User.GATEWAY) == set(Table) - {Table.LOCK, Table.REPAIR}


def test_nobody_but_gateway_and_admin_reaches_accounts():
    users = set(User) - {User.ADMIN}

    assert {user for user in users if Table.ACCOUNT in tables_of(user)} == {User.GATEWAY}


def test_a_viewer_changes_nothing_and_sees_all_but_accounts():
    assert granted(User.VIEWER) == {("SELECT", str(each)) for each in set(Table) - {Table.ACCOUNT}}


def test_the_grants_of_gateway_and_repair_suffice_for_all_but_the_admin():
    both = granted(User.GATEWAY) | granted(User.REPAIR)

    assert all(granted(user) <= both for user in set(User) - {User.ADMIN})


def test_the_name_of_a_role_is_quoted():
    statements = grant_statements(User.ADMIN, 'O"Neil; DROP ROLE x', "queues")

    assert statements[0] == 'GRANT SELECT ON KEYSPACE queues TO "O""Neil; DROP ROLE x"'


def test_a_role_has_a_name():
    with pytest.raises(OptionError, match="needs a name"):
        grant_statements(User.ADMIN, " ", "queues")


def test_the_docs_say_what_each_role_may():
    text = DOCS.read_text(encoding="utf-8")
    rows = re.findall(r"^\| (?:`(\w+)`.*?)? ?\| (\S.*?) \| (.*?) \|$", text, flags=re.MULTILINE)
    told: dict[str, set[tuple[str, str]]] = {}
    user = ""
    for name, permissions, where in rows:
        user = name or user
        if user in set(User):
            tables = re.findall(r"`(\w+)`", where) or [where]
            pairs = product(permissions.split(", "), tables)
            told.setdefault(user, set()).update(pairs)

    assert told == {
        User.PRODUCER: granted(User.PRODUCER),
        User.CONSUMER: granted(User.CONSUMER),
        User.GATEWAY: granted(User.GATEWAY),
        User.REPAIR: granted(User.REPAIR),
        User.VIEWER: granted(User.VIEWER),
        User.ADMIN: {(each, "the keyspace") for each, _ in granted(User.ADMIN)},
    }


def granted(user: User) -> set[tuple[str, str]]:
    """Permission and table of each statement."""
    words = [text.split() for text in grant_statements(user, "r", "queues")]
    return {(each[1], each[4].removeprefix("queues.")) for each in words}
