"""Real Cassandra for tests, the demo and laptops: one node or three, from Maven Central.

    with Cluster(nodes=1) as cluster:
        connect(cluster.contact_points, cluster.port)

`java` finds a Java 17, and makes the command that runs a node. `download` gets the jars that are
listed in `jars`, once per user, and compares their digests at each start. `ports` claims ports.
`configure` writes the files of a node. `node` starts a node by way of `supervise`, and knows
whether it serves.

- When `Cluster.open` returns, every node answers CQL, and all nodes see each other.
- When the ``with`` block ends, or its process dies in any way, no process and no temporary folder
  is left. Data in ``data_dir`` are kept.
- Once the jars are downloaded, no network is needed. A jar that is not on the list is never run.
- Two concurrent clusters take different ports.

| event | result |
|---|---|
| no Java 17, no network, port in use | ``SetupError`` that says what to do |
| a jar is missing or has other contents | a message, and the jar is downloaded again |
| a node ends, or is not ready in time | ``SetupError`` with the end of its log |
| our process is killed | the supervisor ends Java within a second, then removes the data |
| the supervisor is killed | Java dies with it (Linux); a temporary folder stays |
"""

from __future__ import annotations

from cassieq_spark.node.cluster import Cluster
from cassieq_spark.node.configure import NodeTls
from cassieq_spark.node.jars import Release

__all__ = ["Cluster", "NodeTls", "Release"]
