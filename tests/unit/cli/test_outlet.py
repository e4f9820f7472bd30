"""What is known of a reader: whether it has taken what was written to its pipe."""

from __future__ import annotations

import os
import pty
import select
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cassieq_spark.cli import outlet as module
from cassieq_spark.cli.outlet import NotTakenError, Outlet, is_right
from cassieq_spark.signals import Stop


@pytest.fixture
def stop() -> Iterator[Stop]:
    found = Stop()
    yield found
    found.close()


@pytest.fixture
def pipe() -> Iterator[tuple[int, Callable[[], Outlet]]]:
    """The end of the reader, and what makes an outlet of the other end."""
    reader, writer = os.pipe()
    stop = Stop()
    with os.fdopen(writer, "wb", buffering=0) as stream:
        yield reader, lambda: Outlet(stream, stop, lambda: 1.0)
    stop.close()


def test_a_line_is_taken_when_it_was_read(pipe: tuple[int, Callable[[], Outlet]]):
    reader, make = pipe
    thread = threading.Thread(target=make().put, args=(b"one\n",))
    thread.start()

    thread.join(0.2)
    was_taken = not thread.is_alive()
    read = os.read(reader, 100)
    thread.join(20)

    assert (was_taken, read, thread.is_alive()) == (False, b"one\n", False)


def test_a_line_of_which_a_part_was_read_is_not_taken(pipe: tuple[int, Callable[[], Outlet]]):
    reader, make = pipe
    thread = threading.Thread(target=make().put, args=(b"one\n",))
    thread.start()

    os.read(reader, 3)
    thread.join(0.2)
    was_taken = not thread.is_alive()
    os.read(reader, 1)
    thread.join(20)

    assert (was_taken, thread.is_alive()) == (False, False)


@pytest.mark.parametrize(("read", "is_seen"), [(0, False), (2, True)])
def test_a_line_that_was_not_read_when_the_reader_went_is_not_taken(
    pipe: tuple[int, Callable[[], Outlet]], read: int, is_seen: bool
):
    reader, make = pipe
    raised: list[bool] = []

    def put() -> None:
        try:
            make().put(b"one\n")
        except NotTakenError as error:
            raised.append(error.is_seen)

    thread = threading.Thread(target=put)
    thread.start()
    select.select([reader], [], [], 20)
    os.read(reader, read)
    os.close(reader)
    thread.join(20)

    assert raised == [is_seen]


def test_a_reader_that_is_gone_gets_nothing(pipe: tuple[int, Callable[[], Outlet]]):
    reader, make = pipe
    os.close(reader)

    with pytest.raises(NotTakenError) as raised:
        make().put(b"one\n")
    assert not raised.value.is_seen


@pytest.mark.parametrize("size", [10, 100_000])
def test_a_reader_that_does_not_read_does_not_keep_a_signal_from_ending_it(stop: Stop, size: int):
    reader, writer = os.pipe()
    stop.set()

    with (
        os.fdopen(writer, "wb", buffering=0) as stream,
        pytest.raises(NotTakenError),
    ):
        Outlet(stream, stop, lambda: 1.0).put(b"x" * size)
    os.close(reader)


def test_what_has_to_be_done_meanwhile_is_done(stop: Stop):
    reader, writer = os.pipe()
    beats: list[int] = []

    def beat() -> float:
        beats.append(1)
        if len(beats) == 3:
            os.read(reader, 100)
        return 1.0

    with os.fdopen(writer, "wb", buffering=0) as stream:
        Outlet(stream, stop, beat).put(b"one\n")
    os.close(reader)

    assert len(beats) == 3


def test_nothing_waits_longer_than_until_it_has_to_be_done(
    stop: Stop, monkeypatch: pytest.MonkeyPatch
):
    reader, writer = os.pipe()
    waits: list[float] = []

    def wait(*arguments: Any) -> tuple[list[Any], list[Any], list[Any]]:
        waits.append(arguments[-1])
        # The pipe has no room before it is looked at a third time.
        return select.select(*arguments[:3], 0) if len(waits) > 2 else ([], [], [])

    monkeypatch.setattr(module, "select", SimpleNamespace(select=wait))
    monkeypatch.setattr(module, "_PIPE_GAUGES", ())
    with os.fdopen(writer, "wb", buffering=0) as stream:
        Outlet(stream, stop, lambda: 0.01).put(b"one\n")
    os.close(reader)

    assert waits == [0.01] * 3


@pytest.mark.parametrize("data", [[b"one\n"] * 10, [b"x" * 40_000]], ids=["lines", "a long one"])
def test_it_is_done_as_well_while_the_reader_takes_each_part_at_once(
    stop: Stop, data: list[bytes]
):
    reader, writer = os.pipe()
    beats: list[int] = []

    def read() -> None:
        while os.read(reader, 65_536):
            pass

    thread = threading.Thread(target=read)
    thread.start()
    with os.fdopen(writer, "wb", buffering=0) as stream:
        out = Outlet(stream, stop, lambda: beats.append(1) or 1.0)
        for each in data:
            out.put(each)
    thread.join(20)
    os.close(reader)

    assert len(beats) >= 10


def test_a_file_takes_what_is_written(stop: Stop, tmp_path: Path):
    with (tmp_path / "out").open("wb") as stream:
        Outlet(stream, stop, lambda: 1.0).put(b"x" * 100_000)

    assert (tmp_path / "out").read_bytes() == b"x" * 100_000


def test_a_terminal_takes_what_is_written(stop: Stop):
    master, slave = pty.openpty()

    with os.fdopen(slave, "wb", buffering=0) as stream:
        out = Outlet(stream, stop, lambda: 1.0)
        out.put(b"one\n")
        shown, is_terminal = os.read(master, 100), out.is_terminal
    os.close(master)

    assert (is_terminal, shown) == (True, b"one\r\n")


def test_a_gauge_is_used_only_if_it_proves_right():
    assert any(is_right(gauge, module._pipe) for gauge in module._PIPE_GAUGES)
    assert any(is_right(gauge, module._sockets) for gauge in module._SOCKET_GAUGES)
    assert not is_right(lambda _: 0, module._pipe)
    assert not is_right(lambda _: 1, module._pipe)


def test_where_none_proves_right_a_pipe_takes_what_is_written(
    pipe: tuple[int, Callable[[], Outlet]], monkeypatch: pytest.MonkeyPatch
):
    reader, make = pipe
    monkeypatch.setattr(module, "_PIPE_GAUGES", (lambda _: 0,))

    make().put(b"one\n")

    assert os.read(reader, 100) == b"one\n"
    os.close(reader)
