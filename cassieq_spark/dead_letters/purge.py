"""Purges dead letters: settles them, so that the repair deletes them."""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass
from uuid import uuid4

from cassieq_spark.dead_letters.claims import WINDOW, batches_of, claim, open_admin_group
from cassieq_spark.dead_letters.survey import Survey, Wait, Watch, unwatched
from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.store.protocol import Store

logger = logging.getLogger(__name__)

#: Dead letters were settled without being redriven.
PURGED = "dead.purged"


@dataclass(frozen=True, slots=True)
class PurgeReport:
    """The result of a run.

    Attributes:
        purged: How many messages were purged.
        missed: How many messages were not, as others hold or have settled them.
        is_stopped: True if the run was stopped before its end.
    """

    purged: int
    missed: int
    is_stopped: bool


def purge(
    store: Store, found: Survey, *, wait: Wait | None = None, watch: Watch = unwatched
) -> PurgeReport:
    """Settle dead letters for good. One LWT per window of 4096 monotons.

    Args:
        wait: Called before each batch, with 0 seconds; returns True to stop.

    Raises:
        ContentionError: Competing changes won every attempt.
    """
    queue_id = found.queue.queue_id
    group = open_admin_group(Ledger(store, queue_id), is_needed=bool(found.groups))
    if group is None:
        return PurgeReport(0, 0, is_stopped=False)
    wait = wait or threading.Event().wait
    total, purged, missed, is_stopped = found.monotons.count, 0, 0, False
    for part in batches_of(found.monotons, WINDOW):
        watch("purging", purged + missed, total)
        is_stopped = wait(0)
        if is_stopped:
            break
        claimed = claim(group, part, token=uuid4, length=None)
        count = claimed.monotons.count if claimed else 0
        purged, missed = purged + count, missed + part.count - count
        if claimed:
            extra = {"action": PURGED, "queue": queue_id, "count": count}
            text = "%s: dead letters %s were purged"
            logger.info(text, group, claimed.monotons.short, extra=extra)
    return PurgeReport(purged, missed, is_stopped)
