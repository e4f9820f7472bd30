"""Exports queues to files, and imports files: Parquet, Arrow streams and JSON lines."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, Protocol
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq

from cassieq_spark.arguments import did_you_mean
from cassieq_spark.arrow.framing import STORED
from cassieq_spark.arrow.rows import stored_of
from cassieq_spark.arrow.typed_framing import EXTRA, KEY_COLUMN
from cassieq_spark.errors import (
    BatchChangedError,
    CassieqError,
    ExistsError,
    MessageError,
    OptionError,
    SchemaError,
)
from cassieq_spark.fetch.find import Piece, pieces_of
from cassieq_spark.fetch.read import fetch
from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.ledger.once import once_of_key
from cassieq_spark.model import QueueDefinition, Range, Ranges
from cassieq_spark.producer.partitioned import publish_all, write_messages
from cassieq_spark.schemas.canonical import canonical, type_name
from cassieq_spark.schemas.convert import without_dictionary
from cassieq_spark.schemas.ddl import schema_of
from cassieq_spark.schemas.from_rows import from_json, parse_json
from cassieq_spark.schemas.pandas_index import plain_batches, plain_schema
from cassieq_spark.schemas.to_rows import to_json
from cassieq_spark.store.protocol import Store

#: Called with the number of messages done, and the total; 0 if the total is unknown.
Watch = Callable[[int, int], None]

#: The number of rows, or 0 if it is unknown, and the rows.
_Batches = tuple[int, Iterator[pa.RecordBatch]]
_LINES = 1024


class _Writer(Protocol):
    def write_batch(self, batch: pa.RecordBatch) -> None: ...

    def close(self) -> None: ...


def is_file(name: str) -> bool:
    """True if `export_queue` can write a file of this name."""
    return Path(name).suffix in _FORMATS


def export_queue(
    store: Store, queue: QueueDefinition, path: Path, *, force: bool, watch: Watch
) -> int:
    """Write all stored messages of a queue to a file; return their number. Leases nothing.

    The suffix names the format. The file is either complete, or does not exist. Its columns are
    the queue's, ``_key`` and ``_headers``; without a schema, ``value``, ``key`` and ``headers``.
    Leased, delayed and settled messages are included. With ``force``, a file is overwritten.

    Raises:
        ExistsError: The file exists.
        UnreadableError: A message is unreadable.
    """
    if path.exists() and not force:
        raise ExistsError(f"{path} exists already: name another file, or give --force")
    parts = [(each, *_stored_in(store, each)) for each in queue.by_partition]
    total = sum(len(monotons) for _, monotons, _ in parts)
    part = path.with_name(f"{path.name}.{uuid4().hex}.part")
    open_writer, _ = _FORMATS[path.suffix]
    done = 0
    try:
        with closing(open_writer(part, columns_of(queue))) as writer:
            for partition, _, pieces in parts:
                for rows in fetch(store, partition, pieces, whole=True):
                    writer.write_batch(stored_of(rows).cast(columns_of(queue)))
                    done += rows.num_rows
                    watch(done, total)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
    return done


def _stored_in(store: Store, queue: QueueDefinition) -> tuple[Range, list[Piece]]:
    """The monotons of the messages stored in one partition, and the pieces that hold them."""
    ledger = Ledger(store, queue.queue_id)
    head = ledger.read_head(serial=True)
    monotons = Range(head.finalised, head.next)
    return monotons, pieces_of(ledger.locate(monotons), Ranges.of(monotons), deliveries=None)


def import_file(  # noqa: PLR0913 (what to copy, and how, by name)
    store: Store,
    queue: QueueDefinition,
    path: Path,
    *,
    key: str | None = None,
    idempotency_key: str | None = None,
    watch: Watch,
) -> int:
    """Publish the rows of a file under a name. One LWT per partition, and a read of the name.

    The suffix names the format. All rows of a partition become visible together, or none does. If
    only some partitions have published their rows, a note of the error has the name under which
    the copy can be completed.

    Args:
        store: The store.
        queue: The queue.
        path: The file.
        key: The column of the queue whose values become the keys of the messages, as text or
            bytes.
        idempotency_key: The name, see `Client.put_many`; None: a name that no other copy has.
        watch: Called with the number of rows written.

    Returns:
        The number of rows published; 0 if they were published before under this name.

    Raises:
        BatchChangedError: Other rows were published under the name.
        SchemaError: The columns differ from the columns of the queue.
        MessageError: A value does not fit, or a line is not a JSON object.
        OptionError: The file cannot be read; the queue has no column ``key``; the file has keys of
            its own; or the file delays messages, and the queue has an order.
    """
    if key is not None:
        if queue.schema is None:
            raise OptionError(
                f"queue {queue.name!r} has no schema, so none of its columns can be the key: give "
                "the file a column 'key'"
            )
        check_key(key, schema_of(queue.schema), f"queue {queue.name!r}")
    with _opened(path, queue) as (total, batches):
        rows = batches if key is None else (_keyed(each, key, path) for each in batches)
        name = idempotency_key or str(uuid4())
        once = once_of_key(name)
        written = write_messages(store, queue, _watched(rows, total, watch), once)
    try:
        published = publish_all(store, written)
    except BatchChangedError:
        raise
    except CassieqError as error:
        error.add_note(
            f"To complete the copy, repeat it within twelve hours with --idempotency-key {name}: "
            "then nothing is published twice"
        )
        raise
    return sum(len(each.monotons or ()) for each in published.values())


def schema_of_file(path: Path) -> pa.Schema:
    """The schema of a queue that takes the rows of a file.

    Raises:
        OptionError: The file cannot be read, or has columns that no queue can have.
    """
    if path.suffix == ".jsonl":
        raise OptionError(
            f"{path} does not say which types its columns have: create the queue first"
        )
    with _reading(path):
        if path.suffix == ".parquet":
            schema = pq.read_schema(path)
        else:
            with pa.ipc.open_stream(path) as reader:
                schema = reader.schema
    columns = plain_schema(schema)
    return canonical(pa.schema([field for field in columns if field.name not in EXTRA.names]))


def check_key(key: str, columns: pa.Schema, whose: str) -> None:
    """Check that a column can be the key; ``whose`` names the owner of the columns in errors.

    Raises:
        OptionError: The column does not exist, or its values cannot be keys.
    """
    if key not in columns.names:
        advice = did_you_mean(key, columns.names, f"it has {', '.join(columns.names)[:200]}")
        raise OptionError(f"{whose} has no column {key!r}: {advice}")
    kind = columns.field(key).type
    if pa.types.is_nested(kind):
        raise OptionError(
            f"column {key!r} of {whose} is {type_name(kind)}, whose values can't be keys: name a "
            "column of texts, bytes or numbers"
        )


def columns_of(queue: QueueDefinition) -> pa.Schema:
    """The columns of a file with the messages of a queue."""
    if queue.schema is None:
        return STORED
    return pa.schema([*schema_of(queue.schema), *EXTRA])


def _watched(
    batches: Iterator[pa.RecordBatch], total: int, watch: Watch
) -> Iterator[pa.RecordBatch]:
    done = 0
    for batch in batches:
        yield batch
        done += batch.num_rows
        watch(done, total)


@contextmanager
def _opened(path: Path, queue: QueueDefinition) -> Iterator[_Batches]:
    _, open_reader = _FORMATS[path.suffix]
    with _reading(path), open_reader(path, queue) as (total, batches):
        yield total, (_as_put(batch, queue, path) for batch in plain_batches(batches))


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        raise OptionError(f"the file {path} can't be read: {error}") from error


def _keyed(batch: pa.RecordBatch, key: str, path: Path) -> pa.RecordBatch:
    found = {name.lower(): name for name in batch.schema.names}
    own = found.get(KEY_COLUMN)
    if own is not None:
        if batch.column(own).null_count < batch.num_rows:
            raise OptionError(f"{path} has a column {own!r} with keys: leave out --key")
        batch = batch.drop_columns([own])
    # A missing column is null.
    values = pa.nulls(batch.num_rows)
    if key.lower() in found:
        values = without_dictionary(batch.column(found[key.lower()]), key)
    is_bytes = pa.types.is_binary(values.type) or pa.types.is_large_binary(values.type)
    try:
        keys = values.cast(pa.binary() if is_bytes else pa.string())
    except pa.ArrowException as error:
        raise OptionError(
            f"column {key!r} of {path} is {values.type}, whose values can't be keys: {error}"
        ) from error
    return batch.append_column(KEY_COLUMN, keys)


def _as_put(batch: pa.RecordBatch, queue: QueueDefinition, path: Path) -> pa.RecordBatch:
    """Convert rows of a file for a publisher, which checks the columns of a schema itself."""
    if queue.schema is not None:
        return batch
    unknown = [name for name in batch.schema.names if name not in STORED.names]
    if unknown or "value" not in batch.schema.names:
        raise SchemaError(
            f"the columns of {path} are {', '.join(batch.schema.names)}; queue {queue.name!r} has "
            "no schema and takes value, key and headers: create a queue with a schema"
        )
    schema = pa.schema([STORED.field(name) for name in batch.schema.names])
    columns = [without_dictionary(batch.column(name), name) for name in batch.schema.names]
    try:
        return pa.RecordBatch.from_arrays(columns, names=batch.schema.names).cast(schema)
    except pa.ArrowException as error:
        raise SchemaError(f"the columns of {path} do not fit the queue: {error}") from error


class _LinesWriter:
    def __init__(self, path: Path) -> None:
        self._file = path.open("w", encoding="utf-8")

    def write_batch(self, batch: pa.RecordBatch) -> None:
        for row in to_json(batch):
            self._file.write(json.dumps(row, ensure_ascii=False) + "\n")

    def close(self) -> None:
        self._file.close()


@contextmanager
def _read_parquet(path: Path, _: QueueDefinition) -> Iterator[_Batches]:
    with pq.ParquetFile(path) as file:
        # Arrow 19 fails to make batches of a file without row groups.
        yield file.metadata.num_rows, file.iter_batches() if file.num_row_groups else iter(())


@contextmanager
def _read_arrow(path: Path, _: QueueDefinition) -> Iterator[_Batches]:
    with pa.ipc.open_stream(path) as reader:
        yield 0, (_checked(batch) for batch in reader)


def _checked(batch: pa.RecordBatch) -> pa.RecordBatch:
    batch.validate(full=True)
    return batch


@contextmanager
def _read_lines(path: Path, queue: QueueDefinition) -> Iterator[_Batches]:
    with path.open("rb") as file:
        yield 0, _rows_of_lines(file, columns_of(queue))


def _rows_of_lines(lines: Iterator[bytes], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    first = 0
    while taken := list(islice(lines, _LINES)):
        rows: list[Any] = []
        for number, line in enumerate(taken, first):
            try:
                rows.append(parse_json(line))
            except MessageError as error:
                raise MessageError(f"line {number} (counted from 0): {error}") from error
        yield from_json(rows, schema, first_row=first)
        first += len(taken)


#: Writers and readers of files, by suffix.
_FORMATS: dict[
    str,
    tuple[
        Callable[[Path, pa.Schema], _Writer],
        Callable[[Path, QueueDefinition], AbstractContextManager[_Batches]],
    ],
] = {
    ".parquet": (pq.ParquetWriter, _read_parquet),
    ".arrow": (pa.ipc.new_stream, _read_arrow),
    ".jsonl": (lambda path, _: _LinesWriter(path), _read_lines),
}
