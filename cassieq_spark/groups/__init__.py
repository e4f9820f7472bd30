"""Consumer groups: who has which messages of a queue, and which each group is still owed.

Each queue and group has one Cassandra partition, the group state. A lease puts messages into a
slot, under the reader's token, until ``due_at``. One compare-and-set acks a batch and leases the
next. Slots are overwritten, never deleted, so reading the state is one short slice.

    not offered (>= pointer) --lease--> leased (slot) --ack--> settled
                                           |  due_at passes: the next reader leases it again
                                           '--the part that does not fit--> waiting --lease--> ...

| module | what it does |
|---|---|
| ``state.py`` | rows as values: how columns are read and written |
| ``changes.py`` | operations on one state, and the state after them |
| ``lease.py`` | what a reader asks for, and what it gets |
| ``plan.py``, ``settle.py`` | decisions: what to lease, where settled messages go |
| ``group.py`` | reads the state, carries a decision out by one LWT, resolves lost answers |
| ``registration.py``, ``seek.py`` | create, delete, close and move groups |
| ``partitions.py``, ``presence.py`` | a group in all partitions of a queue; readers share them |

Invariants (docs/design.md section 8): I5 every monoton below ``next`` is exactly one of not yet
offered, waiting, leased, settled; I6 at most one token holds a monoton, and settling needs that
token; I7 ``finalised`` never passes the floor; I8 ``deliveries`` grows by one with each delivery.

| event | result |
|---|---|
| a reader dies | its messages are due at ``due_at``; its restarted query takes them up at once |
| two readers lease at once | both condition on pointer or slot token: one is refused |
| the answer to a lease is lost | a serial read finds our token; each attempt has its own |
| a lease runs out while its batch runs | others may take it; the ack then finds another token |
"""

from __future__ import annotations
