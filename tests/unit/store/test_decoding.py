"""How a session reads timestamps, byte by byte as a node sends them."""

from __future__ import annotations

from struct import pack

import pytest
from cassandra.cqltypes import _cqltypes, lookup_casstype
from cassandra.protocol import ProtocolHandler, ResultMessage

from cassieq_spark.arguments import FIRST_INSTANT, LAST_INSTANT
from cassieq_spark.model import to_millis
from cassieq_spark.store.cassandra.session import Decoding

ROWS, TIMESTAMP, ONE_TABLE = 2, 0x000B, 1


def text(value: str) -> bytes:
    return pack(">H", len(value)) + value.encode()


def body_of(*cells: bytes | None) -> bytes:
    """A RESULT of rows with one column ``at`` of the type timestamp."""
    head = pack(">iii", ROWS, ONE_TABLE, 1) + text("k") + text("t") + text("at")
    rows = (pack(">i", -1) if cell is None else pack(">i", len(cell)) + cell for cell in cells)
    return head + pack(">H", TIMESTAMP) + pack(">i", len(cells)) + b"".join(rows)


def decode(handler: type, *cells: bytes | None) -> list[tuple[object, ...]]:
    message = handler.decode_message(4, {}, 0, 0, ResultMessage.opcode, body_of(*cells), None, [])
    return list(message.parsed_rows)


@pytest.mark.parametrize(
    ("milliseconds", "instant"),
    [
        (253_402_387_139_000, LAST_INSTANT),
        (2**63 - 1, LAST_INSTANT),
        (to_millis(LAST_INSTANT) + 1, LAST_INSTANT),
        (to_millis(LAST_INSTANT), LAST_INSTANT),
        (0, FIRST_INSTANT),
        (-1, FIRST_INSTANT),
        (-62_135_647_200_000, FIRST_INSTANT),
        (-(2**63), FIRST_INSTANT),
    ],
)
def test_any_timestamp_is_read_as_the_nearest_instant_that_we_store(
    milliseconds: int, instant: object
):
    assert decode(Decoding, pack(">q", milliseconds), pack(">q", 1)) == [
        (instant,),
        (FIRST_INSTANT.replace(microsecond=1000),),
    ]


def test_null_and_no_bytes_are_none():
    assert decode(Decoding, None, b"") == [(None,), (None,)]


def test_other_sessions_of_the_process_decode_as_ever():
    (plain,) = decode(ProtocolHandler, pack(">q", 0))[0]

    assert plain == FIRST_INSTANT.replace(tzinfo=None)
    assert lookup_casstype("DateType").__name__ == "DateType"
    assert "Instant" not in _cqltypes["timestamp"].__name__
    with pytest.raises(Exception, match="Failed decoding result column"):
        decode(ProtocolHandler, pack(">q", 2**63 - 1))
