"""Serial reads that leave no promise in the future, so that LWTs of any node succeed after them.

A serial read makes the replicas promise to accept nothing older than the read. The time of the
promise is that of the node that coordinates the read. With ``paxos_variant: v2``, an LWT that
meets such a promise tries again at the time of its own coordinator, until it times out:
`Paxos.cas` of Cassandra 5.0.8 does not use the time that `begin` returns (`retryWithAtLeast`). So
one serial read by a node whose clock is a day ahead could make all LWTs of the partition by other
nodes fail for a day.

The promise of an LWT is no such obstacle: an LWT that is older than that promise is refused, and
continues beyond the latest promise of either kind. So if a node's clock is ahead, an LWT at the
same node goes before the read. The LWT's condition never holds, so it changes nothing. It goes
first because this process, or the node, may stop for a while, or for ever, after the read.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from datetime import timedelta
from functools import partial

from cassandra.cluster import ResultSet
from cassandra.pool import Host
from cassandra.query import BoundStatement, SimpleStatement

from cassieq_spark.errors import StoreError
from cassieq_spark.store.cassandra.clocks import CLOCK, see_clock_of
from cassieq_spark.store.cassandra.mapping import DRIVER_ERRORS, Request
from cassieq_spark.store.cassandra.requests import bind, execute
from cassieq_spark.store.cassandra.session import CAS, READ, SERIAL_READ, SharedSession
from cassieq_spark.store.cassandra.statements import statement_of
from cassieq_spark.store.protocol import Partition, RowKey, Update, When
from cassieq_spark.store.tables import Table

logger = logging.getLogger(__name__)

#: A node's clock is ahead; logged once per node.
NODE_AHEAD = "clock.node_ahead"
#: The promise of a serial read could not be replaced.
PROMISE_LEFT = "clock.promise_left"

#: An LWT that meets a promise that little ahead waits until its time has come, and succeeds.
TOLERANCE = timedelta(seconds=1)

#: Errors of the driver, and of `bind`.
_ERRORS: tuple[type[BaseException], ...] = (*DRIVER_ERRORS, StoreError)
#: A number that no program writes, and where to compare it: a row of no kind, or the only row.
_NEVER = -1
_NOWHERE: dict[Table, tuple[RowKey, str]] = {
    Table.QUEUE: ((), "version"),
    Table.LEDGER: (("", 0, ""), "next"),
    Table.GROUP_STATE: (("", 0, 0), "pointer"),
    Table.LOCK: (("", ""), "epoch"),
    Table.REPAIR: ((_NEVER,), "queues"),
    Table.ACCOUNT: ((), "version"),
}


def read_serially(
    session: SharedSession,
    partition: Partition,
    statement: BoundStatement,
    *,
    doing: str,
    paging_state: bytes | None = None,
) -> ResultSet:
    """Read a page serially. One read more, of the node's clock; one LWT more if it is ahead.

    The page is read by the node that answers first to the read of its clock. If that node fails,
    the driver chooses others, and the LWT follows the read.

    Args:
        session: The session that reads the page.
        partition: The partition that is read.
        statement: The read.
        doing: The read in words, for errors.
        paging_state: Where the page begins.
    """
    send = partial(
        session.driver.execute, statement, execution_profile=SERIAL_READ, paging_state=paging_state
    )
    try:
        host = _ask_clock(session, statement)
        if _is_ahead(session, host):
            session.driver.execute(_lwt(session, partition), execution_profile=CAS, host=host)
        page = send(host=host)
    except _ERRORS:
        page = execute(
            session,
            statement,
            profile=SERIAL_READ,
            request=Request.READ,
            doing=doing,
            paging_state=paging_state,
        )
        _replace_promise(session, partition, page)
    return page


def _ask_clock(session: SharedSession, statement: BoundStatement) -> Host:
    """Read the clock of the replica that answers first, and of another node now and then."""
    # With its routing key, it goes to the replicas that the statement would go to.
    asked = SimpleStatement(
        CLOCK, is_idempotent=True, routing_key=statement.routing_key, keyspace=statement.keyspace
    )
    answer = session.driver.execute(asked, execution_profile=READ)
    host: Host = answer.response_future.coordinator_host
    session.clocks.see(host.address, *answer.current_rows[0])
    if not session.clocks.knows_another(host.address):
        # This process's own clock may be ahead as well.
        others = session.driver.cluster.metadata.all_hosts()
        for other in (each for each in others if each.is_up and each.address != host.address):
            with suppress(*DRIVER_ERRORS):
                see_clock_of(session.driver, session.clocks, other)
                break
    return host


def _is_ahead(session: SharedSession, host: Host) -> bool:
    ahead = session.clocks.ahead(host.address)
    if ahead > TOLERANCE:
        _warn_once(session, host, ahead)
    return ahead > TOLERANCE


def _replace_promise(session: SharedSession, partition: Partition, page: ResultSet) -> None:
    """Replace the promise that a read has left at a node with a clock ahead, by an LWT there."""
    for host in set(page.response_future.attempted_hosts):
        try:
            see_clock_of(session.driver, session.clocks, host)
            if _is_ahead(session, host):
                session.driver.execute(_lwt(session, partition), execution_profile=CAS, host=host)
        except _ERRORS as error:
            logger.warning(
                "%s was read serially by node %s, and its clock could not be checked, or what the "
                "read left there not be replaced; if its clock is ahead, LWTs of this partition "
                "may fail until its time has come: %s",
                partition,
                host.address,
                error,
                extra={"action": PROMISE_LEFT, "node": host.address},
            )


def _lwt(session: SharedSession, partition: Partition) -> BoundStatement:
    """An LWT that changes nothing, and so is safe to repeat."""
    row, column = _NOWHERE[partition.table]
    never = Update(row, {column: _NEVER}, when=(When(column, "=", _NEVER),))
    statement = statement_of(session.options.keyspace, partition, never)
    return bind(session, statement, f"LWT at a serial read of {partition}")


def _warn_once(session: SharedSession, host: Host, ahead: timedelta) -> None:
    if host.address in session.nodes_ahead:
        return
    session.nodes_ahead.add(host.address)
    logger.warning(
        "the clock of Cassandra node %s is %.1f s ahead of that of this machine, or of another "
        "node; until they agree, each serial read by that node costs an LWT more: correct the "
        "wrong one (NTP), and restart Cassandra if its clock was ahead",
        host.address,
        ahead.total_seconds(),
        extra={"action": NODE_AHEAD, "node": host.address},
    )
