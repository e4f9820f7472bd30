"""What the nodes of a cluster are set to, as far as it can lose messages."""

from __future__ import annotations

from collections.abc import Mapping

from cassandra.cluster import Session
from cassandra.query import SimpleStatement

from cassieq_spark.store.cassandra.mapping import DRIVER_ERRORS

_PURGING = "SELECT value FROM system_views.settings WHERE name = 'paxos_state_purging'"
_TIMEOUT_SECONDS = 10.0


def read_purging(session: Session) -> dict[str, str | None]:
    """How each node that is connected to purges the state of LWTs: ``paxos_state_purging``.

    One read for each node, of its memory. Nodes of other data centres are left out.

    Returns:
        Settings by address; None where it cannot be known: the node is of Cassandra 4.0, does not
        answer, or the role may not read ``system_views``.
    """
    found: dict[str, str | None] = {}
    for host in session.get_pool_state():
        try:
            statement = SimpleStatement(_PURGING)
            row = session.execute(statement, timeout=_TIMEOUT_SECONDS, host=host).one()
        except DRIVER_ERRORS:
            row = None
        found[str(host.address)] = row[0] if row else None
    return found


def purging_warnings(settings: Mapping[str, str | None]) -> tuple[str, ...]:
    """What to tell an operator of nodes that forget too early what LWTs have written. Pure.

    >>> purging_warnings({"10.0.0.1": "gc_grace"})
    ()

    Args:
        settings: What `read_purging` has found.
    """
    advice = "set paxos_state_purging: gc_grace in cassandra.yaml of every node"
    warnings = []
    if legacy := ", ".join(sorted(node for node, value in settings.items() if value == "legacy")):
        warnings.append(
            "after a clock that was ahead by more than a day, LWTs lose their effect on "
            f"{legacy}, where paxos_state_purging is legacy: {advice}"
        )
    if unknown := ", ".join(sorted(node for node, value in settings.items() if value is None)):
        warnings.append(
            f"whether paxos_state_purging is legacy on {unknown} can't be read: {advice}"
        )
    return tuple(warnings)
