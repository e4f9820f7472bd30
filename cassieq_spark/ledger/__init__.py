"""The ledger: which monotons exist, and where their messages are.

Each queue, or partition of a queue, has one Cassandra partition. A writer task writes a block
under a new id; `publish` gives all blocks of a write their monotons by one compare-and-set, and so
makes the blocks visible at once.

    write blocks -> publish: next += n, a row per block, sink row -> locate -> finalise, trim

Invariants (docs/design.md section 8): I1 blocks tile ``[finalised, next)``; I2 a block row never
changes; I4 a sink's last batch only grows; I10 a block older than the fence is either published or
never will be.

| event | result |
|---|---|
| a writer dies before `publish` | no message is visible; the repair deletes the blocks |
| the answer to the publish is lost | a serial read finds our block, or not; then try again |
| the same batch again | the sink row shows it: nothing is published |
| a writer slower than the fence | refused; Spark writes the batch again under new ids |
"""

from __future__ import annotations
