"""Finds a Java 17, the only one on which Cassandra 5.0 runs, and makes the command of a node."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from cassieq_spark.errors import SetupError
from cassieq_spark.node.configure import NodeSettings

REQUIRED_MAJOR = 17

_VERSION = re.compile(r'version "(1\.)?(?P<major>\d+)')
_ANSWER_SECONDS = 30
_EXTRA_OPTIONS = "JVM_EXTRA_OPTS"


def major_version(banner: str) -> int | None:
    """The major version in the output of ``java -version``; None if the output has none.

    >>> major_version('openjdk version "17.0.15" 2025-04-15')
    17
    >>> major_version('java version "1.8.0_402"')
    8
    """
    match = _VERSION.search(banner)
    return int(match["major"]) if match else None


def find_java(environment: Mapping[str, str] | None = None) -> Path:
    """Find a Java 17: the one in ``JAVA_HOME``, else the first on ``PATH``.

    ``environment`` is that of this process unless given.

    Raises:
        SetupError: There is no Java, or only other versions.
    """
    environment = os.environ if environment is None else environment
    home = environment.get("JAVA_HOME")
    on_path = shutil.which("java", path=environment.get("PATH", ""))
    candidates = {"JAVA_HOME": home and Path(home, "bin", "java"), "PATH": on_path}
    found = []
    for origin, java in ((origin, Path(java)) for origin, java in candidates.items() if java):
        major = _ask(java)
        if major == REQUIRED_MAJOR:
            return java
        found.append(f"{java} ({origin}) " + (f"is Java {major}" if major else "does not run"))
    raise SetupError(
        f"Cassandra needs Java {REQUIRED_MAJOR}; found: {'; '.join(found) or 'no Java at all'}."
        f" Install it (apt install openjdk-{REQUIRED_MAJOR}-jre-headless),"
        " or set JAVA_HOME to its folder."
    )


def _ask(java: Path) -> int | None:
    try:
        answer = subprocess.run(  # noqa: S603 (the user's own Java)
            [java, "-version"], capture_output=True, text=True, check=True, timeout=_ANSWER_SECONDS
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return major_version(answer.stderr + answer.stdout)


_MAIN = "org.apache.cassandra.service.CassandraDaemon"

# The packages that conf/jvm17-server.options of Cassandra 5.0 exports and opens. 4.1, which was
# made for Java 8 and 11, needs java.util.concurrent too.
_EXPORTS = """
java.base/java.lang.ref java.base/jdk.internal.misc java.rmi/sun.rmi.registry
java.management.rmi/com.sun.jmx.remote.internal.rmi java.management/com.sun.jmx.remote.security
java.rmi/sun.rmi.server java.sql/java.sql jdk.attach/sun.tools.attach jdk.unsupported/sun.misc
"""
_OPENS = """
java.base/java.io java.base/java.lang java.base/java.lang.module java.base/java.lang.reflect
java.base/java.nio java.base/java.util java.base/jdk.internal.loader java.base/jdk.internal.math
java.base/jdk.internal.module java.base/jdk.internal.ref java.base/jdk.internal.reflect
java.base/jdk.internal.util.jar java.base/sun.nio.ch jdk.management/com.sun.management.internal
java.base/java.util.concurrent java.base/java.util.concurrent.atomic
java.base/java.util.concurrent.locks
"""


def java_command(
    settings: NodeSettings,
    *,
    java: Path,
    jars: Sequence[Path],
    environment: Mapping[str, str] | None = None,
) -> list[str]:
    """The command line that runs the node in the foreground.

    ``environment`` is that of this process unless given. As with Cassandra's own scripts, its
    ``JVM_EXTRA_OPTS`` are options of Java, which come last.

    Raises:
        SetupError: ``jars`` lack the memory meter, which Cassandra runs as an agent; or a quote in
            ``JVM_EXTRA_OPTS`` has no end.
    """
    environment = os.environ if environment is None else environment
    agent = next((jar for jar in jars if jar.name.startswith("jamm-")), None)
    if agent is None:
        raise SetupError("The jars of Cassandra lack jamm: delete the download and get it again.")
    return [
        str(java),
        f"-javaagent:{agent}",
        *_machine(settings),
        *(f"--add-exports={module}=ALL-UNNAMED" for module in _EXPORTS.split()),
        *(f"--add-opens={module}=ALL-UNNAMED" for module in _OPENS.split()),
        *(f"-D{name}={value}" for name, value in _properties(settings).items()),
        *_extra(environment.get(_EXTRA_OPTIONS, "")),
        "-classpath",
        os.pathsep.join(map(str, jars)),
        _MAIN,
    ]


def _extra(options: str) -> list[str]:
    try:
        return shlex.split(options)
    except ValueError as error:
        raise SetupError(f"{_EXTRA_OPTIONS} is {options!r}: {error}.") from error


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
        # Three optimising compilers compete for a laptop's cores: 10 s to start instead of 15.
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
        # On one machine, gossip settles at once; the default waits 8 s or more.
        "cassandra.skip_wait_for_gossip_to_settle": "0",
        "cassandra.superuser_setup_delay_ms": "0",
        "cassandra.size_recorder_interval": "0",
        "chronicle.analytics.disable": "true",
        "io.netty.tryReflectionSetAccessible": "true",
        "java.net.preferIPv4Stack": "true",
        "jdk.attach.allowAttachSelf": "true",
    }
    if len(settings.members) == 1:
        # A single node that stops need not wait until others know it.
        properties["cassandra.shutdown_announce_in_ms"] = "0"
    if not settings.synced:
        properties["cassandra.skip_sync"] = "true"
    return properties
