from __future__ import annotations

import io
import json
import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.table import Table
from rich.text import Text

from cassieq_spark.display import visible, visible_bytes
from cassieq_spark.terminal import (
    PlainConsole,
    confirm,
    echo,
    json_line,
    log_to_stderr,
)

#: Clears the screen, sets the title, copies to the clipboard, turns text around, hides, rings.
CODES = "\x1b[2J\x1b]0;t\x07\x1b]52;c;eA==\x07\u202e\x9b31m\x7f\r\x08\u200b"


def is_harmless(text: str) -> bool:
    return all(each.isprintable() or each in "\n\t" for each in text)


@given(st.text(st.characters()))
def test_no_text_makes_a_terminal_do_something(text: str):
    assert is_harmless(visible(text))


@given(st.text(st.characters(categories=["L", "N", "P", "S"])))
def test_what_can_be_seen_stays_as_it_is(text: str):
    assert visible(text) == text


@given(st.binary())
def test_no_bytes_make_a_terminal_do_something(data: bytes):
    assert is_harmless(visible_bytes(data))


@given(st.text(st.characters()))
def test_json_is_printable_and_the_same_value(text: str):
    line = json_line({"a": text})

    assert line.isascii()
    assert line.isprintable()
    assert json.loads(line) == {"a": text}


@pytest.mark.parametrize("terminal", [True, False])
@pytest.mark.parametrize("place", ["text", "cell", "styled cell", "title"])
def test_a_console_prints_no_code_wherever_the_text_is(terminal: bool, place: str):
    out = io.StringIO()
    console = PlainConsole(file=out, force_terminal=terminal, width=300, color_system=None)
    table = Table("column", title=CODES if place == "title" else None)
    table.add_row(Text(CODES) if place == "styled cell" else CODES if place == "cell" else "-")

    console.print(CODES if place == "text" else table)

    assert is_harmless(out.getvalue())
    assert r"\x1b[2J" in out.getvalue()


def test_brackets_and_colons_in_a_text_have_no_meaning_to_a_console():
    out = io.StringIO()
    table = Table("column")
    table.add_row("[red]a[/] :warning:")

    PlainConsole(file=out, width=100).print(table, "[bold]b[/] :warning:")

    assert "[red]a[/] :warning:" in out.getvalue()
    assert "[bold]b[/] :warning:" in out.getvalue()


def test_colours_of_a_console_are_its_own():
    out = io.StringIO()

    PlainConsole(file=out, force_terminal=True, color_system="standard").print(
        "wrong", style="red"
    )

    assert out.getvalue() == "\x1b[31mwrong\x1b[0m\n"


def test_a_sentence_has_no_code(capsys: pytest.CaptureFixture[str]):
    echo(CODES)
    echo(CODES, err=True)

    printed = capsys.readouterr()
    assert is_harmless(printed.out + printed.err)
    assert r"\x1b[2J" in printed.out
    assert r"\x1b[2J" in printed.err


def test_a_question_has_no_code(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))

    confirm(CODES)

    printed = capsys.readouterr()
    assert is_harmless(printed.out + printed.err)
    assert r"\x1b[2J" in printed.err


def test_a_log_for_people_has_no_code(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(logging.root, "handlers", [])
    monkeypatch.setattr(logging.root, "level", logging.WARNING)

    log_to_stderr()
    logging.getLogger("cassieq_spark").warning("queue %s", CODES)

    printed = capsys.readouterr().err
    assert is_harmless(printed)
    assert r"\x1b[2J" in printed
