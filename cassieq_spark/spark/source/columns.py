"""The columns of a read of messages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from cassieq_spark.arguments import did_you_mean
from cassieq_spark.errors import OptionError, QueueStateError
from cassieq_spark.model import QueueDefinition
from cassieq_spark.schemas.canonical import type_name
from cassieq_spark.schemas.ddl import schema_of
from cassieq_spark.settings import SourceOptions

# Importing the rows takes 20 ms, and the process beside the driver makes none.
if TYPE_CHECKING:
    from cassieq_spark.arrow.rows import Rows


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns of a read.

    Attributes:
        schema: Columns of the queue's schema; None if messages are bytes.
        include_headers: True if there is a column ``headers``, if messages are bytes.
        include_metadata: True if there is a column ``_metadata``, if the queue has a schema.
        include_receipts: True if there is a column ``receipt``, or such a field in ``_metadata``.
    """

    schema: pa.Schema | None
    include_headers: bool = False
    include_metadata: bool = False
    include_receipts: bool = False

    @property
    def whole(self) -> pa.Schema | None:
        """All columns of a queue with a schema, as Spark gets them; None if it has no schema."""
        if self.schema is None or not self.include_metadata:
            return self.schema
        from cassieq_spark.arrow.rows import METADATA, metadata_type  # noqa: PLC0415

        metadata = metadata_type(include_receipts=self.include_receipts)
        return self.schema.append(pa.field(METADATA, metadata))

    def rows(self, queue: QueueDefinition, receipt_prefix: str | None = None) -> Rows:
        """How messages of a queue, or of a queue partition, become rows."""
        from cassieq_spark.arrow.rows import PlainRows, TypedRows  # noqa: PLC0415

        prefix = receipt_prefix if self.include_receipts else None
        rows: Rows = PlainRows(queue.name, self.include_headers)
        if self.schema is not None:
            rows = TypedRows(queue.name, self.schema, self.include_metadata)
        return replace(rows, receipt_prefix=prefix, partition=queue.partition or 0)


def columns_of(
    queue: QueueDefinition, options: SourceOptions, united: pa.Schema | None = None
) -> Columns:
    """The columns that the options request.

    Args:
        queue: The queue; of several, one of them.
        options: The options.
        united: The columns of several queues together; None if there is one.

    Raises:
        OptionError: An option is for queues without a schema, or with one; or a column is unknown.
    """
    if queue.schema is None:
        _refuse(
            f"queue {queue.name!r} has no schema, and its messages are bytes",
            {"columns": options.columns is not None, "includeMetadata": options.include_metadata},
        )
        return Columns(
            None,
            include_headers=options.include_headers,
            include_receipts=options.include_receipts,
        )
    _refuse(
        f"queue {queue.name!r} has a schema; headers are in includeMetadata",
        {"includeHeaders": options.include_headers},
    )
    schema = schema_of(queue.schema) if united is None else united
    whose = None if united is not None else queue
    return Columns(
        schema if options.columns is None else _chosen(whose, schema, options.columns),
        include_metadata=options.include_metadata or options.include_receipts,
        include_receipts=options.include_receipts,
    )


def check_given(
    queue: QueueDefinition | None, known: pa.Schema, columns: Columns, given: pa.Schema
) -> Columns:
    """The columns that the user has chosen by ``.schema(...)``.

    Args:
        queue: The queue; None: there are several.
        known: All of its columns, or those of several queues together.
        columns: What `columns_of` has returned.
        given: The chosen columns, canonical.

    Raises:
        OptionError: There are no such columns.
    """
    if given.equals(columns.whole):
        return columns
    from cassieq_spark.arrow.rows import METADATA  # noqa: PLC0415

    of_queue = "" if queue is None else f" of queue {queue.name!r}"
    own = [field for field in given if field.name != METADATA]
    chosen = _chosen(queue, known, [field.name for field in own])
    for wanted, field in zip(own, chosen, strict=True):
        if wanted.type != field.type:
            raise OptionError(
                f"column {field.name!r}{of_queue} is {type_name(field.type)}, not "
                f"{type_name(wanted.type)}: name it as it is, and cast it afterwards"
            )
        if field.nullable and not wanted.nullable:
            raise OptionError(f"column {field.name!r}{of_queue} may be null: leave out not null")
    with_metadata = len(own) < len(given)
    whole = replace(columns, schema=pa.schema(own), include_metadata=with_metadata)
    if columns.include_metadata != with_metadata or not given.equals(whole.whole):
        raise OptionError(
            f"column {METADATA!r} comes with the option includeMetadata, and has all of its "
            "fields: leave it out of .schema(...), and use the option 'columns' instead"
        )
    return whole


def check_still_there(columns: Columns, queue: QueueDefinition) -> None:
    """Refuse a queue that was created again, with other columns, since a DataFrame was made.

    Args:
        columns: The columns of the DataFrame; of any version of the queue's schema.
        queue: The present definition of the queue.

    Raises:
        QueueStateError: No version of the queue's schema has such columns.
    """
    had = {(field.name, field.type) for each in queue.schemas for field in schema_of(each)}
    wanted = {(field.name, field.type) for field in columns.schema or ()}
    if (columns.schema is None) != (queue.schema is None) or not wanted <= had:
        raise QueueStateError(
            f"queue {queue.name!r} was created again with other columns since this DataFrame was "
            "made: load it again"
        )


def check_has_all_values(columns: Columns, queue: QueueDefinition) -> None:
    """Refuse a DataFrame whose columns may lack values that messages have by now.

    A stream would fail at the first such value, repeatedly, and each time it would count as a
    delivery of healthy messages.

    Args:
        columns: The columns of the DataFrame; of any version of the queue's schema.
        queue: The present definition of the queue.

    Raises:
        QueueStateError: The queue has a column with a wider type, or one that may be null now.
    """
    if columns.schema is None or queue.schema is None:
        return
    # A query of bytes starts faster without it.
    from cassieq_spark.schemas.evolution import ChangeKind, check_change  # noqa: PLC0415

    now = schema_of(queue.schema)
    had = [field for field in columns.schema if field.name in now.names]
    changes = check_change([pa.schema(had)], pa.schema([now.field(field.name) for field in had]))
    grown = [str(it) for it in changes if it.kind in {ChangeKind.WIDENED, ChangeKind.RELAXED}]
    if grown:
        raise QueueStateError(
            f"the schema of queue {queue.name!r} was changed since this DataFrame was made "
            f"({', '.join(grown)}), and messages may have values that it cannot show: make the "
            "DataFrame anew, by spark.readStream...load(), and start the query with that; nothing "
            "was leased"
        )


def _chosen(queue: QueueDefinition | None, schema: pa.Schema, names: Sequence[str]) -> pa.Schema:
    known = {name.lower(): name for name in schema.names}
    lacks = "none of the queues has a" if queue is None else f"queue {queue.name!r} has no"
    for name in names:
        if name.lower() not in known:
            has = "they have" if queue is None else "it has"
            advice = did_you_mean(name, schema.names, f"{has} {', '.join(schema.names)}")
            raise OptionError(f"{lacks} column {name!r}; {advice}")
    wanted = [known[name.lower()] for name in names]
    if len(set(wanted)) < len(wanted):
        raise OptionError(f"a column is named twice: {', '.join(names)}")
    return pa.schema([schema.field(name) for name in wanted])


def _refuse(why: str, given: dict[str, bool]) -> None:
    for option, is_given in given.items():
        if is_given:
            raise OptionError(f"{why}: leave out the option {option!r}")
