"""The index of a pandas DataFrame as plain columns: Arrow has parts of it only as metadata.

pandas describes the index of a DataFrame in the metadata of the Arrow schema. A RangeIndex has no
column at all. An index that has the name of a column, or no name, has a column with another
name. A reader that takes only the columns would lose such an index. So here each index with a name
becomes a column of that name, and each index without a name is left out.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any, NamedTuple

import pyarrow as pa

from cassieq_spark.errors import SchemaError

_PANDAS = b"pandas"
_INT64 = range(-(1 << 63), 1 << 63)


class _Index(NamedTuple):
    """How the columns of a DataFrame with an index are made.

    Attributes:
        columns: Index and name of each column that remains.
        ranges: Name and values of the index if it is a range with a name: pandas has at most one.
    """

    columns: list[tuple[int, str]]
    ranges: list[tuple[str, range]]


def plain_schema(schema: pa.Schema) -> pa.Schema:
    """The columns that `plain_batches` makes of batches with this schema.

    Raises:
        SchemaError: The metadata of pandas can't be read.
    """
    index = _index_of(schema)
    if index is None:
        return schema
    fields = [schema.field(place).with_name(name) for place, name in index.columns]
    return pa.schema(fields + [pa.field(name, pa.int64()) for name, _ in index.ranges])


def plain_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Turn the index of a DataFrame into columns; copies none of the other columns.

    Args:
        batches: All rows of the DataFrame, in their order.

    Raises:
        SchemaError: An index that is a range does not have as many values as there are rows,
            because some rows were left out after pandas described it; or the metadata of pandas
            can't be read.
    """
    stop = 0
    index = None
    for batch in batches:
        start, stop = stop, stop + batch.num_rows
        index = _index_of(batch.schema)
        if index is None:
            yield batch
            continue
        _check_lengths(index, stop, is_end=False)
        arrays = [batch.column(place) for place, _ in index.columns]
        arrays += [pa.array(values[start:stop], pa.int64()) for _, values in index.ranges]
        if not arrays:
            yield batch.select([])
            continue
        yield pa.RecordBatch.from_arrays(arrays, schema=plain_schema(batch.schema))
    if index is not None:
        _check_lengths(index, stop, is_end=True)


def _check_lengths(index: _Index, rows: int, *, is_end: bool) -> None:
    for name, values in index.ranges:
        if rows > len(values) or (is_end and rows < len(values)):
            raise SchemaError(
                f"the index {name!r} of pandas is {values} in the metadata, with "
                f"{len(values):,} values for {rows:,}{'' if is_end else ' or more'} rows: put the "
                "DataFrame after reset_index(), or drop the index by "
                "table.replace_schema_metadata()"
            )


def _index_of(schema: pa.Schema) -> _Index | None:
    """The description of the index by pandas; None if there is none."""
    described = (schema.metadata or {}).get(_PANDAS)
    return None if described is None else _parsed(described, tuple(schema.names))


@lru_cache(maxsize=16)
def _parsed(described: bytes, columns: tuple[str, ...]) -> _Index:
    try:
        metadata = json.loads(described)
        kept: dict[str, str | None] = {}
        ranges = []
        names = {each["field_name"]: each["name"] for each in metadata["columns"]}
        for each in metadata["index_columns"]:
            if isinstance(each, str):
                kept[each] = names.get(each, each)
            elif each["name"] is not None:
                ranges.append((str(each["name"]), _range(each, len(metadata["index_columns"]))))
    except (ValueError, TypeError, LookupError, OverflowError, RecursionError) as error:
        raise SchemaError(
            "the rows have metadata of pandas that can't be read: drop it by "
            "table.replace_schema_metadata()"
        ) from error
    # An index comes after all columns; some releases of Arrow call it like one of them.
    last = {name: place for place, name in enumerate(columns)}
    is_index = [name in kept and last[name] == place for place, name in enumerate(columns)]
    new_names = [
        kept[name] if is_one else name for name, is_one in zip(columns, is_index, strict=True)
    ]
    named = [(place, name) for place, name in enumerate(new_names) if name is not None]
    return _Index(named, ranges)


def _range(described: dict[str, Any], levels: int) -> range:
    values = range(described["start"], described["stop"], described["step"])
    # An index of several levels has a column for each level.
    if levels > 1 or not all(each in _INT64 for each in (values.start, values.stop, values.step)):
        raise ValueError("pandas has no such index")
    len(values)
    return values
