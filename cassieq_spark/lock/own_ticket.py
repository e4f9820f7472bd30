"""A ticket of this process: written again and again, and trusted for less time than it has."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from uuid import uuid1

from cassieq_spark.errors import OutcomeUnknownError, StoreError
from cassieq_spark.lock.tickets import Ticket, ticket_key
from cassieq_spark.model import block_timestamp
from cassieq_spark.store.protocol import Partition, Store, Value

#: Parts of its TTL: how long it is trusted after a write, and after how long it is due again.
_TRUSTED = 3 / 4
_DUE = 1 / 4


def boot_seconds() -> float:
    """Seconds of a clock that never goes back, and that does not stop when the machine sleeps."""
    # CLOCK_MONOTONIC of Linux stops then, and a holder would trust a ticket that is long gone.
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class OwnTicket:
    """A ticket, from its first write on.

    Args:
        store: Where it is written.
        partition: The lock's.
        owner: Who this is, for people.
        ttl: How long it lives after each write.
        clock: Seconds of a clock of this machine that never goes back.

    Attributes:
        number: To be set once, after the first write.
    """

    def __init__(
        self,
        store: Store,
        partition: Partition,
        owner: str,
        *,
        ttl: timedelta,
        clock: Callable[[], float],
    ) -> None:
        self._store = store
        self._partition = partition
        self._owner = owner
        self._ttl = ttl
        self._clock = clock
        self._id = uuid1()
        self._timestamp = block_timestamp(self._id)
        self._trusted_until = float("inf")
        self._given_up = False
        self.number: int | None = None

    @property
    def ticket(self) -> Ticket:
        """Id and number, as others see them once they are written."""
        return Ticket(self._id, self.number)

    def is_alive(self) -> bool:
        """Whether its row can't have vanished. Once false, it stays so."""
        return not self._given_up and self._clock() < self._trusted_until

    def renew(self) -> bool:
        """Write it as it is now. One plain write; False: its row may have vanished before that.

        Raises:
            StoreError: Cassandra failed; the ticket is as old as it was.
        """
        if not self.is_alive():
            return False
        begun = self._clock()
        self._timestamp += 1
        values: dict[str, Value] = {"owner": self._owner}
        if self.number is not None:
            values["number"] = self.number
        self._store.write_row(
            self._partition,
            ticket_key(self._id),
            values,
            timestamp=self._timestamp,
            ttl=self._ttl,
        )
        if not self.is_alive():
            return False
        self._trusted_until = begun + _TRUSTED * self._ttl.total_seconds()
        return True

    def write(self) -> bool:
        """Renew it; False, and given up, also if the outcome is not known."""
        try:
            written = self.renew()
        except OutcomeUnknownError:
            written = False
        self._given_up = self._given_up or not written
        return written

    def keep(self) -> bool:
        """Renew it if that is due; False: too late. At most one plain write."""
        left = (_TRUSTED - _DUE) * self._ttl.total_seconds()
        return self.is_alive() and (self._clock() < self._trusted_until - left or self.write())

    def give_up(self) -> None:
        """Never trust it again."""
        self._given_up = True

    def give_back(self) -> None:
        """Delete it, with whatever of it arrives late. One plain write; the TTL does the rest."""
        self.give_up()
        with suppress(StoreError):
            self._store.delete_row(
                self._partition, ticket_key(self._id), timestamp=self._timestamp + 1
            )
