"""Python dicts and JSON objects as the columns of a queue, and back. Pure.

Both ways of writing take what `assign` takes, and refuse it with the same errors. In JSON

- timestamps are texts in ISO 8601, with an offset or ``Z``; `timestamp_ntz` has neither;
- dates are ``2026-11-22``, intervals ISO 8601 as well: ``PT1.5S``;
- decimals are texts, and numbers when they come;
- binary is Base64;
- floats that JSON lacks are ``"NaN"``, ``"Infinity"`` and ``"-Infinity"``;
- maps with keys of type string are objects; others are lists of ``{"key": ..., "value": ...}``.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Context, Decimal, DecimalException, Inexact, InvalidOperation
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import types as of

from cassieq_spark.arguments import check_many, shown
from cassieq_spark.errors import MessageError, SchemaError, UnreadableError
from cassieq_spark.schemas.assign import match
from cassieq_spark.schemas.canonical import (
    INTERVAL,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    joined,
    parts,
    type_name,
)

#: Turns one value into what Arrow takes for a column's type; raises `_Unfit` if it is no such one.
_Reader = Callable[[Any], Any]
#: Turns one value of Arrow's into one that JSON has.
_Writer = Callable[[Any], Any]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NAIVE_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - of timestamps without a zone
_MICROSECOND = timedelta(microseconds=1)
_LONGEST_INTERVAL = 2**63 - 1
#: The integers that a float holds without a gap.
_EXACT_BITS = {pa.float32(): 24, pa.float64(): 53}
#: What is rounded to infinity, for a float of 4 bytes.
_FLOAT_END = 2.0**128 - 2.0**103
_SPECIAL = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_INSTANT = re.compile(
    r"(\d{4}-\d\d-\d\d)[Tt ](\d\d:\d\d(?::\d\d)?)(?:[.,](\d{1,9}))?([Zz]|[+-]\d\d:?\d\d)?",
    re.ASCII,
)
_DAY = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_LENGTH = re.compile(
    r"([+-])?P(?:(\d{1,9})D)?(?:T(?:(\d{1,10})H)?(?:(\d{1,12})M)?"
    r"(?:(\d{1,14})(?:[.,](\d{1,9}))?S)?)?",
    re.ASCII,
)
_LONGEST_SHOWN = 60


class _Unfit(Exception):  # noqa: N818 - never leaves this module
    """A value does not fit; ``path`` grows on the way out."""

    def __init__(self, value: object, type_: str, *, path: str = "") -> None:
        super().__init__()
        self.value = value
        self.type = type_
        self.path = path


class _WrongNamesError(Exception):
    """A dict has other names than its struct has fields."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("; ".join(problems))


def from_dicts(
    rows: Iterable[Mapping[str, Any]], schema: pa.Schema, *, first_row: int = 0
) -> pa.RecordBatch:
    """Turn dicts into the columns of a queue.

    Structs are dicts, arrays are lists, maps are dicts or lists of pairs.

    Args:
        rows: One for each message; a nullable column that is missing is null.
        schema: The canonical schema of the queue.
        first_row: How to number the first row in an error.

    Raises:
        SchemaError: A row has an unknown name, one twice, or lacks one that is not null.
        MessageError: A value does not fit, or a row is no dict; names the row.
    """
    return _batch(rows, schema, _of_python, first_row)


def from_json(
    rows: Iterable[Mapping[str, Any]], schema: pa.Schema, *, first_row: int = 0
) -> pa.RecordBatch:
    """Turn parsed JSON objects into the columns of a queue.

    Args:
        rows: What `parse_json` returns, one for each message.
        schema: The canonical schema of the queue.
        first_row: How to number the first row in an error.

    Raises:
        SchemaError: A row has an unknown name, one twice, or lacks one that is not null.
        MessageError: A value does not fit, or a row is no object; names the row.
    """
    return _batch(rows, schema, _of_json, first_row)


def parse_json(text: str | bytes) -> Any:
    """Parse JSON so that no number loses digits, and no name that is there twice goes unnoticed.

    Raises:
        MessageError: It is no JSON.
    """
    try:
        return json.loads(
            text,
            parse_float=Decimal,
            parse_constant=_refuse_constant,
            object_pairs_hook=_object,
        )
    except (ValueError, RecursionError) as error:
        raise MessageError(f"this is no JSON: {str(error)[:200]}") from error


def to_dicts(batch: pa.RecordBatch | pa.Table) -> list[dict[str, Any]]:
    """Turn rows into dicts; maps become dicts too, if Python can look up their keys.

    Raises:
        UnreadableError: A date or an instant is not of the years 1 to 9999; `assign` takes none.
    """
    columns = []
    for field, column in zip(batch.schema, batch.columns, strict=True):
        try:
            values = column.to_pylist()
        except (OverflowError, ValueError) as error:
            raise UnreadableError(
                f"column {field.name!r} has a value that Python lacks: {error}"
            ) from error
        mend = _to_python(field.type)
        columns.append(values if mend is None else [_each(mend, value) for value in values])
    names = batch.schema.names
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def to_json(batch: pa.RecordBatch | pa.Table) -> list[dict[str, Any]]:
    """Turn rows into objects that ``json.dumps`` takes and `from_json` reads again.

    Raises:
        UnreadableError: A date or an instant is not of the years 1 to 9999; `assign` takes none.
    """
    rows = to_dicts(batch)
    for field in batch.schema:
        if (write := _to_json(field.type)) is not None:
            for row in rows:
                row[field.name] = _each(write, row[field.name])
    return rows


def json_text(row: dict[str, Any]) -> bytes:
    """A dict that `to_dicts` returned as a JSON object, which `from_json` reads again."""
    return json.dumps(json_of(row), ensure_ascii=False, separators=(",", ":")).encode()


def json_of(value: Any) -> Any:
    """Turn a value of a dict that `to_dicts` returned into one that ``json.dumps`` takes.

    As `to_json` does, but by the types that Python has for them. A dict whose keys are not all
    text becomes a list of pairs.
    """
    if isinstance(value, dict):
        if all(isinstance(key, str) for key in value):
            return {key: json_of(each) for key, each in value.items()}
        return _pairs_to_json(value.items())
    if isinstance(value, list):
        if value and all(isinstance(each, tuple) for each in value):
            return _pairs_to_json(value)
        return [json_of(each) for each in value]
    return next(
        (write(value) for kind, write in _BY_KIND if isinstance(value, kind)),
        value,
    )


def _pairs_to_json(pairs: Iterable[tuple[Any, Any]]) -> list[dict[str, Any]]:
    return [{"key": json_of(one), "value": json_of(other)} for one, other in pairs]


def _batch(
    rows: Iterable[Mapping[str, Any]],
    schema: pa.Schema,
    leaf: Callable[[pa.DataType], _Reader],
    first_row: int,
) -> pa.RecordBatch:
    read = _struct_reader(list(schema), leaf, "")
    converted = []
    many = check_many("rows", rows, "dicts, one for each message")
    for number, row in enumerate(many, first_row):
        try:
            converted.append(read(row))
        except _Unfit as unfit:
            raise MessageError(_told(unfit, number)) from None
        except _WrongNamesError as error:
            raise SchemaError(f"row {number} does not fit the queue: {error}") from None
    arrays = []
    for field in schema:
        values = [row[field.name] for row in converted]
        array = pa.array(values, field.type)
        if isinstance(array, pa.ChunkedArray):
            raise MessageError(f"column {field.name!r}: its values are too large together")
        arrays.append(array)
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _told(unfit: _Unfit, number: int) -> str:
    where = f"row {number} (counted from 0)"
    if not unfit.path:
        return f"{where}: {_shown(unfit.value)} is no dict of columns"
    where = f"column {unfit.path!r}, {where}"
    if unfit.value is None:
        return f"{where}: it is null, and must be a value of type {unfit.type}"
    return f"{where}: {_shown(unfit.value)} does not fit type {unfit.type}"


def _shown(value: object) -> str:
    """A value and its type, shortened; of other than plain types only the type."""
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
    """How values of a field are read, null included."""
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
        except _Unfit as unfit:
            unfit.path = unfit.path or path
            raise
        except (ArithmeticError, ValueError, TypeError, OverflowError):
            raise _Unfit(value, name, path=path) from None
        raise _Unfit(value, name, path=path)

    return checked


def _struct_reader(
    fields: Sequence[pa.Field], leaf: Callable[[pa.DataType], _Reader], path: str
) -> _Reader:
    readers = [(field.name, _reader(field, leaf, joined(path, field.name))) for field in fields]
    # Rows mostly have the same names in the same order.
    known: dict[tuple[Any, ...], list[tuple[str, Any, _Reader]]] = {}

    def read(value: Any) -> dict[str, Any]:
        if not isinstance(value, Mapping):
            raise _Unfit(value, "struct")
        try:
            plain = value if type(value) is dict else {name: value[name] for name in value}
            names = tuple(plain)
            plan = known.get(names)
        except Exception:  # noqa: BLE001 - a mapping of a program's own does what it likes
            raise _Unfit(value, "struct") from None
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
    for name in names:
        if not isinstance(name, str):
            raise _WrongNamesError([f"a name must be a str, not {shown(name)}"])
    found, problems = match(names, fields, path)
    if problems:
        raise _WrongNamesError(problems)
    return [(name, names[found[name]] if name in found else None, read) for name, read in readers]


def _list_reader(type_: pa.DataType, leaf: Callable[[pa.DataType], _Reader], path: str) -> _Reader:
    (element,) = parts(type_)
    read_element = _reader(element, leaf, joined(path, element.name))

    def read(value: Any) -> list[Any]:
        if isinstance(value, np.ndarray):
            value = list(value)
        if not isinstance(value, list | tuple):
            raise _Unfit(value, type_name(type_))
        return [read_element(each) for each in value]

    return read


def _map_reader(type_: pa.DataType, leaf: Callable[[pa.DataType], _Reader], path: str) -> _Reader:
    key, value_field = parts(type_)
    read_key = _reader(key, leaf, joined(path, key.name))
    read_value = _reader(value_field, leaf, joined(path, value_field.name))
    name = type_name(type_)

    def pairs(value: Any) -> Iterable[tuple[Any, Any]]:
        if isinstance(value, Mapping):
            return [(each, value[each]) for each in value]
        if not isinstance(value, list | tuple):
            raise _Unfit(value, name)
        return [_pair(each, name) for each in value]

    def read(value: Any) -> list[tuple[Any, Any]]:
        return [(read_key(one), read_value(other)) for one, other in pairs(value)]

    return read


def _pair(entry: Any, name: str) -> tuple[Any, Any]:
    if isinstance(entry, dict) and entry.keys() == {"key", "value"}:
        return entry["key"], entry["value"]
    if isinstance(entry, list | tuple) and len(entry) == 2:  # noqa: PLR2004 - key and value
        return entry[0], entry[1]
    raise _Unfit(entry, name)


def _of_python(type_: pa.DataType) -> _Reader:
    """How values of an atomic type are read from Python's own."""
    name = type_name(type_)
    if of.is_decimal(type_):
        return _decimal_reader(type_, name)
    if of.is_integer(type_):
        return _integer_reader(type_, name)
    if of.is_floating(type_):
        return _float_reader(type_, name)
    readers: dict[pa.DataType, Callable[[Any, str], Any]] = {
        pa.bool_(): _boolean,
        pa.string(): _string,
        pa.binary(): _binary,
        pa.date32(): _date,
        TIMESTAMP: _timestamp,
        TIMESTAMP_NTZ: _timestamp_ntz,
        INTERVAL: _interval,
    }
    read = readers[type_]
    return lambda value: read(value, name)


def _of_json(type_: pa.DataType) -> _Reader:
    """How values of an atomic type are read from what JSON has for them."""
    name = type_name(type_)
    readers: dict[pa.DataType, Callable[[Any, str], Any]] = {
        pa.binary(): _base64,
        pa.date32(): _date_text,
        TIMESTAMP: lambda value, name: _instant_text(value, name, zoned=True),
        TIMESTAMP_NTZ: lambda value, name: _instant_text(value, name, zoned=False),
        INTERVAL: _interval_text,
    }
    if (read := readers.get(type_)) is not None:
        return lambda value: read(value, name)
    plain = _of_python(type_)
    if of.is_floating(type_):
        return lambda value: plain(_SPECIAL.get(value, value) if type(value) is str else value)
    if of.is_decimal(type_):
        return lambda value: plain(_number_text(value) if type(value) is str else value)
    return plain


def _boolean(value: Any, name: str) -> bool:
    if not isinstance(value, bool | np.bool_):
        raise _Unfit(value, name)
    return bool(value)


def _integer_reader(type_: pa.DataType, name: str) -> _Reader:
    stop = 1 << (type_.bit_width - 1)

    def read(value: Any) -> int:
        number = value if type(value) is int else _whole(value, name)
        if not -stop <= number < stop:
            raise _Unfit(value, name)
        return number

    return read


def _whole(value: Any, name: str) -> int:
    if isinstance(value, int | np.integer) and not isinstance(value, bool):
        return int(value)
    if isinstance(value, float | np.floating) and float(value).is_integer():
        return int(value)
    # A number with a huge exponent would take all memory as an integer.
    is_small = isinstance(value, Decimal) and value.is_finite() and value.adjusted() < 20  # noqa: PLR2004
    if is_small and value == value.to_integral_value():
        return int(value)
    raise _Unfit(value, name)


def _float_reader(type_: pa.DataType, name: str) -> _Reader:
    exact = 1 << _EXACT_BITS[type_]
    is_small = type_ == pa.float32()

    def read(value: Any) -> float:
        if isinstance(value, float | np.floating):
            number = float(value)
            is_finite = math.isfinite(number)
        elif isinstance(value, int | np.integer) and not isinstance(value, bool):
            if not -exact <= value <= exact:
                raise _Unfit(value, name)
            return float(value)
        elif isinstance(value, Decimal):
            number, is_finite = float(value), True
        else:
            raise _Unfit(value, name)
        if is_finite and (math.isinf(number) or (is_small and abs(number) >= _FLOAT_END)):
            raise _Unfit(value, name)
        return number

    return read


def _decimal_reader(type_: pa.DataType, name: str) -> _Reader:
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
            raise _Unfit(value, name)
        if not number.is_finite():
            raise _Unfit(value, name)
        try:
            return number.quantize(unit, context=context)
        except DecimalException:
            raise _Unfit(value, name) from None

    return read


def _number_text(text: str) -> Decimal | str:
    try:
        return Decimal(text) if text.isascii() and "_" not in text else text
    except DecimalException:
        return text


def _string(value: Any, name: str) -> str:
    if not isinstance(value, str):
        raise _Unfit(value, name)
    text = str.__str__(value)
    if not text.isascii():
        text.encode()
    return text


def _binary(value: Any, name: str) -> bytes:
    if not isinstance(value, bytes | bytearray | memoryview):
        raise _Unfit(value, name)
    return bytes(value)


def _base64(value: Any, name: str) -> bytes:
    if not isinstance(value, str):
        raise _Unfit(value, name)
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        raise _Unfit(value, f"{name} in Base64") from None


def _date(value: Any, name: str) -> date:
    if not isinstance(value, date) or isinstance(value, datetime):
        raise _Unfit(value, name)
    return date(value.year, value.month, value.day)


def _timestamp(value: Any, name: str) -> datetime:
    if not isinstance(value, datetime):
        raise _Unfit(value, name)
    if value.utcoffset() is None:
        raise _Unfit(value, f"{name}: it needs a time zone, e.g. datetime.now(UTC)")
    return _EPOCH + _plain(value - _EPOCH, value, name)


def _timestamp_ntz(value: Any, name: str) -> datetime:
    if not isinstance(value, datetime):
        raise _Unfit(value, name)
    if value.utcoffset() is not None:
        raise _Unfit(value, f"{name}: it must have no time zone, e.g. value.replace(tzinfo=None)")
    return _NAIVE_EPOCH + _plain(value - _NAIVE_EPOCH, value, name)


def _interval(value: Any, name: str) -> timedelta:
    if not isinstance(value, timedelta):
        raise _Unfit(value, name)
    length = _plain(value, value, name)
    if abs(length // _MICROSECOND) > _LONGEST_INTERVAL:
        raise _Unfit(value, name)
    return length


def _plain(length: timedelta, value: object, name: str) -> timedelta:
    """A length of Python's own; those of pandas have nanoseconds, and one that is no time."""
    plain = timedelta(days=length.days, seconds=length.seconds, microseconds=length.microseconds)
    if getattr(length, "nanoseconds", 0):
        raise _Unfit(value, f"{name}, which has microseconds")
    return plain


def _date_text(value: Any, name: str) -> date:
    if not isinstance(value, str) or not _DAY.fullmatch(value):
        raise _Unfit(value, f"{name}, e.g. '2026-11-22'")
    return date.fromisoformat(value)


def _instant_text(value: Any, name: str, *, zoned: bool) -> datetime:
    example = "2026-11-22T12:00:00.5" + ("Z" if zoned else "")
    match_ = _INSTANT.fullmatch(value) if isinstance(value, str) else None
    if match_ is None or bool(match_[4]) is not zoned:
        raise _Unfit(value, f"{name}, e.g. {example!r}")
    day, time, fraction, zone = match_.groups()
    at = datetime.fromisoformat(f"{day}T{time}{(zone or '').upper()}")
    at = at.replace(microsecond=_microseconds(fraction, value, name))
    return at.astimezone(UTC) if zoned else at


def _interval_text(value: Any, name: str) -> timedelta:
    match_ = _LENGTH.fullmatch(value) if isinstance(value, str) else None
    if match_ is None or value[-1] in "PT":
        raise _Unfit(value, f"{name}, e.g. 'PT1.5S'")
    sign, days, hours, minutes, seconds, fraction = match_.groups()
    length = timedelta(
        days=int(days or 0),
        hours=int(hours or 0),
        minutes=int(minutes or 0),
        seconds=int(seconds or 0),
        microseconds=_microseconds(fraction, value, name),
    )
    return _interval(-length if sign == "-" else length, name)


def _microseconds(fraction: str | None, value: object, name: str) -> int:
    digits = (fraction or "").ljust(6, "0")
    if digits[6:].strip("0"):
        raise _Unfit(value, f"{name}, which has microseconds")
    return int(digits[:6])


def _refuse_constant(name: str) -> Any:
    raise ValueError(f'{name} is no number of JSON: write it as the text "{name}"')


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the name {twice[:_LONGEST_SHOWN]!r} is there twice")
    return made


def _each(change: Callable[[Any], Any], value: Any) -> Any:
    return None if value is None else change(value)


def _nested(
    type_: pa.DataType,
    change: Callable[[pa.DataType], _Writer | None],
    of_map: Callable[[pa.DataType], _Writer],
) -> _Writer | None:
    """How a value is changed whose parts are; None if none is."""
    if of.is_map(type_):
        return of_map(type_)
    changes = {part.name: change(part.type) for part in parts(type_)}
    if not any(changes.values()):
        return None
    if of.is_struct(type_):
        needed = [(name, each) for name, each in changes.items() if each is not None]

        def changed(value: dict[str, Any]) -> dict[str, Any]:
            return value | {name: _each(change, value[name]) for name, change in needed}

        return changed
    (element,) = (each for each in changes.values() if each is not None)
    return lambda value: [_each(element, each) for each in value]


def _to_python(type_: pa.DataType) -> _Writer | None:
    """How a value is changed that Arrow has made; None if it is not."""
    return _nested(type_, _to_python, _map_to_python)


def _map_to_python(type_: pa.DataType) -> _Writer:
    key, value_field = parts(type_)
    change_key, change_value = _to_python(key.type), _to_python(value_field.type)
    is_atomic = not of.is_nested(key.type)

    def changed(value: list[tuple[Any, Any]]) -> Any:
        pairs = value
        if change_key is not None or change_value is not None:
            pairs = [
                (
                    one if change_key is None else change_key(one),
                    other if change_value is None else _each(change_value, other),
                )
                for one, other in value
            ]
        return dict(pairs) if is_atomic else pairs

    return changed


def _to_json(type_: pa.DataType) -> _Writer | None:
    """How a value of `to_dicts` is changed for JSON; None if it is not."""
    if of.is_nested(type_):
        return _nested(type_, _to_json, _map_to_json)
    if of.is_decimal(type_):
        return _decimal_to_json
    if of.is_floating(type_):
        return _float_to_json
    writers: dict[pa.DataType, _Writer] = {
        pa.binary(): _binary_to_json,
        pa.date32(): date.isoformat,
        TIMESTAMP: _instant_to_json,
        TIMESTAMP_NTZ: _instant_to_json,
        INTERVAL: _interval_to_json,
    }
    return writers.get(type_)


def _binary_to_json(value: bytes) -> str:
    return base64.b64encode(value).decode()


def _instant_to_json(value: datetime) -> str:
    return value.replace(tzinfo=None).isoformat() + ("Z" if value.tzinfo else "")


def _map_to_json(type_: pa.DataType) -> _Writer:
    key, value_field = parts(type_)
    change_key = _to_json(key.type) or (lambda value: value)
    change_value = _to_json(value_field.type) or (lambda value: value)
    is_object = key.type == pa.string()

    def changed(value: Any) -> Any:
        pairs = value.items() if isinstance(value, dict) else value
        changed_pairs = [(change_key(one), _each(change_value, other)) for one, other in pairs]
        if is_object:
            return dict(changed_pairs)
        return [{"key": one, "value": other} for one, other in changed_pairs]

    return changed


def _decimal_to_json(value: Decimal) -> str:
    return format(value, "f")


def _float_to_json(value: float) -> float | str:
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _interval_to_json(value: timedelta) -> str:
    count = value // _MICROSECOND
    seconds, fraction = divmod(abs(count), 1_000_000)
    digits = f".{fraction:06}".rstrip("0") if fraction else ""
    return f"{'-' if count < 0 else ''}PT{seconds}{digits}S"


#: How `json_of` writes values, by their types; an instant is a date as well.
_BY_KIND: tuple[tuple[type, Callable[[Any], Any]], ...] = (
    (float, _float_to_json),
    (Decimal, _decimal_to_json),
    (bytes, _binary_to_json),
    (datetime, _instant_to_json),
    (date, date.isoformat),
    (timedelta, _interval_to_json),
)
