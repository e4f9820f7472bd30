"""Arrow IPC streams as strangers send them."""

from __future__ import annotations

import io
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st


def stream_of(table: pa.Table, *, rows_per_batch: int | None = None, **options: Any) -> bytes:
    """A stream with the rows of a table; options as those of `pa.ipc.IpcWriteOptions`."""
    sink = io.BytesIO()
    with pa.ipc.new_stream(
        sink, table.schema, options=pa.ipc.IpcWriteOptions(**options)
    ) as writer:
        writer.write_table(table, max_chunksize=rows_per_batch)
    return sink.getvalue()


def tampered(data: st.DataObject, stream: bytes) -> bytes:
    """The stream with one to four of its bytes altered."""
    body = bytearray(stream)
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(body) - 1))
        body[at] = data.draw(st.sampled_from([0, 1, 0x7F, 0x80, 0xFF, body[at] ^ 1]))
    return bytes(body)
