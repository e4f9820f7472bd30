"""Messages as JSON lines of the gateway and of its client: all that they hold arrives."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime

import httpx
import pyarrow as pa
from hypothesis import example, given
from hypothesis import strategies as st

from cassieq_spark.client import Message, NewMessage
from cassieq_spark.errors import CassieqError
from cassieq_spark.http.client.answers import messages_of
from cassieq_spark.http.client.encoding import lines_sent
from cassieq_spark.http.gateway.formats import read_arrow, read_lines, write_lines
from cassieq_spark.http.gateway.tables import read_table
from cassieq_spark.http.serving.errors import RefusedError
from cassieq_spark.schemas.assign import assign
from cassieq_spark.schemas.ddl import schema_of
from tests.support.arrow_streams import stream_of, tampered
from tests.support.gateway import RECEIPTS

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
RECEIPT = "q@1/g/00000000-0000-0000-0000-000000000000/0"
TEXTS = st.text(max_size=8)
HEADERS = st.dictionaries(TEXTS, st.none() | TEXTS, max_size=3)


@given(key=st.none() | st.binary(), value=st.binary(), headers=HEADERS)
@example(b"\xff", b"\xc3\x28", {})
@example("é".encode(), b"", {"": None})
def test_the_client_reads_what_the_gateway_writes(key: bytes | None, value: bytes, headers):
    message = Message("q", 0, key, value, headers, NOON, "g", 1, RECEIPT, NOON)

    answer = httpx.Response(200, content=write_lines([message], RECEIPTS))
    (read,) = messages_of("q", "g")(answer)

    assert replace(read, receipt=message.receipt) == message


NAMES = TEXTS.filter(lambda name: name and not name.startswith("cassieq."))


@given(
    st.binary() | TEXTS,
    st.none() | st.binary() | TEXTS,
    st.none() | st.dictionaries(NAMES, st.none() | TEXTS, max_size=3),
)
@example(b"\xff", b"\xff", {})
def test_the_gateway_reads_what_the_client_writes(value: bytes | str, key, headers):
    (read,) = read_lines(lines_sent([NewMessage(value, key, headers)]), 1)

    assert read.value == (value.encode() if isinstance(value, str) else value)
    assert read.key == (key.encode() if isinstance(key, str) else key)
    assert (read.headers or {}) == (headers or {})


ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "value": st.binary(max_size=40),
            "key": st.none() | st.binary(max_size=4),
            "headers": st.none() | st.dictionaries(TEXTS, st.none() | TEXTS, max_size=2),
        }
    ),
    min_size=1,
    max_size=20,
)
SCHEMA = pa.schema(
    [
        ("value", pa.binary()),
        ("key", pa.binary()),
        ("headers", pa.map_(pa.string(), pa.string())),
    ]
)
CODECS = st.sampled_from(["zstd", "lz4", None])
MOST_BYTES = 64 << 10


def arrow_of(rows: list[dict[str, object]], codec: str | None) -> bytes:
    pairs = [each | {"headers": list(dict(each["headers"] or {}).items())} for each in rows]
    table = pa.Table.from_pylist(pairs, SCHEMA)
    return stream_of(table, rows_per_batch=7, compression=codec)


@given(ROWS, CODECS)
def test_the_gateway_reads_the_streams_of_others(rows, codec: str | None):
    messages, size = read_arrow(arrow_of(rows, codec), len(rows), MOST_BYTES)

    assert [(each.value, each.key) for each in messages] == [
        (each["value"], each["key"]) for each in rows
    ]
    assert [each.headers or {} for each in messages] == [each["headers"] or {} for each in rows]
    assert size >= sum(len(each["value"]) for each in rows)


@given(ROWS, CODECS, st.data())
def test_a_stream_that_was_tampered_with_is_refused_or_within_the_limits(
    rows, codec: str | None, data: st.DataObject
):
    body = tampered(data, arrow_of(rows, codec))

    with suppress(RefusedError):
        messages, size = read_arrow(body, 30, MOST_BYTES)
        assert len(messages) <= 30
        assert size <= MOST_BYTES


COLUMNS = schema_of("name string, marks array<bigint>, spot struct<x:int,y:string>, ok boolean")
TYPED_ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "name": st.none() | TEXTS,
            "marks": st.none() | st.lists(st.none() | st.integers(-9, 9), max_size=4),
            "spot": st.none() | st.fixed_dictionaries({"x": st.just(1), "y": TEXTS}),
            "ok": st.none() | st.booleans(),
        }
    ),
    min_size=1,
    max_size=20,
)


def typed_arrow_of(rows: list[dict[str, object]], codec: str | None) -> bytes:
    table = pa.Table.from_pylist(rows, COLUMNS)
    return stream_of(table, rows_per_batch=7, compression=codec)


@given(TYPED_ROWS, CODECS)
def test_the_gateway_reads_the_rows_of_others(rows, codec: str | None):
    table, _ = read_table(typed_arrow_of(rows, codec), COLUMNS, len(rows), MOST_BYTES)

    assert assign(table, COLUMNS).to_pylist() == rows


@given(TYPED_ROWS, CODECS, st.data())
def test_rows_that_were_tampered_with_are_refused_or_within_the_limits(
    rows, codec: str | None, data: st.DataObject
):
    body = tampered(data, typed_arrow_of(rows, codec))

    with suppress(RefusedError, CassieqError):
        table, size = read_table(body, COLUMNS, 30, MOST_BYTES)
        assert table.num_rows <= 30
        assert size <= MOST_BYTES
        assert assign(table, COLUMNS).nbytes <= 32 * MOST_BYTES
