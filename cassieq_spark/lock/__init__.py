"""A lock on Cassandra: Lamport's bakery, made to survive crashes, with an epoch as fence.

For jobs of which one at a time is enough. Who wants it takes a ticket: a row of the lock's
partition, written plainly, which vanishes by itself. `Bakery.enter` waits its turn; `holding`
keeps the ticket alive in the background.

    row without number -> read all -> number = highest + 1 -> wait -> epoch + 1 (LWT) -> inside

A ticket without number is one whose number is being chosen: nobody enters past it. Its turn has
come when every other ticket has a number, and a higher one (or the same, and a higher id).

The time of a ticket (its TTL) counts in Cassandra from the moment it was written; its owner counts
from before that write was sent, and only three quarters of it, so it gives up first. The
remaining quarter is for what clocks of nodes differ by, and for the second that Cassandra rounds
away. A ticket is never written again once its owner has given it up, or does not know whether a
write went in: it takes another, with a new id.

Rows of a ticket carry timestamps that count its writes, so that neither clocks nor late arrivals
decide which write counts. The epoch is a compare-and-set on the value that was read together with
the tickets: who was overtaken since that read does not move it. It only grows, so a bakery number,
which begins anew when nobody waits, can't replace it.

| event | result |
|---|---|
| a crash while choosing, waiting or inside | the ticket vanishes; others go on within its TTL |
| a long pause before the number is written | noticed: the ticket is given up |
| a long pause while waiting | the same, with its place in the order |
| a long pause between the last look and the epoch | the LWT is refused if anybody entered |
| a long pause inside | `Held.is_held` is false by its own clock, `Held.confirm` by the epoch |
| a write of a ticket with an unknown outcome | the ticket is deleted; another one is taken |
| the answer of the LWT is lost | a serial read shows whose entry it is |
| clocks of nodes that differ by more than the margin | two may be inside; the epoch tells one |
| a pause that the clock does not count, of a virtual machine | the same |

What the epoch can't stop is the one action that was under way when its process was paused: an
action done under a lock must be harmless if it is done late, or carry the epoch in a condition.
"""

from __future__ import annotations
