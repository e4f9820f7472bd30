from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest
from click.testing import Result
from rich.console import Console
from typer.testing import CliRunner

from cassieq_spark.cli import app, monitoring
from cassieq_spark.cli.monitoring import Frame, render
from cassieq_spark.errors import ConnectError, NotAppliedError, OptionError, QueueStateError
from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.ledger.publish import publish
from cassieq_spark.monitoring.snapshot import read_snapshot
from cassieq_spark.queues import create_queue, pause_queue
from cassieq_spark.store.memory import MemoryStore
from tests.support.builders import make_clocked_store, make_pending
from tests.unit.monitoring.watched import AilingStore, make_busy_queue


@pytest.fixture
def store() -> MemoryStore:
    store, clock = make_clocked_store()
    make_busy_queue(store)
    clock.advance(timedelta(seconds=30))
    return store


def drawn(frame: Frame, width: int, height: int | None = None) -> list[str]:
    """The frame as lines of text, as wide as the terminal at the most."""
    console = Console(width=width, height=height or 50, color_system=None)
    with console.capture() as capture:
        console.print(render(frame, width, height))
    return [line.rstrip() for line in capture.get().splitlines()]


def test_a_frame_shows_each_group_and_what_it_is_owed(store: MemoryStore):
    headline, titles, line = drawn(Frame(read_snapshot(store)), 100)

    assert headline.endswith("1 queue(s)  repair: none yet")
    cells = dict(zip(titles.split(), line.split(), strict=True))
    assert cells == {
        "queue": "orders",
        "group": "g",
        "in/s": "-",
        "out/s": "-",
        "depth": "7",
        "leased": "2",
        "due": "0",
        "waiting": "0",
        "dead": "0",
        "oldest": "30s",
        "readers": "1",
    }


def test_the_second_frame_has_rates(store: MemoryStore):
    before = read_snapshot(store)
    publish(Ledger(store, before.queues[0].stats.queue_id), make_pending([1_000_000]))

    _, titles, line = drawn(Frame(read_snapshot(store), before), 120)

    cells = dict(zip(titles.split(), line.split(), strict=True))
    assert int(cells["in/s"].replace(",", "")) > 10_000
    assert cells["out/s"] == "0"


@pytest.mark.parametrize("width", [40, 56, 72, 88, 200])
def test_a_frame_fits_the_terminal_and_keeps_what_matters_most(store: MemoryStore, width: int):
    found = drawn(Frame(read_snapshot(store)), width)

    assert len(found) == 3
    assert all(len(line) <= width for line in found)
    assert found[1].split()[:5] == ["queue", "group", "in/s", "out/s", "depth"]
    assert "readers" not in found[1] or width >= 72


def test_long_names_are_cut_and_the_figures_stay():
    store = MemoryStore()
    make_busy_queue(store, "a-name-of-a-queue-that-is-far-too-long-for-this")

    _, titles, line = drawn(Frame(read_snapshot(store)), 44)

    assert titles.split()[-1] == "depth"
    assert line.split()[-1] == "7"
    assert "…" in line


def test_what_does_not_fit_is_counted():
    store = MemoryStore()
    for number in range(30):
        create_queue(store, f"q{number:02d}")

    found = drawn(Frame(read_snapshot(store)), 80, 16)

    assert len(found) <= 16
    assert found[-1] == "and 20 more: choose with --queue NAME"


def test_paused_and_broken_queues_and_an_absent_cassandra_are_seen(store: MemoryStore):
    pause_queue(store, "orders")
    create_queue(store, "broken")
    ailing = AilingStore(store)
    ailing.broken["broken@1"] = NotAppliedError("too few replicas")

    text = "\n".join(drawn(Frame(read_snapshot(ailing), error=ConnectError("away [now]")), 120))

    assert "orders (paused)" in text
    assert "too few replicas" in text
    assert "away [now]" in text


@pytest.fixture
def command(store: MemoryStore, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    monkeypatch.setattr(monitoring, "open_store", lambda _: store)

    def run(*arguments: str) -> Result:
        result = CliRunner().invoke(app, ["top", *arguments])
        if result.exception and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result

    return run


def test_one_frame_can_be_had_without_a_terminal(command: Callable[..., Result]):
    result = command("--once")

    assert result.exit_code == 0
    assert "orders" in result.stdout


def test_without_a_terminal_it_says_how_to_have_one_frame(command: Callable[..., Result]):
    with pytest.raises(OptionError, match="--once"):
        command()


def test_a_queue_that_does_not_exist_is_named(command: Callable[..., Result]):
    with pytest.raises(QueueStateError, match="no queue 'nobody'"):
        command("--once", "--queue", "nobody")


@pytest.mark.parametrize("every", ["soon", "0s", "-1s"])
def test_a_pause_that_is_none_is_refused(command: Callable[..., Result], every: str):
    with pytest.raises(OptionError, match="--every must be a duration such as"):
        command("--once", "--every", every)
