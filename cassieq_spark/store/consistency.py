"""The replication of a keyspace, and whether it fits the consistency level."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from cassieq_spark.errors import OptionError
from cassieq_spark.settings.connection import Consistency

#: The default number of replicas in the local data centre, if it has as many nodes.
_DEFAULT_REPLICAS = 3
SIMPLE_STRATEGY = "SimpleStrategy"
NETWORK_TOPOLOGY_STRATEGY = "NetworkTopologyStrategy"
_HOW = f"expected a number (3), data centres (dc1=3,dc2=3), or {SIMPLE_STRATEGY}=1 for one node"


def check_consistency(  # noqa: PLR0913 (all that it depends on, by name)
    consistency: Consistency,
    *,
    keyspace: str,
    replicas: Mapping[str, int],
    data_centres: Collection[str],
    local_dc: str,
    local_dc_given: bool,
) -> None:
    """Refuse a level that the keyspace cannot keep, or that differs from program to program.

    Args:
        consistency: The level.
        keyspace: The name of the keyspace.
        replicas: The number per data centre; or ``{"SimpleStrategy": n}``.
        data_centres: The data centres of the cluster.
        local_dc: The data centre whose nodes get the requests.
        local_dc_given: True if the user has named it.

    Raises:
        OptionError: The level does not fit; the error says which replicas exist, and what to do.
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


def parse_replication(text: str) -> int | dict[str, int]:
    """Read a replication that an operator has written.

    >>> parse_replication("3"), parse_replication("dc1=3, dc2=2")
    (3, {'dc1': 3, 'dc2': 2})

    Returns:
        Replicas in the connected data centre, or per data centre; or ``{"SimpleStrategy": n}``.

    Raises:
        OptionError: The text is none of these, or a number is not above zero.
    """
    if "=" not in text:
        return _count(text, text)
    replicas: dict[str, int] = {}
    for part in text.split(","):
        name, _, count = (word.strip() for word in part.partition("="))
        if not name or name in replicas or "'" in name:
            raise OptionError(f"replication {text!r} is not valid: {_HOW}")
        replicas[name] = _count(count, text)
    return replicas


def resolve_replication(
    asked: str | Mapping[str, int] | None, nodes: Mapping[str, int], local_dc: str
) -> dict[str, str | int]:
    """The replication map of ``CREATE KEYSPACE``.

    Args:
        asked: What `parse_replication` takes or returns; None for the default: as many replicas
            in the local data centre as it has nodes, at most 3.
        nodes: The number of nodes per data centre of the cluster.
        local_dc: The connected data centre.

    Raises:
        OptionError: A data centre is unknown, or has fewer nodes than replicas are wanted.
    """
    wanted: int | Mapping[str, int]
    if asked is None:
        wanted = min(_DEFAULT_REPLICAS, nodes[local_dc])
    else:
        wanted = parse_replication(asked) if isinstance(asked, str) else asked
    if isinstance(wanted, int):
        wanted = {local_dc: wanted}
    if set(wanted) == {SIMPLE_STRATEGY}:
        return {"class": SIMPLE_STRATEGY, "replication_factor": wanted[SIMPLE_STRATEGY]}
    for name, replicas in wanted.items():
        if name not in nodes:
            raise OptionError(
                f"replication: there is no data centre {name!r}; the cluster has "
                f"{', '.join(sorted(nodes))}"
            )
        if replicas > nodes[name]:
            raise OptionError(
                f"replication: {replicas} replicas do not fit data centre {name!r}, which has "
                f"{nodes[name]} node(s)"
            )
    return {"class": NETWORK_TOPOLOGY_STRATEGY, **wanted}


def replication_warnings(
    replication: Mapping[str, str | int], nodes: Mapping[str, int]
) -> tuple[str, ...]:
    """Warnings about data centres with fewer than three replicas, although they have more nodes.

    A keyspace that was created while some nodes were not known yet has such a replication.

    >>> replication_warnings({"class": NETWORK_TOPOLOGY_STRATEGY, "dc1": "3"}, {"dc1": 6})
    ()

    Args:
        replication: The replication of the cluster, or the result of `resolve_replication`.
        nodes: The number of nodes per data centre of the cluster.
    """
    found = {name: int(replicas) for name, replicas in replication.items() if name in nodes}
    return tuple(
        f"the keyspace has {replicas} replica(s) in data centre {name!r}, which has {nodes[name]} "
        "nodes: while a replica is down, nobody can read or write what it has, and the only "
        "replica may be lost with its disk; for "
        f"{min(_DEFAULT_REPLICAS, nodes[name])}, ALTER KEYSPACE, and then run nodetool repair "
        "--full on each node"
        for name, replicas in sorted(found.items())
        if replicas < min(_DEFAULT_REPLICAS, nodes[name])
    )


def _count(text: str, whole: str) -> int:
    if not text.strip().isdecimal() or int(text) < 1:
        raise OptionError(f"replication {whole!r} is not valid: {_HOW}")
    return int(text)
