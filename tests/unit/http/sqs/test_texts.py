from __future__ import annotations

import random
from uuid import UUID

import pytest

from cassieq_spark.http.sqs.texts import is_xml, remembered, uuid_of


@pytest.mark.parametrize("version", [4, 5])
def test_a_uuid_is_as_python_makes_it(version: int):
    for seed in range(50):
        number = random.Random(seed).getrandbits(128)

        assert uuid_of(f"{number:032x}", version) == str(UUID(int=number, version=version))


def test_a_short_text_is_parsed_once_and_a_long_one_each_time():
    parsed: list[str] = []

    @remembered
    def parse(text: str) -> int:
        parsed.append(text)
        return len(text)

    for text in ("short", "long" * 1_000) * 2:
        assert parse(text) == len(text)

    assert [len(each) for each in parsed] == [5, 4_000, 4_000]


def test_a_text_that_cannot_be_parsed_is_refused_each_time():
    @remembered
    def parse(text: str) -> int:
        return int(text)

    for _ in range(2):
        with pytest.raises(ValueError, match="invalid literal"):
            parse("x")


def test_all_characters_but_those_of_xml_are_refused():
    refused = {each for each in range(0x110000) if not is_xml(chr(each))}

    controls = set(range(0x20)) - set(b"\t\n\r")
    assert refused == controls | set(range(0xD800, 0xE000)) | {0xFFFE, 0xFFFF}
