"""Redrives dead letters: publishes them where they came from, once, and then settles them."""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

from cassieq_spark.arguments import check_rate
from cassieq_spark.arrow.rows import metadata_of, stored_of
from cassieq_spark.dead_letters.claims import (
    Claim,
    ack_claim,
    batches_of,
    claim,
    is_published,
    once_of,
    open_admin_group,
    release_claim,
    token_for,
)
from cassieq_spark.dead_letters.copies import check_same_kind, destination, with_headers
from cassieq_spark.dead_letters.letters import DeadLetterGroup, redriven_headers
from cassieq_spark.dead_letters.survey import (
    Survey,
    Wait,
    Watch,
    read_dead,
    read_messages,
    unwatched,
)
from cassieq_spark.errors import CassieqError, OptionError, QueueStateError
from cassieq_spark.groups.group import ConsumerGroup
from cassieq_spark.groups.partitions import ADMIN_GROUP
from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.ledger.publish import publish
from cassieq_spark.model import PendingBlock, QueueDefinition, Range, Ranges, account_of
from cassieq_spark.producer.blocks import write_block
from cassieq_spark.producer.partitioner import partition_of_key, partition_without_key
from cassieq_spark.queues import ledgers_of, read_queue
from cassieq_spark.settings import SinkOptions
from cassieq_spark.store.protocol import Store

logger = logging.getLogger(__name__)

#: Dead letters were published again.
REDRIVEN = "dead.redriven"
#: A claim ran out before it was published, so another run gave its dead letters back.
TAKEN_OVER = "dead.taken_over"

#: Maximum number of messages in one publish.
BATCH = 1024


@dataclass(frozen=True, slots=True)
class Route:
    """A queue and the dead letters that go to it."""

    target: QueueDefinition
    monotons: Ranges


@dataclass(frozen=True, slots=True)
class RedriveReport:
    """The result of a run.

    Attributes:
        redriven: How many messages were redriven, by target queue.
        missed: How many messages were not, as others hold or have settled them.
        is_stopped: True if the run was stopped before its end.
        left: The monotons of the missed messages that are still dead letters: others hold these
            messages, and settle them or give them back.
    """

    redriven: dict[str, int]
    missed: int
    is_stopped: bool
    left: Ranges = field(default_factory=Ranges)


def read_routes(
    store: Store,
    found: Survey,
    *,
    to: str | None = None,
    force: bool = False,
    across_accounts: bool = False,
) -> tuple[Route, ...]:
    """Find the target queues of dead letters. Two reads per queue; changes nothing.

    Messages whose headers do not name their origin stay, unless ``to`` is given. Letters that
    represent unreadable messages stay, too, as they contain no message of the origin queue.

    Args:
        to: Name of the queue to which all letters go; None: each goes to where it came from.
        force: True to accept that groups get messages again that they have processed.
        across_accounts: True to allow target queues of other accounts than the dead-letter
            queue's.

    Raises:
        OptionError: ``to`` is the dead-letter queue itself; or, without ``across_accounts``, a
            queue is of another account.
        QueueStateError: A queue does not exist; or, without ``force``, has other groups.
    """
    if to == found.queue.name:
        raise OptionError(
            f"dead letters can't be redriven to {to!r}, which is where they are: name another "
            "queue, or none to send each to the queue that it came from"
        )
    groups: dict[str, list[DeadLetterGroup]] = {}
    for group in found.groups:
        if (name := to or group.origin_queue) is not None:
            groups.setdefault(name, []).append(group)
    if not across_accounts:
        _check_accounts(found.queue.name, groups)
    routes = []
    for name, each in groups.items():
        target = _read_target(store, name)
        check_same_kind(found.queue, target)
        if not force:
            _check_groups(store, target, each)
        monotons = Ranges.union(group.monotons for group in each)
        if to is None:
            monotons -= Ranges.union(group.unreadable for group in each)
        if monotons:
            routes.append(Route(target, monotons))
    return tuple(routes)


def redrive(  # noqa: PLR0913 (each is a choice of its own, by name)
    store: Store,
    found: Survey,
    *,
    to: str | None = None,
    rate: float | None = None,
    force: bool = False,
    across_accounts: bool = False,
    drop_columns: bool = False,
    wait: Wait | None = None,
    clock: Callable[[], float] = time.monotonic,
    watch: Watch = unwatched,
) -> RedriveReport:
    """Publish dead letters again, and settle them. Three LWTs per thousand letters.

    Each letter is published once, even if this run breaks off, or another run is active; see
    `claims`. Between two batches the run holds no claim.

    Args:
        to, force, across_accounts: See `read_routes`.
        drop_columns: True to leave out values of columns and fields that the target lacks.
        rate: Maximum number of messages per second; None for no limit.
        wait: Waits before each batch, or stops the run.

    Raises:
        OptionError, QueueStateError: See `read_routes`; nothing is changed.
        OptionError: The rate is no number, or out of range.
        MessageError: A value does not fit its column of the target; or, without ``drop_columns``,
            has no column there. The batch and all later batches are not redriven.
        ContentionError: Competing changes won every attempt.
    """
    if rate is not None:
        rate = check_rate("rate", rate)
    routes = read_routes(store, found, to=to, force=force, across_accounts=across_accounts)
    group = open_admin_group(Ledger(store, found.queue.queue_id), is_needed=bool(routes))
    if group is None:
        return RedriveReport({}, 0, is_stopped=False)
    run = _Run(store, found.queue, group, drop_columns)
    wait = wait or threading.Event().wait
    size = BATCH if rate is None else max(1, min(BATCH, int(rate)))
    total = sum(route.monotons.count for route in routes)
    redriven = {route.target.name: 0 for route in routes}
    due, missed, is_stopped = clock(), 0, False
    batches = ((route, part) for route in routes for part in batches_of(route.monotons, size))
    for route, part in batches:
        done = sum(redriven.values())
        watch("redriving", done + missed, total)
        is_stopped = wait(max(0.0, due - clock()))
        if is_stopped:
            break
        # Counted from each batch: after a delay, the rate does not rise to make up for it.
        begun = clock()
        count = run.redrive(route.target, part)
        due = begun + count / rate if rate else begun
        redriven[route.target.name] += count
        missed += part.count - count
    left = Ranges()
    if missed:
        left = read_dead(store, found.queue) & Ranges.union(route.monotons for route in routes)
    return RedriveReport(redriven, missed, is_stopped, left)


@dataclass(frozen=True, slots=True)
class _Run:
    """One call of `redrive`."""

    store: Store
    queue: QueueDefinition
    group: ConsumerGroup
    drop_columns: bool

    def redrive(self, target: QueueDefinition, part: Ranges) -> int:
        """Redrive a batch, except messages that others hold; return how many were redriven.

        One claim per target partition, so that each claim is published once.
        """
        routes = self._by_partition(target, part)
        return sum(self._redrive(to, monotons) for to, monotons in routes)

    def _by_partition(
        self, target: QueueDefinition, part: Ranges
    ) -> list[tuple[QueueDefinition, Ranges]]:
        """Split messages by target partition, by their keys; reads them if there are several."""
        if target.partitions == 1:
            return [(target, part)]
        without_key = partition_without_key(None, target.partitions)
        found: defaultdict[int, list[Range]] = defaultdict(list)
        for batch in read_messages(self.store, self.queue, part):
            columns = (metadata_of(batch, name).to_pylist() for name in ("monoton", "key"))
            for monoton, key in zip(*columns, strict=True):
                at = without_key if key is None else partition_of_key(key, target.partitions)
                found[at].append(Range(monoton, monoton + 1))
        return [(target.of_partition(at), Ranges.of(*found[at])) for at in sorted(found)]

    def _redrive(self, target: QueueDefinition, part: Ranges) -> int:
        token = partial(token_for, target.queue_id)
        claimed = claim(self.group, part, token=token, length=self.queue.lease)
        if claimed is None:
            return 0
        try:
            block = self._write(target, claimed)
        except CassieqError as error:
            # Nothing is published: they need not wait until the lease is over.
            error.add_note(f"dead letters {claimed.monotons.short}: none of them is redriven")
            with suppress(CassieqError):
                release_claim(self.group, claimed)
            raise
        published = self._publish(target, claimed, block)
        action, count = (REDRIVEN if published else TAKEN_OVER), claimed.monotons.count
        logger.log(
            logging.INFO if published else logging.WARNING,
            "%s: dead letters %s %s queue %r",
            self.group,
            claimed.monotons.short,
            "went to" if published else "took so long that another run has them, bound for",
            target.name,
            extra={"action": action, "queue": self.queue.queue_id, "count": count},
        )
        if not published:
            return 0
        ack_claim(self.group, claimed.lease)
        return count

    def _write(self, target: QueueDefinition, claimed: Claim) -> PendingBlock:
        """Write copies of the messages of a claim; they are not visible yet."""
        refused = (
            f"queue {target.name!r} has no such column: add it (cassieq queue alter {target.name} "
            "--schema), send the messages to another queue (--to), or leave these values out "
            "(--drop-columns)"
        )
        into = destination(self.queue, target, no_column=None if self.drop_columns else refused)
        batches = read_messages(self.store, self.queue, claimed.monotons, into=into)
        # With the new header, a message may exceed the limit.
        options = SinkOptions(queue=target.name, max_message_bytes=sys.maxsize)
        copies = (
            with_headers(
                stored_of(rows),
                list(map(redriven_headers, metadata_of(rows, "headers").to_pylist())),
            )
            for rows in batches
        )
        return write_block(self.store, target, copies, options, takes_reserved=True)

    def _publish(self, target: QueueDefinition, claimed: Claim, block: PendingBlock) -> bool:
        """Publish a claim; False if another run has already given it back."""
        once = once_of(self.queue.queue_id, claimed.lease)
        ledger = Ledger(self.store, target.queue_id)
        done = publish(ledger, [block], batch=once)
        return done.monotons is not None or is_published(ledger, once)


def _read_target(store: Store, name: str) -> QueueDefinition:
    try:
        return read_queue(store, name)
    except QueueStateError as error:
        raise QueueStateError(
            f"dead letters can't go to queue {name!r}: {error}; or send them to another one (--to)"
        ) from error


def _check_accounts(source: str, targets: Iterable[str]) -> None:
    """Raise if a target is of another account than the dead-letter queue."""
    if others := sorted(name for name in targets if account_of(name) != account_of(source)):
        raise OptionError(
            f"the dead letters of queue {source!r} are to go to {', '.join(others)[:300]}, which "
            "is of another account: look at them first (cassieq dead list), then allow it "
            "(--across-accounts)"
        )


def _check_groups(
    store: Store, target: QueueDefinition, groups: Sequence[DeadLetterGroup]
) -> None:
    """Raise if a group would get messages again that it has processed."""
    ledgers = ledgers_of(store, target)
    known = {group.name for ledger in ledgers for group in ledger.read_groups()} - {ADMIN_GROUP}
    # Messages from another queue are new to all groups.
    returning = {each.origin_group for each in groups if each.origin_queue == target.name}
    others = sorted({other for group in returning for other in known - {group}})
    if others:
        raise QueueStateError(
            f"queue {target.name!r} has other consumer groups than the one that the dead letters "
            f"come from, and they would get them again: {', '.join(others)}; choose a group and "
            "send its dead letters to a queue of their own (--to), or force it (--force)"
        )
