"""The columns that a DataFrame needs to be published, or to settle messages."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cassieq_spark.arguments import did_you_mean
from cassieq_spark.arrow.rows import METADATA
from cassieq_spark.errors import SchemaError
from cassieq_spark.model import Order
from cassieq_spark.settings.writing import EACH, REPLACE, SETTLING


@dataclass(frozen=True, slots=True)
class _Column:
    """A column of a DataFrame to be written.

    Attributes:
        types: The permitted types, as Spark's ``simpleString()`` writes them. A type with a
            blank represents all types that begin with it.
        expected: The types in words.
        example: An expression that makes such a column; ``{}`` represents its name.
    """

    types: tuple[str, ...]
    expected: str
    example: str


#: Strings with a collation or a length, also inside of other types.
_OTHER_TEXT = re.compile(r"string collate \w+|(?:var)?char\(\d+\)", re.ASCII)
_TEXT = ("string", "binary")
_WHOLE = ("tinyint", "smallint", "int", "bigint")
_SPANS = ("interval day", "interval hour", "interval minute", "interval second")
_COLUMNS = {
    "value": _Column(_TEXT, "string or binary", "to_json(struct(*)) as {}"),
    "key": _Column(_TEXT, "string or binary", "cast(id as string) as {}"),
    "headers": _Column(
        ("map<string,string>",), "map<string,string>", "map('origin', 'web') as {}"
    ),
    "delay": _Column(
        (*_SPANS, "double", *_WHOLE),
        "a day-time interval, or a number of seconds",
        "interval 10 seconds as {}",
    ),
    "visible_at": _Column(("timestamp",), "timestamp", "timestamp '2026-12-24 18:00:00Z' as {}"),
    "unique_id": _Column(_TEXT, "string or binary", "cast(id as string) as {}"),
    "receipt": _Column(("string",), "string", "{}, of a stream with includeReceipts"),
    "operation": _Column(("string",), "string", "'ack' as {}"),
    "seconds": _Column(_WHOLE, "a whole number", "600 as {}"),
    "reason": _Column(("string",), "string", "'no such customer' as {}"),
}
_PUBLISHED = {
    each: _COLUMNS[each]
    for each in ("value", "key", "headers", "delay", "visible_at", "unique_id")
}
#: The additional columns of a message in a queue with a schema.
_SPECIAL = {f"_{name}": column for name, column in _PUBLISHED.items() if name != "value"}
#: The columns that an operation needs in addition to receipts.
_REQUIRED = {REPLACE: ("value",), EACH: ("operation",)}
#: Columns that only the rows of a read have.
_OF_A_READ = {"queue", "monoton", "published_at", "delivery_count"}
#: The struct ``_metadata`` of a stream that is read with includeReceipts.
_HAS_RECEIPT = re.compile(r"[<,]receipt:string[,>]")


def validate_published(
    fields: Sequence[tuple[str, str]],
    *,
    order: Order = Order.NONE,
    has_schema: bool = False,
    deduplicates: bool = False,
) -> None:
    """Check the columns of a DataFrame of messages.

    Args:
        fields: Names with types, as Spark's ``simpleString()`` writes them.
        order: The order of the queue; where there is one, nothing can be delayed.
        has_schema: True if the queue has a schema. Then only the additional columns of a message
            are checked: key, headers, time and unique id.
        deduplicates: True if messages of the queue have unique ids.

    Raises:
        SchemaError: ``value`` is missing, or a column is unknown, duplicated, or of the wrong
            type, or contradicts another column or the queue; the error names all problems.
    """
    if not has_schema and {name for name, _ in fields} >= _OF_A_READ:
        raise SchemaError(
            "cannot publish this DataFrame: its rows are those of a read, and say where each "
            "message is; publish df.select('key', 'value'), with 'headers' if they were read"
        )
    known, required, late = _PUBLISHED, ["value"], ["delay", "visible_at"]
    if has_schema:
        fields = [(name.lower(), type_) for name, type_ in fields if is_special(name)]
        known, required, late = _SPECIAL, [], ["_delay", "_visible_at"]
    problems = _problems(fields, known, required=required)
    given = [name for name in late if name in dict(fields)]
    if len(given) > 1:
        problems.append(f"there are columns {late[0]!r} and {late[1]!r}: keep one of them")
    elif given and order is not Order.NONE:
        how = "ordered by key" if order is Order.KEY else "strictly ordered"
        problems.append(
            f"column {given[0]!r}: the queue is {how}, so a delayed message would hold up all "
            "later ones; drop the column, or use another queue"
        )
    unique_id = next(name for name in known if name.endswith("unique_id"))
    if unique_id in dict(fields) and not deduplicates:
        problems.append(
            f"column {unique_id!r}: the queue does not deduplicate; drop the column, or let it: "
            "cassieq queue alter QUEUE --deduplicate 5m"
        )
    if problems:
        raise SchemaError("cannot publish this DataFrame: " + "; ".join(problems))


def is_special(name: str) -> bool:
    """True if a column says how a message is put into a queue with a schema."""
    return name.lower() in _SPECIAL


def validate_settled(fields: Sequence[tuple[str, str]], operation: str) -> None:
    """Check the columns of a DataFrame of receipts.

    Args:
        fields: Names with types, as Spark's ``simpleString()`` writes them.
        operation: What to do with the messages.

    Raises:
        SchemaError: A column is missing, unknown, duplicated, or of the wrong type; the error
            names all problems.
    """
    columns = {name: _COLUMNS[name] for name in SETTLING[operation]}
    required = ("receipt", *_REQUIRED.get(operation, ()))
    problems = _problems(fields, columns, required=required)
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
        The names of the columns that become columns of the queue.

    Raises:
        SchemaError: The receipt is missing or duplicated, or a column has another type; the error
            names all problems.
    """
    source = receipt_source([name for name, _ in fields], own)
    types = dict(fields)
    problems = []
    if source == METADATA and not _HAS_RECEIPT.search(types[source]):
        problems.append(
            f"column {source!r} has no receipt: read the stream with the option includeReceipts"
        )
    left_out = {"_visible_at", "_unique_id"}
    special = {name: column for name, column in _SPECIAL.items() if name not in left_out}
    known = special | ({} if source == METADATA else {source: _COLUMNS["receipt"]})
    taken = [(name, type_) for name, type_ in fields if name == source or is_special(name)]
    given = [(name.lower(), type_) for name, type_ in taken if name != METADATA]
    problems += _problems(given, known, required=())
    if problems:
        raise SchemaError("cannot replace messages by this DataFrame: " + "; ".join(problems))
    return [name for name, _ in fields if (name, types[name]) not in taken]


def receipt_source(names: Sequence[str], own: Sequence[str]) -> str:
    """The column that has the receipts: ``receipt``, or the struct ``_metadata``.

    Args:
        names: All columns of the rows.
        own: The columns of the queue, one of which may be called ``receipt``.

    Raises:
        SchemaError: There is no such column, or both columns exist.
    """
    is_own = "receipt" in {name.lower() for name in own}
    sources = (METADATA,) if is_own else ("receipt", METADATA)
    found = [name for name in sources if name in names]
    if len(found) == 1:
        return found[0]
    keep = "keep one of the columns 'receipt' and '_metadata'"
    take = "keep the column '_metadata' of a stream that is read with includeReceipts"
    raise SchemaError(
        "cannot replace messages by this DataFrame: its receipts are "
        + (f"duplicated: {keep}" if found else f"missing: {take}")
    )


def _problems(
    fields: Sequence[tuple[str, str]], columns: Mapping[str, _Column], *, required: Sequence[str]
) -> list[str]:
    names = [name for name, _ in fields]
    given = ", ".join(names) or "none"
    problems = [
        f"a column {name!r} is missing (columns: {given}): add it, e.g. "
        + columns[name].example.format(name)
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
    plain = _OTHER_TEXT.sub("string", type_)
    column = columns[name]
    if plain in column.types or plain.startswith(tuple(it for it in column.types if " " in it)):
        return None
    example = column.example.format(name)
    return f"column {name!r} is {type_}, expected {column.expected}: cast it, e.g. {example}"
