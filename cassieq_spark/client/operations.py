"""What operators do with queues, groups and dead letters, as methods of the client."""

from __future__ import annotations

from datetime import datetime, timedelta

from cassieq_spark.arguments import check_count, check_flag, check_instant, check_text, shown
from cassieq_spark.client.calls import Calls
from cassieq_spark.dead_letters.letters import Filter
from cassieq_spark.dead_letters.purge import PurgeReport, purge
from cassieq_spark.dead_letters.redrive import RedriveReport, redrive
from cassieq_spark.dead_letters.survey import Survey, survey
from cassieq_spark.errors import OptionError
from cassieq_spark.groups.groups import create_group, delete_group, seek_group
from cassieq_spark.ledger.read import read_head
from cassieq_spark.model import DEFAULT_LEASE, QueueDefinition, validate_name
from cassieq_spark.queues import create_queue, delete_queue, list_queues, purge_queue, read_queue
from cassieq_spark.queues.stats import QueueStats, queue_stats
from cassieq_spark.settings.position import StartingPosition
from cassieq_spark.store.protocol import Store

DEFAULT_MAX_DELIVERIES = 5


class Operations:
    """The part of `Client` that operators need."""

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
            lease: How long a receiver holds messages unless it says otherwise; whole seconds.
            max_deliveries: After so many, a message is dead; 0 for never.
            dead_letter_queue: Where dead messages go; None: ``<queue>.dead``.
            drop_dead: Have no dead-letter queue: drop them.
            strict_fifo: Whether a group is given no message before the ones below it are settled.
            expire_after: What was not consumed so long after it became visible is thrown away;
                whole seconds. None: nothing is.
            keep_settled: What every group has settled is kept until so long after it became
                visible, and groups can go back to it; whole seconds. None: it is not kept.

        Raises:
            OptionError: A value is out of range, or contradicts another one.
            QueueStateError: There is a queue of that name.
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
        """How a queue is defined. One read.

        Raises:
            QueueStateError: There is no such queue.
        """
        with self._calls:
            return read_queue(self._store, queue)

    def stats(self, queue: str) -> QueueStats:
        """What a queue holds, and what each group is owed: exact. A few reads for each group.

        Raises:
            QueueStateError: There is no such queue.
        """
        with self._calls:
            return queue_stats(self._store, read_queue(self._store, queue).queue_id)

    def stored(self, queue: str) -> int:
        """How many messages a queue stores, settled ones that still exist included. Two reads.

        Raises:
            QueueStateError: There is no such queue.
        """
        with self._calls:
            head = read_head(self._store, read_queue(self._store, queue).queue_id)
        return head.next - head.finalised

    def queues(self, prefix: str = "") -> list[QueueDefinition]:
        """The queues whose names begin so, by name. Reads the whole table of queues."""
        check_text("prefix", prefix)
        with self._calls:
            return [each for each in list_queues(self._store) if each.name.startswith(prefix)]

    def delete_queue(self, queue: str, *, force: bool = False) -> None:
        """Delete a queue, its groups and its messages. Two LWTs, one more for each group.

        Its dead-letter queue stays. A deletion that broke off is finished.

        Args:
            queue: Its name.
            force: Also while readers hold messages, or other queues send dead letters there.

        Raises:
            NotFoundError: There is no such queue.
            QueueStateError: Somebody uses it.
        """
        validate_name("queue", queue)
        check_flag("force", force)
        with self._calls:
            delete_queue(self._store, queue, force=force)

    def purge_queue(self, queue: str, *, force: bool = False) -> QueueDefinition:
        """Throw all messages of a queue away. Five LWTs, one more for each group.

        It goes on as the next version, with its groups. A purge that broke off is finished.

        Args:
            queue: Its name.
            force: Also while readers hold messages.

        Raises:
            NotFoundError: There is no such queue.
            QueueStateError: Somebody holds messages.
        """
        validate_name("queue", queue)
        check_flag("force", force)
        with self._calls:
            return purge_queue(self._store, queue, force=force)

    def create_group(self, queue: str, group: str, start: StartingPosition = "earliest") -> None:
        """Make a consumer group, before a reader of that name does. Two LWTs and a few reads.

        Args:
            queue: Name of the queue.
            group: Its name.
            start: Where it begins: "earliest", "latest", a monoton, or an instant.

        Raises:
            OptionError: It can't be called so.
            NotFoundError: There is no such queue.
            ExistsError: There is such a group.
            QueueStateError: There is no such position.
        """
        validate_name("group", group)
        with self._calls:
            create_group(self._store, read_queue(self._store, queue).queue_id, group, start)

    def seek_group(
        self, queue: str, group: str, to: StartingPosition, *, force: bool = False
    ) -> int:
        """Let a group go on from another position. Three LWTs and some reads.

        Args:
            queue: Name of the queue.
            group: Its name.
            to: What is below is done, the rest is delivered.
            force: Also while readers hold messages: they lose them.

        Returns:
            The monoton from which it goes on.

        Raises:
            NotFoundError: There is no such queue or group.
            QueueStateError: There is no such position, or readers hold messages.
        """
        validate_name("group", group)
        check_flag("force", force)
        with self._calls:
            queue_id = read_queue(self._store, queue).queue_id
            return seek_group(self._store, queue_id, group, to, force=force)

    def delete_group(self, queue: str, group: str, *, force: bool = False) -> bool:
        """Delete a group, and what it is owed. Two LWTs and some reads.

        Args:
            queue: Name of the queue.
            group: Its name.
            force: Also while readers hold messages: they lose them.

        Returns:
            False: there was none.

        Raises:
            NotFoundError: There is no such queue.
            QueueStateError: Readers hold messages.
        """
        validate_name("group", group)
        check_flag("force", force)
        with self._calls:
            queue_id = read_queue(self._store, queue).queue_id
            return delete_group(self._store, queue_id, group, force=force)

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
        """See which dead letters there are. Reads the dead-letter queue; changes nothing.

        Args:
            queue: A queue: the dead letters that come from it. Or a dead-letter queue: all in it.
            group: That this consumer group could not process.
            reason: With this text in their reason, in whatever case of letters.
            since: Dead since then, or later.
            until: Dead since before then.
            limit: So many, the first ones.

        Raises:
            NotFoundError: There is no such queue.
            QueueStateError: It has no dead letters, and nowhere to put any.
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
        """Publish dead letters again, each once, and let go of them. Three LWTs a thousand.

        Args:
            found: Which, as `dead_letters` found them.
            to: Name of the queue that all of them go to; None: each to where it came from.
            force: Also if other groups of that queue get them once more.
            across_accounts: Also to queues of another account of the gateway: of those whose
                names begin otherwise up to the first colon.

        Raises:
            OptionError: ``to`` is where they are; or a queue is of another account.
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
        """Give dead letters up: the sweep deletes them. One LWT for some thousands.

        Args:
            found: Which, as `dead_letters` found them.
        """
        _check_survey(found)
        with self._calls:
            return purge(self._store, found)


def _check_survey(found: object) -> None:
    if not isinstance(found, Survey):
        raise OptionError(f"which dead letters? give what dead_letters found, not {shown(found)}")
