"""Changes of a schema: which are safe, and how one version is read as another version.

Columns and fields are identified by their names. A change is safe if readers of each version can
read what writers of the other versions write, as long as the values fit. So a column that a
version lacks is null, and a type may only become a type that has all of its values.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum

import pyarrow as pa
from pyarrow import types as of

from cassieq_spark.errors import InvariantError, MessageError, SchemaError
from cassieq_spark.schemas.canonical import (
    array_of,
    comment_of,
    joined,
    map_of,
    parts,
    type_name,
)
from cassieq_spark.schemas.convert import converted, left_out
from cassieq_spark.schemas.ddl import ddl_type

#: The digits before the point that a decimal needs for an integer of each type.
_DIGITS = {pa.int8(): 3, pa.int16(): 5, pa.int32(): 10, pa.int64(): 19}
_INTEGERS = list(_DIGITS)
#: Pairs of a type and another type that has all of its values, apart from integers and decimals.
_WIDER = {
    (pa.float32(), pa.float64()),
    (pa.int8(), pa.float32()),
    (pa.int16(), pa.float32()),
    (pa.int8(), pa.float64()),
    (pa.int16(), pa.float64()),
    (pa.int32(), pa.float64()),
}
#: How similar the names of a dropped and an added column are if it seems to be renamed.
_ALIKE = 0.6


class ChangeKind(StrEnum):
    """The kind of a change of a column or a field."""

    ADDED = "added"
    DROPPED = "dropped"
    WIDENED = "widened"
    #: ``not null`` is removed.
    RELAXED = "relaxed"
    COMMENTED = "commented"
    #: Columns or fields have another order.
    REORDERED = "reordered"


@dataclass(frozen=True, slots=True)
class SchemaChange:
    """One safe change.

    Attributes:
        kind: The kind of change.
        path: The column, or the field as ``column.field``; empty for the order of the columns.
        before: The type before it is widened or dropped.
        after: The type after it is widened or added.
    """

    kind: ChangeKind
    path: str
    before: str | None = None
    after: str | None = None

    def __str__(self) -> str:
        """The change for people: ``widened 'fare' from int to bigint``."""
        if self.kind is ChangeKind.WIDENED:
            return f"widened {self.path!r} from {self.before} to {self.after}"
        if self.kind is ChangeKind.ADDED:
            return f"added {self.path!r} {self.after}"
        if self.kind is ChangeKind.RELAXED:
            return f"{self.path!r} may be null now"
        return f"{self.kind} {self.path!r}" if self.path else f"{self.kind} the columns"


def check_change(versions: Sequence[pa.Schema], new: pa.Schema) -> tuple[SchemaChange, ...]:
    """Return the changes that a new schema makes, if it may follow the versions of a queue.

    A name that was dropped may come back with a type that has all values stored under it. Messages
    from before the drop show their values again.

    Args:
        versions: All versions, canonical, the first one first; at least one.
        new: The wanted canonical schema.

    Returns:
        The changes, in the order of the new schema; empty if it equals the last version.

    Raises:
        SchemaError: A change is not safe; the error names all such changes, and why.
    """
    check = _Check()
    before = [list(version) for version in reversed(versions)]
    changes = tuple(check.fields(before, list(new), ""))
    if check.problems:
        raise SchemaError(
            "the schema can't be changed so: "
            + "; ".join(check.problems)
            + "; such a change takes another queue"
        )
    return changes


def dead_letter_schema(source: pa.Schema, before: Sequence[pa.Schema]) -> pa.Schema:
    """The schema that a dead-letter queue needs for the messages of another queue.

    All columns may be null, as a message that can't be read has none of them.

    Args:
        source: The canonical schema of the other queue.
        before: The versions of the dead-letter queue, the first one first; empty if it is new.

    Returns:
        The last version, if the messages fit it already; else the columns of ``source``, and then
        the other columns of the dead-letter queue; likewise for the fields of structs.

    Raises:
        SchemaError: The dead-letter queue's schema can't be changed to this one.
    """
    nullable = [field.with_nullable(True) for field in source]
    if not before:
        return pa.schema(nullable)
    last = before[-1]
    with suppress(SchemaError):
        changes = check_change([pa.schema(nullable)], last)
        if all(change.kind is not ChangeKind.DROPPED for change in changes):
            return last
    wanted = pa.schema(_with_all_of(nullable, list(last)))
    check_change(before, wanted)
    return wanted


def _with_all_of(new: list[pa.Field], old: list[pa.Field]) -> list[pa.Field]:
    """Fields, and the additional fields of another list, also within structs."""
    others = {field.name: field for field in old}
    both = [
        field.with_type(_with_all_fields(field.type, others.pop(field.name).type))
        if field.name in others
        else field
        for field in new
    ]
    return [*both, *others.values()]


def _with_all_fields(new: pa.DataType, old: pa.DataType) -> pa.DataType:
    if new == old or not of.is_nested(new) or new.id != old.id:
        return new
    if of.is_struct(new):
        return pa.struct(_with_all_of(list(new), list(old)))
    # The fields of a map's key never change.
    inner, inner_before = parts(new)[-1], parts(old)[-1]
    type_ = _with_all_fields(inner.type, inner_before.type)
    if of.is_list(new):
        return array_of(type_, nullable=inner.nullable)
    return map_of(new.key_type, type_, path="", nullable=inner.nullable)


def is_wider(old: pa.DataType, new: pa.DataType) -> bool:
    """True if an atomic type has all values of another type, and more.

    >>> is_wider(pa.int32(), pa.int64()), is_wider(pa.int64(), pa.float64())
    (True, False)
    """
    if (old, new) in _WIDER:
        return True
    if old in _DIGITS and new in _DIGITS:
        return _INTEGERS.index(old) < _INTEGERS.index(new)
    if not of.is_decimal(new):
        return False
    if old in _DIGITS:
        return bool(new.precision - new.scale >= _DIGITS[old])
    if not of.is_decimal(old) or old == new:
        return False
    more = new.precision - new.scale >= old.precision - old.scale
    return bool(more and new.scale >= old.scale)


_NEWER = (
    "a newer version of the schema has changed it: make the DataFrame anew and restart the query, "
    "so that it reads by the new schema"
)


def present(
    batch: pa.RecordBatch, written: pa.Schema, wanted: pa.Schema, *, advice: str = _NEWER
) -> pa.RecordBatch:
    """Turn columns that were written by one version into the columns of another version.

    Columns of the same type are not copied. A column or field that was not written is null; one
    that is not wanted is left out.

    Args:
        batch: The columns of ``written`` that ``wanted`` has as well, in their types; additional
            columns are allowed.
        written: The version that wrote the columns.
        wanted: The columns that the reader has: a version, or some of its columns.
        advice: What to do about values that do not fit, for errors.

    Raises:
        MessageError: A value of a newer version does not fit the type that its column had in the
            reader's version.
    """
    columns = []
    for field in wanted:
        if written.get_field_index(field.name) < 0:
            columns.append(_missing(field, batch.num_rows, advice))
            continue
        index = batch.schema.get_field_index(field.name)
        if index < 0:
            raise InvariantError(f"column {field.name!r} was written, and has not been read")
        column = batch.column(index)
        columns.append(converted(column, field, exact=True, advice=f"; {advice}"))
    return pa.RecordBatch.from_arrays(columns, schema=wanted)


def without_place(batch: pa.RecordBatch, written: pa.Schema, wanted: pa.Schema) -> list[str]:
    """The paths of columns and fields that `present` leaves out, although they have values.

    Args:
        batch: All columns of ``written``.
        written: The version that wrote the columns.
        wanted: The columns into which they are turned.
    """
    paths = list[str]()
    for field in written:
        column, at = batch.column(field.name), wanted.get_field_index(field.name)
        if at >= 0:
            paths += left_out(column, wanted.field(at).type, field.name)
        elif column.null_count < len(column):
            paths.append(field.name)
    return paths


def _missing(field: pa.Field, count: int, advice: str) -> pa.Array:
    if field.nullable or not count:
        return pa.nulls(count, field.type)
    raise MessageError(f"column {field.name!r} is not null, and is not there; {advice}")


class _Check:
    """Compares fields, struct by struct, and collects problems."""

    def __init__(self) -> None:
        self.problems: list[str] = []
        # The paths of maps' keys. If a version lacks a field of them, two keys may become equal.
        self._keys: list[str] = []

    def fields(
        self, before: list[list[pa.Field]], new: list[pa.Field], path: str
    ) -> Iterator[SchemaChange]:
        """The changes of the columns of a schema, or of the fields of a struct.

        Args:
            before: The fields in each earlier version that had the struct, the last version first.
            new: The fields in the new version.
            path: The path of the struct; empty for columns.
        """
        old = {field.name: field for field in before[0]}
        names = {field.name for field in new}
        dropped = [field for field in before[0] if field.name not in names]
        added = [field for field in new if field.name not in old]
        renamed = self._renamed(dropped, added, path)
        for field in new:
            if field.name in old:
                every = (known for fields in before for known in fields)
                history = [known for known in every if known.name == field.name]
                yield from self._field(history, field, path)
            elif field.name not in renamed:
                yield from self._added(field, before, path)
        for field in dropped:
            if field.name not in renamed:
                yield from self._dropped(field, path)
        kept = [field.name for field in before[0] if field.name in names]
        if kept != [field.name for field in new if field.name in old]:
            yield SchemaChange(ChangeKind.REORDERED, path)

    def _field(
        self, history: list[pa.Field], new: pa.Field, prefix: str
    ) -> Iterator[SchemaChange]:
        old, path = history[0], joined(prefix, new.name)
        if old.nullable and not new.nullable:
            self._refuse(path, "may be null, and there may be nulls: it can't become not null")
        if new.nullable and not old.nullable:
            yield SchemaChange(ChangeKind.RELAXED, path)
        if comment_of(old) != comment_of(new):
            yield SchemaChange(ChangeKind.COMMENTED, path)
        yield from self._type(history, new, path)

    def _type(self, history: list[pa.Field], new: pa.Field, path: str) -> Iterator[SchemaChange]:
        old = history[0]
        if of.is_nested(old.type) and old.type.id == new.type.id:
            if of.is_map(new.type):
                self._keys.append(joined(path, "key"))
            before = [parts(known.type) for known in history if known.type.id == new.type.id]
            yield from self.fields(before, parts(new.type), path)
        elif is_wider(old.type, new.type):
            yield SchemaChange(ChangeKind.WIDENED, path, type_name(old.type), type_name(new.type))
        elif old.type != new.type:
            self._refuse(
                path,
                f"is of type {type_name(old.type)}, of which not every value is one of type "
                f"{type_name(new.type)}: keep its type, widen it, or add a column of another name",
            )

    def _added(
        self, field: pa.Field, before: list[list[pa.Field]], prefix: str
    ) -> Iterator[SchemaChange]:
        path = joined(prefix, field.name)
        self._refuse_in_key(path)
        if not field.nullable:
            self._refuse(path, "is new and not null, and stored messages lack it: let it be null")
        every = [known for fields in before for known in fields]
        for known in every:
            if known.name.lower() == field.name.lower() and known.name != field.name:
                self._refuse(path, f"was called {known.name!r} before: write it in the same way")
                return
        if history := [known for known in every if known.name == field.name]:
            count = len(self.problems)
            # Stored messages have the earlier type; "added" covers a change of the type.
            list(self._type(history, field, path))
            if len(self.problems) > count:
                del self.problems[count:]
                self._refuse(
                    path,
                    f"was dropped as {type_name(history[0].type)} and may not come back as "
                    f"{type_name(field.type)}: stored messages still have it; choose another name",
                )
        yield SchemaChange(ChangeKind.ADDED, path, after=ddl_type(field.type))

    def _dropped(self, field: pa.Field, prefix: str) -> Iterator[SchemaChange]:
        path = joined(prefix, field.name)
        self._refuse_in_key(path)
        if not field.nullable:
            self._refuse(
                path,
                "is not null, so running queries need it: let it be null first, and drop it later",
            )
        yield SchemaChange(ChangeKind.DROPPED, path, type_name(field.type))

    def _renamed(self, dropped: list[pa.Field], added: list[pa.Field], prefix: str) -> set[str]:
        """The old and the new names of fields that seem to be renamed."""
        found = set()
        for field in dropped:
            same = [
                new.name
                for new in added
                if new.type == field.type and new.name.lower() != field.name.lower()
            ]
            for name in difflib.get_close_matches(field.name, same, 1, _ALIKE):
                self._refuse(
                    joined(prefix, field.name),
                    f"seems to be renamed to {name!r}: names can't be changed, as stored messages "
                    "have the old one; to lose the old values, drop it by one change and add "
                    f"{name!r} by another one",
                )
                found |= {field.name, name}
        return found

    def _refuse_in_key(self, path: str) -> None:
        if any(path.startswith(f"{key}.") for key in self._keys):
            self._refuse(
                path,
                "is a part of a map's keys, of which two may be equal to a reader of a version "
                "without it",
            )

    def _refuse(self, path: str, why: str) -> None:
        self.problems.append(f"column {path!r} {why}")
