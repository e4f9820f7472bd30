"""Which queues a stream of several queues reads, and whether they have its columns."""

from __future__ import annotations

import re
from collections.abc import Sequence

from cassieq_spark.arguments import did_you_mean
from cassieq_spark.errors import NotFoundError, OptionError
from cassieq_spark.model import QueueDefinition
from cassieq_spark.queues import list_queues, read_queue
from cassieq_spark.schemas.canonical import type_name
from cassieq_spark.schemas.ddl import schema_of
from cassieq_spark.settings import SourceOptions
from cassieq_spark.spark.source.columns import Columns
from cassieq_spark.store.protocol import Store


def read_selected(store: Store, options: SourceOptions) -> list[QueueDefinition]:
    """The queues that the options select and that exist now.

    One read per queue of a list; for a pattern, a read of the whole table of queues.

    Raises:
        NotFoundError: A queue of a list does not exist, and ``failOnDataLoss`` is true; or none
            exists.
    """
    if options.queue_pattern is not None:
        pattern = re.compile(options.queue_pattern)
        found = [each for each in list_queues(store) if pattern.fullmatch(each.name)]
        if not found:
            raise NotFoundError(
                f"no queue has a name that the whole pattern {options.queue_pattern!r} matches: "
                "to see all names, cassieq queue list"
            )
        return found
    found, missing = [], None
    for name in options.queues:
        try:
            found.append(read_queue(store, name))
        except NotFoundError as error:
            missing = error
    if missing is not None and (options.fail_on_data_loss or not found):
        raise missing
    return found


def check_alike(columns: Columns, queues: Sequence[QueueDefinition]) -> None:
    """Refuse queues whose messages do not fit the columns of the rows.

    A queue may have more columns than the rows; those are not read.

    Raises:
        OptionError: Some queues have a schema and others have none; or a queue lacks a column, or
            has it with another type.
    """
    for queue in queues:
        why = _why_unlike(columns, queue)
        if why is not None:
            raise OptionError(
                f"queue {queue.name!r} can't be read together with the others: {why}; read it in "
                "a query of its own, or choose columns that all of them have (option 'columns')"
            )


def _why_unlike(columns: Columns, queue: QueueDefinition) -> str | None:
    if columns.schema is None:
        return None if queue.schema is None else "it has a schema, and the rows are bytes"
    if queue.schema is None:
        return "it has no schema, and the rows have columns"
    own = schema_of(queue.schema)
    for field in columns.schema:
        if field.name not in own.names:
            return f"it has no column {field.name!r}; " + did_you_mean(
                field.name, own.names, f"it has {', '.join(own.names)}"
            )
        there = own.field(field.name)
        if there.type != field.type:
            return (
                f"its column {field.name!r} is {type_name(there.type)}, and the rows have "
                f"{type_name(field.type)}"
            )
        if there.nullable and not field.nullable:
            return f"its column {field.name!r} may be null, and that of the rows may not"
    return None
