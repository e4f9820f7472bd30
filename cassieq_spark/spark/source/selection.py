"""Which queues a stream of several queues reads, and which columns they have together."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pyarrow as pa

from cassieq_spark.errors import NotFoundError, OptionError
from cassieq_spark.model import QueueDefinition, QueueId
from cassieq_spark.queues import list_queues, read_queue
from cassieq_spark.schemas.ddl import schema_of
from cassieq_spark.schemas.union import misfit, united
from cassieq_spark.settings import SourceOptions
from cassieq_spark.spark.source.columns import Columns, columns_of
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


def columns_of_several(
    queues: Sequence[QueueDefinition], options: SourceOptions, given: Sequence[str] | None = None
) -> tuple[Columns, pa.Schema | None]:
    """The columns that the options request of several queues, and all columns that these have.

    Args:
        queues: The queues.
        options: The options.
        given: The columns that the user has chosen by ``.schema(...)``; None: no columns.

    Raises:
        OptionError: Some queues have a schema and others have none; a column has types that
            contradict each other; or an option is for other queues.
    """
    first = queues[0]
    if first.schema is None:
        columns = columns_of(first, options)
        check_alike(columns, queues)
        return columns, None
    for queue in queues:
        _check_kind(queue, is_typed=True)
    chosen = options.columns if given is None else given
    names = None if chosen is None else {name.lower() for name in chosen}
    whole = united({queue.name: queue.schemas for queue in queues}, names)
    return columns_of(first, options, whole), whole


def check_alike(columns: Columns, queues: Sequence[QueueDefinition]) -> None:
    """Refuse queues whose messages do not fit the columns of the rows.

    A queue may have more columns than the rows; those are not read. If it lacks some, they are
    null.

    Raises:
        OptionError: Some queues have a schema and others have none; or a queue has a column with
            another type, of which the rows could not show all values; or it has none of the
            columns.
    """
    for queue in queues:
        _check_kind(queue, is_typed=columns.schema is not None)
        if not columns.schema:
            continue
        if why := misfit(columns.schema, queue.schemas):
            raise OptionError(
                f"queue {queue.name!r} can't be read together with the others: {why}; to read it, "
                "make the DataFrame anew, by spark.readStream...load(), and start the query with "
                "that, or read the queue in a query of its own; nothing of it was leased"
            )
        if all(set(columns.schema.names).isdisjoint(schema_of(it).names) for it in queue.schemas):
            raise OptionError(
                f"queue {queue.name!r} can't be read together with the others: it has none of the "
                f"columns {', '.join(columns.schema.names)}; read it in a query of its own"
            )


def _check_kind(queue: QueueDefinition, *, is_typed: bool) -> None:
    if (queue.schema is not None) != is_typed:
        why = (
            "it has no schema, and the rows have columns"
            if is_typed
            else "it has a schema, and the rows are bytes"
        )
        raise OptionError(
            f"queue {queue.name!r} can't be read together with the others: {why}; read it in a "
            "query of its own"
        )


class Selection:
    """The queues of a stream of several, as they are at each call.

    Each queue is checked when it comes. One that is read already may change its schema, as the
    only queue of a stream may: its messages are shown by the columns that the query began with.

    Args:
        store: Where the queues are kept.
        options: Which queues to select.
        columns: The columns of the rows.
    """

    def __init__(self, store: Store, options: SourceOptions, columns: Columns) -> None:
        self._store, self._options, self._columns = store, options, columns
        self._known: set[QueueId] = set()

    def __call__(self) -> list[QueueDefinition]:
        """Read which queues there are; see `read_selected`.

        Raises:
            OptionError: A queue that is new does not fit the rows; see `check_alike`.
        """
        queues = read_selected(self._store, self._options)
        check_alike(self._columns, [it for it in queues if it.queue_id not in self._known])
        self._known = {it.queue_id for it in queues}
        return queues

    def check_left(self, queue: QueueDefinition) -> None:
        """Refuse a queue that is left, if its messages of the last batch don't fit the rows.

        Raises:
            OptionError: See `check_alike`.
        """
        try:
            check_alike(self._columns, [queue])
        except OptionError as error:
            raise OptionError(
                f"the batch that is repeated has messages of queue {queue.name!r}, which is not "
                f"selected any more, and the rows can't show them: {error}; or select the queue "
                "until that batch is done"
            ) from error
