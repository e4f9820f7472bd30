"""What operators do with queues, groups and dead letters, as coroutines."""

from __future__ import annotations

from abc import ABC, abstractmethod
from datetime import datetime
from functools import partial

from cassieq_spark.client.client import Client
from cassieq_spark.client.threads import Threads
from cassieq_spark.dead_letters.purge import PurgeReport
from cassieq_spark.dead_letters.redrive import RedriveReport
from cassieq_spark.dead_letters.survey import Survey
from cassieq_spark.model import QueueDefinition
from cassieq_spark.settings.position import StartingPosition


class AsyncOperations(ABC):
    """The part of `AsyncClient` that operators need; see `Operations`."""

    _threads: Threads

    @property
    @abstractmethod
    def _client(self) -> Client:
        """The client that is connected."""

    async def stored(self, queue: str) -> int:
        """See `Operations.stored`."""
        return await self._threads.run(partial(self._client.stored, queue))

    async def queues(self, prefix: str = "") -> list[QueueDefinition]:
        """See `Operations.queues`."""
        return await self._threads.run(partial(self._client.queues, prefix))

    async def delete_queue(self, queue: str, *, force: bool = False) -> None:
        """See `Operations.delete_queue`."""
        await self._threads.run(partial(self._client.delete_queue, queue, force=force))

    async def purge_queue(self, queue: str, *, force: bool = False) -> QueueDefinition:
        """See `Operations.purge_queue`."""
        return await self._threads.run(partial(self._client.purge_queue, queue, force=force))

    async def create_group(
        self, queue: str, group: str, start: StartingPosition = "earliest"
    ) -> None:
        """See `Operations.create_group`."""
        await self._threads.run(partial(self._client.create_group, queue, group, start))

    async def seek_group(
        self, queue: str, group: str, to: StartingPosition, *, force: bool = False
    ) -> int:
        """See `Operations.seek_group`."""
        return await self._threads.run(
            partial(self._client.seek_group, queue, group, to, force=force)
        )

    async def delete_group(self, queue: str, group: str, *, force: bool = False) -> bool:
        """See `Operations.delete_group`."""
        return await self._threads.run(
            partial(self._client.delete_group, queue, group, force=force)
        )

    async def dead_letters(  # noqa: PLR0913 (each narrows it down, by name)
        self,
        queue: str,
        *,
        group: str | None = None,
        reason: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        limit: int | None = None,
    ) -> Survey:
        """See `Operations.dead_letters`."""
        return await self._threads.run(
            partial(
                self._client.dead_letters,
                queue,
                group=group,
                reason=reason,
                since=since,
                until=until,
                limit=limit,
            )
        )

    async def redrive(
        self,
        found: Survey,
        *,
        to: str | None = None,
        force: bool = False,
        across_accounts: bool = False,
    ) -> RedriveReport:
        """See `Operations.redrive`."""
        work = partial(
            self._client.redrive, found, to=to, force=force, across_accounts=across_accounts
        )
        return await self._threads.run(work)

    async def purge_dead_letters(self, found: Survey) -> PurgeReport:
        """See `Operations.purge_dead_letters`."""
        return await self._threads.run(partial(self._client.purge_dead_letters, found))
