from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cassieq_spark.cli.dead import parse_rate
from cassieq_spark.errors import OptionError
from cassieq_spark.planning.units import (
    FACTOR,
    NETWORK,
    PERIOD,
    RATE,
    SHARE,
    SIZE,
    shown_flow,
    shown_size,
)
from cassieq_spark.settings.declaration import parse_value
from cassieq_spark.settings.kinds import Kind, duration, size


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (RATE, "200k/s", 200_000.0),
        (RATE, "5000", 5000.0),
        (RATE, "86.4M/day", 1000.0),
        (RATE, "90/min", 1.5),
        (RATE, "90/m", 1.5),
        (RATE, "3600/h", 1.0),
        (SIZE, "1kB", 1000.0),
        (SIZE, "1KiB", 1024.0),
        (SIZE, "300 B", 300.0),
        (SIZE, "1.5TB", 1.5e12),
        (SIZE, "64k", 65_536.0),
        (SIZE, "64K", 65_536.0),
        (SIZE, "1m", 2.0**20),
        (SIZE, "8g", 2.0**33),
        (NETWORK, "10Gbit/s", 1.25e9),
        (NETWORK, "1GB/s", 1e9),
        (PERIOD, "7d", timedelta(days=7)),
        (PERIOD, "500ms", timedelta(milliseconds=500)),
        (PERIOD, "5m", timedelta(minutes=5)),
        (PERIOD, "5min", timedelta(minutes=5)),
        (PERIOD, "2H", timedelta(hours=2)),
        (SHARE, "40%", 0.4),
        (FACTOR, "1.5", 1.5),
    ],
)
def test_a_text_is_read_in_its_unit(kind: Kind[float], text: str, value: float):
    assert kind.parse(text) == value


@given(st.integers(1, 3650 * 24), st.sampled_from(["ms", "s", "m", "h", "MS", "S", "M", "H"]))
def test_a_duration_of_other_commands_is_the_same_length_of_time(number: int, unit: str):
    text = f"{number}{unit}"

    assert PERIOD.parse(text) == duration(timedelta(days=3650)).parse(text)


@given(st.integers(1, 9999), st.sampled_from(["k", "m", "g", "K", "M", "G"]))
def test_a_size_of_other_commands_is_as_many_bytes(number: int, unit: str):
    text = f"{number}{unit}"

    assert SIZE.parse(text) == size(2**50).parse(text)


@given(st.integers(1, 10**9 - 1), st.sampled_from("smh"))
def test_a_rate_of_other_commands_is_as_many_a_second(number: int, unit: str):
    text = f"{number}/{unit}"

    assert RATE.parse(text) == parse_rate(text)


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (RATE, "0/s"),
        (RATE, "-5/s"),
        (RATE, "5/fortnight"),
        (RATE, "5K/s"),
        (RATE, "1e9/s"),
        (RATE, "9" * 20),
        (SIZE, "1000"),
        (SIZE, "1 parsec"),
        (SIZE, "1KB"),
        (NETWORK, "10Gbit"),
        (NETWORK, "10Gb/s"),
        (PERIOD, "7"),
        (PERIOD, "0s"),
        (PERIOD, "11y"),
        (PERIOD, "4000d"),
        (SHARE, "0.4"),
        (SHARE, "95%"),
        (FACTOR, "0.5"),
        (FACTOR, "nan"),
    ],
)
def test_what_cannot_be_names_the_value_and_the_expected_form(kind: Kind[float], text: str):
    with pytest.raises(OptionError) as refused:
        parse_value("--it", kind, text)

    assert kind.name in str(refused.value)
    assert text in str(refused.value)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (RATE, 1500.0),
        (SIZE, 1000.0),
        (SIZE, 4e12),
        (SIZE, 1234.0),
        (NETWORK, 1.25e9),
        (PERIOD, timedelta(seconds=10)),
        (PERIOD, timedelta(days=1)),
        (SHARE, 0.4),
        (FACTOR, 2.0),
    ],
)
def test_what_is_shown_as_a_default_is_read_as_the_same(kind: Kind[object], value: object):
    assert kind.parse(kind.show(value)) == value


def test_bytes_are_shown_in_the_largest_unit_that_they_fill():
    assert shown_size(999.0) == "999 B"
    assert shown_size(1_234_567.0) == "1.23 MB"
    assert shown_flow(2e9) == "2 GB/s"
