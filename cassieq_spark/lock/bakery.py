"""Takes a lock, checks whether it is still held, and keeps it during long work."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from uuid import UUID, uuid1

from cassieq_spark.display import Displayed, ObjectView
from cassieq_spark.errors import OptionError, OutcomeUnknownError, StoreError
from cassieq_spark.lock.tickets import ENTRY, Board, Entry, Ticket, Watch, board_of, ticket_key
from cassieq_spark.model import block_timestamp, validate_name
from cassieq_spark.processes import StaysHere
from cassieq_spark.store.protocol import (
    Partition,
    ServerNow,
    Slice,
    Store,
    TimedRows,
    Update,
    Value,
    Values,
    When,
    partition_of_lock,
)

logger = logging.getLogger(__name__)

#: Parts of a ticket's TTL: how long it is trusted after a write, and when it is written again.
_TRUSTED = 3 / 4
_DUE = 1 / 4
#: How long, at most, others wait for a dead holder.
DEFAULT_TTL = timedelta(seconds=30)
#: Cassandra rounds off up to a second of the TTL, and a quarter of it is the margin.
SHORTEST_TTL = timedelta(seconds=5)
_POLL_SECONDS = (0.05, 0.5)
#: A renewal failed, and is tried again.
RENEWAL_FAILED = "lock.renewal_failed"
#: The lock is lost: others may have it now.
LOCK_LOST = "lock.lost"
#: The ticket of a dead process was deleted, as Cassandra kept it for too long.
TICKET_DELETED = "lock.ticket_deleted"
#: Four renewals per TTL, of which two may fail.
_RENEWALS = 4
_STOP_SECONDS = 5


def boot_seconds() -> float:
    """Seconds of a clock that never goes back, and does not stop while the machine sleeps."""
    # CLOCK_MONOTONIC of Linux stops then, and a holder would trust a ticket that has expired.
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class Bakery(StaysHere):
    """A lock, as one process sees it.

    Args:
        name: Name of the lock; see `validate_name`.
        owner: The name of this process, for people.
        ttl: How long a ticket lives after each write; the same for all processes.
        clock: The seconds of a clock of this machine that never goes back.
        sleep: Waits a number of seconds.

    Raises:
        OptionError: The name is not valid, or ``ttl`` is too short or not in whole seconds.
    """

    _instead = "it holds its tickets alone; send its store, and make one where it is used"

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
        self, patience: timedelta, *, may_continue: Callable[[], bool] = lambda: True
    ) -> HeldLock | None:
        """Take the lock. Two plain writes, two or three reads and one LWT if it is free.

        While the process waits, it reads the lock's partition about four times a second. It
        deletes the tickets of dead processes that Cassandra does not let expire; see `Watch`.

        Args:
            patience: How long to wait for others; with zero, there is only one attempt.
            may_continue: Called before each wait; False ends the wait.

        Returns:
            None if others still hold the lock.

        Raises:
            StoreError: Cassandra failed. The lock is not taken; a ticket that may be left expires.
        """
        until = self._clock() + patience.total_seconds()
        watch = Watch(self.ttl)

        def waits() -> bool:
            return self._clock() < until and may_continue()

        while True:
            ticket = _OwnTicket(self._store, self._partition, self._owner, self.ttl, self._clock)
            held: HeldLock | None = None
            try:
                held = self._enter_with(ticket, waits, watch)
            finally:
                if held is None:
                    ticket.give_back()
            if held is not None or not waits():
                return held

    def read_entry(self, *, serial: bool = False) -> Entry | None:
        """Read the last entry, whose process may have left; None if there is none. One read."""
        rows = self._store.read_rows(self._partition, Slice(row=ENTRY), serial=serial)
        return board_of(rows.rows).entry

    def _enter_with(
        self, own: _OwnTicket, waits: Callable[[], bool], watch: Watch
    ) -> HeldLock | None:
        """Enter with this ticket; None if patience is over, or the ticket can't be trusted."""
        if not own.write():
            return None
        # From here on others wait for that row; those that read before it have written a number.
        own.number = self._read_board().next_number
        if not own.write():
            return None
        while own.keep():
            began = self._clock()
            board = self._read_board()
            self._delete(watch.silent(board, began=began, ended=self._clock()))
            is_turn = board.is_turn_of(own.ticket)
            entry = self._move_epoch(own, board) if is_turn else None
            if entry is not None:
                return HeldLock(self, own, entry) if own.is_alive() else None
            # If a trusted ticket is missing, this clock has stopped, or Cassandra's have jumped.
            if own.ticket not in board.tickets or not waits():
                return None
            self._sleep(random.uniform(*_POLL_SECONDS))  # noqa: S311 jitter, not a secret
        return None

    def _read_board(self) -> Board:
        return board_of(self._store.read_rows(self._partition).rows)

    def _delete(self, tickets: Iterable[Ticket]) -> None:
        """Delete the tickets of dead processes; the next read shows whether that worked."""
        for ticket in tickets:
            logger.warning(
                "%s: ticket %s was not written for %s, so its process is dead, but Cassandra "
                "keeps it: the clock of the node that wrote it was ahead; the ticket is deleted",
                *(self._partition, ticket.id, self.ttl),
                extra={"action": TICKET_DELETED},
            )
            with suppress(StoreError):
                self._store.delete_row(
                    self._partition,
                    ticket_key(ticket.id),
                    timestamp=_written_at(ticket.id, ticket.writes + 1),
                )

    def _move_epoch(self, own: _OwnTicket, board: Board) -> Entry | None:
        """Move the epoch from the value read with the tickets. One LWT; None if refused."""
        values: Values = {
            "epoch": (board.epoch or 0) + 1,
            "holder": str(own.ticket.id),
            "owner": self._owner,
            "entered_at": ServerNow(),
        }
        unchanged = (When("epoch", "=", board.epoch),)
        # Refused or not, the entry decides: an earlier attempt may have been applied late.
        with suppress(OutcomeUnknownError):
            self._store.cas(self._partition, [Update(ENTRY, values, unchanged)])
        entry = self.read_entry(serial=True)
        return entry if entry and entry.holder == own.ticket.id else None


class HeldLock(Displayed):
    """A lock that this process has taken, and that it may have lost since.

    Attributes:
        epoch: The epoch of this entry; higher than those of all earlier holders.
        entered_at: When the lock was taken, by the coordinator's clock.
    """

    def __init__(self, bakery: Bakery, own: _OwnTicket, entry: Entry) -> None:
        self._bakery = bakery
        self._own = own
        self.epoch = entry.epoch
        self.entered_at = entry.entered_at

    def _view(self) -> ObjectView:
        facts = {
            "epoch": str(self.epoch),
            "is_held": self.is_held(),
            "entered_at": self.entered_at,
        }
        return ObjectView("locks", "", facts)

    def is_held(self) -> bool:
        """True if no other process can hold the lock, as far as clocks can be trusted. No read."""
        return self._own.is_alive()

    def confirm(self) -> bool:
        """True if no other process has entered since, whatever the clocks say. One read.

        Once it has returned False, it always returns False, and `is_held` is False, too.

        Raises:
            StoreError: Cassandra failed, so the answer is unknown; do nothing under the lock.
        """
        if not self._own.is_alive():
            return False
        entry = self._bakery.read_entry()
        if entry is None or entry.epoch != self.epoch:
            self._own.give_up()
        return self._own.is_alive()

    def renew(self) -> bool:
        """Keep the lock for another TTL. One plain write; False if the lock is lost already.

        Raises:
            StoreError: Cassandra failed; the lock is held for as long as before.
        """
        return self._own.renew()

    def leave(self) -> None:
        """Let the next process enter. One plain write; if that fails, the ticket expires."""
        self._own.give_back()


def read_holder(store: Store, name: str) -> Entry | None:
    """Read the holder of a lock, or one that died less than a TTL ago; None if free. One read."""
    board = board_of(store.read_rows(partition_of_lock(name)).rows)
    return board.entry if board.has_ticket_of_entry else None


@contextmanager
def holding(
    bakery: Bakery, patience: timedelta, *, may_continue: Callable[[], bool] = lambda: True
) -> Iterator[HeldLock | None]:
    """Take a lock as `Bakery.enter` does, renew it in another thread, and leave it at the end.

    The holder must call `HeldLock.confirm` before each action: the thread does not help a process
    that was paused.

    Yields:
        The lock; None if others hold it.
    """
    held = bakery.enter(patience, may_continue=may_continue)
    if held is None:
        yield None
        return
    done = threading.Event()
    pause = (bakery.ttl / _RENEWALS).total_seconds()
    renewing = threading.Thread(
        target=_renew, args=(held, done, pause), name="cassieq-lock", daemon=True
    )
    renewing.start()
    try:
        yield held
    finally:
        done.set()
        # A running renewal has a lower timestamp than the deletion, so it may arrive after it.
        held.leave()
        renewing.join(_STOP_SECONDS)


def _renew(held: HeldLock, done: threading.Event, pause: float) -> None:
    while not done.wait(pause):
        try:
            kept = held.renew()
        except StoreError as error:
            extra = {"action": RENEWAL_FAILED, "epoch": held.epoch}
            logger.warning("could not renew the lock, trying again: %s", error, extra=extra)
            continue
        if not kept:
            if not done.is_set():
                logger.warning(
                    "the lock is lost: this process was paused, or could not reach "
                    "Cassandra, for too long",
                    extra={"action": LOCK_LOST, "epoch": held.epoch},
                )
            return


@dataclass(slots=True)
class _OwnTicket:
    """A ticket of this process: written repeatedly, and trusted for less than its TTL.

    Attributes:
        number: The ticket's number; set once, after the first write.
    """

    store: TimedRows
    partition: Partition
    owner: str
    ttl: timedelta
    clock: Callable[[], float]
    number: int | None = None
    _id: UUID = field(default_factory=uuid1)
    _writes: int = 0
    _trusted_until: float = float("inf")
    _given_up: bool = False

    @property
    def ticket(self) -> Ticket:
        """Id and number, as others read them once they are written."""
        return Ticket(self._id, self.number)

    def is_alive(self) -> bool:
        """True if the ticket's row can't have expired. Once False, it stays False."""
        return not self._given_up and self.clock() < self._trusted_until

    def renew(self) -> bool:
        """Write the ticket again. One plain write; False if its row may have expired before.

        Raises:
            StoreError: Cassandra failed; the ticket is trusted for as long as before.
        """
        if not self.is_alive():
            return False
        begun = self.clock()
        self._writes += 1
        values: dict[str, Value] = {"owner": self.owner, "writes": self._writes}
        if self.number is not None:
            values["number"] = self.number
        self.store.write_row(
            self.partition,
            ticket_key(self._id),
            values,
            timestamp=_written_at(self._id, self._writes),
            ttl=self.ttl,
        )
        if not self.is_alive():
            return False
        self._trusted_until = begun + _TRUSTED * self.ttl.total_seconds()
        return True

    def write(self) -> bool:
        """Renew the ticket, or give it up if that fails or the outcome is unknown."""
        try:
            written = self.renew()
        except OutcomeUnknownError:
            written = False
        self._given_up = self._given_up or not written
        return written

    def keep(self) -> bool:
        """Renew the ticket if it is due; False if it can't be trusted. At most one plain write."""
        left = (_TRUSTED - _DUE) * self.ttl.total_seconds()
        return self.is_alive() and (self.clock() < self._trusted_until - left or self.write())

    def give_up(self) -> None:
        """Stop trusting the ticket."""
        self._given_up = True

    def give_back(self) -> None:
        """Delete the ticket, and late writes of it. One plain write; if that fails, it expires."""
        self.give_up()
        with suppress(StoreError):
            self.store.delete_row(
                self.partition,
                ticket_key(self._id),
                timestamp=_written_at(self._id, self._writes + 1),
            )


def _written_at(ticket: UUID, writes: int) -> int:
    """The timestamp of the n-th write of a ticket; its own process counts, and no clock."""
    return block_timestamp(ticket) + writes
