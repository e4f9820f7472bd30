"""A publish of several partitions whose process dies half way."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from cassieq_spark.ledger.publish import Published
from cassieq_spark.producer.partitioned import publish_all
from cassieq_spark.producer.publisher import Written, publish_written
from cassieq_spark.store.protocol import Store


class _DiedError(Exception):
    """The process died."""


def publish_some(store: Store, written: Sequence[Written], some: Sequence[Written]) -> None:
    """Publish a write of which only some partitions get their publish."""
    alive = {each.queue_id for each in some}

    def publish(found: Sequence[Written]) -> Published:
        if found[0].queue_id not in alive and found[0].published is None:
            raise _DiedError
        return publish_written(store, found)

    with suppress(_DiedError):
        publish_all(store, written, publish=publish)
