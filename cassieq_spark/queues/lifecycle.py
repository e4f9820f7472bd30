"""Creates, alters, pauses, purges and deletes queues."""

from __future__ import annotations

from dataclasses import replace
from typing import Unpack

from cassieq_spark.errors import (
    ExistsError,
    InvariantError,
    OptionError,
    QueueStateError,
    SchemaError,
)
from cassieq_spark.groups.registration import check_unleased, close_groups
from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.ledger.lifecycle import close_ledger, open_next, set_paused
from cassieq_spark.ledger.state import LedgerHead, LedgerStatus
from cassieq_spark.model import (
    TYPED_BUCKET_SIZE,
    TYPED_CHUNK_SIZE,
    QueueDefinition,
    id_of,
)
from cassieq_spark.queues.definition import (
    Counts,
    count_of,
    next_versions,
    show_counts,
    validate,
)
from cassieq_spark.queues.record import (
    QueueRecord,
    Status,
    active,
    change,
    known,
    ledgers_of,
    list_records,
    open_ledgers,
    order_of_version,
    read_mended,
    read_queue,
    read_record,
    settings_of,
)
from cassieq_spark.schemas.ddl import ddl_of, schema_of, to_ddl
from cassieq_spark.settings.queue import QueueChanges, StoredQueueSettings, check_settings
from cassieq_spark.store.protocol import ServerNow, Store, Values

_FIRST_VERSION = 1


def create_queue(
    store: Store, name: str, **settings: Unpack[StoredQueueSettings]
) -> QueueDefinition:
    """Create a queue. One LWT, and one per partition.

    If a queue of this name was deleted, some reads; more if the repair has not retired it.

    Args:
        name: See `validate_name`.
        settings: See `StoredQueueSettings`. Settings that are not given get the defaults of
            `QueueDefinition`, so deliveries are not limited. The dead-letter queue is created
            without a limit if it does not exist, and widened to take messages of this schema.

    Raises:
        OptionError: A value is out of range, or contradicts another one, or the schema is not
            valid; or older queues send their dead messages to this queue, and it has several
            partitions.
        SchemaError: The messages do not fit the dead-letter queue; or older queues that send their
            dead messages to this queue have a schema and this queue has none, or the reverse.
        ExistsError: A queue of this name exists.
        ContentionError: Lost to others again and again.
        OutcomeUnknownError: An answer was lost, and no read showed the outcome.
    """
    given = check_settings(settings)
    schema = ddl_of(given.pop("schema", None))
    if schema is not None:
        given = {"bucket_size": TYPED_BUCKET_SIZE, "chunk_size": TYPED_CHUNK_SIZE} | given
    wanted = QueueDefinition(
        name,
        _FIRST_VERSION,
        schemas=() if schema is None else next_versions((), schema),
        **given,
    )
    validate(wanted)
    if wanted.dead_letter_queue is not None:
        _check_free(store, read_record(store, name), wanted)
        make_dead_letter_queue(store, wanted.dead_letter_queue, wanted)

    def create(found: QueueRecord | None) -> Values:
        _check_free(store, found, wanted)
        version = _FIRST_VERSION
        counts: Counts = ()
        if found is not None:
            # I10: close the old versions before anything of a new version exists.
            close_versions(store, found)
            version, counts = found.version + 1, found.counts
        if wanted.partitions != count_of(counts, version):
            counts = (*counts, (version, wanted.partitions))
        # The ledgers come first: a program that finds the queue's row needs them.
        for ledger in ledgers_of(store, replace(wanted, version=version)):
            ledger.create()
        begun: Values = {
            "version": version,
            "status": Status.ACTIVE,
            "created_at": ServerNow(),
            "attributes": "",
            "schedules": "",
            "partitions": show_counts(counts),
            **order_of_version(wanted, version),
        }
        first: Values = {"retired": 0} if found is None else {}
        return {**settings_of(wanted), **begun, **first}

    return active(name, change(store, name, create)).definition


def make_dead_letter_queue(store: Store, name: str, source: QueueDefinition) -> None:
    """Let a queue take the dead messages of another one. One read if the queue already does.

    The queue is created if it does not exist, and widened to take messages of the source's schema.

    Args:
        name: The dead-letter queue.
        source: The other queue, as it is about to be.

    Raises:
        SchemaError: The dead-letter queue can't take these messages.
        ContentionError: Lost to others again and again.
        OutcomeUnknownError: An answer was lost, and no read showed the outcome.
    """
    found = read_record(store, name)
    if found is None or found.is_gone:
        try:
            create_queue(store, name, schema=_taking((), source))
        except ExistsError:
            # Another program has made it since, perhaps for another schema.
            found = read_record(store, name, serial=True)
        else:
            return
    _check_taken(source, known(name, found).definition)

    def widen(record: QueueRecord | None) -> Values | None:
        queue = known(name, record).definition
        _check_taken(source, queue)
        try:
            schema = _taking(queue.schemas, source)
        except SchemaError as error:
            raise SchemaError(
                f"queue {name!r} can't be the dead-letter queue of {source.name!r}, as it would "
                f"need its columns; name another queue. Of {name!r}, {error}"
            ) from error
        schemas = () if schema is None else next_versions(queue.schemas, schema)
        return None if schemas == queue.schemas else settings_of(replace(queue, schemas=schemas))

    if source.schema is not None:
        change(store, name, widen)


def _check_taken(source: QueueDefinition, target: QueueDefinition) -> None:
    """Refuse a dead-letter queue that can't take messages of a queue.

    The dead-letter queue needs a schema if the messages have one, and a single partition, so that
    dead letters are in order.
    """
    if target.partitions > 1:
        raise OptionError(
            f"queue {target.name!r} has {target.partitions} partitions, so it can't be the "
            f"dead-letter queue of {source.name!r}, which needs one partition; name another queue"
        )
    if (source.schema is None) != (target.schema is None):
        has, lacks = (source, target) if source.schema else (target, source)
        raise SchemaError(
            f"queue {target.name!r} can't be the dead-letter queue of {source.name!r}: "
            f"{has.name!r} has a schema and {lacks.name!r} has none; name another queue"
        )


def _taking(versions: tuple[str, ...], source: QueueDefinition) -> str | None:
    """The schema that lets a dead-letter queue of these versions take messages of a queue."""
    if source.schema is None:
        return None
    from cassieq_spark.schemas.evolution import dead_letter_schema  # noqa: PLC0415 (a query begins without it)

    before = [schema_of(each) for each in versions]
    return to_ddl(dead_letter_schema(schema_of(source.schema), before))


def alter_queue(store: Store, name: str, **changes: Unpack[QueueChanges]) -> QueueDefinition:
    """Alter a queue. One LWT and three reads; no LWT if no setting changes.

    Running readers and writers keep their settings, and readers present later messages by their
    own schema. The repair uses the new times with its next run.

    Args:
        changes: See `QueueChanges`. A schema is given whole. Columns may be added and dropped if
            they may be null, types widened, and ``not null`` removed. The dead-letter queue is
            widened, too.

    Raises:
        OptionError: A value is out of range, or contradicts another one; or a setting can't be
            altered.
        SchemaError: The change is not safe, or messages do not fit the dead-letter queue.
        QueueStateError: There is no active queue of that name.
        ContentionError: Lost to others again and again.
        OutcomeUnknownError: An answer was lost, and no read showed the outcome.
    """
    given = check_settings(changes, alters=True)
    schema = ddl_of(given.pop("schema", None))

    def altered(queue: QueueDefinition) -> QueueDefinition:
        return validate(replace(queue, **given, schemas=_altered_schemas(queue, schema)))

    wanted = altered(read_queue(store, name))
    if wanted.dead_letter_queue and ("dead_letter_queue" in given or schema is not None):
        # Widened first, so that it can take messages of the new schema.
        make_dead_letter_queue(store, wanted.dead_letter_queue, wanted)

    def alter(found: QueueRecord | None) -> Values | None:
        queue = active(name, found).definition
        wanted = altered(queue)
        return None if wanted == queue else settings_of(wanted)

    return active(name, change(store, name, alter)).definition


def _altered_schemas(queue: QueueDefinition, schema: str | None) -> tuple[str, ...]:
    if schema is None:
        return queue.schemas
    if not queue.schemas:
        raise SchemaError(
            f"queue {queue.name!r} has no schema, and its messages are bytes: create another "
            "queue with the schema"
        )
    return next_versions(queue.schemas, schema)


def pause_queue(store: Store, name: str) -> bool:
    """Let readers lease no messages from their next batch on.

    One read, and one LWT and one read per partition. Readers still ack their messages, and writers
    go on. A purge keeps the pause; a deletion does not.

    Returns:
        True if the queue was paused; False if it already was.

    Raises:
        QueueStateError: There is no active queue of that name.
        ContentionError: Lost to others again and again.
    """
    return _set_all_paused(store, name, paused=True)


def resume_queue(store: Store, name: str) -> bool:
    """Let readers lease messages again; False if the queue was not paused. See `pause_queue`."""
    return _set_all_paused(store, name, paused=False)


def _set_all_paused(store: Store, name: str, *, paused: bool) -> bool:
    """Pause or resume every partition; return True if any of them changed."""
    changed = [set_paused(ledger, paused=paused) for ledger in open_ledgers(store, name)]
    return any(changed)


def is_paused(store: Store, name: str) -> bool:
    """True if any partition is paused. One read, and one per partition.

    Raises:
        QueueStateError: There is no active queue of that name.
    """
    return any(ledger.read_head().paused for ledger in open_ledgers(store, name))


def purge_queue(store: Store, name: str, *, force: bool = False) -> QueueDefinition:
    """Let a queue continue as a new version, without messages.

    Two LWTs; per partition three more, and one more per group.

    The call deletes all messages that were published before it, and none that is published after
    it. Groups stay, and are owed the new messages; sinks stay, and publish no batch again. During
    the purge, publishes fail. If the call breaks off, the queue can't be used until the call is
    repeated.

    1. Row: the next version, purging. From now on readers and writers must wait.
    2. The version before: close the ledger, then the groups.
    3. The next version: create a ledger with the sinks and groups of the version before. These
       sinks and groups can't change any more, so two purges at once write the same.
    4. Row: active.

    Returns:
        The queue as it is now.

    Raises:
        QueueStateError: The queue does not exist, or readers hold messages.
        ContentionError: Lost to others again and again.
        OutcomeUnknownError: An answer was lost, and no read showed the outcome.
    """
    begun = known(name, read_record(store, name, serial=True))
    if begun.status is Status.ACTIVE and not force:
        _refuse_leases(store, begun)

    def begin(found: QueueRecord | None) -> Values | None:
        # A later version has no message that is older than this call.
        if known(name, found).version != begun.version or begun.status is Status.PURGING:
            return None
        version = begun.version + 1
        by_key = order_of_version(begun.definition, version)
        return {"version": version, "status": Status.PURGING, **by_key}

    return _finish(store, known(name, change(store, name, begin)))


def delete_queue(store: Store, name: str, *, force: bool = False) -> None:
    """Delete a queue. One LWT; per partition one more, and one more per group.

    The repair deletes its messages. A queue of this name can be created at once, and gets the next
    version. If the call breaks off, the queue is deleted, but its users get errors only after the
    call is repeated, the repair has run, or the queue is created anew. A queue whose row can't be
    read can be deleted, too.

    Args:
        force: Delete the queue even if readers hold messages, or if other queues send their dead
            letters there.

    Raises:
        QueueStateError: The queue does not exist; readers or other queues use it; or others purged
            it, or created it anew, at the same time.
        ContentionError: Lost to others again and again.
        OutcomeUnknownError: An answer was lost, and no read showed the outcome.
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
                f"queue {name!r} has become version {found.version} at the same time: it was "
                "purged, or deleted and created again; check it, and repeat the command"
            )
        # All columns are written, so that the row can be read from now on.
        versions: Values = {
            "version": found.version,
            "retired": found.retired,
            "partitions": show_counts(found.counts),
        }
        return {**settings_of(found.definition), **versions, "status": Status.DELETING}

    deleted = change(store, name, delete, read=read_mended)
    if deleted is not None:
        close_versions(store, deleted)


def close_versions(store: Store, record: QueueRecord) -> None:
    """Close the versions of a deleted queue. One LWT per partition and per group.

    If the versions are closed already, reads only. Two may be open if a purge broke off.
    """
    if not record.is_gone:
        return
    for version in (record.version - 1, record.version):
        if version > record.retired:
            status = LedgerStatus.DELETED if version == record.version else LedgerStatus.PURGED
            _close(store, record, version, status)


def mark_retired(store: Store, name: str, version: int) -> None:
    """Record that only the head of the ledger is left of a version. One LWT.

    Steps to take before, in this order; each is safe to repeat, and safe at any time:

    1. `close_versions`, if the queue is deleted. Otherwise the version is closed already.
    2. Move ``finalised`` of its ledger up to ``next``; delete the buckets of all its blocks
       (`LedgerHead.bucket_size` of the closed head), including unpublished blocks that a scan has
       found: no block can be published there any more.
    3. Delete the rows of its ledger except the head: without the head, a creation that is late
       could open the version again (I10). The states of its groups stay: one row each, and a
       token.

    Args:
        version: The first of `QueueRecord.to_retire`.

    Raises:
        InvariantError: The version is still needed, or an earlier one is not retired.
        ContentionError: Lost to others again and again.
        OutcomeUnknownError: An answer was lost, and no read showed the outcome.
    """

    def retire(found: QueueRecord | None) -> Values | None:
        if found is not None and version <= found.retired:
            return None
        if found is None or id_of(name, version) not in found.to_retire[:1]:
            raise InvariantError(f"version {version} of queue {name!r} is not the next to retire")
        done = found.is_gone and version == found.version
        ended: Values = {"status": Status.DELETED, "schema_versions": ""} if done else {}
        return {"retired": version, **ended}

    change(store, name, retire)


def _check_free(store: Store, found: QueueRecord | None, wanted: QueueDefinition) -> None:
    """Refuse a queue that exists, or can't take the dead messages that others send to it."""
    if found is None:
        # A queue that is named as dead-letter queue has existed.
        return
    name = wanted.name
    if not found.is_gone:
        raise ExistsError(f"queue {name!r} exists already: cassieq queue show {name}")
    for source in _sources_of(store, name):
        _check_taken(source, wanted)


def _sources_of(store: Store, name: str) -> list[QueueDefinition]:
    """The queues that send their dead messages to a queue, which need not exist."""
    return [
        each.definition
        for each in list_records(store)
        if not each.is_gone and each.definition.dead_letter_queue == name
    ]


def _finish(store: Store, record: QueueRecord) -> QueueDefinition:
    """Complete a purge that this process or another one began."""
    queue = record.definition
    if record.status is Status.ACTIVE:
        return queue
    before = _close(store, record, queue.version - 1, LedgerStatus.PURGED)
    for ledger, (after, head) in zip(ledgers_of(store, queue), before, strict=True):
        open_next(ledger, after=after, paused=head.paused)

    def end(found: QueueRecord | None) -> Values | None:
        same = known(queue.name, found).version == queue.version
        if not same or known(queue.name, found).status is Status.ACTIVE:
            return None
        return {"status": Status.ACTIVE}

    return _finish(store, known(queue.name, change(store, queue.name, end)))


def _close(
    store: Store, record: QueueRecord, version: int, status: LedgerStatus
) -> list[tuple[Ledger, LedgerHead]]:
    """Close each partition of a version, and return their ledgers and heads."""
    closed = []
    for queue in record.of_version(version):
        ledger = Ledger(store, queue.queue_id)
        head = close_ledger(ledger, status, bucket_size=queue.bucket_size)
        close_groups(ledger, end=head.next)
        closed.append((ledger, head))
    return closed


def _refuse_users(store: Store, record: QueueRecord) -> None:
    users = [each.name for each in _sources_of(store, record.name)]
    if users:
        raise QueueStateError(
            f"queue {record.name!r} is the dead-letter queue of {', '.join(users)}; alter or "
            "delete those first, or force it: their dead messages then stay where they are"
        )
    _refuse_leases(store, record)


def _refuse_leases(store: Store, record: QueueRecord) -> None:
    for ledger in ledgers_of(store, record.definition):
        check_unleased(ledger)
