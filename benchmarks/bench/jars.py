"""The jars of the peers, from Maven Central by PySpark's Ivy, kept in the user's cache folder."""

from __future__ import annotations

import hashlib
import subprocess
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyspark

from cassieq_spark.errors import SetupError
from cassieq_spark.node.download import default_cache
from cassieq_spark.node.jars import Jar, Release, list_of
from cassieq_spark.node.java import find_java
from cassieq_spark.repair.spark_scan import CONNECTOR as REPAIR_CONNECTOR

LIBRARY = "lib"

_LONGEST_SECONDS = 15 * 60
_TELLING = ("error", "failed", "not found", "exception", "unresolved", "timed out", "refused")
_TOLD_LINES = 8
_PATTERN = f"{LIBRARY}/[artifact]-[revision](-[classifier]).[ext]"
#: The layout of Maven Central.
TREE = "lib/[organisation]/[module]/[revision]/[artifact]-[revision](-[classifier]).[ext]"
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
    """Modules that are downloaded together.

    Attributes:
        name: The name of their folder, with the version.
        modules: Each ``organisation:name:version``.
        transitive: Whether to download their dependencies, too.
    """

    name: str
    modules: tuple[str, ...]
    transitive: bool


BROKER = Jars("kafka-4.3.1", ("org.apache.kafka:kafka_2.13:4.3.1",), transitive=True)
CASSANDRA_CONNECTOR = Jars("spark-cassandra-connector-3.5.1", (REPAIR_CONNECTOR,), transitive=True)
#: Named one by one, as the connector's token provider is not on Maven Central. It is for Kerberos,
#: and not needed here. The rest comes with Spark.
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
#: Spark has its dependencies.
AVRO = Jars("spark-avro-4.1.1", ("org.apache.spark:spark-avro_2.13:4.1.1",), transitive=False)


def resolve(jars: Jars) -> list[Path]:
    """The jars, downloaded if they are missing.

    Raises:
        SetupError: The download failed.
    """
    folder = default_cache() / "bench" / jars.name
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="download-", dir=folder.parent) as fresh:
            run_ivy(jars, Path(fresh))
            # The folder exists only with all of its jars.
            Path(fresh, LIBRARY).rename(folder)
    return sorted(folder.rglob("*.jar"))


def describe(modules: Iterable[str], *, transitive: bool) -> str:
    """The module descriptor for Ivy.

    >>> "kafka_2.13" in describe(["org.apache.kafka:kafka_2.13:4.3.1"], transitive=True)
    True
    """
    wanted = (
        _DEPENDENCY.format(*module.split(":"), str(transitive).lower()) for module in modules
    )
    return _IVY.format(dependencies="".join(wanted))


def run_ivy(jars: Jars, target: Path, pattern: str = _PATTERN) -> None:
    """Download jars into a folder, in the layout of a pattern of Ivy.

    Raises:
        SetupError: The download failed.
    """
    ivy = next(Path(pyspark.__file__).parent.glob("jars/ivy-*.jar"))
    descriptor = target / "ivy.xml"
    descriptor.write_text(describe(jars.modules, transitive=jars.transitive))
    command = [str(find_java()), "-jar", str(ivy), "-cache", str(target.parent / "ivy")]
    command += ["-ivy", str(descriptor), "-confs", "default", "-retrieve", pattern]
    ended = subprocess.run(
        command, cwd=target, capture_output=True, text=True, check=False, timeout=_LONGEST_SECONDS
    )
    if ended.returncode or not any((target / LIBRARY).rglob("*.jar")):
        lines = "".join(f"\n  {line}" for line in telling_lines(ended.stdout.splitlines()))
        raise SetupError(f"Downloading {jars.name} from Maven Central failed:{lines}")


def telling_lines(output: Sequence[str]) -> list[str]:
    """The last lines of Ivy's output that say why it failed.

    >>> telling_lines(["found a#b;1 in public", "Server access error: connection refused", ""])
    ['Server access error: connection refused']
    """
    stripped = [line.strip(":\t\n ") for line in output]
    telling = [line for line in stripped if any(word in line.lower() for word in _TELLING)]
    return list(dict.fromkeys(telling or [line for line in stripped if line]))[-_TOLD_LINES:]


def main() -> None:
    """Write the lists of Cassandra's jars, which each start of a node checks."""
    for release in Release:
        with tempfile.TemporaryDirectory() as folder:
            module = f"org.apache.cassandra:cassandra-all:{release.version}"
            run_ivy(Jars(release, (module,), transitive=True), Path(folder), TREE)
            jars = sorted(read_tree(Path(folder, "lib")), key=lambda jar: jar.file_name)
            lines = (f"{jar.coordinates} {jar.size} {jar.sha256}\n" for jar in jars)
            list_of(release).write_text("".join(lines), encoding="utf-8")
        print(f"{list_of(release)}: git diff shows the jars that have changed")


def read_tree(folder: Path) -> list[Jar]:
    """The jars of a folder in the layout of Maven Central.

    Raises:
        ValueError: The name of a jar does not follow from its module.
    """
    found = []
    for path in folder.rglob("*.jar"):
        group, name, version, _ = path.relative_to(folder).parts
        classifier = path.stem.removeprefix(f"{name}-{version}").removeprefix("-")
        parts = [group, name, version, *([classifier] if classifier else [])]
        data = path.read_bytes()
        jar = Jar(":".join(parts), len(data), hashlib.sha256(data).hexdigest())
        if jar.file_name != path.name:
            raise ValueError(f"{path.name} is not what Maven Central calls {':'.join(parts)}")
        found.append(jar)
    return found


if __name__ == "__main__":
    main()
