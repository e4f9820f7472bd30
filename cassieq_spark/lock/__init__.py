"""A lock on Cassandra: Lamport's bakery that survives crashes, with an epoch as fence.

For jobs of which only one may run at a time. A process that wants the lock takes a ticket: a row
in the partition of the lock, written plainly with a time to live. `Bakery.enter` waits for the
ticket's turn; `holding` keeps the ticket alive in the background.

    row without number -> read all -> number = highest + 1 -> wait -> epoch + 1 (LWT) -> inside

A process with a ticket without a number is still choosing the number, and no other ticket enters
before. A ticket's turn comes when every other ticket has a higher number (or the same number, with
a higher id).

Cassandra counts the TTL of a ticket from the write; the ticket's owner counts from before it sent
the write, and trusts only three quarters of the TTL, so it gives up first. The other quarter
covers clocks of nodes that differ, and the second that Cassandra rounds off. If an owner has given
up a ticket, or does not know whether a write was applied, it does not write the ticket again, but
takes another ticket with a new id.

The timestamps of a ticket count its writes, so that neither clocks nor late arrivals decide which
write counts. The epoch moves by a compare-and-set on the value that was read with the tickets: a
process that was overtaken since does not move it. It only grows. A bakery number can't replace it,
as numbers begin anew when no process waits.

| event | result |
|---|---|
| a crash while choosing, waiting or inside | the ticket vanishes within its TTL; others go on |
| a long pause before the number is written | noticed: the process gives the ticket up |
| a long pause while waiting | noticed: the process gives up the ticket, and its place in the order
|
| a long pause between the last read and the epoch | the LWT is refused if another entered |
| a long pause inside | `HeldLock.is_held` is false by its clock, `HeldLock.confirm` by the epoch |
| a write of a ticket with an unknown outcome | the ticket is deleted; another one is taken |
| the answer to the LWT is lost | a serial read shows whose entry it is |
| clocks of nodes that differ by more than the margin | two may be inside; the epoch shows it |
| a pause of a virtual machine that the clock does not count | two may be inside; the epoch shows
it |

The epoch can't stop an action that was running when its process was paused. So an action under a
lock must be harmless if it is late, or carry the epoch in a condition.
"""

from __future__ import annotations
