"""What a serial read leaves at a node whose clock is ahead, and the LWT that gets past it.

A serial read makes the replicas promise to accept nothing older than the read. The time of the
promise is that of the node that coordinates the read. With ``paxos_variant: v2``, an LWT that
meets such a promise tries again at the time of its own coordinator, until it times out:
`Paxos.cas` of Cassandra 5.0.8 does not use the time that `begin` returns (`retryWithAtLeast`). So
one serial read by a node whose clock is a day ahead makes all LWTs of the partition by other nodes
fail for a day. The promise of an LWT is no such obstacle: other LWTs continue beyond its time.

So a serial read by a node whose clock is ahead is followed by an LWT at the same node. Its
condition never holds, so it changes nothing, but its promise replaces that of the read.
"""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta

from cassandra.cluster import ResultSet
from cassandra.pool import Host
from cassandra.query import SimpleStatement

from cassieq_spark.errors import StoreError
from cassieq_spark.store.cassandra.mapping import Request
from cassieq_spark.store.cassandra.requests import bind, execute
from cassieq_spark.store.cassandra.session import CAS, READ, SharedSession
from cassieq_spark.store.cassandra.statements import statement_of
from cassieq_spark.store.protocol import Partition, RowKey, Update, When
from cassieq_spark.store.tables import Table

logger = logging.getLogger(__name__)

#: A node's clock is ahead of this process's; logged once for each node.
NODE_AHEAD = "clock.node_ahead"
#: The promise of a serial read could not be replaced.
PROMISE_LEFT = "clock.promise_left"

#: An LWT that meets a promise so little ahead waits until its time has come, and succeeds.
TOLERANCE = timedelta(seconds=1)

#: A number that no program writes, and a place for it: a row of no kind, or the only row.
_NEVER = -1
_NOWHERE: dict[Table, tuple[RowKey, str]] = {
    Table.QUEUE: ((), "version"),
    Table.LEDGER: (("", 0, ""), "next"),
    Table.GROUP_STATE: (("", 0, 0), "pointer"),
    Table.LOCK: (("", ""), "epoch"),
    Table.REPAIR: ((_NEVER,), "queues"),
    Table.ACCOUNT: ((), "version"),
}


def replace_promise(
    session: SharedSession, partition: Partition, page: ResultSet, told: datetime | None
) -> None:
    """Replace the promise of a serial read, if a node that got the read has a clock that is ahead.

    Costs nothing while the clocks agree and the read found rows. A read without rows takes one
    more plain read, of the node's clock; so does each other node that got the same read, because
    the first one was slow. A node whose clock is ahead takes an LWT.

    Args:
        session: The session that read it.
        partition: The partition that was read.
        page: The answer.
        told: The clock of the node that answered; None if it found no row, as rows carry it.
    """
    future = page.response_future
    for host in set(future.attempted_hosts):
        try:
            at = told if told is not None and host == future.coordinator_host else None
            ahead = (at or _clock_of(session, host)) - datetime.now(UTC)
            if ahead > TOLERANCE:
                _warn_once(session, host, ahead)
                _send_lwt(session, partition, host)
        except StoreError as error:
            logger.warning(
                "%s was read serially by node %s, and its clock could not be checked, or what the "
                "read left there not be replaced; if its clock is ahead, LWTs of this partition "
                "may fail until its time has come: %s",
                partition,
                host.address,
                error,
                extra={"action": PROMISE_LEFT, "node": host.address},
            )


def _clock_of(session: SharedSession, host: Host) -> datetime:
    statement = SimpleStatement("SELECT toTimestamp(now()) FROM system.local", is_idempotent=True)
    doing = "read of a node's clock"
    answer = execute(
        session, statement, profile=READ, request=Request.READ, doing=doing, host=host
    )
    now: datetime = answer.current_rows[0][0]
    return now


def _send_lwt(session: SharedSession, partition: Partition, host: Host) -> None:
    row, column = _NOWHERE[partition.table]
    never = Update(row, {column: _NEVER}, when=(When(column, "=", _NEVER),))
    statement = statement_of(session.options.keyspace, partition, never)
    doing = f"LWT after a serial read of {partition}"
    execute(
        session,
        bind(session, statement, doing),
        profile=CAS,
        # Safe to repeat, as it changes nothing.
        request=Request.WRITE,
        doing=doing,
        host=host,
    )


def _warn_once(session: SharedSession, host: Host, ahead: timedelta) -> None:
    if host.address in session.nodes_ahead:
        return
    session.nodes_ahead.add(host.address)
    logger.warning(
        "the clock of Cassandra node %s is %.1f s ahead of the clock of this machine; until they "
        "agree, each serial read by that node costs an LWT more: correct the wrong one (NTP), and "
        "restart Cassandra if its clock was ahead",
        host.address,
        ahead.total_seconds(),
        extra={"action": NODE_AHEAD, "node": host.address},
    )
