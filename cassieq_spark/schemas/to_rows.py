"""The columns of a queue as Python dicts and JSON objects; `from_rows` reads both."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable, Iterable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
from pyarrow import types as of

from cassieq_spark.errors import UnreadableError
from cassieq_spark.schemas.canonical import INTERVAL, TIME, TIMESTAMP, TIMESTAMP_NTZ, parts

#: Turns a value of a column's type into another one.
_Change = Callable[[Any], Any]

_MICROSECOND = timedelta(microseconds=1)


def to_dicts(batch: pa.RecordBatch | pa.Table) -> list[dict[str, Any]]:
    """Turn rows into dicts; maps become dicts, too, if Python can look up their keys.

    Raises:
        UnreadableError: A date or an instant is outside the years 1 to 9999; `assign` accepts
            none.
    """
    columns = []
    for field, column in zip(batch.schema, batch.columns, strict=True):
        try:
            values = column.to_pylist()
        except (OverflowError, ValueError) as error:
            raise UnreadableError(
                f"column {field.name!r} has a value that Python lacks: {error}"
            ) from error
        change = _change(field.type, lambda _: None, _python_map)
        if change is not None:
            values = [None if value is None else change(value) for value in values]
        columns.append(values)
    names = batch.schema.names
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def to_json(batch: pa.RecordBatch | pa.Table) -> list[dict[str, Any]]:
    """Turn rows into objects that ``json.dumps`` accepts and `from_json` reads again.

    Raises:
        UnreadableError: A date or an instant is outside the years 1 to 9999; `assign` accepts
            none.
    """
    rows = to_dicts(batch)
    for field in batch.schema:
        if (change := _change(field.type, _json_value, _json_map)) is not None:
            for row in rows:
                row[field.name] = _applied(change, row[field.name])
    return rows


def json_text(row: dict[str, Any]) -> bytes:
    """A dict that `to_dicts` returned as a JSON object, which `from_json` reads again."""
    return json.dumps(json_of(row), ensure_ascii=False, separators=(",", ":")).encode()


def json_of(value: Any) -> Any:
    """Turn a value of a dict that `to_dicts` returned into a value that ``json.dumps`` accepts.

    It does what `to_json` does, but depends on Python's types. A dict whose keys are not all text
    becomes a list of entries.
    """
    if isinstance(value, dict):
        if all(isinstance(key, str) for key in value):
            return {key: json_of(each) for key, each in value.items()}
        value = list(value.items())
    if isinstance(value, list):
        if value and all(isinstance(each, tuple) for each in value):
            return [{"key": json_of(key), "value": json_of(each)} for key, each in value]
        return [json_of(each) for each in value]
    return next((write(value) for kind, write in _BY_KIND if isinstance(value, kind)), value)


def _change(
    type_: pa.DataType,
    of_value: Callable[[pa.DataType], _Change | None],
    of_map: Callable[[pa.DataType], Callable[[Iterable[tuple[Any, Any]]], Any]],
) -> _Change | None:
    """A function that changes values of a type; None if they stay as they are.

    Args:
        type_: The type.
        of_value: Returns a function that changes values of an atomic type.
        of_map: Returns a function that makes an object of the pairs of a map, by the type of its
            keys.
    """
    if not of.is_nested(type_):
        return of_value(type_)
    changes = [_change(part.type, of_value, of_map) for part in parts(type_)]
    if of.is_map(type_):
        key, value = changes
        make = of_map(type_.key_type)

        def changed_map(given: Any) -> Any:
            pairs = given.items() if isinstance(given, dict) else given
            if key or value:
                pairs = [(_applied(key, one), _applied(value, other)) for one, other in pairs]
            return make(pairs)

        return changed_map
    if not any(changes):
        return None
    if of.is_list(type_) and (element := changes[0]):
        return lambda given: [None if each is None else element(each) for each in given]
    needed = [(part.name, each) for part, each in zip(type_, changes, strict=True) if each]
    return lambda given: given | {name: _applied(each, given[name]) for name, each in needed}


def _applied(change: _Change | None, value: Any) -> Any:
    return value if value is None or change is None else change(value)


def _python_map(key: pa.DataType) -> Callable[[Iterable[tuple[Any, Any]]], Any]:
    return list if of.is_nested(key) else dict


def _json_map(key: pa.DataType) -> Callable[[Iterable[tuple[Any, Any]]], Any]:
    return dict if key == pa.string() else _entries


def _entries(pairs: Iterable[tuple[Any, Any]]) -> list[dict[str, Any]]:
    return [{"key": key, "value": value} for key, value in pairs]


def _json_value(type_: pa.DataType) -> _Change | None:
    """A function that changes values of an atomic type for JSON; None if they stay as they are."""
    if of.is_decimal(type_):
        return _decimal
    if of.is_floating(type_):
        return _float
    changes: dict[pa.DataType, _Change] = {
        pa.binary(): _binary,
        pa.date32(): date.isoformat,
        TIMESTAMP: _instant,
        TIMESTAMP_NTZ: _instant,
        INTERVAL: _interval,
        TIME: time.isoformat,
    }
    return changes.get(type_)


def _decimal(value: Decimal) -> str:
    return format(value, "f")


def _float(value: float) -> float | str:
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _binary(value: bytes) -> str:
    return base64.b64encode(value).decode()


def _instant(value: datetime) -> str:
    return value.replace(tzinfo=None).isoformat() + ("Z" if value.tzinfo else "")


def _interval(value: timedelta) -> str:
    count = value // _MICROSECOND
    seconds, fraction = divmod(abs(count), 1_000_000)
    digits = f".{fraction:06}".rstrip("0") if fraction else ""
    return f"{'-' if count < 0 else ''}PT{seconds}{digits}S"


#: How `json_of` writes values, by their types; datetime is before date, as it is a kind of date.
_BY_KIND: tuple[tuple[type, _Change], ...] = (
    (float, _float),
    (Decimal, _decimal),
    (bytes, _binary),
    (datetime, _instant),
    (date, date.isoformat),
    (timedelta, _interval),
    (time, time.isoformat),
)
