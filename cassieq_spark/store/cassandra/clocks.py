"""The clocks of Cassandra's nodes, as far as this process has seen them.

A lease, a delay and the due time of a message are counted by the clock of the node that
coordinates the LWT. If that clock is behind, other nodes consider them over early: two readers
may hold a message. Each read shows the clock of its node, at no cost. A node whose clock most
others contradict is outvoted: other nodes are asked first, until its clock is right again. A node
that comes up is asked for its clock, as a process may send it LWTs without a read before.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from cassandra.cluster import Session
from cassandra.policies import HostStateListener, TokenAwarePolicy
from cassandra.pool import Host
from cassandra.query import SimpleStatement

from cassieq_spark.store.cassandra.mapping import DRIVER_ERRORS
from cassieq_spark.store.protocol import CLOCKS_APART

logger = logging.getLogger(__name__)

#: Most other clocks contradict the clock of a node.
NODE_OUTVOTED = "clock.node_outvoted"

#: A clock that was seen longer ago than this may have been set since.
REMEMBERED = timedelta(minutes=1)
#: The query that a node answers with its clock, as `NodeClocks.see` expects it.
CLOCK = "SELECT currentTimestamp(), toTimestamp(now()) FROM system.local"
#: How long a named node may take to answer with its clock: a node that hangs must not delay a
#: read.
_CLOCK_SECONDS = 1.0
#: How many other nodes must be seen before a clock is judged.
_WITNESSES = 2


class _Seen(NamedTuple):
    """How far a clock is ahead of our monotonic clock, and when that was seen; in seconds."""

    wall: float
    ahead: float
    at: float


class NodeClocks:
    """Compares a node's clock with the clocks of the other nodes, and with that of this process.

    Each of these clocks may be wrong. Safe to call from several threads.
    """

    def __init__(self) -> None:
        self._seen: dict[str, _Seen] = {}
        self._asked: dict[str, float] = {}
        self._outvoted: frozenset[str] = frozenset()

    def see(self, address: str, wall: datetime, clock: datetime) -> None:
        """Remember the present reading of a node's clock.

        Args:
            address: The address of the node.
            wall: The node's wall clock, by which rows expire.
            clock: The result of ``now()``, which stands still when the wall clock is set back.
        """
        at = time.monotonic()
        self._seen[address] = _Seen(wall.timestamp() - at, clock.timestamp() - at, at)

    def forget(self, address: str) -> None:
        """Forget a node, which is no longer part of the cluster."""
        self._seen.pop(address, None)
        self._outvoted -= {address}

    def knows_another(self, address: str) -> bool:
        """True if the clock of any other node was seen recently."""
        return bool(self._lately() - {address})

    def ahead(self, address: str) -> timedelta:
        """How far a node's clock is ahead of the earliest clock; zero if it was not seen."""
        seen, since = dict(self._seen), self._since()
        others = (
            each.ahead for name, each in seen.items() if name != address and each.at >= since
        )
        earliest = min([_ours(), *others])
        return timedelta(seconds=seen[address].ahead - earliest if address in seen else 0)

    @property
    def outvoted(self) -> frozenset[str]:
        """The nodes that are asked last; see `vote`."""
        return self._outvoted

    def is_doubtful(self, address: str) -> bool:
        """True if a `vote` is due: the node contradicts this process, or a node is outvoted."""
        seen = self._seen.get(address)
        return seen is not None and (bool(self._outvoted) or _contradict(seen, _ours()))

    def take_witnesses(self, address: str, nodes: Iterable[str]) -> list[str]:
        """Choose the other nodes to ask for their clocks before a vote; each once a minute.

        The outvoted nodes are asked, as their clocks may be right again. Other nodes are asked
        until two are known.
        """
        lately, now = self._lately(), time.monotonic()
        due = [
            each
            for each in nodes
            if each not in lately
            and now - self._asked.get(each, float("-inf")) >= REMEMBERED.total_seconds()
        ]
        lacking = max(0, _WITNESSES - len(lately - self._outvoted - {address}))
        taken = [each for each in due if each in self._outvoted]
        taken += [each for each in due if each not in self._outvoted][:lacking]
        self._asked |= dict.fromkeys(taken, now)
        return taken

    def vote(self) -> frozenset[str]:
        """Judge the nodes that were seen recently; return those that are newly outvoted.

        The wall clocks of these nodes and of this process have one vote each. A node is outvoted
        if more than half of them differ from one of its clocks by more than `CLOCKS_APART`: never
        by this process alone.
        """
        since = self._since()
        clocks = {each: seen for each, seen in list(self._seen.items()) if seen.at >= since}
        before = self._outvoted
        lost = frozenset(each for each in clocks if _is_outvoted(each, clocks))
        self._outvoted = lost | (before - clocks.keys())
        return lost - before

    def _lately(self) -> frozenset[str]:
        since = self._since()
        return frozenset(address for address, each in list(self._seen.items()) if each.at >= since)

    def _since(self) -> float:
        return time.monotonic() - REMEMBERED.total_seconds()


def judge(driver: Session, clocks: NodeClocks, host: Host) -> bool:
    """True if a node, whose clock was seen just now, is newly outvoted.

    No request, unless the node contradicts this process, or a node is outvoted: then one request
    to each node of `NodeClocks.take_witnesses`.
    """
    if not clocks.is_doubtful(host.address):
        return False
    others = {
        each.address: each
        for each in driver.cluster.metadata.all_hosts()
        if each.is_up and each.address != host.address
    }
    for address in clocks.take_witnesses(host.address, others):
        with suppress(*DRIVER_ERRORS):
            see_clock_of(driver, clocks, others[address])
    lost = clocks.vote()
    for address in sorted(lost):
        logger.warning(
            "the clock of Cassandra node %s differs by more than %d s from those of most others, "
            "this machine's among them; other nodes are asked first until it is right: correct it "
            "(NTP), and restart Cassandra there if it was ahead",
            address,
            CLOCKS_APART.total_seconds(),
            extra={"action": NODE_OUTVOTED, "node": address},
        )
    return host.address in lost


def see_clock_of(driver: Session, clocks: NodeClocks, host: Host) -> None:
    """Ask a node for its clock. One read of one row, in memory.

    Raises:
        DRIVER_ERRORS: The node does not answer within a second.
    """
    asked = SimpleStatement(CLOCK, is_idempotent=True)
    answer = driver.execute(asked, timeout=_CLOCK_SECONDS, host=host)
    clocks.see(host.address, *answer.current_rows[0])


class NodesThatComeUp(HostStateListener):  # type: ignore[misc]
    """Asks each node that comes up while a session is open for its clock."""

    def __init__(self, driver: Session, clocks: NodeClocks) -> None:
        self._driver, self._clocks = driver, clocks

    def on_up(self, host: Host) -> None:
        """Ask the node; the driver calls it in a thread for such work."""
        with suppress(*DRIVER_ERRORS):
            see_clock_of(self._driver, self._clocks, host)
            judge(self._driver, self._clocks, host)

    def on_add(self, host: Host) -> None:
        """Ask a new node, as `on_up` does."""
        self.on_up(host)

    def on_down(self, host: Host) -> None:
        """Do nothing; the driver requires the method."""

    def on_remove(self, host: Host) -> None:
        """Forget the node."""
        self._clocks.forget(host.address)


class RightClocksFirst(TokenAwarePolicy):  # type: ignore[misc]
    """Chooses a replica by token, as its parent does, but outvoted nodes last."""

    def __init__(self, child: Any, clocks: NodeClocks, *, shuffle_replicas: bool) -> None:
        super().__init__(child, shuffle_replicas=shuffle_replicas)
        self._clocks = clocks

    def make_query_plan(
        self, working_keyspace: str | None = None, query: Any = None
    ) -> Iterator[Host]:
        """The nodes to ask, in order."""
        plan: Iterator[Host] = super().make_query_plan(working_keyspace, query)
        outvoted = self._clocks.outvoted
        # `sorted` keeps the order of nodes that are equal in this.
        return iter(sorted(plan, key=lambda host: host.address in outvoted)) if outvoted else plan


def _ours() -> float:
    return time.time() - time.monotonic()


def _is_outvoted(address: str, clocks: Mapping[str, _Seen]) -> bool:
    votes = [_ours(), *(each.wall for other, each in clocks.items() if other != address)]
    against = sum(_contradict(clocks[address], vote) for vote in votes)
    return against > len(votes) - against + 1


def _contradict(node: _Seen, vote: float) -> bool:
    most = CLOCKS_APART.total_seconds()
    return abs(node.wall - vote) > most or abs(node.ahead - vote) > most
