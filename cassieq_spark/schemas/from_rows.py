"""Python dicts and JSON objects as the columns of a queue; `to_rows` writes both.

Dicts and JSON may have the values that `assign` takes, and refuse others with the same errors. In
JSON

- timestamps are texts in ISO 8601, with an offset or ``Z``; `timestamp_ntz` has neither;
- dates are ``2026-11-22``, times ``12:00:00.5``, intervals ISO 8601 as well: ``PT1.5S``;
- decimals are texts; numbers are read too;
- binary is Base64;
- floats that JSON lacks are ``"NaN"``, ``"Infinity"`` and ``"-Infinity"``;
- maps with keys of type string are objects; others are lists of ``{"key": ..., "value": ...}``.
"""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import Context, Decimal, Inexact, InvalidOperation
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import types as of

from cassieq_spark.arguments import check_many, shown
from cassieq_spark.errors import MessageError, SchemaError
from cassieq_spark.schemas.assign import match
from cassieq_spark.schemas.canonical import (
    INTERVAL,
    TIME,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    joined,
    parts,
    type_name,
)
from cassieq_spark.schemas.map_keys import key_twice

#: Turns one value into a value that Arrow takes for a column's type. A value that does not fit
#: raises `_UnfitError`, `_HintError`, or one of Python's errors for such values.
_Reader = Callable[[Any], Any]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NAIVE_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - of timestamps without a zone
_MICROSECOND = timedelta(microseconds=1)
_LONGEST_INTERVAL = 2**63 - 1
#: The bits of the integers that a float holds exactly, without a gap.
_EXACT_BITS = {pa.float32(): 24, pa.float64(): 53}
#: From this number on, a number is rounded to infinity in a float of 4 bytes.
_FLOAT_END = 2.0**128 - 2.0**103
_SPECIAL = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_INSTANT = re.compile(
    r"(\d{4}-\d\d-\d\d)[Tt ](\d\d:\d\d(?::\d\d)?)(?:[.,](\d{1,9}))?([Zz]|[+-]\d\d:?\d\d)?",
    re.ASCII,
)
_TIME = re.compile(r"(\d\d:\d\d(?::\d\d)?)(?:[.,](\d{1,9}))?", re.ASCII)
_DAY = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_LENGTH = re.compile(
    r"([+-])?P(?:(\d{1,9})D)?(?:T(?:(\d{1,10})H)?(?:(\d{1,12})M)?"
    r"(?:(\d{1,14})(?:[.,](\d{1,9}))?S)?)?",
    re.ASCII,
)
_LONGEST_SHOWN = 60


class _UnfitError(Exception):
    """A value does not fit a type.

    Attributes:
        value: The value.
        type: The name of the type, and a hint if there is one.
        path: The path of the column or field; empty for a row.
    """

    def __init__(self, value: object, type_: str, path: str) -> None:
        super().__init__()
        self.value = value
        self.type = type_
        self.path = path


class _HintError(Exception):
    """A value does not fit; the hint follows the name of the type in the error."""


class _WrongNamesError(Exception):
    """The names in a dict differ from the fields of its struct."""


def from_dicts(rows: Iterable[Mapping[str, Any]], schema: pa.Schema) -> pa.RecordBatch:
    """Turn dicts into the columns of a queue.

    Structs are dicts, arrays are lists, maps are dicts or lists of pairs.

    Args:
        rows: One per message; a nullable column that is missing is null.
        schema: The canonical schema of the queue.

    Raises:
        SchemaError: A row has a name that is unknown or duplicated, or lacks one that is not null.
        MessageError: A value does not fit, or a row is no dict; the error names the row.
    """
    return _batch(rows, schema, _python_reader)


def from_json(
    rows: Iterable[Mapping[str, Any]], schema: pa.Schema, *, first_row: int = 0
) -> pa.RecordBatch:
    """Turn parsed JSON objects, as `parse_json` returns them, into the columns of a queue.

    See `from_dicts`. Errors give the first row the number ``first_row``.
    """
    return _batch(rows, schema, _json_reader, first_row)


def parse_json(text: str | bytes) -> Any:
    """Parse JSON without loss: all digits of a number are kept, and a duplicated name is an error.

    Raises:
        MessageError: The text is no JSON.
    """
    try:
        return json.loads(
            text,
            parse_float=Decimal,
            parse_constant=_refuse_constant,
            object_pairs_hook=_object,
        )
    except (ValueError, ArithmeticError, RecursionError) as error:
        raise MessageError(f"this is no JSON: {str(error)[:200]}") from error


def _refuse_constant(name: str) -> Any:
    raise ValueError(f'{name} is no number of JSON: write it as the text "{name}"')


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the name {twice[:_LONGEST_SHOWN]!r} appears twice")
    return made


def _batch(
    rows: Iterable[Mapping[str, Any]],
    schema: pa.Schema,
    leaf: Callable[[pa.DataType], _Reader],
    first_row: int = 0,
) -> pa.RecordBatch:
    read = _struct_reader(list(schema), leaf, "")
    converted = []
    many = check_many("rows", rows, "dicts, one for each message")
    for number, row in enumerate(many, first_row):
        try:
            converted.append(read(row))
        except _UnfitError as unfit:
            raise MessageError(_problem(unfit, number)) from None
        except _WrongNamesError as error:
            raise SchemaError(f"row {number} does not fit the queue: {error}") from None
    arrays = []
    for field in schema:
        array = pa.array([row[field.name] for row in converted], field.type)
        if isinstance(array, pa.ChunkedArray):
            raise MessageError(f"column {field.name!r}: its values are too large together")
        arrays.append(array)
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _problem(unfit: _UnfitError, number: int) -> str:
    where = f"row {number} (counted from 0)"
    if not unfit.path:
        return f"{where}: {_shown(unfit.value)} is no dict of columns"
    where = f"column {unfit.path!r}, {where}"
    if unfit.value is None:
        return f"{where}: it is null, and must be a value of type {unfit.type}"
    return f"{where}: {_shown(unfit.value)} does not fit type {unfit.type}"


def _shown(value: object) -> str:
    """A value and its type, shortened; only the type, unless it is one of Python's plain types."""
    kind = type(value)
    if kind in {str, bytes}:
        start = ascii(value[: _LONGEST_SHOWN + 1])  # type: ignore[index]
        text = start if len(start) <= _LONGEST_SHOWN else start[:_LONGEST_SHOWN] + "..."
    elif kind in {datetime, date, timedelta, Decimal, float, bool}:
        text = str(value)[:_LONGEST_SHOWN]
    elif kind is int:
        text = shown(value)
    else:
        return f"an object of type {kind.__name__}"
    return f"{text} of Python's type {kind.__name__}"


def _reader(field: pa.Field, leaf: Callable[[pa.DataType], _Reader], path: str) -> _Reader:
    """A function that reads values of a field, including null."""
    type_ = field.type
    if of.is_struct(type_):
        read = _struct_reader(list(type_), leaf, path)
    elif of.is_list(type_):
        read = _list_reader(type_, leaf, path)
    elif of.is_map(type_):
        read = _map_reader(type_, leaf, path)
    else:
        read = leaf(type_)
    name, nullable = type_name(type_), field.nullable

    def checked(value: Any) -> Any:
        if value is None and nullable:
            return None
        try:
            if value is not None:
                return read(value)
        except _HintError as hint:
            raise _UnfitError(value, f"{name}{hint}", path) from None
        except (ArithmeticError, ValueError, TypeError):
            pass
        raise _UnfitError(value, name, path)

    return checked


def _struct_reader(
    fields: Sequence[pa.Field], leaf: Callable[[pa.DataType], _Reader], path: str
) -> _Reader:
    readers = [(field.name, _reader(field, leaf, joined(path, field.name))) for field in fields]
    # Rows mostly have the same names in the same order.
    known: dict[tuple[Any, ...], list[tuple[str, Any, _Reader]]] = {}

    def read(value: Any) -> dict[str, Any]:
        if not isinstance(value, Mapping):
            raise _UnfitError(value, "struct", path)
        try:
            plain = value if type(value) is dict else {name: value[name] for name in value}
            names = tuple(plain)
            plan = known.get(names)
        except Exception:  # noqa: BLE001 - a program's own mapping may raise anything
            raise _UnfitError(value, "struct", path) from None
        if plan is None:
            plan = _plan(names, fields, readers, path)
            if len(known) < 1000:  # noqa: PLR2004 - a bound for rows that all have other names
                known[names] = plan
        return {name: read(plain.get(given)) for name, given, read in plan}

    return read


def _plan(
    names: tuple[Any, ...],
    fields: Sequence[pa.Field],
    readers: list[tuple[str, _Reader]],
    path: str,
) -> list[tuple[str, Any, _Reader]]:
    """For each field: its name, the name that a dict has for it, and the reader of its value."""
    for name in names:
        if not isinstance(name, str):
            raise _WrongNamesError(f"a name must be a str, not {shown(name)}")
    found, problems = match(names, fields, path)
    if problems:
        raise _WrongNamesError("; ".join(problems))
    return [(name, names[found[name]] if name in found else None, read) for name, read in readers]


def _list_reader(type_: pa.DataType, leaf: Callable[[pa.DataType], _Reader], path: str) -> _Reader:
    (element,) = parts(type_)
    read_element = _reader(element, leaf, joined(path, element.name))

    def read(value: Any) -> list[Any]:
        if isinstance(value, np.ndarray):
            value = list(value)
        if not isinstance(value, list | tuple):
            raise TypeError
        return [read_element(each) for each in value]

    return read


def _map_reader(type_: pa.DataType, leaf: Callable[[pa.DataType], _Reader], path: str) -> _Reader:
    read_key, read_value = (_reader(part, leaf, joined(path, part.name)) for part in parts(type_))

    def read(value: Any) -> list[tuple[Any, Any]]:
        if isinstance(value, Mapping):
            pairs = [(each, value[each]) for each in value]
        elif isinstance(value, list | tuple):
            pairs = [pair(each) for each in value]
        else:
            raise TypeError
        entries = [(read_key(one), read_value(other)) for one, other in pairs]
        if len(entries) > 1 and (twice := key_twice(key for key, _ in entries)) is not None:
            raise _HintError(f": the key {_shown(twice)} appears twice")
        return entries

    def pair(entry: Any) -> tuple[Any, Any]:
        if isinstance(entry, dict) and entry.keys() == {"key", "value"}:
            return entry["key"], entry["value"]
        if isinstance(entry, list | tuple) and len(entry) == 2:  # noqa: PLR2004 - key and value
            return entry[0], entry[1]
        raise _UnfitError(entry, type_name(type_), path)

    return read


def _python_reader(type_: pa.DataType) -> _Reader:
    """A function that reads Python values of an atomic type."""
    if of.is_decimal(type_):
        return _decimal_reader(type_)
    if of.is_integer(type_):
        return _integer_reader(type_)
    if of.is_floating(type_):
        return _float_reader(type_)
    kinds, convert = _PYTHON[type_]

    def read(value: Any) -> Any:
        if not isinstance(value, kinds):
            raise TypeError
        return convert(value)

    return read


def _json_reader(type_: pa.DataType) -> _Reader:
    """A function that reads JSON values of an atomic type."""
    if (read := _JSON.get(type_)) is not None:
        return read
    plain = _python_reader(type_)
    if of.is_floating(type_):
        return lambda value: plain(_SPECIAL.get(value, value) if type(value) is str else value)
    if of.is_decimal(type_):
        return lambda value: plain(_number(value) if type(value) is str else value)
    return plain


def _integer_reader(type_: pa.DataType) -> _Reader:
    stop = 1 << (type_.bit_width - 1)

    def read(value: Any) -> int:
        number = value if type(value) is int else _whole(value)
        if not -stop <= number < stop:
            raise OverflowError
        return number

    return read


def _whole(value: Any) -> int:
    if isinstance(value, int | np.integer) and not isinstance(value, bool):
        return int(value)
    if isinstance(value, float | np.floating) and float(value).is_integer():
        return int(value)
    # A number with a huge exponent would take all memory as an integer.
    is_small = isinstance(value, Decimal) and value.is_finite() and value.adjusted() < 20  # noqa: PLR2004
    if is_small and value == value.to_integral_value():
        return int(value)
    raise TypeError


def _float_reader(type_: pa.DataType) -> _Reader:
    exact = 1 << _EXACT_BITS[type_]
    is_small = type_ == pa.float32()

    def read(value: Any) -> float:
        if isinstance(value, float | np.floating):
            number = float(value)
            is_finite = math.isfinite(number)
        elif isinstance(value, int | np.integer) and not isinstance(value, bool):
            if not -exact <= value <= exact:
                raise OverflowError
            return float(value)
        elif isinstance(value, Decimal):
            number, is_finite = float(value), True
        else:
            raise TypeError
        if is_finite and (math.isinf(number) or (is_small and abs(number) >= _FLOAT_END)):
            raise OverflowError
        return number

    return read


def _decimal_reader(type_: pa.DataType) -> _Reader:
    context = Context(prec=type_.precision, traps=[Inexact, InvalidOperation])
    unit = Decimal(1).scaleb(-type_.scale)

    def read(value: Any) -> Decimal:
        if isinstance(value, Decimal):
            number = value
        elif isinstance(value, int | np.integer) and not isinstance(value, bool):
            number = Decimal(int(value))
        elif isinstance(value, float | np.floating):
            # The number that is printed: 0.1, not 0.1000000000000000055.
            number = Decimal(str(value))
        else:
            raise TypeError
        if not number.is_finite():
            raise ValueError
        return number.quantize(unit, context=context)

    return read


def _text(value: str) -> str:
    text = str.__str__(value)
    if not text.isascii():
        text.encode()
    return text


def _date(value: date) -> date:
    if isinstance(value, datetime):
        raise TypeError
    return date(value.year, value.month, value.day)


def _timestamp(value: datetime) -> datetime:
    if value.utcoffset() is None:
        raise _HintError(": it needs a time zone, e.g. datetime.now(UTC)")
    return _EPOCH + _plain(value - _EPOCH)


def _timestamp_ntz(value: datetime) -> datetime:
    if value.utcoffset() is not None:
        raise _HintError(": it must have no time zone, e.g. value.replace(tzinfo=None)")
    return _NAIVE_EPOCH + _plain(value - _NAIVE_EPOCH)


def _time(value: time) -> time:
    if value.tzinfo is not None:
        raise _HintError(": it must have no time zone, e.g. value.replace(tzinfo=None)")
    return time(value.hour, value.minute, value.second, value.microsecond)


def _interval(value: timedelta) -> timedelta:
    length = _plain(value)
    if abs(length // _MICROSECOND) > _LONGEST_INTERVAL:
        raise OverflowError
    return length


def _plain(length: timedelta) -> timedelta:
    """A length of Python's own type; those of pandas have nanoseconds, or are no time at all."""
    plain = timedelta(days=length.days, seconds=length.seconds, microseconds=length.microseconds)
    if getattr(length, "nanoseconds", 0):
        raise _HintError(", which has microseconds")
    return plain


def _base64(value: Any) -> bytes:
    if not isinstance(value, str):
        raise TypeError
    try:
        return base64.b64decode(value, validate=True)
    except ValueError:
        raise _HintError(" in Base64") from None


def _number(text: str) -> Decimal:
    if not text.isascii() or "_" in text:
        raise ValueError
    return Decimal(text)


def _date_text(value: Any) -> date:
    if not isinstance(value, str) or not _DAY.fullmatch(value):
        raise _HintError(", e.g. '2026-11-22'")
    return date.fromisoformat(value)


def _instant_text(value: Any, *, zoned: bool) -> datetime:
    match_ = _INSTANT.fullmatch(value) if isinstance(value, str) else None
    if match_ is None or bool(match_[4]) is not zoned:
        raise _HintError(f", e.g. '2026-11-22T12:00:00.5{'Z' if zoned else ''}'")
    day, clock, fraction, zone = match_.groups()
    at = datetime.fromisoformat(f"{day}T{clock}{(zone or '').upper()}")
    at = at.replace(microsecond=_microseconds(fraction))
    return at.astimezone(UTC) if zoned else at


def _time_text(value: Any) -> time:
    match_ = _TIME.fullmatch(value) if isinstance(value, str) else None
    if match_ is None:
        raise _HintError(", e.g. '12:00:00.5'")
    return time.fromisoformat(match_[1]).replace(microsecond=_microseconds(match_[2]))


def _interval_text(value: Any) -> timedelta:
    match_ = _LENGTH.fullmatch(value) if isinstance(value, str) else None
    if match_ is None or value[-1] in "PT":
        raise _HintError(", e.g. 'PT1.5S'")
    sign, days, hours, minutes, seconds, fraction = match_.groups()
    length = timedelta(
        days=int(days or 0),
        hours=int(hours or 0),
        minutes=int(minutes or 0),
        seconds=int(seconds or 0),
        microseconds=_microseconds(fraction),
    )
    return _interval(-length if sign == "-" else length)


def _microseconds(fraction: str | None) -> int:
    digits = (fraction or "").ljust(6, "0")
    if digits[6:].strip("0"):
        raise _HintError(", which has microseconds")
    return int(digits[:6])


#: For atomic types that are no numbers: the types of values, and how they are converted.
_PYTHON: dict[pa.DataType, tuple[tuple[type, ...], Callable[[Any], Any]]] = {
    pa.bool_(): ((bool, np.bool_), bool),
    pa.string(): ((str,), _text),
    pa.binary(): ((bytes, bytearray, memoryview), bytes),
    pa.date32(): ((date,), _date),
    TIMESTAMP: ((datetime,), _timestamp),
    TIMESTAMP_NTZ: ((datetime,), _timestamp_ntz),
    INTERVAL: ((timedelta,), _interval),
    TIME: ((time,), _time),
}
#: For types whose values JSON writes as texts.
_JSON: dict[pa.DataType, _Reader] = {
    pa.binary(): _base64,
    pa.date32(): _date_text,
    TIMESTAMP: partial(_instant_text, zoned=True),
    TIMESTAMP_NTZ: partial(_instant_text, zoned=False),
    INTERVAL: _interval_text,
    TIME: _time_text,
}
