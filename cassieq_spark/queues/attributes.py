"""Attributes of queues: facts that programs keep with a queue, and that nothing here reads."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

from cassieq_spark.arguments import check_text, shown
from cassieq_spark.errors import InvariantError, OptionError
from cassieq_spark.queues.record import QueueRecord, active, change, read_active

if TYPE_CHECKING:
    from cassieq_spark.model import QueueDefinition
    from cassieq_spark.store.protocol import Store, Values

#: Most characters of the name of an attribute.
LONGEST_NAME = 200
#: Most attributes of a queue, and most bytes of all its attributes: each read of the row reads all
#: of them.
MOST_ATTRIBUTES, MOST_BYTES = 200, 64 << 10


def read_attributes(store: Store, name: str) -> dict[str, str]:
    """Read the attributes of a queue, by name; see `read_queue` for costs and errors.

    Raises:
        InvariantError: The attributes can't be read.
    """
    return attributes_of(read_active(store, name))


def read_with_attributes(store: Store, name: str) -> tuple[QueueDefinition, dict[str, str]]:
    """Read a queue's definition and its attributes at once; see `read_attributes`."""
    record = read_active(store, name)
    return record.definition, attributes_of(record)


def set_attributes(store: Store, name: str, changes: Mapping[str, str | None]) -> dict[str, str]:
    """Set some attributes of a queue, and remove some; the others stay.

    One LWT and two serial reads; no LWT if nothing changes. Two programs that set different
    attributes at once both succeed. A purge keeps attributes; a deletion does not.

    Args:
        changes: The new values by name; None removes an attribute.

    Returns:
        All attributes of the queue, by name.

    Raises:
        OptionError: A name or a value is not valid, or the queue would have too many attributes.
        QueueStateError: There is no active queue of that name.
        ContentionError: Lost to others again and again.
        OutcomeUnknownError: An answer was lost, and no read showed the outcome.
    """
    check_changes(changes)

    def decide(found: QueueRecord | None) -> Values | None:
        before = attributes_of(active(name, found))
        after = merged(before, changes)
        return None if after == before else {"attributes": json.dumps(after, sort_keys=True)}

    return attributes_of(active(name, change(store, name, decide)))


def attributes_of(record: QueueRecord) -> dict[str, str]:
    """The attributes of a queue whose row was read.

    Raises:
        InvariantError: Somebody has changed them by hand.
    """
    try:
        found = json.loads(record.attributes or "{}")
    except ValueError:
        found = None
    if not isinstance(found, dict) or not all(isinstance(it, str) for it in found.values()):
        raise InvariantError(
            f"the attributes of queue {record.name!r} are no JSON object of texts: set the column "
            "attributes of its row in the table queue to ''"
        )
    return dict(sorted(found.items()))


def check_changes(changes: object) -> None:
    """Check the changes that `set_attributes` is to make.

    Raises:
        OptionError: ``changes`` is no mapping, or a name or a value in it is not valid.
    """
    if not isinstance(changes, Mapping):
        raise OptionError(
            f'attributes must be a dict such as {{"team": "payments"}}, not {shown(changes)}'
        )
    for name, value in changes.items():
        check_text("the name of an attribute", name)
        if not 0 < len(name) <= LONGEST_NAME:
            raise OptionError(
                f"the name of an attribute has 1 to {LONGEST_NAME} characters, not {len(name)}"
            )
        if value is not None:
            check_text(f"attribute {name!r}", value)


def merged(before: Mapping[str, str], changes: Mapping[str, str | None]) -> dict[str, str]:
    """The attributes after these changes.

    >>> merged({"team": "payments", "tier": "1"}, {"tier": None, "page": "no"})
    {'page': 'no', 'team': 'payments'}

    Raises:
        OptionError: The queue would have too many attributes, or they would be too long.
    """
    all_of_them = {**before, **changes}
    after = {name: value for name, value in sorted(all_of_them.items()) if value is not None}
    size = sum(len(name.encode()) + len(value.encode()) for name, value in after.items())
    if len(after) > MOST_ATTRIBUTES or size > MOST_BYTES:
        raise OptionError(
            f"a queue has {MOST_ATTRIBUTES} attributes of {MOST_BYTES} bytes together at the "
            f"most, and would have {len(after)} of {size}: remove some"
        )
    return after
