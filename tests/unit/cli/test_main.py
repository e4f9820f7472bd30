from __future__ import annotations

import sys
from collections.abc import Callable

import pytest

from cassieq_spark import cli
from cassieq_spark.errors import SetupError
from cassieq_spark.queues import create_queue
from cassieq_spark.store.memory import MemoryStore


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Callable[..., object]:
    def run(*arguments: str, raising: BaseException | None = None) -> object:
        def fail(**_: object) -> None:
            raise raising

        monkeypatch.setattr("sys.argv", ["cassieq", *arguments])
        if raising:
            monkeypatch.setattr(cli, "app", fail)
        with pytest.raises(SystemExit) as ended:
            cli.main()
        return ended.value.code

    return run


def test_our_errors_are_one_line_and_no_stack_trace(
    run: Callable[..., object], capsys: pytest.CaptureFixture[str]
):
    assert run(raising=SetupError("no [red] Java " + "x" * 200)) == 1

    assert capsys.readouterr().err == f"cassieq: no [red] Java {'x' * 200}\n"


def test_wrong_usage_exits_with_2(run: Callable[..., object]):
    assert run("node", "up", "--nodes", "many") == 2


def test_without_standard_input_nobody_can_be_asked(
    run: Callable[..., object], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    store = MemoryStore()
    create_queue(store, "orders")
    monkeypatch.setattr("cassieq_spark.cli.queue.open_store", lambda _: store)
    monkeypatch.setattr("sys.stdin", None)

    assert run("queue", "purge", "orders") == 2
    sys.stdin.close()
    assert "there is no terminal to ask on: " in capsys.readouterr().err


def test_without_standard_output_nothing_is_done(
    run: Callable[..., object], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr("sys.stdout", None)

    assert run("receive", "orders", "--group", "g") == 2
    assert capsys.readouterr().err.startswith("cassieq: standard output is closed")


def test_errors_are_told_to_nobody_without_standard_error(
    run: Callable[..., object], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("sys.stderr", None)

    assert run(raising=SetupError("no Java")) == 1
    sys.stderr.close()


def test_an_interrupt_exits_with_130(run: Callable[..., object]):
    assert run(raising=KeyboardInterrupt()) == 130


def test_the_help_names_the_sub_commands(
    run: Callable[..., object], capsys: pytest.CaptureFixture[str]
):
    assert run("--help") == 0

    assert "node" in capsys.readouterr().out
