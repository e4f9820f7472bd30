from __future__ import annotations

import pytest

from cassieq_spark.errors import OptionError
from cassieq_spark.settings.connection import ConnectionOptions


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


@pytest.mark.parametrize(
    ("point", "told"),
    [
        ("::1:9042", r"write \[::1\]:9042; or, if all of it is the address, \[::1:9042\]$"),
        ("::1:40317", r"write \[::1\]:40317$"),
        ("fe80::1%eth0:9042", r"write \[fe80::1%eth0\]:9042"),
        ("2001:db8:0:0:0:0:0:1:9042", r"write \[2001:db8:0:0:0:0:0:1\]:9042$"),
        ("a:b:c", r"expected host, host:port or \[address\]:port$"),
        ("10.0.0.1:9042:9042", r"expected host, host:port or \[address\]:port$"),
    ],
)
def test_an_address_of_ipv6_with_a_port_needs_brackets(point: str, told: str):
    with pytest.raises(OptionError, match=f"contact point .* is not valid: {told}"):
        ConnectionOptions(contact_points=(point,))


@pytest.mark.parametrize(
    "point", ["::1", "2001:db8::9", "2001:db8:0:0:0:0:0:1234", "fe80::1%eth0"]
)
def test_an_address_of_ipv6_without_a_port_needs_none(point: str):
    assert ConnectionOptions(contact_points=(point,)).endpoints == ((point, 9042),)


def test_a_contact_point_is_shown_so_that_it_can_be_given_again():
    options = ConnectionOptions(contact_points=("::1", "a", "[::2]:9044"))

    assert options.address == "[::1]:9042, a:9042, [::2]:9044"
    again = ConnectionOptions(contact_points=tuple(options.address.split(", ")))
    assert again.endpoints == options.endpoints


def test_there_is_at_least_one_contact_point():
    with pytest.raises(OptionError, match="no contact points"):
        ConnectionOptions(contact_points=())


@pytest.mark.parametrize("keyspace", ["", "1a", "Queue", "a-b", 'a"; DROP', "a" * 49])
def test_a_keyspace_has_a_plain_name(keyspace: str):
    with pytest.raises(OptionError, match="keyspace"):
        ConnectionOptions(keyspace=keyspace)


@pytest.mark.parametrize("version", [3, 6, 65, "4"])
def test_a_protocol_version_is_one_that_is_tested(version: int):
    with pytest.raises(OptionError, match=r"protocol version .* expected 4, .* or 5"):
        ConnectionOptions(protocol_version=version)


def test_a_password_needs_a_user_name():
    with pytest.raises(OptionError, match="a password needs a user name"):
        ConnectionOptions(password="secret")


def test_a_user_name_needs_a_password():
    with pytest.raises(OptionError, match="a user name needs a password"):
        ConnectionOptions(username="ann")


def test_the_password_is_never_shown():
    assert "secret" not in repr(ConnectionOptions(username="ann", password="secret"))


def test_a_reference_is_kept_as_it_is_until_somebody_connects():
    options = ConnectionOptions(username="ann", password="env:NOT_SET_ANYWHERE")

    assert options.password == "env:NOT_SET_ANYWHERE"


def test_a_malformed_reference_is_refused_at_once():
    with pytest.raises(OptionError, match="env:NAME or file:PATH"):
        ConnectionOptions(username="ann", password="env:two words")


@pytest.mark.parametrize(
    "given", [{"ssl": True}, {"ssl_ca_file": "ca.pem"}, {"ssl_cert_file": "own.pem"}]
)
def test_any_setting_of_tls_encrypts(given: dict[str, str | bool]):
    assert ConnectionOptions(**given).encrypted
    assert not ConnectionOptions().encrypted


def test_a_key_needs_its_certificate():
    with pytest.raises(OptionError, match=r"key 'own\.key' comes without its certificate"):
        ConnectionOptions(ssl=True, ssl_key_file="own.key")


def test_host_names_are_checked_unless_told_otherwise_and_only_with_tls():
    assert ConnectionOptions(ssl=True).ssl_check_hostname

    with pytest.raises(OptionError, match="needs an encrypted connection"):
        ConnectionOptions(ssl_check_hostname=False)


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"contact_points": ("10.0.0.1",)}, "contact points"),
        ({"port": 9043}, "a port"),
        ({"local_dc": "dc1"}, "a local data centre"),
        ({"ssl_ca_file": "ca.pem"}, "a CA file"),
        ({"ssl_cert_file": "own.pem"}, "a certificate file"),
        ({"ssl_check_hostname": False}, "no check of host names"),
    ],
)
def test_a_secure_connect_bundle_goes_with_nothing_that_it_says_itself(
    given: dict[str, object], named: str
):
    assert ConnectionOptions(secure_connect_bundle="b.zip", ssl=True).encrypted

    with pytest.raises(OptionError, match=f"leave out: {named}"):
        ConnectionOptions(secure_connect_bundle="b.zip", **given)
