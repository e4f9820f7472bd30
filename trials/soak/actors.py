"""The actors of a soak: what they share, how they live and die.

Each runs in a thread, with a store that may let it die at any call. Then nothing is closed or
released, as with a killed process, and its successor knows only what was on disk.
"""

from __future__ import annotations

import threading
import traceback
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import count
from random import Random

from cassieq_spark.errors import CassieqError, InvariantError
from cassieq_spark.groups.group import ConsumerGroup
from cassieq_spark.groups.registration import ensure_group
from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.model import QueueDefinition, to_millis
from cassieq_spark.queues import create_queue
from cassieq_spark.store.protocol import Store
from trials.soak.checker import Journal
from trials.stores import Abandoned, MortalStore

MAX_DELIVERIES = 5
#: Slower writes are refused; after it, unpublished blocks are deleted.
WRITE_TIMEOUT = timedelta(seconds=20)
EXPIRE_AFTER = timedelta(seconds=10)
CLIENTS, READERS = "clients", "readers"
_LEASE = timedelta(seconds=4)
#: Most random bytes of a message, which compression hardly shortens.
_PADDING = 700


@dataclass(frozen=True, slots=True)
class QueueKind:
    """A queue of a soak.

    Attributes:
        name: Its name.
        restless: Whether operators purge, delete and create it.
        strict: Whether it is strictly ordered.
        expires: Whether messages expire after `EXPIRE_AFTER`.
        small: Whether it has small buckets.
    """

    name: str
    restless: bool = False
    strict: bool = False
    expires: bool = False
    small: bool = True


QUEUE_KINDS = (
    QueueKind("steady", small=False),
    QueueKind("ordered", strict=True),
    QueueKind("fleeting", expires=True),
    QueueKind("purged", restless=True),
    QueueKind("restless", restless=True),
    QueueKind("moody", restless=True, small=False),
)


@dataclass
class World:
    """What all actors share.

    Attributes:
        store: The store below those of the actors.
        journal: The records of all actors.
        seed: The seed of all random choices.
        ending: If set, actors publish nothing, settle everything, and do not die.
        full: If set, actors publish nothing until consumers have caught up.
        over: If set, actors stop.
        events: Counts of events.
    """

    store: Store
    journal: Journal
    seed: int
    ending: threading.Event = field(default_factory=threading.Event)
    full: threading.Event = field(default_factory=threading.Event)
    over: threading.Event = field(default_factory=threading.Event)
    events: Counter[str] = field(default_factory=Counter)
    numbers: Iterator[int] = field(default_factory=count)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def note(self, event: str, times: int = 1) -> None:
        with self._lock:
            self.events[event] += times

    def new_values(self, chance: Random, how_many: int) -> dict[int, str]:
        with self._lock:
            fresh = [next(self.numbers) for _ in range(how_many)]
        return {
            number: f"{number}:{chance.randbytes(chance.randrange(_PADDING)).hex()}"
            for number in fresh
        }

    def make(self, store: Store, kind: QueueKind) -> QueueDefinition:
        bucket, chunk = (64, 16) if kind.small else (8192, 512)
        queue = create_queue(
            store,
            kind.name,
            bucket_size=bucket,
            chunk_size=chunk,
            lease=_LEASE,
            max_deliveries=MAX_DELIVERIES,
            dead_letter_queue=f"{kind.name}.dead",
            order="strict" if kind.strict else "none",
            expire_after=EXPIRE_AFTER if kind.expires else None,
        )
        for group in (CLIENTS, READERS):
            ensure_group(ConsumerGroup(Ledger(store, queue.queue_id), group), starting="earliest")
        return queue


class Actor:
    """Acts repeatedly, and is replaced when it dies.

    Args:
        world: What all actors share.
        name: Its name.
        lifetime: After about how many calls of the store it dies; None: never.
    """

    def __init__(self, world: World, name: str, lifetime: int | None = None) -> None:
        self.world = world
        self.name = name
        self.chance = Random(f"{world.seed}/{name}")
        self.lifetime = lifetime
        self.store = MortalStore(world.store, self.chance, None)
        self.thread = threading.Thread(target=self._run, name=f"soak-{name}", daemon=True)

    def begin(self) -> None:
        """Begin as a new process."""

    def act(self) -> None:
        raise NotImplementedError

    @property
    def may_continue(self) -> bool:
        return not self.world.over.is_set()

    def _run(self) -> None:
        while self.may_continue:
            lifetime = None if self.world.ending.is_set() else self.lifetime
            # The heartbeats of the one before die with it.
            self.store.kill()
            self.store = MortalStore(self.world.store, self.chance, lifetime)
            try:
                self.begin()
                while self.may_continue and not self.store.is_dead:
                    self.act()
                    if self.world.ending.is_set() and lifetime is not None:
                        break
            except Abandoned:
                self.world.note(f"{type(self).__name__} died")
            except InvariantError as error:
                self._alarm(error)
            except CassieqError as error:
                self.world.note(f"{type(self).__name__}: {type(error).__name__}")
                self.world.over.wait(0.05)
            except Exception as error:  # noqa: BLE001 (no such error may occur)
                self._alarm(error)

    def _alarm(self, error: Exception) -> None:
        told = "".join(traceback.format_exception(error)[-6:])
        self.world.journal.alarms.append(f"{self.name}: {type(error).__name__}: {error}\n{told}")
        self.world.over.wait(1)

    def pause(self, seconds: float) -> None:
        self.world.over.wait(seconds)


@contextmanager
def alarmed(world: World) -> Iterator[None]:
    """Record an error of the package as an alarm, so that the rest can still be judged."""
    try:
        yield
    except CassieqError as error:
        world.journal.alarms.append(f"{type(error).__name__}: {error}")


class UntilTheEnd(Actor):
    """Stops when the end begins."""

    @property
    def may_continue(self) -> bool:
        return not self.world.ending.is_set()


def now() -> datetime:
    """The time in whole milliseconds, rounded down, like that of the store."""
    now = datetime.now(UTC)
    return now.replace(microsecond=to_millis(now) % 1000 * 1000)
