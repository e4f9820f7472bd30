"""When a sink that has published once is not needed any more.

Such a sink is a row in the ledger of the queue that it published to. It tells who comes later that
the messages are there. It may go when nobody can come any more: of a burial, once the messages are
finalised in the queue that they came from, so that no group can be given them again; of a redrive,
once its claim is resolved; of an idempotency key, some time after it was used, as the sweep says.
"""

from __future__ import annotations

from uuid import UUID

from cassieq_spark.dead_letters.claims import ADMIN_GROUP
from cassieq_spark.delivery.lease import Delivery
from cassieq_spark.errors import QueueStateError
from cassieq_spark.ledger.read import read_head
from cassieq_spark.model import QueueId
from cassieq_spark.store.protocol import Store

_BURIAL, _REDRIVE, _KEY = "dead", "redrive", "once"


def sink_of_key(idempotency_key: str) -> str:
    """The sink of what a program puts under an idempotency key."""
    return f"{_KEY}:{idempotency_key}"


def publishes_once(sink: str) -> bool:
    """Whether this is the sink of a burial, of a redrive or of an idempotency key."""
    return sink.partition(":")[0] in {_BURIAL, _REDRIVE, _KEY}


def is_over(store: Store, sink: str) -> bool:
    """Whether nobody can come any more to publish under this sink. One or two reads.

    Who was about to when the letters were published, and has slept since, is not looked for.

    Args:
        store: Where the queues are kept.
        sink: Of which `publishes_once` says yes.
    """
    kind, _, rest = sink.partition(":")
    if kind == _KEY:
        return True
    try:
        return _is_finalised(store, rest) if kind == _BURIAL else _is_resolved(store, rest)
    except QueueStateError:
        # The queue or the group is not there, and with it nobody who could come.
        return True
    except ValueError:
        # Not named as here: of an earlier release.
        return False


def _is_finalised(store: Store, rest: str) -> bool:
    """``<queue id>:<group>:<first monoton>:<digest>``: all of it dies together, or none."""
    source, first, _digest = rest.rsplit(":", 2)
    # A queue's name may have a colon, its version none; and no name has an @.
    name, _, version_and_group = source.partition("@")
    queue_id = QueueId(f"{name}@{version_and_group.partition(':')[0]}")
    return int(first) < read_head(store, queue_id).finalised


def _is_resolved(store: Store, rest: str) -> bool:
    """``<queue id>:<lease>``: the claim is a lease of that queue's group for redrives."""
    queue_id, _, token = rest.rpartition(":")
    lease = UUID(token)
    state = Delivery(store, QueueId(queue_id), ADMIN_GROUP).read()
    return not any(slot.monotons for slot in state.held_by(lease))
