"""Measures the queue against Kafka, the Spark Cassandra Connector and the bare driver, in one run.

``python -m benchmarks.bench`` begins a Cassandra, a Kafka and a Spark on this machine and lets
them do the same work in turns. A *trial* is one system doing one case on one payload; the trials
of one case and payload are a *contest*. A contest goes round by round, each round in an order of
its own, so whatever else the machine does is shared out evenly, and a ratio is the median over the
rounds of what two systems did in the same round.

    payloads    messages, as files that every system reads
    jars, lab   what runs
    systems     how each system is written to and read from with Spark
    measures    what is measured
    cases       who takes part in what
    contest     rounds, medians, ratios
    report      goals, tables, picture
"""

from __future__ import annotations
