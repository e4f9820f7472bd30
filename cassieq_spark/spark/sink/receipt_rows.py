"""Reads rows of receipts on executors: the messages, and what to do with them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import chain, tee
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from cassieq_spark.arguments import A_YEAR
from cassieq_spark.arrow.chunks import PLAIN, Form, check_messages, row_at
from cassieq_spark.arrow.receipts import Receipt
from cassieq_spark.arrow.rows import METADATA
from cassieq_spark.arrow.typed_chunks import TypedForm
from cassieq_spark.client.settling import LeaseKey
from cassieq_spark.consumer.consumer import Replacements
from cassieq_spark.errors import MessageError
from cassieq_spark.groups.state import Settlement
from cassieq_spark.model import QueueDefinition, QueueId, Range, Ranges, partition_of_id
from cassieq_spark.settings.verbs import LONGEST_TEXT, VERBS
from cassieq_spark.settings.writing import EACH, REPLACE
from cassieq_spark.spark.sink.columns import receipt_source

#: The parameter column of each operation, and its field of `Defaults`.
_PARAMETERS = {
    **{name: it.parameter.column if it.parameter else "" for name, it in VERBS.items()},
    REPLACE: "delay",
}
_ADVICE = "take the column 'receipt' of a stream that is read with includeReceipts"
_MESSAGE = ("value", "key", "headers")


@dataclass(frozen=True, slots=True, kw_only=True)
class Defaults:
    """The values for rows without values of their own.

    Attributes:
        queue: The queue that all receipts must belong to.
        operation: What to do; `EACH` if a column says it.
        delay: The delay of a release or replacement.
        seconds: The length of an extension.
        reason: The reason of a rejection.
        max_message_bytes: The largest size of a new message, with key and headers.
        form: The form of new messages.
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
    """Decisions about messages of one lease: their monotons by operation and parameter."""

    _by: dict[tuple[str, Any], list[int]] = field(default_factory=lambda: defaultdict(list))
    _new: dict[timedelta, list[Replacements]] = field(default_factory=lambda: defaultdict(list))

    def add(self, monoton: int, operation: str, parameter: object) -> None:
        """Add a message that is not replaced."""
        self._by[operation, parameter].append(monoton)

    def replace(self, delay: timedelta, replacements: Replacements) -> None:
        """Add new messages, and the messages that they replace."""
        self._new[delay].append(replacements)

    def merge(self, other: Outcomes) -> None:
        """Add what another task has read for the same lease."""
        for key, monotons in other._by.items():
            self._by[key] += monotons
        for delay, new in other._new.items():
            self._new[delay] += new

    def replaced_and_named_again(self) -> Ranges:
        """The messages that one row replaces, and that another row names, too."""
        parts = chain.from_iterable(self._new.values())
        replaced = Counter(monoton for part in parts for monoton in part.monotons)
        again = {monoton for monoton, rows in replaced.items() if rows > 1}
        again |= replaced.keys() & chain.from_iterable(self._by.values())
        return Ranges.of(*(Range(each, each + 1) for each in again))

    def settlement(self) -> Settlement | None:
        """The settlement of the messages that are not replaced; None if there are none."""
        if not self._by:
            return None
        settled: dict[str, Any] = {}
        for name, verb in VERBS.items():
            by = self._of(name)
            settled[verb.done] = by if verb.parameter else Ranges.union(by.values())
        return Settlement(**settled)

    def replacements(self) -> Iterator[tuple[timedelta, Replacements]]:
        """The new messages, by their delay."""
        for delay, parts in sorted(self._new.items()):
            monotons = [monoton for part in parts for monoton in part.monotons]
            yield delay, Replacements(monotons, pa.concat_batches(part.new for part in parts))

    def _of(self, operation: str) -> Mapping[Any, Ranges]:
        return {
            by: Ranges.of(*(Range(each, each + 1) for each in monotons))
            for (name, by), monotons in self._by.items()
            if name == operation
        }


def read_outcomes(
    batches: Iterable[pa.RecordBatch], defaults: Defaults
) -> dict[LeaseKey, Outcomes]:
    """Read rows of receipts, by lease.

    Args:
        batches: Columns as `columns.validate_settled` accepts them, or `validate_replaced`.
        defaults: The values for rows without values of their own.

    Raises:
        MessageError: A receipt is not valid, or of another queue; an operation is unknown; a
            delay is negative, or longer than a year; a row replaces its message without a new
            message; or the queue does not take a new message.
    """
    found: defaultdict[LeaseKey, Outcomes] = defaultdict(Outcomes)
    form, first_row = defaults.form, 0
    left, right = tee(_split(batch, form) for batch in batches)
    news = form.assigned(new for _, new in right)
    for (receipts, _), new in zip(left, news, strict=True):
        replaced: defaultdict[tuple[LeaseKey, timedelta], dict[int, int]] = defaultdict(dict)
        rows = _rows(receipts, defaults, first_row)
        for at, (lease, monoton, operation, parameter) in enumerate(rows):
            if operation == REPLACE:
                replaced[lease, parameter][at] = monoton
            else:
                found[lease].add(monoton, operation, parameter)
        for (lease, delay), monotons in replaced.items():
            first_replaced = first_row + min(monotons)
            if form is PLAIN and "value" not in new.schema.names:
                raise MessageError(_without_value(first_replaced, defaults.queue))
            taken = new.take(pa.array(list(monotons), pa.int64()))
            check_messages(taken, defaults.max_message_bytes, first_row=first_replaced, form=form)
            found[lease].replace(delay, Replacements(list(monotons.values()), taken))
        first_row += receipts.num_rows
    return dict(found)


def _without_value(row: int, queue: QueueDefinition) -> str:
    if queue.schema is None:
        return (
            f"{row_at(row)} replaces its message, and there is no column 'value': add it, with "
            "the new message, or use another operation"
        )
    return (
        f"{row_at(row)} replaces its message, and operation 'each' replaces no messages of a "
        "queue with a schema: replace them by a write of their own, with 'operation' = 'replace'"
    )


def _rows(
    batch: pa.RecordBatch, defaults: Defaults, first_row: int
) -> Iterator[tuple[LeaseKey, int, str, Any]]:
    """Check the rows of a batch; yield lease, monoton, operation and its parameter."""
    known: set[QueueId] = set()
    for at, row in enumerate(batch.to_pylist(), first_row):
        receipt = Receipt.parse(row["receipt"] or "", advice=_ADVICE)
        operation = row["operation"] if defaults.operation == EACH else defaults.operation
        if operation not in _PARAMETERS:
            raise MessageError(
                f"row {at} of this task, counted from 0, has the operation {operation!r}: "
                f"expected {', '.join(_PARAMETERS)}"
            )
        if receipt.queue_id not in known:
            if partition_of_id(defaults.queue, receipt.queue_id) is None:
                raise MessageError(
                    f"receipt {str(receipt)!r} is of queue {receipt.queue_id}, not of "
                    f"{defaults.queue.queue_id}, which option 'queue' names"
                )
            known.add(receipt.queue_id)
        column = _PARAMETERS[operation]
        given = row.get(column) if column else None
        parameter = given
        if column and given in {None, ""}:
            parameter = getattr(defaults, column)
        elif column in {"delay", "seconds"}:
            parameter = _span(given)
            if parameter is None:
                raise MessageError(
                    f"row {at} of this task, counted from 0, has {given} as {column!r}: "
                    f"expected a time from 0 to {A_YEAR.days} days"
                )
        if isinstance(parameter, str):
            parameter = parameter[:LONGEST_TEXT]
        lease = LeaseKey(receipt.queue_id, receipt.group, receipt.lease, receipt.deliveries)
        yield lease, receipt.monoton, operation, parameter


def _span(given: Any) -> timedelta | None:
    try:
        span = given if isinstance(given, timedelta) else timedelta(seconds=given)
    except (ValueError, OverflowError):
        return None
    return span if timedelta(0) <= span <= A_YEAR else None


def _split(batch: pa.RecordBatch, form: Form) -> tuple[pa.RecordBatch, pa.RecordBatch]:
    """The columns that say what to do, and those of new messages."""
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
