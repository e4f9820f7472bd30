"""Real Cassandra for tests, the demo and laptops: one node or three, from Maven Central.

    with Cluster(nodes=1) as cluster:
        connect(cluster.contact_points, cluster.port)

Flow: ``java`` finds a Java 17, and writes the command that runs a node; ``download`` gets the jars
of the list in ``jars``, once per user, and compares their digests at each start; ``ports`` claims
ports; ``configure`` writes the files of a ``node``, which has it started by ``supervise`` and
tells when it serves.

What holds:

- When ``Cluster`` has opened, every node answers CQL and all see each other.
- Nothing is left behind, neither process nor temporary folder, when the ``with`` block ends or
  the process that opened it dies, however it dies. Data in ``data_dir`` are kept.
- Once downloaded, no network is needed. No jar is run that has not the digest of the list.
- Two clusters at once, of one program or several, take different ports.

| event | result |
|---|---|
| no Java 17, no network, port in use | ``SetupError`` that says what to do |
| a jar is missing or has other contents | told, and downloaded again |
| a node ends, or is not ready in time | ``SetupError`` with the end of its log |
| our process is killed | the supervisor ends Java within a second, then removes the data |
| the supervisor is killed | Java dies with it (Linux); a temporary folder stays |
"""

from __future__ import annotations

from cassieq_spark.node.cluster import Cluster
from cassieq_spark.node.configure import NodeTls
from cassieq_spark.node.jars import Release

__all__ = ["Cluster", "NodeTls", "Release"]
