"""Which form the messages of a queue have: bytes, or rows of its schema."""

from __future__ import annotations

from functools import lru_cache

from cassieq_spark.arrow.chunks import PLAIN, Form
from cassieq_spark.arrow.typed_chunks import TypedForm
from cassieq_spark.model import QueueDefinition
from cassieq_spark.schemas.ddl import schema_of


def form_of(queue: QueueDefinition) -> Form:
    """The form in which messages are written to a queue; cached."""
    return PLAIN if queue.schema is None else _typed(queue.schema, len(queue.schemas))


@lru_cache(maxsize=256)
def _typed(ddl: str, version: int) -> TypedForm:
    return TypedForm(schema_of(ddl), version)
