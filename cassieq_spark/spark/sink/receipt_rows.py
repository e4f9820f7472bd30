"""Reads rows of receipts, on executors: what to do with which messages."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import tee
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from cassieq_spark.arguments import A_YEAR
from cassieq_spark.arrow.chunks import PLAIN, Form, check_messages
from cassieq_spark.arrow.receipts import Receipt
from cassieq_spark.arrow.rows import METADATA
from cassieq_spark.arrow.typed_chunks import TypedForm
from cassieq_spark.client.settling import LeaseKey
from cassieq_spark.consumer.consumer import Replacements
from cassieq_spark.errors import MessageError
from cassieq_spark.groups.state import Settlement
from cassieq_spark.model import QueueDefinition, QueueId, Range, Ranges, partition_of_id
from cassieq_spark.settings.writing import ACK, EACH, EXTEND, REJECT, RELEASE, REPLACE
from cassieq_spark.spark.sink.columns import receipt_source

_OPERATIONS = (ACK, RELEASE, EXTEND, REJECT, REPLACE)
_ADVICE = "take the column 'receipt' of a stream that is read with includeReceipts"
_MESSAGE = ("value", "key", "headers")


@dataclass(frozen=True, slots=True, kw_only=True)
class Defaults:
    """What applies to rows without a column or value of their own.

    Attributes:
        queue: The queue that all receipts must be of.
        operation: What to do; `EACH` if a column says it.
        delay: For release and replace.
        seconds: For extend.
        reason: For reject.
        max_message_bytes: Largest new message, with key and headers.
        form: That of new messages.
    """

    queue: QueueDefinition
    operation: str
    delay: timedelta
    seconds: timedelta
    reason: str
    max_message_bytes: int
    form: Form = PLAIN


@dataclass(slots=True)
class Outcomes:
    """What to do with messages of one lease: their monotons by operation and parameter."""

    _done: list[int] = field(default_factory=list)
    _by: dict[tuple[str, Any], list[int]] = field(default_factory=lambda: defaultdict(list))
    _new: dict[timedelta, list[Replacements]] = field(default_factory=lambda: defaultdict(list))

    def add(self, monoton: int, operation: str, parameter: object) -> None:
        """Add one message."""
        if operation == ACK:
            self._done.append(monoton)
        else:
            self._by[operation, parameter].append(monoton)

    def replace(self, delay: timedelta, replacements: Replacements) -> None:
        """Add new messages."""
        self._new[delay].append(replacements)

    def merge(self, other: Outcomes) -> None:
        """Add what another task has read for the same lease."""
        self._done += other._done
        for key, monotons in other._by.items():
            self._by[key] += monotons
        for delay, new in other._new.items():
            self._new[delay] += new

    def settlement(self) -> Settlement | None:
        """All that is not replaced; None if there is nothing."""
        if not self._done and not self._by:
            return None
        return Settlement(
            acked=_ranges(self._done),
            released=self._of(RELEASE),
            extended=self._of(EXTEND),
            rejected=self._of(REJECT),
        )

    def replacements(self) -> Iterator[tuple[timedelta, Replacements]]:
        """New messages by their delay."""
        for delay, parts in sorted(self._new.items()):
            monotons = [monoton for part in parts for monoton in part.monotons]
            yield delay, Replacements(monotons, pa.concat_batches(part.new for part in parts))

    def _of(self, operation: str) -> Mapping[Any, Ranges]:
        return {by: _ranges(found) for (name, by), found in self._by.items() if name == operation}


def read_outcomes(
    batches: Iterable[pa.RecordBatch], defaults: Defaults
) -> dict[LeaseKey, Outcomes]:
    """Read rows of receipts, by lease.

    Args:
        batches: Columns as `columns.validate_settled` accepts them, or `validate_replaced`.
        defaults: What applies to rows that do not say it themselves.

    Raises:
        MessageError: A receipt is not valid, or of another queue; an operation is unknown; a
            delay is negative, or longer than a year; or the queue does not take a new message.
    """
    found: defaultdict[LeaseKey, Outcomes] = defaultdict(Outcomes)
    form, first_row = defaults.form, 0
    left, right = tee(_split(batch, form) for batch in batches)
    news = form.assigned(new for _, new in right)
    for (receipts, _), new in zip(left, news, strict=True):
        replaced: defaultdict[tuple[LeaseKey, timedelta], dict[int, int]] = defaultdict(dict)
        for at, row in enumerate(_Rows(receipts, defaults, first_row)):
            if row.operation == REPLACE:
                replaced[row.lease, row.parameter][at] = row.monoton
            else:
                found[row.lease].add(row.monoton, row.operation, row.parameter)
        for (lease, delay), rows in replaced.items():
            taken = new.take(pa.array(list(rows), pa.int64()))
            most = defaults.max_message_bytes
            check_messages(taken, most, first_row=first_row + min(rows), form=form)
            found[lease].replace(delay, Replacements(list(rows.values()), taken))
        first_row += receipts.num_rows
    return dict(found)


@dataclass(frozen=True, slots=True)
class _Row:
    lease: LeaseKey
    monoton: int
    operation: str
    parameter: Any


class _Rows:
    """The rows of one batch, checked."""

    def __init__(self, batch: pa.RecordBatch, defaults: Defaults, first_row: int) -> None:
        self._columns = batch.to_pydict()
        self._count = batch.num_rows
        self._defaults = defaults
        self._first_row = first_row
        self._known: set[QueueId] = set()

    def __iter__(self) -> Iterator[_Row]:
        for at in range(self._count):
            receipt = Receipt.parse(self._columns["receipt"][at] or "", advice=_ADVICE)
            operation = self._operation(at)
            self._check_queue(receipt)
            lease = LeaseKey(receipt.queue_id, receipt.group, receipt.lease, receipt.deliveries)
            yield _Row(lease, receipt.monoton, operation, self._parameter(at, operation))

    def _check_queue(self, receipt: Receipt) -> None:
        queue = self._defaults.queue
        if receipt.queue_id in self._known:
            return
        if partition_of_id(queue, receipt.queue_id) is None:
            raise MessageError(
                f"receipt {str(receipt)!r} is of queue {receipt.queue_id}, not of "
                f"{queue.queue_id}, which option 'queue' names"
            )
        self._known.add(receipt.queue_id)

    def _operation(self, at: int) -> str:
        if self._defaults.operation != EACH:
            return self._defaults.operation
        operation = self._columns["operation"][at]
        if operation not in _OPERATIONS:
            raise MessageError(
                f"row {self._first_row + at} of this task, counted from 0, has the operation "
                f"{operation!r}: expected {', '.join(_OPERATIONS)}"
            )
        return str(operation)

    def _parameter(self, at: int, operation: str) -> Any:
        match operation:
            case "release" | "replace":
                return self._span("delay", at, self._defaults.delay)
            case "extend":
                return self._span("seconds", at, self._defaults.seconds)
            case "reject":
                return self._given("reason", at) or self._defaults.reason
        return None

    def _span(self, column: str, at: int, default: timedelta) -> timedelta:
        given = self._given(column, at)
        if given is None:
            return default
        try:
            span = given if isinstance(given, timedelta) else timedelta(seconds=given)
        except (ValueError, OverflowError):
            span = None
        if span is None or not timedelta(0) <= span <= A_YEAR:
            raise MessageError(
                f"row {self._first_row + at} of this task, counted from 0, has {given} as "
                f"{column!r}: expected a time from 0 to {A_YEAR.days} days"
            )
        return span

    def _given(self, column: str, at: int) -> Any:
        return self._columns[column][at] if column in self._columns else None


def _split(batch: pa.RecordBatch, form: Form) -> tuple[pa.RecordBatch, pa.RecordBatch]:
    """The columns that say what is to be done, and those of new messages."""
    if not isinstance(form, TypedForm):
        names = [name for name in _MESSAGE if name in batch.schema.names]
        return batch.drop_columns(names), batch.select(names)
    source = receipt_source(batch.schema.names, form.schema.names)
    column = batch.column(source)
    receipts = {"receipt": pc.struct_field(column, "receipt") if source == METADATA else column}
    others = batch.drop_columns([source])
    for name in others.schema.names:
        if name.lower() == form.names.delay:
            receipts["delay"] = others.column(name)
            others = others.drop_columns([name])
    return pa.record_batch(receipts), others


def _ranges(monotons: Iterable[int]) -> Ranges:
    return Ranges.of(*(Range(each, each + 1) for each in monotons))
