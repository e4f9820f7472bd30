"""Whether a keyspace can keep a level of consistency. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from cassieq_spark.errors import OptionError
from cassieq_spark.settings.connection import Consistency
from cassieq_spark.store.cassandra.replication import SIMPLE_STRATEGY


def check_consistency(  # noqa: PLR0913 (all that it depends on, by name)
    consistency: Consistency,
    *,
    keyspace: str,
    replicas: Mapping[str, int],
    data_centres: Collection[str],
    local_dc: str,
    local_dc_given: bool,
) -> None:
    """Refuse a level that the keyspace cannot keep, or that would not mean the same to all.

    Args:
        consistency: What is asked for.
        keyspace: Its name.
        replicas: Per data centre; or ``{"SimpleStrategy": n}``.
        data_centres: Those of the cluster.
        local_dc: The one whose nodes are asked.
        local_dc_given: Whether the user has named it.

    Raises:
        OptionError: Says what the keyspace has, and what to do.
    """
    if consistency is Consistency.QUORUM:
        return
    has = ", ".join(f"{name}={count}" for name, count in sorted(replicas.items()))
    problem = f"consistency {consistency} does not fit keyspace {keyspace!r} ({has}): "
    if SIMPLE_STRATEGY in replicas:
        if len(data_centres) == 1:
            return
        raise OptionError(
            f"{problem}with {SIMPLE_STRATEGY}, replicas belong to no data centre; use QUORUM, or "
            "alter the keyspace to NetworkTopologyStrategy"
        )
    if not replicas.get(local_dc):
        raise OptionError(
            f"{problem}it has no replica in data centre {local_dc!r}; name one that has as the "
            "local data centre, or use QUORUM"
        )
    several = sum(1 for count in replicas.values() if count) > 1
    if several and not local_dc_given:
        raise OptionError(
            f"{problem}it has replicas in several data centres, so the local one must be named, "
            "and be the same for all who use the queues; or use QUORUM"
        )
