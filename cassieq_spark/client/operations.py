"""The methods of the client for operators: queues, groups and dead letters."""

from __future__ import annotations

from datetime import datetime, timedelta

from cassieq_spark.arguments import check_count, check_flag, check_instant, check_text, shown
from cassieq_spark.client.calls import Calls
from cassieq_spark.dead_letters.letters import Filter
from cassieq_spark.dead_letters.purge import PurgeReport, purge
from cassieq_spark.dead_letters.redrive import RedriveReport, redrive
from cassieq_spark.dead_letters.survey import Survey, survey
from cassieq_spark.errors import OptionError
from cassieq_spark.groups.group import ConsumerGroup
from cassieq_spark.groups.registration import create_group, delete_group
from cassieq_spark.groups.seek import seek_group
from cassieq_spark.model import DEFAULT_LEASE, QueueDefinition, validate_name
from cassieq_spark.queues import (
    create_queue,
    delete_queue,
    list_queues,
    open_ledger,
    purge_queue,
    read_queue,
)
from cassieq_spark.queues.stats import QueueStats, queue_stats
from cassieq_spark.settings.position import StartingPosition
from cassieq_spark.store.protocol import Store

DEFAULT_MAX_DELIVERIES = 5


class Operations:
    """The part of `Client` for operators."""

    _store: Store
    _calls: Calls

    def create_queue(  # noqa: PLR0913 (each is a setting of its own, by name)
        self,
        queue: str,
        *,
        lease: timedelta = DEFAULT_LEASE,
        max_deliveries: int = DEFAULT_MAX_DELIVERIES,
        dead_letter_queue: str | None = None,
        drop_dead: bool = False,
        strict_fifo: bool = False,
        expire_after: timedelta | None = None,
        keep_settled: timedelta | None = None,
    ) -> QueueDefinition:
        """Create a queue, and its dead-letter queue. Two LWTs for each.

        Args:
            queue: Its name.
            lease: How long a receiver holds messages by default; whole seconds.
            max_deliveries: A message that was delivered so often without being settled is dead;
                0 for never.
            dead_letter_queue: Where dead messages go; None for ``<queue>.dead``.
            drop_dead: Drop dead messages, and have no dead-letter queue.
            strict_fifo: Whether a group gets no message before the ones below it are settled.
            expire_after: Messages that were not consumed so long after they became visible are
                thrown away; whole seconds. None for never.
            keep_settled: Messages that every group has settled are kept until so long after they
                became visible, and groups can go back to them; whole seconds. None: they are not
                kept.

        Raises:
            OptionError: A value is out of range, or contradicts another one.
            QueueStateError: The queue exists already.
        """
        validate_name("queue", queue)
        check_flag("drop_dead", drop_dead)
        check_count("max_deliveries", max_deliveries, least=0)
        if dead_letter_queue is not None:
            validate_name("queue", dead_letter_queue)
        if dead_letter_queue is not None and (drop_dead or not max_deliveries):
            raise OptionError(
                f"dead_letter_queue {dead_letter_queue!r} goes neither with drop_dead nor with "
                "max_deliveries 0: leave it out"
            )
        target = dead_letter_queue or f"{queue}.dead"
        with self._calls:
            return create_queue(
                self._store,
                queue,
                lease=lease,
                max_deliveries=max_deliveries,
                dead_letter_queue=None if drop_dead or not max_deliveries else target,
                strict_fifo=strict_fifo,
                expire_after=expire_after,
                keep_settled=keep_settled,
            )

    def queue(self, queue: str) -> QueueDefinition:
        """Read the definition of a queue. One read.

        Raises:
            QueueStateError: There is no such queue.
        """
        with self._calls:
            return read_queue(self._store, queue)

    def stats(self, queue: str) -> QueueStats:
        """Count exactly what a queue holds and what each group is owed. A few reads per group.

        Raises:
            QueueStateError: There is no such queue.
        """
        with self._calls:
            return queue_stats(open_ledger(self._store, queue))

    def stored(self, queue: str) -> int:
        """Count the messages that a queue stores, with settled ones that still exist. Two reads.

        Raises:
            QueueStateError: There is no such queue.
        """
        with self._calls:
            head = open_ledger(self._store, queue).read_head()
        return head.next - head.finalised

    def queues(self, prefix: str = "") -> list[QueueDefinition]:
        """List the queues whose names begin with ``prefix``. Reads the whole table of queues."""
        check_text("prefix", prefix)
        with self._calls:
            return [each for each in list_queues(self._store) if each.name.startswith(prefix)]

    def delete_queue(self, queue: str, *, force: bool = False) -> None:
        """Delete a queue, its groups and its messages. Two LWTs, one more for each group.

        Its dead-letter queue stays. Call it again to finish a deletion that broke off.

        Args:
            queue: Its name.
            force: Delete it even if readers hold messages, or if it gets the dead letters of
                other queues.

        Raises:
            NotFoundError: There is no such queue.
            QueueStateError: Readers or other queues use it.
        """
        validate_name("queue", queue)
        check_flag("force", force)
        with self._calls:
            delete_queue(self._store, queue, force=force)

    def purge_queue(self, queue: str, *, force: bool = False) -> QueueDefinition:
        """Throw away all messages of a queue. Five LWTs, one more for each group.

        The queue goes on as its next version, with its groups. Call it again to finish a purge
        that broke off.

        Args:
            queue: Its name.
            force: Purge it even if readers hold messages.

        Raises:
            NotFoundError: There is no such queue.
            QueueStateError: Readers hold messages.
        """
        validate_name("queue", queue)
        check_flag("force", force)
        with self._calls:
            return purge_queue(self._store, queue, force=force)

    def create_group(self, queue: str, group: str, start: StartingPosition = "earliest") -> None:
        """Create a consumer group before its first reader does. Two LWTs and a few reads.

        Args:
            queue: Name of the queue.
            group: Its name.
            start: Where it begins: "earliest", "latest", a monoton, or an instant.

        Raises:
            OptionError: The name is not valid.
            NotFoundError: There is no such queue.
            ExistsError: The group exists already.
            QueueStateError: There is no such position.
        """
        validate_name("group", group)
        with self._calls:
            create_group(ConsumerGroup(open_ledger(self._store, queue), group), start)

    def seek_group(
        self, queue: str, group: str, to: StartingPosition, *, force: bool = False
    ) -> int:
        """Move a group to another position. Three LWTs and some reads.

        Args:
            queue: Name of the queue.
            group: Its name.
            to: Messages below this position are settled, the others are delivered.
            force: Move it even if readers hold messages, which they lose.

        Returns:
            The monoton of the position.

        Raises:
            NotFoundError: There is no such queue or group.
            QueueStateError: There is no such position, or readers hold messages.
        """
        validate_name("group", group)
        check_flag("force", force)
        with self._calls:
            known = ConsumerGroup(open_ledger(self._store, queue), group)
            return seek_group(known, to, force=force)

    def delete_group(self, queue: str, group: str, *, force: bool = False) -> bool:
        """Delete a group. Its messages are no longer owed to it. Two LWTs and some reads.

        Args:
            queue: Name of the queue.
            group: Its name.
            force: Delete it even if readers hold messages, which they lose.

        Returns:
            Whether there was such a group.

        Raises:
            NotFoundError: There is no such queue.
            QueueStateError: Readers hold messages.
        """
        validate_name("group", group)
        check_flag("force", force)
        with self._calls:
            known = ConsumerGroup(open_ledger(self._store, queue), group)
            return delete_group(known, force=force)

    def dead_letters(  # noqa: PLR0913 (each narrows it down, by name)
        self,
        queue: str,
        *,
        group: str | None = None,
        reason: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        limit: int | None = None,
    ) -> Survey:
        """Find dead letters. Reads the dead-letter queue and changes nothing.

        Args:
            queue: A queue, for the dead letters that come from it; or a dead-letter queue, for
                all dead letters in it.
            group: Only those of this consumer group.
            reason: Only those whose reason contains this text; upper and lower case are the same.
            since: Only those that died at this instant or later.
            until: Only those that died before this instant.
            limit: Only so many, the first ones.

        Raises:
            NotFoundError: There is no such queue.
            QueueStateError: The queue has no dead-letter queue.
        """
        wanted = Filter(
            group=None if group is None else check_text("group", group),
            reason=None if reason is None else check_text("reason", reason),
            since=None if since is None else check_instant("since", since),
            until=None if until is None else check_instant("until", until),
        )
        with self._calls:
            return survey(self._store, queue, wanted, limit=limit)

    def redrive(
        self,
        found: Survey,
        *,
        to: str | None = None,
        force: bool = False,
        across_accounts: bool = False,
    ) -> RedriveReport:
        """Publish dead letters again, each once, and settle them. Three LWTs for each thousand.

        Args:
            found: The dead letters, as `dead_letters` found them.
            to: Name of the queue that all of them go to; None: each goes to where it came from.
            force: Publish them even if the queue has other groups, which get them once more.
            across_accounts: Allow queues of another account of the gateway, whose names differ up
                to the first colon.

        Raises:
            OptionError: ``to`` is the queue that they are in, or of another account.
            QueueStateError: A queue does not exist, or has other groups.
        """
        _check_survey(found)
        if to is not None:
            validate_name("queue", to)
        check_flag("force", force)
        check_flag("across_accounts", across_accounts)
        with self._calls:
            return redrive(self._store, found, to=to, force=force, across_accounts=across_accounts)

    def purge_dead_letters(self, found: Survey) -> PurgeReport:
        """Throw away dead letters; the repair job deletes them. One LWT for some thousands.

        Args:
            found: The dead letters, as `dead_letters` found them.
        """
        _check_survey(found)
        with self._calls:
            return purge(self._store, found)


def _check_survey(found: object) -> None:
    if not isinstance(found, Survey):
        raise OptionError(f"which dead letters? give what dead_letters found, not {shown(found)}")
