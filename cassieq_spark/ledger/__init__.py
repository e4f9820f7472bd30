"""The ledger: which monotons exist, and where their messages are.

One partition per queue. A writer task writes a block under an id of its own; `publish` gives all
the blocks of a write their monotons in one compare-and-set, and so makes them visible at once.

    write blocks -> publish: next += n, a row per block, sink row -> locate -> finalise, trim

Invariants (docs/design.md section 8): I1 blocks tile ``[finalised, next)``; I2 a block row never
changes; I4 a sink's last batch only grows; I10 a block older than the fence is published or never
will be.

| event | result |
|---|---|
| the writer dies before `publish` | nothing is visible; the repair deletes the blocks |
| the answer of the publish is lost | a serial read finds our block, or not; then try again |
| the same batch again | the sink row shows it: nothing is written |
| a writer slower than the fence | refused; Spark writes the batch again under new ids |
"""

from __future__ import annotations
