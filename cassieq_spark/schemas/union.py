"""The columns of several queues together: by name, each of a type that has all values."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import pyarrow as pa
from pyarrow import types as of

from cassieq_spark.errors import OptionError
from cassieq_spark.schemas.canonical import (
    all_nullable,
    array_of,
    joined,
    map_of,
    parts,
    type_name,
)
from cassieq_spark.schemas.ddl import schema_of
from cassieq_spark.schemas.evolution import is_wider


class _Conflict(Exception):  # noqa: N818 (no error: callers say whose columns differ)
    """Two types, neither of which has all values of the other."""

    def __init__(self, path: str, one: str, other: str) -> None:
        super().__init__(path)
        self.path, self.one, self.other = path, one, other


def united(queues: Mapping[str, Sequence[str]], names: Collection[str] | None = None) -> pa.Schema:
    """The columns of all queues, in the order in which they come first; all may be null.

    If a column has several types, it gets the one that has the values of all, as if the column of
    each queue were widened. Earlier versions of a queue count, too, as messages have their values;
    a column that the queue has dropped is one of them only if another queue has it.

    Args:
        queues: The versions of each queue's schema, the first one first, as `ddl.to_ddl` writes
            them, by name of the queue.
        names: The wanted columns, in lower case; others may have types that contradict each other.
            None: all are wanted.

    Raises:
        OptionError: No type has all values of a wanted column, or two queues write its name in
            different ways.
    """
    columns: dict[str, pa.Field] = {}
    first: dict[str, str] = {}
    seen: set[str] = set()

    def add(queue: str, ddl: str, *, is_last: bool) -> None:
        for field in all_nullable(schema_of(ddl)):
            name = field.name.lower()
            if name in columns and (names is None or name in names):
                columns[name] = _both(columns[name], field, first[name], queue, is_last=is_last)
            elif is_last:
                columns.setdefault(name, field)
                first.setdefault(name, queue)

    for is_last in (True, False):
        for queue, versions in queues.items():
            for ddl in versions[-1:] if is_last else versions[:-1]:
                if ddl not in seen:
                    seen.add(ddl)
                    add(queue, ddl, is_last=is_last)
    return pa.schema(columns.values())


def _both(known: pa.Field, field: pa.Field, first: str, queue: str, *, is_last: bool) -> pa.Field:
    try:
        (merged,) = _merged([known], [field], "", adds=is_last)
    except _Conflict as found:
        had = "has" if is_last else "has messages with"
        raise OptionError(
            f"queue {queue!r} can't be read together with queue {first!r}: it {had} a column "
            f"{found.path!r} that is {found.other}, and there it is {found.one}; read one of them "
            "in a query of its own, or leave the column out (option 'columns')"
        ) from None
    return merged


def misfit(columns: pa.Schema, versions: Sequence[str]) -> str | None:
    """Why rows with these columns can't show all values of a queue; None if they can.

    A column that the queue lacks is null, and one that the rows lack is not read.

    Args:
        columns: The columns of the rows, as `united` has made them, or some of these.
        versions: The versions of the queue's schema.
    """
    by_name = {field.name.lower(): field for field in columns}
    every = [field for ddl in versions for field in all_nullable(schema_of(ddl))]
    for field in every:
        if (known := by_name.get(field.name.lower())) is None:
            continue
        if known.name != field.name:
            return f"its column {field.name!r} is called {known.name!r} in the rows"
        try:
            merged = _merged([known], [field], "", adds=False)
        except _Conflict as found:
            return f"its column {found.path!r} is {found.other}, and the rows have {found.one}"
        if merged != [known]:
            return (
                f"its column {field.name!r} is {type_name(field.type)}, and the rows have "
                f"{type_name(known.type)}, which lacks some of its values"
            )
    return None


def _merged(
    known: Sequence[pa.Field],
    others: Sequence[pa.Field],
    prefix: str,
    *,
    adds: bool,
    is_key: bool = False,
) -> list[pa.Field]:
    """The columns of both, or the fields of both structs; the others' own only if ``adds``."""
    merged = {field.name.lower(): field for field in known}
    if is_key and merged.keys() != {field.name.lower() for field in others}:
        # Two keys of a map could become equal.
        raise _Conflict(prefix, _names(known), _names(others))
    for field in others:
        name, path = field.name.lower(), joined(prefix, field.name)
        if name not in merged:
            if adds:
                merged[name] = field
            continue
        if merged[name].name != field.name:
            raise _Conflict(path, f"called {merged[name].name!r}", f"called {field.name!r}")
        type_ = _type(merged[name].type, field.type, path, adds=adds, is_key=is_key)
        merged[name] = merged[name].with_type(type_)
    return list(merged.values())


def _type(
    one: pa.DataType, other: pa.DataType, path: str, *, adds: bool, is_key: bool
) -> pa.DataType:
    if one == other or is_wider(other, one):
        return one
    if is_wider(one, other):
        return other
    if not of.is_nested(one) or one.id != other.id:
        raise _Conflict(path, type_name(one), type_name(other))
    if of.is_map(one):
        key = _type(one.key_type, other.key_type, joined(path, "key"), adds=adds, is_key=True)
        value = _type(
            one.item_type, other.item_type, joined(path, "value"), adds=adds, is_key=is_key
        )
        return map_of(key, value, path=path)
    inner = _merged(parts(one), parts(other), path, adds=adds, is_key=is_key)
    return array_of(inner[0].type) if of.is_list(one) else pa.struct(inner)


def _names(fields: Sequence[pa.Field]) -> str:
    return f"struct<{','.join(field.name for field in fields)}>"
