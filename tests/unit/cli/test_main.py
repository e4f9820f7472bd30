from __future__ import annotations

from collections.abc import Callable

import pytest

from cassieq_spark import cli
from cassieq_spark.errors import SetupError


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


def test_an_interrupt_exits_with_130(run: Callable[..., object]):
    assert run(raising=KeyboardInterrupt()) == 130


def test_the_help_names_the_sub_commands(
    run: Callable[..., object], capsys: pytest.CaptureFixture[str]
):
    assert run("--help") == 0

    assert "node" in capsys.readouterr().out
