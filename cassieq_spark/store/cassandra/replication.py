"""How many replicas each data centre keeps: as written, and as Cassandra takes it. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from cassieq_spark.errors import OptionError

#: Replicas per data centre unless asked for otherwise, or as many as it has nodes.
DEFAULT_REPLICAS = 3
SIMPLE_STRATEGY = "SimpleStrategy"
NETWORK_TOPOLOGY_STRATEGY = "NetworkTopologyStrategy"

_HOW = f"expected a number (3), data centres (dc1=3,dc2=3), or {SIMPLE_STRATEGY}=1 for one node"


def parse_replication(text: str) -> int | dict[str, int]:
    """Read what an operator writes.

    >>> parse_replication("3"), parse_replication("dc1=3, dc2=2")
    (3, {'dc1': 3, 'dc2': 2})

    Returns:
        Replicas in the data centre connected to, or per data centre; or ``{"SimpleStrategy": n}``.

    Raises:
        OptionError: It is neither, or a number is not above zero.
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
        asked: As `parse_replication` takes it, or what it returns; None for the default: the
            local data centre, as many replicas as it has nodes, at the most 3.
        nodes: Number of nodes per data centre of the cluster.
        local_dc: The data centre connected to.

    Raises:
        OptionError: A data centre is unknown, or has fewer nodes than replicas asked for.
    """
    wanted: int | Mapping[str, int]
    if asked is None:
        wanted = min(DEFAULT_REPLICAS, nodes[local_dc])
    else:
        wanted = parse_replication(asked) if isinstance(asked, str) else asked
    if isinstance(wanted, int):
        wanted = {local_dc: wanted}
    if set(wanted) == {SIMPLE_STRATEGY}:
        return {"class": SIMPLE_STRATEGY, "replication_factor": wanted[SIMPLE_STRATEGY]}
    for datacenter, replicas in wanted.items():
        if datacenter not in nodes:
            raise OptionError(
                f"replication: there is no data centre {datacenter!r}; "
                f"the cluster has {', '.join(sorted(nodes))}"
            )
        if replicas > nodes[datacenter]:
            raise OptionError(
                f"replication: {replicas} replicas do not fit data centre {datacenter!r}, "
                f"which has {nodes[datacenter]} node(s)"
            )
    return {"class": NETWORK_TOPOLOGY_STRATEGY, **wanted}


def _count(text: str, whole: str) -> int:
    if not text.strip().isdecimal() or int(text) < 1:
        raise OptionError(f"replication {whole!r} is not valid: {_HOW}")
    return int(text)
