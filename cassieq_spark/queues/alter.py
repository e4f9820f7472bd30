"""Altering a queue: what its stored messages do not depend on."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from cassieq_spark.model import QueueDefinition
from cassieq_spark.queues.change import change
from cassieq_spark.queues.create import make_dead_letter_queue
from cassieq_spark.queues.record import QueueRecord, active, read_queue, settings_of
from cassieq_spark.queues.validate import validate
from cassieq_spark.store.protocol import Store, Values


def alter_queue(  # noqa: PLR0913 (each is a setting of its own, by name)
    store: Store,
    name: str,
    *,
    lease: timedelta | None = None,
    max_deliveries: int | None = None,
    dead_letter_queue: str | None = None,
    expire_after: timedelta | None = None,
    keep_settled: timedelta | None = None,
) -> QueueDefinition:
    """Alter a queue; what is None stays as it is. One LWT and three reads; reads, if it is so.

    Readers and writers that run go on as the queue was when they began. The repair takes up what
    expires and what is kept with its next run. Sizes can't be altered, as the keys of all stored
    messages come from them, nor can the order, as readers that run would go on in the other one.

    Args:
        store: Where the queue is kept.
        name: Which queue.
        lease: How long a reader holds messages unless it says otherwise; whole seconds.
        max_deliveries: After so many, a message is dead; 0 for never.
        dead_letter_queue: Where dead messages go; made if it does not exist. Empty: they are
            dropped.
        expire_after: What was not consumed so long after it became visible is thrown away; whole
            seconds. Zero: nothing is.
        keep_settled: What every group has settled is kept until so long after it became visible;
            whole seconds. Zero: it is not kept.

    Raises:
        OptionError: A value is out of range, or contradicts another one.
        QueueStateError: There is no active queue of that name.
        ContentionError: Lost to others, or no answer, again and again.
    """

    def altered(queue: QueueDefinition) -> QueueDefinition:
        return validate(
            replace(
                queue,
                lease=queue.lease if lease is None else lease,
                max_deliveries=queue.max_deliveries if max_deliveries is None else max_deliveries,
                dead_letter_queue=(
                    queue.dead_letter_queue
                    if dead_letter_queue is None
                    else dead_letter_queue or None
                ),
                expire_after=queue.expire_after if expire_after is None else expire_after or None,
                keep_settled=queue.keep_settled if keep_settled is None else keep_settled or None,
            )
        )

    altered(read_queue(store, name))
    if dead_letter_queue:
        make_dead_letter_queue(store, dead_letter_queue)

    def alter(found: QueueRecord | None) -> Values | None:
        queue = active(name, found).definition
        wanted = altered(queue)
        return None if wanted == queue else settings_of(wanted)

    return active(name, change(store, name, alter)).definition
