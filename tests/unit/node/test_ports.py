from __future__ import annotations

import os
import socket
import stat
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


def test_a_link_in_the_place_of_a_lock_is_neither_followed_nor_emptied(tmp_path: Path):
    precious = tmp_path / "precious"
    precious.write_text("data")
    folder = tmp_path / "ports"
    folder.mkdir(mode=0o700)
    (folder / "9042").symlink_to(precious)

    with pytest.raises(SetupError, match="Cannot keep locks of ports in"):
        PortClaims(folder, free=lambda *_: True).claim(ADDRESSES, [9042])

    assert precious.read_text() == "data"


def test_a_link_in_the_place_of_the_folder_is_not_followed(tmp_path: Path):
    others = tmp_path / "others"
    others.mkdir(mode=0o700)
    (tmp_path / "ports").symlink_to(others)

    with pytest.raises(SetupError, match="set TMPDIR to a folder that is yours alone"):
        PortClaims(tmp_path / "ports", free=lambda *_: True).claim(ADDRESSES, [9042])

    assert list(others.iterdir()) == []


def test_a_folder_that_others_may_write_to_is_refused(tmp_path: Path):
    folder = tmp_path / "ports"
    folder.mkdir()
    folder.chmod(0o777)

    with pytest.raises(SetupError, match="others may write there"):
        PortClaims(folder, free=lambda *_: True).claim(ADDRESSES, [9042])


def test_a_folder_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    stranger = os.getuid() + 1
    monkeypatch.setattr(os, "getuid", lambda: stranger)

    with pytest.raises(SetupError, match=f"it belongs to user {stranger - 1}"):
        PortClaims(tmp_path, free=lambda *_: True).claim(ADDRESSES, [9042])


def test_a_lock_is_for_its_user_alone_and_what_is_in_it_stays(tmp_path: Path):
    folder = tmp_path / "ports"
    claims = PortClaims(folder, free=lambda *_: True)
    try:
        claims.claim(ADDRESSES, [9042])
    finally:
        claims.release()
    lock = folder / "9042"
    lock.write_text("kept")
    again = PortClaims(folder, free=lambda *_: True)
    try:
        again.claim(ADDRESSES, [9042])
    finally:
        again.release()

    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE(lock.stat().st_mode) == 0o600
    assert lock.read_text() == "kept"


def test_a_listening_port_is_not_free():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]

        assert not is_free("127.0.0.1", port)
        assert is_free("127.0.0.2", port)


def test_an_address_that_this_machine_lacks_is_said_so():
    with pytest.raises(SetupError, match=r"does not answer to 192\.0\.2\.1"):
        is_free("192.0.2.1", 9042)
