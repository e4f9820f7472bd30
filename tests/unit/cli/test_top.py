from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest
from click.testing import Result
from rich.console import Console
from typer.testing import CliRunner

from cassieq_spark.cli import app
from cassieq_spark.cli import top as top_command
from cassieq_spark.cli.top import TopFrame, TopView, keys_of, press, render, settled_view
from cassieq_spark.errors import ConnectError, NotAppliedError, OptionError, QueueStateError
from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.ledger.publish import publish
from cassieq_spark.monitoring.readings import Readings
from cassieq_spark.queues import create_queue, pause_queue
from cassieq_spark.schedules import create_schedule
from cassieq_spark.store.memory import MemoryStore
from tests.support.builders import make_clocked_store, make_group, make_pending, make_request
from tests.support.snapshots import read_snapshot
from tests.unit.monitoring.watched import AilingStore, make_busy_queue


@pytest.fixture
def store() -> MemoryStore:
    store, clock = make_clocked_store()
    make_busy_queue(store)
    clock.advance(timedelta(seconds=30))
    return store


def drawn(
    frame: TopFrame, width: int, height: int | None = None, view: TopView | None = None
) -> list[str]:
    """The frame as lines of text, as wide as the terminal at the most."""
    console = Console(width=width, height=height or 50, color_system=None)
    with console.capture() as capture:
        console.print(render(frame, view or TopView(), width, height))
    return [line.rstrip() for line in capture.get().splitlines()]


def test_a_frame_shows_each_group_and_what_it_is_owed(store: MemoryStore):
    headline, titles, line = drawn(TopFrame(read_snapshot(store)), 100)

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

    _, titles, line = drawn(TopFrame(read_snapshot(store), before), 120)

    cells = dict(zip(titles.split(), line.split(), strict=True))
    assert int(cells["in/s"].replace(",", "")) > 10_000
    assert cells["out/s"] == "0"


def test_a_wide_frame_says_who_has_messages(store: MemoryStore):
    group = make_group(store, read_snapshot(store).queues[0].stats.queue_id)
    for name in ("billing", "audit" * 20):
        group.lease(make_request(stop=10, max_messages=1, by=name))

    _, titles, line = drawn(TopFrame(read_snapshot(store)), 160)

    assert titles.split()[-1] == "holder"
    assert line.endswith(" " + "audit" * 8 + " and 1 more")


@pytest.mark.parametrize("width", [40, 56, 72, 88, 200])
def test_a_frame_fits_the_terminal_and_keeps_what_matters_most(store: MemoryStore, width: int):
    found = drawn(TopFrame(read_snapshot(store)), width)

    assert len(found) == 3
    assert all(len(line) <= width for line in found)
    assert found[1].split()[:5] == ["queue", "group", "in/s", "out/s", "depth"]
    assert "readers" not in found[1] or width >= 72


def test_long_names_are_cut_and_the_figures_stay():
    store = MemoryStore()
    make_busy_queue(store, "a-name-of-a-queue-that-is-far-too-long-for-this")

    _, titles, line = drawn(TopFrame(read_snapshot(store)), 44)

    assert titles.split()[-1] == "depth"
    assert line.split()[-1] == "7"
    assert "…" in line


@pytest.fixture
def many() -> MemoryStore:
    """Thirty queues; the n-th has n messages that a group is owed."""
    store = MemoryStore()
    for number in range(30):
        queue = create_queue(store, f"q{number:02d}")
        make_group(store, queue.queue_id)
        if number:
            publish(Ledger(store, queue.queue_id), make_pending([number]))
    return store


def queues_in(found: list[str]) -> list[str]:
    return [line.split()[0] for line in found[2:-1]]


@pytest.mark.parametrize("height", [4, 8, 24])
@pytest.mark.parametrize("width", [40, 80])
def test_a_frame_fits_a_small_terminal_and_tells_the_keys(
    many: MemoryStore, width: int, height: int
):
    found = drawn(TopFrame(read_snapshot(many)), width, height)

    assert len(found) == height
    assert all(len(line) <= width for line in found)
    assert found[-1].startswith(f"1-{height - 3} of 30  ↑↓ scroll  s sort")


def test_keys_scroll_no_further_than_there_are_lines(many: MemoryStore):
    frame, view = TopFrame(read_snapshot(many)), TopView()

    def shown_after(key: str) -> str:
        nonlocal view
        view = settled_view(press(view, key, 80, 10), 30, 10)
        found = queues_in(drawn(frame, 80, 13, view))
        assert len(found) == 10
        return found[0]

    keys = ["down", "page down", "page down", "down", "up", "home", "up", "end", "page up"]
    assert [shown_after(key) for key in keys] == [
        *("q01", "q11", "q20", "q20", "q19", "q00", "q00", "q20", "q10"),
    ]


def test_keys_sort_by_one_column_after_the_other_and_turn_the_order_round(many: MemoryStore):
    frame, view = TopFrame(read_snapshot(many)), TopView()
    for key in "sss":
        view = press(view, key, 80, 10)

    largest = drawn(frame, 80, 13, view)
    smallest = drawn(frame, 80, 13, press(view, "r", 80, 10))

    assert "depth↓" in largest[1]
    assert queues_in(largest)[:3] == ["q29", "q28", "q27"]
    assert "depth↑" in smallest[1]
    assert queues_in(smallest)[:3] == ["q00", "q01", "q02"]


def test_after_the_last_column_they_are_sorted_by_name_again():
    view = TopView()
    for _ in range(4):
        view = press(view, "s", 40, 10)

    assert view == TopView()


def test_a_key_that_means_nothing_changes_nothing():
    assert press(TopView(first=3), "x", 80, 10) == TopView(first=3)


@pytest.mark.parametrize(
    ("sent", "keys"),
    [
        (b"sq", ["s", "q"]),
        (b"\x1b[A\x1b[B", ["up", "down"]),
        (b"\x1b[5~\x1b[6~ ", ["page up", "page down", "page down"]),
        (b"\x1b[24~q", ["unknown"]),
    ],
)
def test_keys_are_told_apart(sent: bytes, keys: list[str]):
    assert keys_of(sent) == keys


@pytest.mark.parametrize(("is_target", "style"), [(False, "33"), (True, "2")])
def test_a_group_that_nobody_reads_alarms_unless_it_is_of_a_dead_letter_queue(
    is_target: bool, style: str
):
    store = MemoryStore()
    queue = create_queue(store, "letters")
    if is_target:
        create_queue(store, "orders", dead_letter_queue="letters", max_deliveries=5)
    make_group(store, queue.queue_id)
    publish(Ledger(store, queue.queue_id), make_pending([3]))
    console = Console(width=80, force_terminal=True, color_system="standard")

    with console.capture() as capture:
        console.print(render(TopFrame(read_snapshot(store, ["letters"])), TopView(), 80, None))

    line = next(each for each in capture.get().splitlines() if "letters" in each)
    assert f"\x1b[{style}m" in line


def test_paused_and_broken_queues_and_an_absent_cassandra_are_seen(store: MemoryStore):
    pause_queue(store, "orders")
    create_queue(store, "broken")
    ailing = AilingStore(store)
    ailing.broken["broken@1"] = NotAppliedError("too few replicas")

    text = "\n".join(drawn(TopFrame(read_snapshot(ailing), error=ConnectError("away [now]")), 120))

    assert "orders (paused)" in text
    assert "too few replicas" in text
    assert "away [now]" in text


def test_schedules_that_are_late_are_counted_in_the_first_line():
    store, clock = make_clocked_store()
    make_busy_queue(store)
    create_schedule(store, "orders", "beat", "{}", every=timedelta(minutes=1))
    clock.advance(timedelta(minutes=2))

    in_time = drawn(TopFrame(Readings(store).read()), 120)[0]
    clock.advance(timedelta(milliseconds=1))
    late = drawn(TopFrame(Readings(store).read()), 120)[0]

    assert "1 queue(s)  repair: none yet" in in_time
    assert "1 queue(s)  1 schedule(s) late  repair: none yet" in late


@pytest.fixture
def command(store: MemoryStore, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    monkeypatch.setattr(top_command, "open_store", lambda _: store)

    def run(*arguments: str) -> Result:
        result = CliRunner().invoke(app, ["top", *arguments])
        if result.exception and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result

    return run


def test_one_frame_can_be_had_without_a_terminal(command: Callable[..., Result]):
    result = command("--once")

    assert result.exit_code == 0
    titles, line = result.stdout.splitlines()
    cells = dict(zip(titles.split(), line.split(), strict=True))
    assert (cells["queue"], cells["depth"], cells["oldest"]) == ("orders", "7", "30s")


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
