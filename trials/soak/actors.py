"""The actors of a soak: where they are, how they live and die.

Each runs in a thread of its own, with a store of its own that may fail it at any call. What
becomes of it then is what becomes of a process that was killed: nobody closes or releases a thing,
and its successor knows what a process would find on disk, no more.
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

from cassieq_spark.errors import (
    CassieqError,
    InvariantError,
)
from cassieq_spark.groups.group import ConsumerGroup
from cassieq_spark.groups.registration import ensure_group
from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.model import QueueDefinition, to_millis
from cassieq_spark.queues import (
    create_queue,
)
from cassieq_spark.store.protocol import Store
from trials.soak.checker import Journal
from trials.stores import Abandoned, MortalStore

MAX_DELIVERIES = 5
#: A write that takes longer is refused; blocks that were not published are deleted after it.
WRITE_TIMEOUT = timedelta(seconds=20)
EXPIRE_AFTER = timedelta(seconds=10)
CLIENTS, READERS = "clients", "readers"
_LEASE = timedelta(seconds=4)
#: Of chance, so that compression leaves most of it.
_PADDING = 700


@dataclass(frozen=True, slots=True)
class QueueKind:
    """What a queue is like in a soak.

    Attributes:
        name: Its name.
        restless: Whether it is purged, deleted and made anew all the time.
        strict: Whether it is strictly ordered.
        expires: Whether messages are kept for `EXPIRE_AFTER` only.
        small: Whether its buckets are.
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
        store: The one that does the work.
        journal: What they note.
        seed: Of all that is left to chance.
        ending: Set: publish nothing more, settle everything, let nobody die.
        full: Set: publish nothing more until consumers have caught up.
        over: Set: stop.
        events: How often what happened.
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
    """Does something again and again, and is replaced when it dies.

    Args:
        world: Where.
        name: Its own, of all actors.
        lifetime: About how many calls of the store it lives; None: for ever.
    """

    def __init__(self, world: World, name: str, lifetime: int | None = None) -> None:
        self.world = world
        self.name = name
        self.chance = Random(f"{world.seed}/{name}")
        self.lifetime = lifetime
        self.store = MortalStore(world.store, self.chance, None)
        self.thread = threading.Thread(target=self._run, name=f"soak-{name}", daemon=True)

    def begin(self) -> None:
        """What a new process does first."""

    def act(self) -> None:
        raise NotImplementedError

    @property
    def may_continue(self) -> bool:
        return not self.world.over.is_set()

    def _run(self) -> None:
        while self.may_continue:
            lifetime = None if self.world.ending.is_set() else self.lifetime
            # What the one before has left running, heartbeats, dies with it.
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
            except Exception as error:  # noqa: BLE001 (whatever it is, it must not be)
                self._alarm(error)

    def _alarm(self, error: Exception) -> None:
        told = "".join(traceback.format_exception(error)[-6:])
        self.world.journal.alarms.append(f"{self.name}: {type(error).__name__}: {error}\n{told}")
        self.world.over.wait(1)

    def pause(self, seconds: float) -> None:
        self.world.over.wait(seconds)


@contextmanager
def alarmed(world: World) -> Iterator[None]:
    """Note an error of the package as an alarm, so that the rest can still be judged."""
    try:
        yield
    except CassieqError as error:
        world.journal.alarms.append(f"{type(error).__name__}: {error}")


class UntilTheEnd(Actor):
    """Stops as soon as the end has begun."""

    @property
    def may_continue(self) -> bool:
        return not self.world.ending.is_set()


def now() -> datetime:
    """In whole milliseconds, rounded down, as the store's clock is."""
    now = datetime.now(UTC)
    return now.replace(microsecond=to_millis(now) % 1000 * 1000)
