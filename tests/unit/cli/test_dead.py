from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from click.testing import Result
from typer.testing import CliRunner

from cassieq_spark.cli import app, dead, output
from cassieq_spark.cli.dead import RATE
from cassieq_spark.cli.options import PLACE, WHEN, parse_instant
from cassieq_spark.dead_letters import redrive as redrive_module
from cassieq_spark.display import visible
from cassieq_spark.errors import OptionError
from cassieq_spark.groups.group import ConsumerGroup
from cassieq_spark.groups.partitions import ADMIN_GROUP
from cassieq_spark.groups.registration import ensure_group
from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.settings.declaration import parse_value
from tests.support.builders import make_request
from tests.unit.dead_letters.dead_queue import DeadQueue

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
Command = Callable[..., Result]


@pytest.fixture
def queue() -> DeadQueue:
    return DeadQueue(["orders", "payments", "orders"])


@pytest.fixture
def dead_command(queue: DeadQueue, monkeypatch: pytest.MonkeyPatch) -> Command:
    monkeypatch.setattr(dead, "open_store", lambda _: queue.store)
    monkeypatch.setenv("COLUMNS", "200")

    def run(*arguments: str, said: str | None = None) -> Result:
        result = CliRunner().invoke(app, ["dead", *arguments], input=said)
        if result.exception and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result

    return run


@pytest.mark.parametrize(("text", "rate"), [("50/s", 50), ("90/m", 1.5), (" 36/h ", 0.01)])
def test_a_rate_is_messages_per_time(text: str, rate: float):
    assert RATE.parse(text) == rate


@pytest.mark.parametrize("text", ["", "50", "0/s", "-1/s", "1/d", "1.5/s", "fast", "50/s/s"])
def test_what_is_no_rate_is_refused(text: str):
    with pytest.raises(OptionError, match="--rate must be messages per time"):
        parse_value("--rate", RATE, text)


def test_an_instant_is_one_or_how_long_ago():
    assert parse_instant("90m", NOON) == NOON - timedelta(minutes=90)
    assert parse_instant("2h 5m", NOON) == NOON - timedelta(minutes=125)
    assert parse_instant("1d2h5m", NOON) == NOON - timedelta(days=1, minutes=125)
    assert WHEN.parse("2026-11-20T13:00:00+01:00") == NOON


@pytest.mark.parametrize("text", ["", "soon", "earliest", "12", "-2h", "2w", "2h 5", "36500d 1s"])
def test_what_is_no_instant_is_refused(text: str):
    with pytest.raises(
        OptionError, match=r"--until must be an instant such as .* or how long ago"
    ):
        parse_value("--until", WHEN, text)


def test_a_position_may_be_how_long_ago_it_was():
    earliest = datetime.now(UTC) - timedelta(hours=2)
    found = PLACE.parse("2h")

    assert isinstance(found, datetime)
    assert earliest <= found <= datetime.now(UTC) - timedelta(hours=2)
    assert (PLACE.parse("latest"), PLACE.parse("12")) == ("latest", 12)


def test_an_instant_without_a_time_zone_is_refused():
    with pytest.raises(OptionError, match=r"--since: .*no time zone"):
        parse_value("--since", WHEN, "2026-11-20T12:00:00")


def test_bad_options_are_told_before_anything_is_opened(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(dead, "open_store", lambda _: pytest.fail("opened"))
    for bad in (["--rate", "fast"], ["--since", "soon"], ["--since", "1h", "--until", "2h"]):
        result = CliRunner().invoke(app, ["dead", "redrive", "orders", *bad])
        assert isinstance(result.exception, OptionError)


def test_letters_are_listed(dead_command: Command, queue: DeadQueue):
    before = queue.everything()

    table = dead_command("list", "dead").stdout
    listed = json.loads(dead_command("list", "orders", "--json").stdout)

    assert "payments" in table
    assert "3 dead letter(s) in queue dead" in table
    assert listed == {
        "dead_letter_queue": "dead",
        "count": 2,
        "letters": [
            {
                "origin_queue": "orders",
                "origin_group": "g",
                "reason": "too often",
                "count": 2,
                "first_dead_lettered_at": "2026-11-20T12:00:00.000+00:00",
                "last_dead_lettered_at": "2026-11-20T14:00:00.000+00:00",
                "monotons": "0-1,2-3",
            }
        ],
    }
    assert "no such dead letters" in dead_command("list", "dead", "--reason", "none").stdout
    assert queue.everything() == before


def test_nothing_that_a_letter_says_is_taken_for_markup_or_for_a_command(
    dead_command: Command, queue: DeadQueue
):
    queue.add(["orders"], reason="[red]it \x1b[31mhurts")

    assert r"[red]it \x1b[31mhurts" in dead_command("list", "orders").stdout
    assert r"[red]it \x1b[31mhurts" in dead_command("show", "orders", "3").stdout


def test_a_letter_is_shown(dead_command: Command):
    shown = dead_command("show", "orders", "2").stdout
    values = json.loads(dead_command("show", "orders", "2", "--json").stdout)

    assert "cassieq.origin-queue" in shown
    assert "h2" in shown
    assert (values["queue"], values["monoton"]) == ("dead", 2)
    assert (values["key"], values["value"]) == ("azI=", "Mg==")
    assert values["headers"]["cassieq.reason"] == "too often"


@pytest.mark.parametrize(
    ("data", "shown"),
    [
        (None, "-"),
        (b"short", "short"),
        ("h\u00f6".encode(), "h\u00f6"),
        (b"\xff\x00", "0xff00"),
        (b"x" * 2000, "x" * 1000 + "... (2,000 bytes; --full shows all)"),
        (b"\xff" * 2000, "0x" + "ff" * 1000 + "... (2,000 bytes; --full shows all)"),
    ],
)
def test_a_value_is_shown_as_text_or_in_hex_and_cut(data: bytes | None, shown: str):
    assert dead.shown(data, 1000) == shown


def test_a_value_is_shown_in_full_if_asked_for():
    assert dead.shown(b"x" * 2000, None) == "x" * 2000
    assert dead.shown(b"\xff" * 2000, None) == "0x" + "ff" * 2000


def test_what_a_terminal_would_act_on_is_spelled_out():
    assert visible("a\tb\nc\x1b[2J\x07\u202e") == "a\tb\nc\\x1b[2J\\x07\\u202e"


def test_a_dry_run_changes_nothing(dead_command: Command, queue: DeadQueue):
    before = queue.everything()

    plan = json.loads(dead_command("redrive", "dead", "--dry-run", "--json").stdout)
    assert (plan["count"], plan["to"]) == (3, {"orders": 2, "payments": 1})
    assert "2 would go to queue orders." in dead_command("redrive", "dead", "--dry-run").stdout
    assert "Nothing was changed." in dead_command("purge", "dead", "--dry-run").stdout
    assert queue.everything() == before


def test_letters_are_redriven_and_purged_when_it_is_confirmed(
    dead_command: Command, queue: DeadQueue, monkeypatch: pytest.MonkeyPatch
):
    for change in ("redrive", "purge"):
        with pytest.raises(OptionError, match=r"no terminal.* --yes"):
            dead_command(change, "dead")
    monkeypatch.setattr(output, "is_interactive", lambda: True)
    assert dead_command("redrive", "dead", said="n\n").exit_code == 1
    assert dead_command("purge", "dead", said="n\n").exit_code == 1
    assert queue.left() == [0, 1, 2]

    asked = dead_command("redrive", "payments", said="y\n")
    assert "Redrive 1 message(s): 1 to queue payments?" in asked.stderr
    assert "Redrove 1 message(s): 1 to queue payments." in asked.stdout
    asked = dead_command("purge", "dead", said="y\n")
    assert "Delete 2 dead letter(s) of queue dead for good?" in asked.stderr
    assert "Purged 2 message(s) from queue dead." in asked.stdout
    assert queue.left() == []


def test_programs_get_a_summary(dead_command: Command, queue: DeadQueue):
    queue.add([None])

    redriven = dead_command("redrive", "dead", "--limit", "2", "--yes", "--json")
    assert json.loads(redriven.stdout) == {
        "dead_letter_queue": "dead",
        "dry_run": False,
        "redriven": {"orders": 1, "payments": 1},
        "missed": 0,
        "stopped": False,
    }
    left_out = dead_command("redrive", "dead", "--yes")
    assert "1 message(s) of queue dead are left out" in left_out.stderr
    purged = json.loads(dead_command("purge", "dead", "--yes", "--json").stdout)
    assert (purged["purged"], purged["stopped"]) == (1, False)


def test_what_another_run_holds_is_told(dead_command: Command, queue: DeadQueue):
    ensure_group(
        ConsumerGroup(Ledger(queue.memory, queue.dead.queue_id), ADMIN_GROUP), starting="earliest"
    )
    other = ConsumerGroup(Ledger(queue.memory, queue.dead.queue_id), ADMIN_GROUP)
    other.lease(make_request(max_messages=1, stop=3))

    done = dead_command("redrive", "orders", "--yes").stdout

    assert "Redrove 1 message(s): 1 to queue orders." in done
    assert "1 were left out, as another command has or had them." in done
    assert "after 60 s" in done


def test_a_terminal_gets_a_bar_and_nothing_else_does(
    dead_command: Command, monkeypatch: pytest.MonkeyPatch
):
    assert dead_command("list", "dead").stderr == ""
    monkeypatch.setenv("FORCE_COLOR", "1")

    done = dead_command("redrive", "dead", "--yes", "--json")

    assert "redriving" in done.stderr
    assert json.loads(done.stdout)["redriven"] == {"orders": 2, "payments": 1}


def test_ctrl_c_stops_a_run_after_its_batch_and_tells_what_was_done(
    dead_command: Command, queue: DeadQueue, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(redrive_module, "BATCH", 1)
    interrupt_when_published(queue)
    before = signal.getsignal(signal.SIGINT)

    stopped = dead_command("redrive", "orders", "--yes")

    assert stopped.exit_code == 130
    assert "Redrove 1 message(s): 1 to queue orders." in stopped.stdout
    assert "Stopped before the end; the others are still dead letters." in stopped.stdout
    assert (queue.arrived("orders"), queue.left(), queue.held()) == ([0], [1, 2], [])
    assert signal.getsignal(signal.SIGINT) is before


def test_ctrl_c_ends_a_long_wait(dead_command: Command, queue: DeadQueue):
    # The wait would be of an hour. The signal comes in it, or else before it.
    main = threading.main_thread().ident
    assert main is not None
    interrupt = threading.Timer(0.2, signal.pthread_kill, (main, signal.SIGINT))
    queue.store._watch = lambda partition: (
        interrupt.start() if partition.key == (queue.orders.queue_id,) else None
    )

    stopped = dead_command("redrive", "orders", "--rate", "1/h", "--yes", "--json")

    interrupt.join()
    assert stopped.exit_code == 130
    assert json.loads(stopped.stdout)["stopped"] is True
    assert queue.arrived("orders") == [0]


def test_a_second_ctrl_c_ends_the_command_at_once(dead_command: Command, queue: DeadQueue):
    interrupt_when_published(queue, times=2)

    with suppress(KeyboardInterrupt):
        assert dead_command("redrive", "orders", "--yes").exit_code != 0
    queue.lapse()

    assert queue.left() == [1]
    assert dead_command("redrive", "orders", "--yes").exit_code == 0
    assert queue.arrived("orders") == [0, 2]


def interrupt_when_published(queue: DeadQueue, *, times: int = 1) -> None:
    def watch(partition: Any) -> None:
        if partition.key == (queue.orders.queue_id,):
            for _ in range(times):
                os.kill(os.getpid(), signal.SIGINT)

    queue.store._watch = watch
