"""How many replicas have to agree, and whether a keyspace can keep that. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from enum import StrEnum

from cassieq_spark.errors import OptionError
from cassieq_spark.store.cassandra.replication import SIMPLE_STRATEGY

#: Refused with a reason of its own, because it looks like the safest of all.
_EACH_QUORUM = "EACH_QUORUM"


class Consistency(StrEnum):
    """The level of plain reads and writes; the level of compare-and-sets follows from it.

    Everybody who uses a keyspace must use the same: compare-and-sets of two kinds, or of two data
    centres, do not see each other.

    A compare-and-set that broke off after it was decided is completed by the next serial read or
    compare-and-set, at a quorum of those who take part in it: the local data centre for
    LOCAL_SERIAL, all replicas for SERIAL. A plain read must meet that quorum too. So plain reads
    have the level that belongs to the serial one, and EACH_QUORUM, whose plain reads would ask the
    local data centre only, is not on offer.
    """

    #: A quorum in the local data centre, where all who use the queues must be.
    LOCAL_QUORUM = "LOCAL_QUORUM"
    #: A quorum of all replicas, wherever they are.
    QUORUM = "QUORUM"

    @property
    def of_conditions(self) -> str:
        """Driver's word for the serial level: who takes part in a compare-and-set."""
        return "LOCAL_SERIAL" if self is Consistency.LOCAL_QUORUM else "SERIAL"


def parse_consistency(text: str) -> Consistency:
    """Read what a user writes, in any case of letters.

    Raises:
        OptionError: It is none of the levels, or one at which a read may miss a write.
    """
    level = text.strip().upper()
    if level == _EACH_QUORUM:
        raise OptionError(
            f"consistency {text!r} is not safe: a compare-and-set that broke off is completed at "
            "a quorum of all replicas, which a read of the local data centre may miss, and "
            "messages be lost. Use QUORUM if there are producers or consumers in several data "
            "centres, LOCAL_QUORUM if all of them are in one"
        )
    try:
        return Consistency(level)
    except ValueError:
        raise OptionError(
            f"consistency {text!r} is not on offer: expected {', '.join(Consistency)}. Below a "
            "quorum, a read may miss what was written, and a message be lost or come twice; where "
            "there is one replica, LOCAL_QUORUM costs the same as ONE"
        ) from None


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
