from __future__ import annotations

import pytest

from cassieq_spark.errors import OptionError
from cassieq_spark.store.connection import ConnectionOptions


def test_contact_points_may_come_with_a_port():
    options = ConnectionOptions(
        contact_points=("a", "b:9043", "::1", "[::1]", "[::1]:9044"), port=1000
    )

    assert options.endpoints == (
        ("a", 1000),
        ("b", 9043),
        ("::1", 1000),
        ("::1", 1000),
        ("::1", 9044),
    )


@pytest.mark.parametrize("point", ["", "a:", ":9042", "a:x", "a:0", "a:70000"])
def test_a_malformed_contact_point_is_refused(point: str):
    with pytest.raises(OptionError, match="contact point"):
        ConnectionOptions(contact_points=(point,))


def test_there_is_at_least_one_contact_point():
    with pytest.raises(OptionError, match="no contact points"):
        ConnectionOptions(contact_points=())


@pytest.mark.parametrize("keyspace", ["", "1a", "Queue", "a-b", 'a"; DROP', "a" * 49])
def test_a_keyspace_has_a_plain_name(keyspace: str):
    with pytest.raises(OptionError, match="keyspace"):
        ConnectionOptions(keyspace=keyspace)


def test_a_password_needs_a_user_name():
    with pytest.raises(OptionError, match="without a user name"):
        ConnectionOptions(password="secret")


def test_the_password_is_never_shown():
    assert "secret" not in repr(ConnectionOptions(username="ann", password="secret"))
