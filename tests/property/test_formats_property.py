"""Messages as JSON lines of the gateway and of its client: all that they hold arrives."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import httpx
from hypothesis import example, given
from hypothesis import strategies as st

from cassieq_spark.client import Message
from cassieq_spark.gateway.formats import read_lines, write_lines
from cassieq_spark.http_client.messages import encoded, line_of, messages_of

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
RECEIPT = "q@1/g/00000000-0000-0000-0000-000000000000/0"
TEXTS = st.text(max_size=8)
HEADERS = st.dictionaries(TEXTS, st.none() | TEXTS, max_size=3)


@given(key=st.none() | st.binary(), value=st.binary(), headers=HEADERS)
@example(b"\xff", b"\xc3\x28", {})
@example("é".encode(), b"", {"": None})
def test_the_client_reads_what_the_gateway_writes(key: bytes | None, value: bytes, headers):
    message = Message("q", 0, key, value, headers, NOON, "g", 1, RECEIPT, NOON)

    (read,) = messages_of(httpx.Response(200, content=write_lines([message])))

    assert (read.key, read.value, read.headers) == (key, value, headers)


@given(st.binary() | TEXTS, st.none() | st.binary() | TEXTS, HEADERS)
@example(b"\xff", b"\xff", {})
def test_the_gateway_reads_what_the_client_writes(value: bytes | str, key, headers):
    line = json.loads(line_of(value))
    if key is not None:
        line["key"], line["keyEncoding"] = encoded(key, "the key")
    line["headers"] = headers

    (read,) = read_lines(json.dumps(line).encode(), 1)

    assert read.value == (value.encode() if isinstance(value, str) else value)
    assert read.key == (key.encode() if isinstance(key, str) else key)
    assert (read.headers or {}) == headers
