from __future__ import annotations

import socket
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from cassieq_spark.errors import SetupError
from cassieq_spark.node.ports import PortClaims, is_free

ADDRESSES = ["127.0.0.1", "127.0.0.2"]


ClaimsWith = Callable[..., PortClaims]


@pytest.fixture
def claims_with(tmp_path: Path) -> Iterator[ClaimsWith]:
    with ExitStack() as held:

        def make(*, used: Collection[tuple[str, int]] = ()) -> PortClaims:
            claims = PortClaims(tmp_path, free=lambda *place: place not in used)
            held.callback(claims.release)
            return claims

        yield make


def test_the_first_choice_is_taken_if_it_is_free(claims_with: ClaimsWith):
    assert claims_with().claim(ADDRESSES, [9042, 19042]) == 9042


def test_a_port_in_use_on_any_address_is_passed_over(claims_with: ClaimsWith):
    claims = claims_with(used=[("127.0.0.2", 9042)])

    assert claims.claim(ADDRESSES, [9042, 19042]) == 19042


def test_two_clusters_never_get_the_same_port(claims_with: ClaimsWith):
    first, second = claims_with(), claims_with()

    assert first.claim(ADDRESSES, [1, 2]) == 1
    assert second.claim(ADDRESSES, [1, 2]) == 2


def test_a_released_port_can_be_had_again(claims_with: ClaimsWith):
    first, second = claims_with(), claims_with()
    first.claim(ADDRESSES, [1])
    first.release()
    first.release()

    assert second.claim(ADDRESSES, [1]) == 1


def test_the_error_names_the_ports_and_the_addresses(claims_with: ClaimsWith):
    claims = claims_with(used=[("127.0.0.1", 9042)])

    with pytest.raises(SetupError, match=r"Port 9042 is in use on 127\.0\.0\.1, 127\.0\.0\.2"):
        claims.claim(ADDRESSES, [9042])


def test_a_listening_port_is_not_free():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]

        assert not is_free("127.0.0.1", port)
        assert is_free("127.0.0.2", port)


def test_an_address_that_this_machine_lacks_is_said_so():
    with pytest.raises(SetupError, match=r"does not answer to 192\.0\.2\.1"):
        is_free("192.0.2.1", 9042)
