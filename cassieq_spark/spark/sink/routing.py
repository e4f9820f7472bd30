"""Routes the rows of a task to queues by a column."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterable, Iterator
from itertools import chain

import pyarrow as pa
import pyarrow.compute as pc

from cassieq_spark.errors import MessageError, SchemaError
from cassieq_spark.producer.publisher import Written

#: Writes the rows of one queue; called in a thread of its own.
Write = Callable[[str, Iterator[pa.RecordBatch]], list[Written]]

#: How many batches of rows wait for the writer of a queue.
_WAITING = 2
_LOOK_SECONDS = 0.5


class _Abandoned(Exception):  # noqa: N818 (no error: another queue has failed)
    """Ends the writer of a queue, as the task has failed."""


def by_queue(
    rows: pa.RecordBatch, column: str, *, first_row: int = 0
) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Split rows by the queue that a column names; without that column, in order.

    Args:
        rows: The rows.
        column: Name of the column, of strings.
        first_row: The number of the first row in an error.

    Raises:
        MessageError: A row names no queue.
    """
    names = rows.column(column).cast(pa.string())
    if names.null_count:
        at = first_row + pc.index(pc.is_null(names), value=True).as_py()
        raise MessageError(
            f"row {at} of this task names no queue, as its column {column!r} is null: give each "
            "row a queue, or drop the row"
        )
    rest = rows.drop_columns([column])
    found = pc.unique(names).to_pylist()
    for name in found:
        yield name, rest if len(found) == 1 else rest.filter(pc.equal(names, name))


def write_routed(batches: Iterable[pa.RecordBatch], column: str, write: Write) -> list[Written]:
    """Write the rows of a task to the queues that a column names, several at a time.

    Args:
        batches: The rows.
        column: Name of the column.
        write: Writes the rows of one queue.

    Returns:
        What was written, queue by queue, by name.

    Raises:
        MessageError: A row names no queue, or its queue does not take it.
        SchemaError: A queue does not take the columns of the rows.
        CassieqError: What ``write`` raises first; the other writers are ended.
    """
    lanes: dict[str, _Lane] = {}
    count = 0
    try:
        for rows in batches:
            for name, own in by_queue(rows, column, first_row=count):
                if name not in lanes:
                    lanes[name] = _Lane(name, write)
                lanes[name].put(own)
            count += rows.num_rows
        return list(chain.from_iterable(lanes[name].finish() for name in sorted(lanes)))
    finally:
        for lane in lanes.values():
            lane.abandon()


def _write_to(write: Write, name: str, rows: Iterator[pa.RecordBatch]) -> list[Written]:
    """Write the rows of a queue; an error about them names the queue."""
    try:
        return write(name, rows)
    except MessageError as error:
        raise MessageError(f"queue {name!r}: {error}") from error
    except SchemaError as error:
        raise SchemaError(f"queue {name!r}: {error}") from error


class _Lane:
    """The writer of one queue, in a thread."""

    def __init__(self, name: str, write: Write) -> None:
        self._name, self._write = name, write
        self._rows: queue.Queue[pa.RecordBatch | None] = queue.Queue(_WAITING)
        self._is_abandoned = threading.Event()
        self._written: list[Written] = []
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._work, name=f"cassieq-to_{name}", daemon=True)
        self._thread.start()

    def put(self, rows: pa.RecordBatch | None) -> None:
        """Hand over rows; None: there are no more. Waits while others are being written."""
        while self._thread.is_alive():
            try:
                self._rows.put(rows, timeout=_LOOK_SECONDS)
            except queue.Full:
                continue
            return
        if self._error is not None:
            raise self._error

    def finish(self) -> list[Written]:
        """Wait until all rows are written."""
        self.put(None)
        self._thread.join()
        if self._error is not None:
            raise self._error
        return self._written

    def abandon(self) -> None:
        """End the writer, unless it has finished."""
        self._is_abandoned.set()
        self._thread.join()

    def _work(self) -> None:
        try:
            self._written = _write_to(self._write, self._name, self._handed())
        except BaseException as error:  # noqa: BLE001 (the task raises it)
            self._error = error

    def _handed(self) -> Iterator[pa.RecordBatch]:
        while True:
            try:
                rows = self._rows.get(timeout=_LOOK_SECONDS)
            except queue.Empty:
                if self._is_abandoned.is_set():
                    raise _Abandoned from None
                continue
            if rows is None:
                return
            if self._is_abandoned.is_set():
                raise _Abandoned
            yield rows
