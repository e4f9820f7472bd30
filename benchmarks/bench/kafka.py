"""A Kafka broker of one node, without anything beside it (KRaft), and its topics."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from uuid import uuid4

from py4j.protocol import Py4JJavaError

from benchmarks.bench.jars import BROKER, resolve
from cassieq_spark.errors import SetupError
from cassieq_spark.node.java import find_java
from cassieq_spark.node.ports import PortClaims
from trials.processes import Child

PARTITIONS = 2

_PORTS = range(19300, 19400)
_START_SECONDS = 60
_READY_SECONDS = 10
_LOOK_SECONDS = 0.1
_ADDRESS = "127.0.0.1"
#: What bin/kafka-server-start.sh gives a broker.
_MACHINE = ("-Xmx1g", "-Xms1g", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20")
_PROPERTIES = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@{address}:{controller}
listeners=PLAINTEXT://{address}:{port},CONTROLLER://{address}:{controller}
controller.listener.names=CONTROLLER
log.dirs={folder}/data
num.partitions={partitions}
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
"""


class Broker:
    """A broker that runs while the ``with`` block does; its data go to a folder that is there."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._claims = PortClaims()
        self._child: Child | None = None
        self.address = ""

    def __enter__(self) -> Self:
        port, controller = (self._claims.claim([_ADDRESS], _PORTS) for _ in range(2))
        self.address = f"{_ADDRESS}:{port}"
        settings = self._folder / "server.properties"
        settings.write_text(
            _PROPERTIES.format(
                address=_ADDRESS,
                port=port,
                controller=controller,
                folder=self._folder,
                partitions=PARTITIONS,
            )
        )
        java = [str(find_java()), "-cp", os.pathsep.join(map(str, resolve(BROKER)))]
        storage = ["kafka.tools.StorageTool", "format", "-t", _cluster_id(), "-c", str(settings)]
        subprocess.run([*java, *storage], check=True, capture_output=True)
        command = [java[0], *_MACHINE, *java[1:], "kafka.Kafka", str(settings)]
        log = self._folder / "broker.log"
        self._child = Child("kafka", command, log=log)
        self._wait(port, log)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._child is not None:
            self._child.kill()
        self._claims.release()

    def _wait(self, port: int, log: Path) -> None:
        deadline = time.monotonic() + _START_SECONDS
        while time.monotonic() < deadline:
            with socket.socket() as probe:
                if probe.connect_ex((_ADDRESS, port)) == 0:
                    return
            if self._child is None or self._child.exit_code() is not None:
                break
            time.sleep(_LOOK_SECONDS)
        raise SetupError(f"Kafka did not start: {log.read_text(errors='replace')[-2000:]}")


class Topics:
    """Makes and deletes topics, by the client that Spark's connector has brought along.

    Args:
        jvm: Spark's.
        address: Of the broker.
    """

    def __init__(self, jvm: Any, address: str) -> None:
        self._jvm = jvm
        settings = jvm.java.util.Properties()
        settings.setProperty("bootstrap.servers", address)
        self._admin = jvm.org.apache.kafka.clients.admin.AdminClient.create(settings)

    def create(self) -> str:
        """A new topic, of as many partitions as Spark has cores; their leader is ready."""
        name = f"t-{uuid4().hex[:12]}"
        kafka = self._jvm.org.apache.kafka
        topic = kafka.clients.admin.NewTopic(name, PARTITIONS, 1)
        self._admin.createTopics([topic]).all().get()
        # A producer that is refused by a partition that is not ready yet may hang for two minutes.
        ends = self._jvm.java.util.HashMap()
        for partition in range(PARTITIONS):
            which = kafka.common.TopicPartition(name, partition)
            ends.put(which, kafka.clients.admin.OffsetSpec.latest())
        deadline = time.monotonic() + _READY_SECONDS
        while True:
            try:
                self._admin.listOffsets(ends).all().get()
            except Py4JJavaError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(_LOOK_SECONDS)
            else:
                return name

    def delete(self, name: str) -> None:
        """Delete it, to spare the disk."""
        self._admin.deleteTopics([name]).all().get()

    def close(self) -> None:
        """End the client."""
        self._admin.close()


def _cluster_id() -> str:
    # 16 bytes in URL-safe base 64, without its padding.
    return uuid4().hex[:22]
