"""The end of a version of a queue: purged, deleted, and retired by the repair."""

from __future__ import annotations

from cassieq_spark.errors import InvariantError, QueueStateError
from cassieq_spark.groups.registration import check_unleased, close_groups
from cassieq_spark.ledger.gate import close_ledger, open_next
from cassieq_spark.ledger.state import Gate, LedgerHead
from cassieq_spark.model import QueueDefinition
from cassieq_spark.queues.change import change
from cassieq_spark.queues.record import (
    QueueRecord,
    Status,
    id_of,
    known,
    list_records,
    read_mended,
    read_record,
    settings_of,
)
from cassieq_spark.store.protocol import Store, Values


def purge_queue(store: Store, name: str, *, force: bool = False) -> QueueDefinition:
    """Let a queue go on as a new version, without messages. Five LWTs, one more for each group.

    Whatever was published before this call is gone, and nothing that is published after it.
    Groups are owed what comes; sinks do not publish again what they have published. In between,
    publishes fail. If it breaks off, the queue can't be used until it is repeated.

    1. Row: the next version, purging. Whoever looks is told to wait.
    2. The version before: close the ledger, then the groups. Nothing comes in or goes out.
    3. The next version: a ledger with the sinks and groups of the one before, which can't change
       any more; whoever does this at the same time comes to the same.
    4. Row: active.

    Args:
        store: Where the queue is kept.
        name: Which queue.
        force: Also if readers hold messages.

    Returns:
        The queue as it is now.

    Raises:
        QueueStateError: There is no such queue, or readers hold messages.
        ContentionError: Lost to others, or no answer, again and again.
    """
    begun = known(name, read_record(store, name, serial=True))
    if begun.status is Status.ACTIVE and not force:
        check_unleased(store, begun.definition.queue_id)

    def begin(found: QueueRecord | None) -> Values | None:
        # Of a later version, no message is from before this call.
        if known(name, found).version != begun.version or begun.status is Status.PURGING:
            return None
        return {"version": begun.version + 1, "status": Status.PURGING}

    return _finish(store, known(name, change(store, name, begin)))


def delete_queue(store: Store, name: str, *, force: bool = False) -> None:
    """Delete a queue. Two LWTs, one more for each group; the repair deletes what is stored.

    A queue of that name can be created at once: it gets the next version. If it breaks off, the
    queue is gone, but those who use it are told only when it is repeated, or the next repair run
    runs, or the queue is created anew. A queue whose row can't be read is deleted as well.

    Args:
        store: Where the queue is kept.
        name: Which queue.
        force: Also if readers hold messages, or other queues send their dead letters there.

    Raises:
        QueueStateError: There is no such queue; readers or other queues use it; or others purged
            it, or created it anew, at the same time.
        ContentionError: Lost to others, or no answer, again and again.
    """
    begun = read_mended(store, name, serial=True)
    if begun is None or begun.status is Status.DELETED:
        begun = known(name, None)
    if not begun.is_gone and not force:
        _refuse_users(store, begun)

    def delete(found: QueueRecord | None) -> Values | None:
        if found is None or found.is_gone:
            return None
        if found.version != begun.version:
            raise QueueStateError(
                f"queue {name!r} has become version {found.version} at the same time: others have "
                "purged it, or deleted it and created it anew; look at it, and repeat"
            )
        # All of the row: what could not be read of it can be from now on.
        versions: Values = {"version": found.version, "retired": found.retired}
        return {**settings_of(found.definition), **versions, "status": Status.DELETING}

    deleted = change(store, name, delete, read=read_mended)
    if deleted is not None:
        close_versions(store, deleted)


def close_versions(store: Store, record: QueueRecord) -> None:
    """Let nothing into or out of a queue that is gone. One LWT, and one for each group.

    Reads only, if it is done. Two versions may be open: a purge may have broken off.
    """
    if not record.is_gone:
        return
    for version in (record.version - 1, record.version):
        if version > record.retired:
            gate = Gate.DELETED if version == record.version else Gate.PURGED
            _close(store, record.definition, version, gate)


def mark_retired(store: Store, name: str, version: int) -> None:
    """Remember that nothing of a version is left but the head of its ledger. One LWT.

    What must be done before, in this order, each of it safe to repeat and at any time:

    1. `close_versions`, if the queue is gone. Others are closed.
    2. Move ``finalised`` of its ledger up to ``next``; delete the buckets of all its blocks
       (`LedgerHead.bucket_size` of the closed head), also of those that no ledger row knows, as
       far as a scan has found them: nothing can ever be published there.
    3. Delete the rows of its ledger, the head excepted: if that went, a creation that comes late
       could open the version again (I10). The states of its groups stay as they are: one row
       each, and a token.

    Args:
        store: Where the queue is kept.
        name: Which queue.
        version: The first of `QueueRecord.to_retire`.

    Raises:
        InvariantError: It is needed still, or an earlier one is not retired.
        ContentionError: Lost to others, or no answer, again and again.
    """

    def retire(found: QueueRecord | None) -> Values | None:
        if found is not None and version <= found.retired:
            return None
        if found is None or id_of(name, version) not in found.to_retire[:1]:
            raise InvariantError(f"version {version} of queue {name!r} is not the next to retire")
        done = found.is_gone and version == found.version
        return {"retired": version} | ({"status": Status.DELETED} if done else {})

    change(store, name, retire)


def _finish(store: Store, record: QueueRecord) -> QueueDefinition:
    """Finish a purge, whoever began it."""
    queue = record.definition
    if record.status is Status.ACTIVE:
        return queue
    before = id_of(queue.name, queue.version - 1)
    paused = _close(store, queue, queue.version - 1, Gate.PURGED).paused
    open_next(store, queue.queue_id, after=before, paused=paused)

    def end(found: QueueRecord | None) -> Values | None:
        same = known(queue.name, found).version == queue.version
        if not same or known(queue.name, found).status is Status.ACTIVE:
            return None
        return {"status": Status.ACTIVE}

    return _finish(store, known(queue.name, change(store, queue.name, end)))


def _close(store: Store, queue: QueueDefinition, version: int, gate: Gate) -> LedgerHead:
    queue_id = id_of(queue.name, version)
    head = close_ledger(store, queue_id, gate, bucket_size=queue.bucket_size)
    close_groups(store, queue_id, end=head.next)
    return head


def _refuse_users(store: Store, record: QueueRecord) -> None:
    users = [
        each.name
        for each in list_records(store)
        if not each.is_gone and each.definition.dead_letter_queue == record.name
    ]
    if users:
        raise QueueStateError(
            f"queue {record.name!r} takes the dead letters of {', '.join(users)}; alter or delete "
            "those first, or force it: their dead messages then stay where they are"
        )
    check_unleased(store, record.definition.queue_id)
