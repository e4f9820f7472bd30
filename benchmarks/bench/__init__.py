"""Measures the queue against Kafka, the Spark Cassandra Connector and the bare driver, in one run.

``python -m benchmarks.bench`` starts a Cassandra, a Kafka and a Spark on this machine; the systems
take turns with the same work. A *trial* is one system with one case and payload; the trials of one
case and payload are a *contest*. A contest has rounds, each in an order of its own, so that other
work of the machine affects all systems equally. A ratio is the median of the ratios of the rounds.
``--list`` shows the names of all contests, and ``--only`` runs some of them, in five minutes each.

    payloads    messages and rows, as files for all systems
    jars, lab   the servers and Spark
    systems     how Spark writes to and reads from each system
    names       measures, cases, and the selection of cases
    progress    start, time of a batch, and steady state of a query
    measures    the measurements
    messages    contests of messages without columns
    rows        contests of DataFrames: a queue with columns, Kafka with JSON and with Avro
    small       contests of micro-batches of ten messages, latency, puts
    resting     a batch after two minutes of rest
    cases       which contests there are, and their sizes
    contest     rounds, medians, ratios
    goals       what ratios are wanted
    report      tables, picture
"""

from __future__ import annotations
