"""Taking a lock, and knowing whether one still has it."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta

from cassieq_spark.errors import OptionError, OutcomeUnknownError
from cassieq_spark.lock.own_ticket import OwnTicket, boot_seconds
from cassieq_spark.lock.tickets import ENTRY, Board, Entry, board_of
from cassieq_spark.model import validate_name
from cassieq_spark.store.protocol import (
    ServerNow,
    Slice,
    Store,
    Update,
    Values,
    When,
    partition_of_lock,
)

#: How long a holder that died keeps others waiting, at the most.
DEFAULT_TTL = timedelta(seconds=30)
#: Cassandra rounds a second away, so that a quarter of this is the least there may be in hand.
SHORTEST_TTL = timedelta(seconds=5)

_POLL_SECONDS = (0.05, 0.5)


class Bakery:
    """A lock, as one process sees it.

    Args:
        store: Where the lock is kept.
        name: Which lock; see `validate_name`.
        owner: Who this is, for people.
        ttl: How long a ticket lives after each write; the same for all who want the lock.
        clock: Seconds of a clock of this machine that never goes back.
        sleep: Waits so many seconds.

    Raises:
        OptionError: The name can't be one, or ``ttl`` is too short or not in whole seconds.
    """

    def __init__(  # noqa: PLR0913 (each is a choice of its own, by name)
        self,
        store: Store,
        name: str,
        *,
        owner: str,
        ttl: timedelta = DEFAULT_TTL,
        clock: Callable[[], float] = boot_seconds,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        if ttl < SHORTEST_TTL or ttl % timedelta(seconds=1):
            raise OptionError(
                f"the ttl of a lock must be whole seconds, at least {SHORTEST_TTL}, not {ttl}"
            )
        self._store = store
        self._partition = partition_of_lock(validate_name("lock", name))
        self._owner = owner
        self._clock = clock
        self._sleep = sleep
        self.ttl = ttl

    def enter(
        self, patience: timedelta, *, wanted: Callable[[], bool] = lambda: True
    ) -> Held | None:
        """Take the lock: two plain writes, two or three reads and one LWT if it is free.

        Who waits reads the lock's partition about four times a second.

        Args:
            patience: How long to wait for others; of zero, one look.
            wanted: Asked at each look; false ends the wait.

        Returns:
            None: others have it still.

        Raises:
            StoreError: Cassandra failed. The lock is not taken; a ticket that may be left behind
                vanishes by itself.
        """
        until = self._clock() + patience.total_seconds()

        def waits() -> bool:
            return self._clock() < until and wanted()

        while True:
            ticket = OwnTicket(
                self._store, self._partition, self._owner, ttl=self.ttl, clock=self._clock
            )
            held: Held | None = None
            try:
                held = self._enter_with(ticket, waits)
            finally:
                if held is None:
                    ticket.give_back()
            if held is not None or not waits():
                return held

    def read_entry(self, *, serial: bool = False) -> Entry | None:
        """Who entered last, whether inside still or not; None if nobody ever did. One read."""
        rows = self._store.read_rows(self._partition, Slice(row=ENTRY), serial=serial)
        return board_of(rows.rows).entry

    def _enter_with(self, own: OwnTicket, waits: Callable[[], bool]) -> Held | None:
        """None: patience is out, or the ticket is."""
        if not own.write():
            return None
        # From here on others wait for that row; those who looked before have numbers to see.
        own.number = self._read_board().next_number
        if not own.write():
            return None
        while own.keep():
            board = self._read_board()
            is_turn = board.is_turn_of(own.ticket)
            entry = self._move_epoch(own, board) if is_turn else None
            if entry is not None:
                return Held(self, own, entry) if own.is_alive() else None
            # Gone although it is trusted: this clock has stood still, or Cassandra's have jumped.
            if own.ticket not in board.tickets or not waits():
                return None
            self._sleep(random.uniform(*_POLL_SECONDS))  # noqa: S311 jitter, not a secret
        return None

    def _read_board(self) -> Board:
        return board_of(self._store.read_rows(self._partition).rows)

    def _move_epoch(self, own: OwnTicket, board: Board) -> Entry | None:
        """One LWT, on the epoch that was read together with the tickets; None if it was lost."""
        values: Values = {
            "epoch": (board.epoch or 0) + 1,
            "holder": str(own.ticket.id),
            "owner": self._owner,
            "entered_at": ServerNow(),
        }
        unchanged = (When("epoch", "=", board.epoch),)
        # Refused or in doubt, whose entry it is tells: one of our own may have come late.
        with suppress(OutcomeUnknownError):
            self._store.cas(self._partition, [Update(ENTRY, values, unchanged)])
        entry = self.read_entry(serial=True)
        return entry if entry and entry.holder == own.ticket.id else None


def read_holder(store: Store, name: str) -> Entry | None:
    """Who has a lock now, or had it and died less than a TTL ago; None if nobody. One read."""
    board = board_of(store.read_rows(partition_of_lock(name)).rows)
    return board.entry if board.has_ticket_of_entry else None


class Held:
    """A lock that was taken, and what tells whether it is ours still.

    Attributes:
        epoch: Higher than that of all who had the lock before.
        entered_at: By the coordinator's clock.
    """

    def __init__(self, bakery: Bakery, own: OwnTicket, entry: Entry) -> None:
        self._bakery = bakery
        self._own = own
        self.epoch = entry.epoch
        self.entered_at = entry.entered_at

    def is_held(self) -> bool:
        """Whether nobody else can have it, as far as clocks can be trusted. Reads nothing."""
        return self._own.is_alive()

    def confirm(self) -> bool:
        """Whether nobody has entered since, whatever the clocks say. One read.

        Once false, it stays so, and so does `is_held`.

        Raises:
            StoreError: Cassandra failed; nothing is known, so nothing may be done.
        """
        if not self._own.is_alive():
            return False
        entry = self._bakery.read_entry()
        if entry is None or entry.epoch != self.epoch:
            self._own.give_up()
        return self._own.is_alive()

    def renew(self) -> bool:
        """Keep it for another TTL. One plain write; False: too late, it is lost.

        Raises:
            StoreError: Cassandra failed; it is held for as long as it was before.
        """
        return self._own.renew()

    def leave(self) -> None:
        """Let the next one in. One plain write; if that fails, the ticket vanishes by itself."""
        self._own.give_back()
