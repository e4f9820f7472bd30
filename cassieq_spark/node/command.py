"""Write the command that runs a node: Java, its flags, the class path; pure."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from cassieq_spark.errors import SetupError
from cassieq_spark.node.configure import NodeSettings

_MAIN = "org.apache.cassandra.service.CassandraDaemon"

# What conf/jvm17-server.options of Cassandra 5.0 opens up.
_EXPORTS = (
    "java.base/java.lang.ref",
    "java.base/jdk.internal.misc",
    "java.management.rmi/com.sun.jmx.remote.internal.rmi",
    "java.management/com.sun.jmx.remote.security",
    "java.rmi/sun.rmi.registry",
    "java.rmi/sun.rmi.server",
    "java.sql/java.sql",
    "jdk.attach/sun.tools.attach",
    "jdk.unsupported/sun.misc",
)
_OPENS = (
    "java.base/java.io",
    "java.base/java.lang",
    "java.base/java.lang.module",
    "java.base/java.lang.reflect",
    "java.base/java.nio",
    "java.base/java.util",
    "java.base/jdk.internal.loader",
    "java.base/jdk.internal.math",
    "java.base/jdk.internal.module",
    "java.base/jdk.internal.ref",
    "java.base/jdk.internal.reflect",
    "java.base/jdk.internal.util.jar",
    "java.base/sun.nio.ch",
    "jdk.management/com.sun.management.internal",
    # What 4.1 looks into besides: it was made for Java 8 and 11.
    "java.base/java.util.concurrent",
    "java.base/java.util.concurrent.atomic",
    "java.base/java.util.concurrent.locks",
)


def java_command(settings: NodeSettings, *, java: Path, jars: Sequence[Path]) -> list[str]:
    """Write the command line that runs the node in the foreground.

    Raises:
        SetupError: The memory meter, which Cassandra runs as an agent, is not among ``jars``.
    """
    agent = next((jar for jar in jars if jar.name.startswith("jamm-")), None)
    if agent is None:
        raise SetupError("The jars of Cassandra lack jamm: delete the download and get it again.")
    return [
        str(java),
        f"-javaagent:{agent}",
        *_machine(settings),
        *(f"--add-exports={module}=ALL-UNNAMED" for module in _EXPORTS),
        *(f"--add-opens={module}=ALL-UNNAMED" for module in _OPENS),
        *(f"-D{name}={value}" for name, value in _properties(settings).items()),
        "-classpath",
        os.pathsep.join(map(str, jars)),
        _MAIN,
    ]


def _machine(settings: NodeSettings) -> list[str]:
    heap_mb = settings.heap_mb
    flags = [
        f"-Xms{heap_mb}m",
        f"-Xmx{heap_mb}m",
        f"-XX:MaxDirectMemorySize={max(256, heap_mb // 2)}m",
        "-Xss512k",
        "-XX:+UseSerialGC",
        "-XX:+ExitOnOutOfMemoryError",
        "-XX:+PerfDisableSharedMem",
    ]
    if len(settings.members) > 1:
        # Three optimising compilers fight over a laptop's cores: 10 s to start instead of 15.
        flags.append("-XX:TieredStopAtLevel=1")
    return flags


def _properties(settings: NodeSettings) -> dict[str, str]:
    configuration = settings.folder / "conf"
    properties = {
        "cassandra.config": (configuration / "cassandra.yaml").as_uri(),
        "cassandra.logdir": str(settings.folder),
        "cassandra.storagedir": str(settings.folder / "storage"),
        "cassandra-foreground": "yes",
        "logback.configurationFile": str(configuration / "logback.xml"),
        # Gossip settles at once where all nodes are neighbours; the default waits 8 s and more.
        "cassandra.skip_wait_for_gossip_to_settle": "0",
        "cassandra.superuser_setup_delay_ms": "0",
        "cassandra.size_recorder_interval": "0",
        "chronicle.analytics.disable": "true",
        "io.netty.tryReflectionSetAccessible": "true",
        "java.net.preferIPv4Stack": "true",
        "jdk.attach.allowAttachSelf": "true",
    }
    if len(settings.members) == 1:
        # There is nobody to tell, and to wait for, when it stops.
        properties["cassandra.shutdown_announce_in_ms"] = "0"
    if not settings.synced:
        properties["cassandra.skip_sync"] = "true"
    return properties
