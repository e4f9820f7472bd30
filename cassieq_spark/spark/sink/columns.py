"""Which columns a DataFrame needs to be published, or to settle messages. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from cassieq_spark.arguments import did_you_mean
from cassieq_spark.arrow.rows import METADATA
from cassieq_spark.errors import SchemaError
from cassieq_spark.model import Order
from cassieq_spark.settings.writing import ACK, EACH, EXTEND, REJECT, RELEASE, REPLACE


@dataclass(frozen=True, slots=True)
class _Column:
    """A column of a DataFrame to be written.

    Attributes:
        types: The types it may have, as Spark's ``simpleString()`` writes them. A type with a
            blank stands for all types that begin so.
        expected: The types in words.
        example: An expression that makes such a column.
    """

    types: tuple[str, ...]
    expected: str
    example: str


_TEXT = ("string", "binary")
_WHOLE = ("tinyint", "smallint", "int", "bigint")
_SPANS = ("interval day", "interval hour", "interval minute", "interval second")
_VALUE = _Column(_TEXT, "string or binary", "to_json(struct(*)) as value")
_KEY = _Column(_TEXT, "string or binary", "cast(id as string) as key")
_HEADERS = _Column(
    ("map<string,string>",), "map<string,string>", "map('origin', 'web') as headers"
)
_DELAY = _Column(
    (*_SPANS, "double", *_WHOLE),
    "a day-time interval, or a number of seconds",
    "interval 10 seconds as delay",
)
_VISIBLE_AT = _Column(
    ("timestamp",), "timestamp", "timestamp '2026-12-24 18:00:00Z' as visible_at"
)
_RECEIPT = _Column(("string",), "string", "receipt, of a stream with includeReceipts")
_OPERATION = _Column(("string",), "string", "'ack' as operation")
_REASON = _Column(("string",), "string", "'no such customer' as reason")
#: The struct ``_metadata`` of a stream that is read with includeReceipts.
_HAS_RECEIPT = re.compile(r"[<,]receipt:string[,>]")
_SECONDS = _Column(_WHOLE, "a whole number", "600 as seconds")

#: What the columns are called that a message has beside those of a queue with a schema.
_SPECIAL = {
    "_key": replace(_KEY, example="cast(id as string) as _key"),
    "_headers": replace(_HEADERS, example="map('origin', 'web') as _headers"),
    "_delay": replace(_DELAY, example="interval 10 seconds as _delay"),
    "_visible_at": replace(_VISIBLE_AT, example="timestamp '2026-12-24 18:00:00Z' as _visible_at"),
}
_MESSAGE = {"value": _VALUE, "key": _KEY, "headers": _HEADERS}
_PUBLISHED = _MESSAGE | {"delay": _DELAY, "visible_at": _VISIBLE_AT}
#: The columns that each operation takes besides receipts: the names of those it needs, and all.
_SETTLED: dict[str, tuple[tuple[str, ...], dict[str, _Column]]] = {
    ACK: ((), {}),
    RELEASE: ((), {"delay": _DELAY}),
    EXTEND: ((), {"seconds": _SECONDS}),
    REJECT: ((), {"reason": _REASON}),
    REPLACE: (("value",), _MESSAGE),
    EACH: (
        ("operation",),
        {
            "operation": _OPERATION,
            "delay": _DELAY,
            "seconds": _SECONDS,
            "reason": _REASON,
            **_MESSAGE,
        },
    ),
}


def validate_published(fields: Sequence[tuple[str, str]], *, order: Order = Order.NONE) -> None:
    """Check the columns of a DataFrame of messages.

    Args:
        fields: Names with types, as Spark's ``simpleString()`` writes them.
        order: That of the queue; where there is one, nothing can be delayed.

    Raises:
        SchemaError: ``value`` is missing, or a column is unknown, there twice, of another type, or
            contradicts another one or the queue; names all problems.
    """
    problems = _problems(fields, _PUBLISHED, required=("value",))
    problems += _late_problems(fields, ("delay", "visible_at"), order=order)
    if problems:
        raise SchemaError("cannot publish this DataFrame: " + "; ".join(problems))


def validate_special(fields: Sequence[tuple[str, str]], *, order: Order) -> None:
    """Check the columns that a message has beside those of a queue with a schema.

    Args:
        fields: Names with types, as Spark's ``simpleString()`` writes them; columns of the queue
            are left alone.
        order: That of the queue; where there is one, nothing can be delayed.

    Raises:
        SchemaError: One is there twice, of another type, or contradicts another one or the queue;
            names all problems.
    """
    special = [(name.lower(), type_) for name, type_ in fields if name.lower() in _SPECIAL]
    problems = _problems(special, _SPECIAL, required=())
    problems += _late_problems(special, ("_delay", "_visible_at"), order=order)
    if problems:
        raise SchemaError("cannot publish this DataFrame: " + "; ".join(problems))


def is_special(name: str) -> bool:
    """Whether a column says how a message is put, to a queue with a schema."""
    return name.lower() in _SPECIAL


def _late_problems(
    fields: Sequence[tuple[str, str]], names: tuple[str, str], *, order: Order
) -> list[str]:
    late = [name for name in names if name in dict(fields)]
    if len(late) > 1:
        return [f"there are columns {names[0]!r} and {names[1]!r}: keep one of them"]
    if late and order is not Order.NONE:
        how = "ordered by key" if order is Order.KEY else "strictly ordered"
        problem = (
            f"column {late[0]!r}: the queue is {how}, so a delayed message would hold up all "
            "later ones; drop the column, or use another queue"
        )
        return [problem]
    return []


def validate_settled(fields: Sequence[tuple[str, str]], operation: str) -> None:
    """Check the columns of a DataFrame of receipts.

    Args:
        fields: Names with types, as Spark's ``simpleString()`` writes them.
        operation: What to do with the messages.

    Raises:
        SchemaError: A column is missing, unknown, there twice or of another type; names all
            problems.
    """
    required, optional = _SETTLED[operation]
    columns = {"receipt": _RECEIPT, **optional}
    problems = _problems(fields, columns, required=("receipt", *required))
    if problems:
        takes = ", ".join(columns)
        raise SchemaError(
            f"option 'operation' = {operation!r} cannot take this DataFrame (it takes the "
            f"columns {takes}): " + "; ".join(problems)
        )


def validate_replaced(fields: Sequence[tuple[str, str]], own: Sequence[str]) -> list[str]:
    """Check the columns of a DataFrame of rows that replace messages of a queue with a schema.

    Args:
        fields: Names with types, as Spark's ``simpleString()`` writes them.
        own: The columns of the queue.

    Returns:
        The names of the others: those that are to be columns of the queue.

    Raises:
        SchemaError: The receipt is missing or there twice, or a column has another type; names all
            problems.
    """
    source = receipt_source([name for name, _ in fields], own)
    types = dict(fields)
    problems = []
    if source == METADATA and not _HAS_RECEIPT.search(types[source]):
        problems.append(
            f"column {source!r} has no receipt: read the stream with the option includeReceipts"
        )
    special = {name: column for name, column in _SPECIAL.items() if name != "_visible_at"}
    known = special | ({} if source == METADATA else {source: _RECEIPT})
    taken = [(name, type_) for name, type_ in fields if name == source or is_special(name)]
    given = [(name.lower(), type_) for name, type_ in taken if name != METADATA]
    problems += _problems(given, known, required=())
    if problems:
        raise SchemaError("cannot replace messages by this DataFrame: " + "; ".join(problems))
    return [name for name, _ in fields if (name, types[name]) not in taken]


def receipt_source(names: Sequence[str], own: Sequence[str]) -> str:
    """The column of rows that has their receipts, or has them in a struct: ``_metadata``.

    Args:
        names: All columns of the rows.
        own: Those of the queue, which may have one that is called ``receipt``.

    Raises:
        SchemaError: There is none, or both are there.
    """
    is_own = "receipt" in {name.lower() for name in own}
    found = [name for name in ("receipt", METADATA) if name in names]
    if is_own and "receipt" in found:
        found.remove("receipt")
    if len(found) == 1:
        return found[0]
    keep = "keep one of the columns 'receipt' and '_metadata'"
    take = "keep the column '_metadata' of a stream that is read with includeReceipts"
    raise SchemaError(
        "cannot replace messages by this DataFrame: its receipts are "
        + (f"there twice: {keep}" if found else f"missing: {take}")
    )


def _problems(
    fields: Sequence[tuple[str, str]], columns: Mapping[str, _Column], *, required: Sequence[str]
) -> list[str]:
    names = [name for name, _ in fields]
    given = ", ".join(names) or "none"
    problems = [
        f"a column {name!r} is missing (columns: {given}): add it, e.g. {columns[name].example}"
        for name in required
        if name not in names
    ]
    problems += [
        f"there are {names.count(name)} columns {name!r}: keep one of them"
        for name in columns
        if names.count(name) > 1
    ]
    found = (_problem(name, type_, columns) for name, type_ in dict(fields).items())
    return [*problems, *filter(None, found)]


def _problem(name: str, type_: str, columns: Mapping[str, _Column]) -> str | None:
    if name not in columns:
        otherwise = "put it into 'value', or drop it" if "value" in columns else "drop it"
        return f"unknown column {name!r}; {did_you_mean(name, columns, otherwise)}"
    # Collations and the lengths of varchar and char do not matter: Arrow has plain strings.
    plain = "string" if type_.startswith(("string collate ", "varchar(", "char(")) else type_
    column = columns[name]
    if plain in column.types or plain.startswith(tuple(it for it in column.types if " " in it)):
        return None
    return (
        f"column {name!r} is {type_}, expected {column.expected}: cast it, e.g. {column.example}"
    )
