from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cassieq_spark.settings import SinkOptions, SourceOptions
from cassieq_spark.settings.connection import (
    CONSISTENCY,
    HOSTS,
    KEYSPACE,
    ConnectionOptions,
    Consistency,
)
from cassieq_spark.settings.declaration import settings_by_option, settings_of
from cassieq_spark.settings.gateway import Limits
from cassieq_spark.settings.kinds import (
    BOOLEAN,
    SECONDS,
    TEXT,
    Kind,
    choice,
    duration,
    name_of,
    size,
    whole_number,
)
from cassieq_spark.settings.kinds import NAMES as COLUMNS
from cassieq_spark.settings.position import POSITION

Role = type[SinkOptions] | type[SourceOptions]


def minutes_from_utc(minutes: int) -> timezone:
    return timezone(timedelta(minutes=minutes))


LONGEST = timedelta(days=30)
NAMES = st.from_regex(r"[A-Za-z0-9](?!.*:\.+$)[A-Za-z0-9._:-]{0,199}", fullmatch=True)
KINDS_AND_VALUES: list[tuple[Kind[Any], st.SearchStrategy[Any]]] = [
    (BOOLEAN, st.booleans()),
    (
        POSITION,
        st.sampled_from(["earliest", "latest"])
        | st.integers(0, 2**63 - 2)
        # No message is older, nor younger.
        | st.datetimes(
            datetime(1970, 1, 2),  # noqa: DTZ001 (the strategy adds the time zone)
            datetime(9998, 1, 1),  # noqa: DTZ001
            timezones=st.integers(-1439, 1439).map(minutes_from_utc),
        ),
    ),
    (HOSTS, st.lists(st.from_regex(r"[a-z0-9.-]+(:[1-9][0-9]{3})?", fullmatch=True), min_size=1)),
    (CONSISTENCY, st.sampled_from(Consistency)),
    (KEYSPACE, st.from_regex(r"[a-z][a-z0-9_]{0,47}", fullmatch=True)),
    (
        COLUMNS,
        st.lists(
            st.text(st.sampled_from("ab,` \n"), min_size=1) | st.text(min_size=1), min_size=1
        ),
    ),
    (SECONDS, st.integers(1, 2**31 - 1).map(lambda n: timedelta(seconds=n))),
    (TEXT, st.text(min_size=1).filter(str.strip)),
    (choice("lz4", "zstd", "none"), st.sampled_from(["lz4", "zstd", "none"])),
    (duration(LONGEST), st.integers(1, LONGEST // timedelta(milliseconds=1))),
    (name_of("queue"), NAMES),
    (size(8 << 20), st.integers(1, 8 << 20)),
    (whole_number(0, 2**63 - 1), st.integers(0, 2**63 - 1)),
    (whole_number(1, 65_535), st.integers(1, 65_535)),
]


@pytest.mark.parametrize(
    ("kind", "values"), KINDS_AND_VALUES, ids=[kind.name for kind, _ in KINDS_AND_VALUES]
)
@given(data=st.data())
def test_what_a_kind_shows_it_reads(
    kind: Kind[Any], values: st.SearchStrategy[Any], data: st.DataObject
):
    value = data.draw(values)
    if isinstance(value, list):
        value = tuple(value)
    if kind.name.startswith("a duration"):
        value = timedelta(milliseconds=value)

    assert kind.parse(kind.show(value)) == value


@pytest.mark.parametrize("cls", [ConnectionOptions, Limits, SinkOptions, SourceOptions])
def test_every_default_is_a_value_of_its_kind(cls: type[Any]):
    for item in settings_of(cls):
        if isinstance(item.default, (str, int, tuple, timedelta)):
            assert item.kind.parse(item.kind.show(item.default)) == item.default


@pytest.mark.parametrize("role", [SinkOptions, SourceOptions])
@given(data=st.data())
def test_keys_are_known_in_any_case_of_letters(role: Role, data: st.DataObject):
    known = settings_by_option(role, ConnectionOptions)
    key = data.draw(st.sampled_from(sorted(known)))
    letters = data.draw(st.lists(st.booleans(), min_size=len(key), max_size=len(key)))
    mixed = "".join(
        letter.upper() if upper else letter for letter, upper in zip(key, letters, strict=True)
    )

    try:
        role.parse({"queue": "orders", mixed: "1"})
    except ValueError as exc:
        assert "unknown" not in str(exc)  # noqa: PT017 - most options do not take 1


@given(raw=st.dictionaries(st.text(), st.text()))
def test_whatever_is_given_is_read_or_refused(raw: dict[str, str]):
    for role in (SinkOptions, SourceOptions):
        try:
            options = role.parse(raw)
        except ValueError as exc:
            assert str(exc)  # noqa: PT017 - either outcome is fine, another error is not
        else:
            assert options.queue
