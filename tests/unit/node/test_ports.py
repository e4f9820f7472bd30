from __future__ import annotations

import socket

import pytest

from cassieq_spark.errors import SetupError
from cassieq_spark.node.ports import PortClaims, is_free

ADDRESSES = ["127.0.0.1", "127.0.0.2"]


def claims_with(folder, *, used=()):
    return PortClaims(folder, free=lambda address, port: (address, port) not in used)


def test_the_first_choice_is_taken_if_it_is_free(tmp_path):
    assert claims_with(tmp_path).claim(ADDRESSES, [9042, 19042]) == 9042


def test_a_port_in_use_on_any_address_is_passed_over(tmp_path):
    claims = claims_with(tmp_path, used=[("127.0.0.2", 9042)])

    assert claims.claim(ADDRESSES, [9042, 19042]) == 19042


def test_two_clusters_never_get_the_same_port(tmp_path):
    first, second = claims_with(tmp_path), claims_with(tmp_path)

    assert first.claim(ADDRESSES, [1, 2]) == 1
    assert second.claim(ADDRESSES, [1, 2]) == 2


def test_a_released_port_can_be_had_again(tmp_path):
    first, second = claims_with(tmp_path), claims_with(tmp_path)
    first.claim(ADDRESSES, [1])
    first.release()
    first.release()

    assert second.claim(ADDRESSES, [1]) == 1


def test_the_error_names_the_ports_and_the_addresses(tmp_path):
    claims = claims_with(tmp_path, used=[("127.0.0.1", 9042)])

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
