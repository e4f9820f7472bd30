from __future__ import annotations

import json
from datetime import timedelta

import pytest

from cassieq_spark.console import show


def test_json_is_set_out_with_numbers_and_names_as_they_are_written():
    body = show.whole(b'{"a":1.50,"b":[1,{},[]],"a":12345678901234567890123}')

    assert body.kind == "json"
    assert body.text == (
        '{\n  "a": 1.50,\n  "b": [\n    1,\n    {},\n    []\n  ],\n'
        '  "a": 12345678901234567890123\n}'
    )


@pytest.mark.parametrize(
    "text", ['{"a": "x,y:{}[]\\"z"}', "[1, 2.0e5, -3, true, false, null]", '[[[]], {"": ""}]']
)
def test_json_that_is_set_out_means_the_same(text: str):
    assert json.loads(show.whole(text.encode()).text) == json.loads(text)


@pytest.mark.parametrize("data", [b"{", b'{"a": }', b"[" * 100 + b"]" * 100, b"[" * 100_000])
def test_what_is_no_plain_json_is_text(data: bytes):
    assert show.whole(data[: show.PART]).kind == "text"


def test_bytes_that_are_no_text_are_shown_in_hex_with_what_is_legible():
    body = show.whole(b"\xff\x00cassieq")

    assert body.kind == "bytes"
    assert body.text.startswith("00000000  ff 00 63 61 73 73 69 65 71 ")
    assert body.text.endswith("..cassieq")


def test_all_of_a_large_value_can_be_seen_part_by_part():
    data = "ä€😀".encode() * 5000
    begin, seen = 0, ""
    while begin < len(data):
        part = show.whole(data, begin)
        assert part.kind == "text"
        assert part.is_cut
        seen, begin = seen + part.text, part.ends

    assert seen.encode() == data


def test_base64_is_that_of_the_part():
    assert show.whole(b"\x00\x01", form="base64").text == "AAE="


def test_a_row_shows_the_beginning_in_one_line():
    brief = show.brief(b"a\n\tb" + b"c" * 1000)

    assert brief.text.startswith("a bccc")
    assert len(brief.text) == show.BRIEF
    assert brief.is_cut
    assert show.brief(b"\xff" * 100).text.startswith("0xff")
    assert show.brief(None).kind == "null"
    assert not show.brief(b"abc").is_cut


def test_a_character_that_is_cut_by_the_end_of_a_row_is_left_out():
    assert show.brief("ä".encode() * 5000).kind == "text"


def test_what_cannot_be_seen_is_spelled_out():
    assert show.shown("a\x00\u202eb\ud800") == "a\\x00\\u202eb\\ud800"


def test_columns_are_shown_as_json_has_them():
    assert show.as_bytes({"a": "ä", "b": None}) == '{"a": "ä", "b": null}'.encode()
    assert show.cell(b"\xff") == "/w=="
    assert show.cell({"x": 1}) == '{"x": 1}'
    assert show.cell("x" * 500) == "x" * show.BRIEF + "…"


@pytest.mark.parametrize(
    ("length", "text"),
    [(0, "0s"), (90, "90s"), (120, "2m"), (7200, "2h"), (1_209_600, "14d")],
)
def test_a_setting_is_shown_as_it_is_given(length: int, text: str):
    assert show.span(timedelta(seconds=length)) == text


def test_a_key_is_typed_as_text_or_hex():
    assert show.parse_bytes("0xzz") == b"0xzz"
    assert show.parse_bytes("ä") == "ä".encode()
