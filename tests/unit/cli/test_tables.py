from __future__ import annotations

import io
from datetime import UTC, datetime, timedelta

import pytest

from cassieq_spark.cli.tables import Column, print_record, print_table
from cassieq_spark.terminal import PlainConsole

COLUMNS = [Column("queue", wraps=True), "depth", "oldest", Column("reason", wraps=True)]
ROWS = [
    ("orders", 1234567, timedelta(hours=2, minutes=5), "the customer does not exist any more"),
    ("mail", 0, None, None),
]


def on(width: int | None) -> PlainConsole:
    """A terminal of so many columns, or a pipe."""
    if width is None:
        return PlainConsole(file=io.StringIO())
    return PlainConsole(file=io.StringIO(), force_terminal=True, color_system=None, width=width)


def printed(console: PlainConsole) -> list[str]:
    file = console.file
    assert isinstance(file, io.StringIO)
    return file.getvalue().splitlines()


def test_numbers_are_to_the_right_with_separators_for_people():
    console = on(80)

    print_table(COLUMNS, ROWS, console=console)

    assert printed(console) == [
        "queue       depth  oldest  reason",
        "orders  1,234,567   2h 5m  the customer does not exist any more",
        "mail            0       -  -",
    ]


def test_into_a_pipe_numbers_are_plain_and_nothing_is_wrapped_or_drawn():
    console = on(None)
    long = "x" * 300

    print_table(COLUMNS, [*ROWS, (long, 1, None, long)], console=console)

    _, first, _, last = printed(console)
    assert first.split()[:2] == ["orders", "1234567"]
    assert last == f"{long}        1       -  {long}"


def test_where_it_is_narrow_texts_are_wrapped():
    console = on(50)

    print_table(COLUMNS, ROWS, console=console)

    assert printed(console) == [
        "queue       depth  oldest  reason",
        "orders  1,234,567   2h 5m  the customer does not",
        "                           exist any more",
        "mail            0       -  -",
    ]


def test_where_it_is_narrower_each_row_is_a_record():
    console = on(40)

    print_table(COLUMNS, ROWS, console=console)

    assert printed(console) == [
        "orders",
        "  depth   1,234,567",
        "  oldest  2h 5m",
        "  reason  the customer does not exist",
        "          any more",
        "mail",
        "  depth   0",
        "  oldest  -",
        "  reason  -",
    ]


@pytest.mark.parametrize("width", [20, 33, 40, 57, 80])
def test_no_line_is_wider_than_the_terminal(width: int):
    console = on(width)
    word = "e" * 90

    print_table(COLUMNS, [*ROWS, (word, 5, timedelta(days=3), f"漢字{word}")], console=console)
    print_record(
        [("schema", word), ("created", datetime(2026, 1, 1, tzinfo=UTC))], console=console
    )

    from rich.cells import cell_len  # noqa: PLC0415 (only here)

    assert all(cell_len(line) <= width for line in printed(console))
    assert "".join(printed(console)).count("e") >= 180, "nothing is cut"


def test_a_record_has_a_line_for_each_value():
    console = on(None)

    print_record(
        [
            ("queue", "orders"),
            ("paused", False),
            ("created", datetime(2026, 11, 20, 12, tzinfo=UTC)),
            ("size", 8192),
        ],
        console=console,
    )

    assert printed(console) == [
        "queue    orders",
        "paused   no",
        "created  2026-11-20 12:00:00 UTC",
        "size     8192",
    ]


def test_a_terminal_gets_no_code_of_a_value():
    console = on(80)

    print_table(["queue"], [("\x1b[2Jorders",)], console=console)

    assert printed(console) == ["queue", r"\x1b[2Jorders"]


@pytest.mark.parametrize(
    ("terminal", "no_colour", "coloured"),
    [(True, "", True), (True, "1", False), (False, "", False)],
)
def test_colours_are_for_terminals_unless_the_user_wants_none(
    monkeypatch: pytest.MonkeyPatch, terminal: bool, no_colour: str, coloured: bool
):
    monkeypatch.setenv("TERM", "xterm-256color")
    if no_colour:
        monkeypatch.setenv("NO_COLOR", no_colour)
    else:
        monkeypatch.delenv("NO_COLOR", raising=False)
    console = PlainConsole(file=io.StringIO(), force_terminal=terminal or None)

    print_table(["queue"], [("orders",)], console=console, style_of=["yellow"])

    assert ("\x1b[33m" in "".join(printed(console))) == coloured
