"""What Cassandra was asked, by its own counters: whoever asked, in whichever process."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Self

from cassandra.cluster import Session

from benchmarks.bench.lab import KEYSPACE

#: An LWT on one node writes to its log thrice: promise, proposal, commit.
_PAXOS_WRITES = 3
_QUERY = "SELECT keyspace_name, table_name, count FROM system_views.{}"


@dataclass(frozen=True, slots=True)
class Counts:
    """Requests.

    Attributes:
        lwts: Lightweight transactions, the refused ones too.
        reads: Of state: ledger, delivery state, the queue's row.
        chunk_writes: Of messages.
        chunk_reads: Of messages.
    """

    lwts: float
    reads: float
    chunk_writes: float
    chunk_reads: float

    @classmethod
    def read(cls, cql: Session) -> Self:
        """Since the node began."""
        reads, writes = (_counts(cql, f"coordinator_{kind}_latency") for kind in ("read", "write"))
        ours = {table: count for (space, table), count in reads.items() if space == KEYSPACE}
        chunk_reads = ours.pop("chunk", 0)
        paxos = _counts(cql, "local_write_latency").get(("system", "paxos"), 0)
        return cls(
            lwts=paxos / _PAXOS_WRITES,
            reads=sum(ours.values()),
            chunk_writes=writes.get((KEYSPACE, "chunk"), 0),
            chunk_reads=chunk_reads,
        )

    def since(self, before: Counts, *, per: float = 1) -> dict[str, float]:
        """How many more than before, for each of ``per`` things, or seconds."""
        return {
            each.name: (getattr(self, each.name) - getattr(before, each.name)) / per
            for each in fields(self)
        }


def _counts(cql: Session, view: str) -> dict[tuple[str, str], int]:
    return {(space, table): count for space, table, count in cql.execute(_QUERY.format(view))}
