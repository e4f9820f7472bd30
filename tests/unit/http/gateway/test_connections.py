from __future__ import annotations

import pytest

from cassieq_spark.errors import OptionError
from cassieq_spark.http.serving.connections import ConnectionLimiter
from cassieq_spark.settings.gateway import Limits


def let_in(connection_limiter: ConnectionLimiter, *hosts: str | None) -> list[str | None]:
    """Whose quota refused each; None if it was let in."""
    refusals = [connection_limiter.enter(host) for host in hosts]
    return [each.quota.of if each and each.quota else None for each in refusals]


def test_addresses_are_counted_each_by_itself():
    connection_limiter = ConnectionLimiter(Limits(address_connections=2))

    assert let_in(connection_limiter, *["10.0.0.1"] * 3, "10.0.0.2") == [
        None,
        None,
        "address",
        None,
    ]
    for _ in range(2):
        connection_limiter.leave("10.0.0.1")
    assert let_in(connection_limiter, "10.0.0.1", "10.0.0.1") == [None, "address"]
    assert connection_limiter.count == 4


def test_a_network_of_ipv6_counts_as_one_address():
    connection_limiter = ConnectionLimiter(Limits(address_connections=2))

    hosts = ["2001:db8::1", "2001:db8::2:3", "2001:db8::4%eth0", "2001:db8:0:1::1"]

    assert let_in(connection_limiter, *hosts) == [None, None, "address", None]
    # As an IPv4 client looks to a socket of both families.
    assert let_in(connection_limiter, *["::ffff:10.0.0.1"] * 2, "::ffff:10.0.0.2") == [None] * 3


def test_proxies_and_sockets_without_an_address_count_in_all_only():
    connection_limiter = ConnectionLimiter(
        Limits(address_connections=1, connections=5), ["10.0.0.0/8", "::1"]
    )

    told = let_in(connection_limiter, "10.1.2.3", "10.1.2.3", "::1", "::1", None, None)

    assert told == [None] * 5 + ["all"]


def test_a_proxy_has_to_be_an_address():
    with pytest.raises(OptionError, match=r"such as 10\.0\.0\.0/8, not 'proxy\.example'"):
        ConnectionLimiter(Limits(), ["proxy.example"])
