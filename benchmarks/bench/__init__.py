"""Measures the queue against Kafka, the Spark Cassandra Connector and the bare driver, in one run.

``python -m benchmarks.bench`` starts a Cassandra, a Kafka and a Spark on this machine; the systems
take turns with the same work. A *trial* is one system with one case and payload; the trials of one
case and payload are a *contest*. A contest has rounds, each in an order of its own, so that other
work of the machine affects all systems equally. A ratio is the median of the ratios of the rounds.

    payloads    messages, as files for all systems
    jars, lab   the servers and Spark
    systems     how Spark writes to and reads from each system
    measures    the measurements
    cases       which systems take part in which contest
    contest     rounds, medians, ratios
    report      goals, tables, picture
"""

from __future__ import annotations
