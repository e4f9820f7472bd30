"""The jars of the peers, from Maven Central by PySpark's Ivy, kept in the user's cache folder.

A folder has a manifest with the name, size and digest of every jar. It is written after success
only, so a folder without one is no download at all.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyspark

from cassieq_spark.errors import SetupError
from cassieq_spark.node.download import default_cache
from cassieq_spark.node.jars import Jar, Release, list_of
from cassieq_spark.node.java import find_java
from cassieq_spark.repair.spark_scan import CONNECTOR as REPAIR_CONNECTOR

MANIFEST = "manifest.json"
LIBRARY = "lib"


def write_manifest(folder: Path) -> int:
    """Note every jar of ``folder/lib`` in ``folder/manifest.json``, and return how many."""
    jars = {
        jar.name: {"bytes": jar.stat().st_size, "sha256": _digest(jar)}
        for jar in sorted((folder / LIBRARY).glob("*.jar"))
    }
    (folder / MANIFEST).write_text(json.dumps({"jars": jars}, indent=1) + "\n")
    return len(jars)


def read_jars(folder: Path) -> list[Path]:
    """List the jars that the manifest names, in its order; extra files are left out."""
    return [folder / LIBRARY / name for name in _noted(folder)]


def find_damage(folder: Path, *, contents: bool = False) -> list[str]:
    """Tell what is wrong with a download, one phrase each; nothing if it is complete.

    Args:
        folder: Holds the manifest, and the jars in ``lib``.
        contents: Also read every jar and compare digests (0.2 s instead of 2 ms).
    """
    try:
        noted = _noted(folder)
    except FileNotFoundError:
        return [f"{MANIFEST} is missing"]
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return [f"{MANIFEST} is not readable"]
    if not noted:
        return [f"{MANIFEST} names no jar"]
    findings = (
        _damage_of(folder / LIBRARY / name, entry, contents=contents)
        for name, entry in noted.items()
    )
    return [finding for finding in findings if finding]


def _noted(folder: Path) -> dict[str, dict[str, Any]]:
    jars: dict[str, dict[str, Any]] = json.loads((folder / MANIFEST).read_text())["jars"]
    return {name: {"bytes": jar["bytes"], "sha256": jar["sha256"]} for name, jar in jars.items()}


def _damage_of(jar: Path, entry: dict[str, Any], *, contents: bool) -> str | None:
    try:
        size = jar.stat().st_size
    except OSError:
        return f"{jar.name} is missing"
    if size != entry["bytes"]:
        return f"{jar.name} has {size} bytes, not {entry['bytes']}"
    if contents and _digest(jar) != entry["sha256"]:
        return f"{jar.name} has other contents"
    return None


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


_LONGEST_SECONDS = 15 * 60
_TELLING = ("error", "failed", "not found", "exception", "unresolved", "timed out", "refused")
_TOLD_LINES = 8
_PATTERN = f"{LIBRARY}/[artifact]-[revision](-[classifier]).[ext]"
#: As Maven Central has them.
_TREE = "lib/[organisation]/[module]/[revision]/[artifact]-[revision](-[classifier]).[ext]"
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
#: Spark has what it depends on.
AVRO = Jars("spark-avro-4.1.1", ("org.apache.spark:spark-avro_2.13:4.1.1",), transitive=False)


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


def main() -> None:
    """Write the lists of Cassandra's jars anew: every start of a node checks that it has these."""
    for release in Release:
        with tempfile.TemporaryDirectory() as folder:
            module = f"org.apache.cassandra:cassandra-all:{release.version}"
            run_ivy(Jars(release, (module,), transitive=True), Path(folder), _TREE)
            jars = sorted(read_tree(Path(folder, "lib")), key=lambda jar: jar.file_name)
            lines = (f"{jar.coordinates} {jar.size} {jar.sha256}\n" for jar in jars)
            list_of(release).write_text("".join(lines), encoding="utf-8")
        print(f"{list_of(release)}: see with git diff what is another jar now")


def read_tree(folder: Path) -> list[Jar]:
    """The jars of a folder that is laid out by the pattern.

    Raises:
        ValueError: One is not called as its module, so that Maven Central has it elsewhere.
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
