"""Stores, which keep queues, behind one small contract.

A store (`protocol.Store`) compares-and-sets within one partition, reads one partition, and
writes, reads and deletes chunks in bulk. Two stores exist: `memory.MemoryStore` for tests and
`cassandra.store.CassandraStore`. Both pass `cassieq_spark.testing.conformance`, which defines what
a store must do.

The meaning of each failure of Cassandra, and whether the store repeats the request, for as long as
``ConnectionOptions.patience``:

| request         | failure                                   | repeated | in the end          |
|-----------------|-------------------------------------------|----------|---------------------|
| read            | time-out, failed node, overload           | yes      | NotAppliedError     |
| chunks, deletes | time-out, failed node, overload           | yes      | OutcomeUnknownError |
| either          | no node left to ask                       | yes      | ConnectError        |
| compare-and-set | too few replicas, or certainly never sent | yes      | NotAppliedError     |
| compare-and-set | anything else that goes wrong on the way  | no       | OutcomeUnknownError |
| any             | keyspace or table missing                 | no       | MissingSchemaError  |
| any             | refused: permissions, guardrails          | no       | StoreError          |
| the first       | tables of another version, or not ours    | no       | MissingSchemaError  |
| the first       | no node answers, or the login is refused  | no       | ConnectError        |
| the first       | a secret or file of TLS is not here       | no       | SetupError          |
| the first       | the keyspace can't keep the consistency   | no       | OptionError         |

Importing this package never imports the driver.
"""

from __future__ import annotations

from importlib import import_module
from typing import cast

from cassieq_spark.processes import importing
from cassieq_spark.settings.connection import ConnectionOptions
from cassieq_spark.store.protocol import Store


def open_store(options: ConnectionOptions) -> Store:
    """Connect to Cassandra, or join this process's connection for the same options.

    Cheap after the first call in a process, and safe to use on both sides of a fork. Executors
    need not close the store: the connection then serves the next task of the same worker.

    Raises:
        ConnectError: No node answers at the contact points, or the credentials are refused.
        MissingSchemaError: The keyspace does not exist, or its tables have another version, or
            are not ours.
        OptionError: The keyspace cannot keep the consistency.
        SetupError: This machine lacks a secret or a file of TLS.
    """
    with importing:
        module = import_module("cassieq_spark.store.cassandra.store")
    return cast("Store", module.CassandraStore(options))
