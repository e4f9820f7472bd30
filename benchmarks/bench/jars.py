"""The jars of the peers, from Maven Central by PySpark's Ivy, kept in the user's cache folder."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyspark

from benchmarks.bench.manifest import LIBRARY, find_damage, read_jars, write_manifest
from cassieq_spark.errors import SetupError
from cassieq_spark.node.download import default_cache
from cassieq_spark.node.java import find_java
from cassieq_spark.repair.spark_scan import CONNECTOR as REPAIR_CONNECTOR

_LONGEST_SECONDS = 15 * 60
_TELLING = ("error", "failed", "not found", "exception", "unresolved", "timed out", "refused")
_TOLD_LINES = 8
_PATTERN = f"{LIBRARY}/[artifact]-[revision](-[classifier]).[ext]"
_IVY = """<ivy-module version="2.0">
  <info organisation="cassieq" module="bench"/>
  <dependencies>{dependencies}</dependencies>
</ivy-module>
"""
_DEPENDENCY = (
    '<dependency org="{0}" name="{1}" rev="{2}" conf="default->default" transitive="{3}"/>'
)


@dataclass(frozen=True, slots=True)
class Jars:
    """Modules that belong together.

    Attributes:
        name: What they are, with the version; names their folder.
        modules: Each ``organisation:name:version``.
        transitive: Whether to get what they depend on, too.
    """

    name: str
    modules: tuple[str, ...]
    transitive: bool


BROKER = Jars("kafka-4.3.1", ("org.apache.kafka:kafka_2.13:4.3.1",), transitive=True)
CASSANDRA_CONNECTOR = Jars("spark-cassandra-connector-3.5.1", (REPAIR_CONNECTOR,), transitive=True)
#: Named one by one: the token provider that the connector asks for is not on Maven Central. It is
#: for Kerberos and plays no part here; the rest comes with Spark.
KAFKA_CONNECTOR = Jars(
    "spark-sql-kafka-4.2.0",
    (
        "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
        "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
        "org.apache.kafka:kafka-clients:3.9.2",
        "org.apache.commons:commons-pool2:2.13.1",
    ),
    transitive=False,
)


def resolve(jars: Jars) -> list[Path]:
    """The jars, downloaded if they are not there.

    Raises:
        SetupError: The download failed; says why.
    """
    folder = default_cache() / "bench" / jars.name
    if find_damage(folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
        fresh = Path(tempfile.mkdtemp(prefix="download-", dir=folder.parent))
        try:
            run_ivy(jars, fresh)
            write_manifest(fresh)
            shutil.rmtree(folder, ignore_errors=True)
            fresh.rename(folder)
        finally:
            shutil.rmtree(fresh, ignore_errors=True)
    return read_jars(folder)


def describe(modules: Iterable[str], *, transitive: bool) -> str:
    """The module descriptor that makes Ivy get them.

    >>> "kafka_2.13" in describe(["org.apache.kafka:kafka_2.13:4.3.1"], transitive=True)
    True
    """
    wanted = (
        _DEPENDENCY.format(*module.split(":"), str(transitive).lower()) for module in modules
    )
    return _IVY.format(dependencies="".join(wanted))


def run_ivy(jars: Jars, target: Path, pattern: str = _PATTERN) -> None:
    """Get jars into a folder, as a pattern of Ivy's says.

    Raises:
        SetupError: The download failed; says why.
    """
    ivy = next(Path(pyspark.__file__).parent.glob("jars/ivy-*.jar"))
    descriptor = target / "ivy.xml"
    descriptor.write_text(describe(jars.modules, transitive=jars.transitive))
    command = [str(find_java()), "-jar", str(ivy), "-cache", str(target.parent / "ivy")]
    command += ["-ivy", str(descriptor), "-confs", "default", "-retrieve", pattern]
    ended = subprocess.run(
        command, cwd=target, capture_output=True, text=True, check=False, timeout=_LONGEST_SECONDS
    )
    if ended.returncode or not any((target / LIBRARY).glob("*.jar")):
        lines = "".join(f"\n  {line}" for line in telling_lines(ended.stdout.splitlines()))
        raise SetupError(f"Downloading {jars.name} from Maven Central failed:{lines}")


def telling_lines(output: Sequence[str]) -> list[str]:
    """Pick the lines of Ivy's output that say why it failed, each once, the last ones.

    >>> telling_lines(["found a#b;1 in public", "Server access error: connection refused", ""])
    ['Server access error: connection refused']
    """
    stripped = [line.strip(":\t\n ") for line in output]
    telling = [line for line in stripped if any(word in line.lower() for word in _TELLING)]
    return list(dict.fromkeys(telling or [line for line in stripped if line]))[-_TOLD_LINES:]
