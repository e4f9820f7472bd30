"""Histories of one partition: compare-and-sets and reads as they were asked and answered."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from cassieq_spark.errors import OutcomeUnknownError
from cassieq_spark.model import from_millis, to_millis
from cassieq_spark.store.protocol import (
    EVERYTHING,
    Delete,
    DeleteBelow,
    Insert,
    Op,
    Partition,
    RowKey,
    Rows,
    ServerNow,
    Slice,
    Store,
    Update,
    When,
)
from cassieq_spark.store.tables import SHAPES, Table
from cassieq_spark.testing.stores import WrappedStore
from tests.support.linearizability import Call, Violation, find_violation

#: The kinds of rows whose whole history is looked at. Others come and go by the thousand.
KINDS: Mapping[Table, Collection[str]] = {
    Table.LEDGER: ("head", "sink", "group", "seek_pin"),
    Table.GROUP_STATE: ("head", "registration", "slot"),
}
#: Columns that hold the coordinator's time: no model of ours knows it.
TIMES = frozenset({"due_at", "first_at", "last_at", "created_at"})
#: What there is of a partition: each row with its columns that are set.
State = frozenset[tuple[RowKey, frozenset[tuple[str, Any]]]]
EMPTY: State = frozenset()


@dataclass(frozen=True, slots=True)
class Read:
    """A read of whole kinds of rows, or of one row."""

    which: Slice


@dataclass(frozen=True, slots=True)
class Cas:
    """A compare-and-set."""

    ops: tuple[Op, ...]


class RecordingStore(WrappedStore):
    """Writes down what is asked of each partition, and what is answered.

    Args:
        store: The store that does the work.
        clock: Grows; asked before and after each call.
    """

    def __init__(self, store: Store, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(store)
        self._clock = clock
        self._writing = threading.Lock()
        self._histories: defaultdict[Partition, list[Call]] = defaultdict(list)

    def also_for(self, store: Store) -> RecordingStore:
        """Another store, whose calls go into the same histories."""
        other = RecordingStore(store, self._clock)
        other._writing, other._histories = self._writing, self._histories
        return other

    @property
    def histories(self) -> Mapping[Partition, Sequence[Call]]:
        """The calls, by partition."""
        with self._writing:
            return {partition: tuple(calls) for partition, calls in self._histories.items()}

    def cas(self, partition: Partition, ops: Sequence[Op]) -> bool:
        called = self._clock()
        try:
            applied = super().cas(partition, ops)
        except OutcomeUnknownError:
            self._write(partition, Call(Cas(tuple(ops)), None, called))
            raise
        self._write(partition, Call(Cas(tuple(ops)), applied, called, self._clock()))
        return applied

    def read_rows(
        self, partition: Partition, which: Slice = EVERYTHING, *, serial: bool = False
    ) -> Rows:
        called = self._clock()
        rows = super().read_rows(partition, which, serial=serial)
        if _is_whole(partition, which):
            found = _state_of(partition, rows)
            self._write(partition, Call(Read(which), found, called, self._clock()))
        return rows

    def _write(self, partition: Partition, call: Call) -> None:
        if partition.table in KINDS:
            with self._writing:
                self._histories[partition].append(call)


def find_violations(
    histories: Mapping[Partition, Iterable[Call]],
) -> dict[Partition, Violation]:
    """The partitions whose histories are not linearizable; each of them began empty."""
    found = {
        partition: find_violation(history, EMPTY, step) for partition, history in histories.items()
    }
    return {partition: violation for partition, violation in found.items() if violation}


def step(state: State, call: Call) -> list[State]:
    """What a partition may be after a call, given what it was before: a specification.

    Conditions on the time may hold or not, so they excuse a refusal, and never an application.
    """
    match call.operation:
        case Read(which):
            seen = frozenset(row for row in state if _is_in(row[0], which))
            return [state] if seen == call.result else []
        case Cas(ops):
            rows = dict(state)
            kept = [op for op in ops if _kind(op) in _KEPT]
            holds = all(_holds(op, rows) for op in kept)
            if call.is_pending:
                then = _applied(kept, rows)
                return [then] if holds and then != state else []
            if call.result:
                return [_applied(kept, rows)] if holds else []
            is_excused = any(_may_refuse(op) for op in ops)
            return [state] if is_excused or not holds else []
    raise ValueError(call)


_KEPT = {kind for kinds in KINDS.values() for kind in kinds}


def _is_whole(partition: Partition, which: Slice) -> bool:
    kinds = KINDS.get(partition.table, ())
    if which.row is not None:
        return which.row[0] in kinds
    is_part = which.start is not None or which.stop is not None or which.limit is not None
    return bool(which.kinds) and not is_part and all(kind in kinds for kind in which.kinds)


def _is_in(key: RowKey, which: Slice) -> bool:
    return key == which.row if which.row is not None else key[0] in which.kinds


def _state_of(partition: Partition, rows: Rows) -> State:
    shape = SHAPES[partition.table]
    every = ((tuple(row[name] for name in shape.clustering), row) for row in rows.rows)
    return frozenset(
        (key, _set({name: row[name] for name in shape.columns}))  # type: ignore[arg-type]
        for key, row in every
    )


def _set(values: Mapping[str, Any]) -> frozenset[tuple[str, Any]]:
    return frozenset(
        (name, from_millis(to_millis(value)) if isinstance(value, datetime) else value)
        for name, value in values.items()
        if value is not None and name not in TIMES
    )


def _kind(op: Op) -> str | int:
    return op.kind if isinstance(op, DeleteBelow) else op.row[0]


def _may_refuse(op: Op) -> bool:
    """Whether it may be refused for what a state does not tell: the time, or rows left out."""
    if _kind(op) in _KEPT:
        return isinstance(op, Update) and any(each.column in TIMES for each in op.when)
    return isinstance(op, Delete | Update) or (isinstance(op, Insert) and op.if_absent)


def _holds(op: Op, rows: Mapping[RowKey, frozenset[tuple[str, Any]]]) -> bool:
    match op:
        case Insert(row=row, if_absent=True):
            return row not in rows
        case Delete(row=row):
            return row in rows
        case Update(row=row, when=when):
            values = dict(rows.get(row, ()))
            return all(_is_so(values.get(each.column), each) for each in when)
    return True


def _is_so(actual: Any, when: When) -> bool:
    if when.column in TIMES or isinstance(when.value, ServerNow):
        return True
    if actual is None or when.value is None:
        return when.op == "=" and actual is when.value
    order = (actual > when.value) - (actual < when.value)
    return order in {"=": (0,), "<": (-1,), "<=": (-1, 0), ">": (1,), ">=": (0, 1)}[when.op]


def _applied(ops: Iterable[Op], rows: Mapping[RowKey, frozenset[tuple[str, Any]]]) -> State:
    then = dict(rows)
    deletions = [op for op in ops if isinstance(op, Delete | DeleteBelow)]
    for op in deletions:
        if isinstance(op, Delete):
            then.pop(op.row, None)
        else:
            for row in [row for row in then if row[0] == op.kind and int(row[1]) < op.stop]:
                del then[row]
    for op in ops:
        if isinstance(op, Insert | Update):
            values = {n: v for n, v in op.values.items() if not isinstance(v, ServerNow)}
            then[op.row] = _set(dict(then.get(op.row, ())) | values)
    return frozenset(then.items())
