"""Write the lists of Cassandra's jars anew, when other releases are embedded.

Ivy resolves `cassandra-all`; what it chose is what every start checks from then on.
"""

from __future__ import annotations

import hashlib
import tempfile
from pathlib import Path

from benchmarks.bench.jars import Jars, run_ivy
from cassieq_spark.node.jars import Jar, Release, list_of, write_list

_PATTERN = "lib/[organisation]/[module]/[revision]/[artifact]-[revision](-[classifier]).[ext]"


def main() -> None:
    """Resolve each release, and write its list."""
    for release in Release:
        with tempfile.TemporaryDirectory() as folder:
            module = f"org.apache.cassandra:cassandra-all:{release.version}"
            run_ivy(Jars(release, (module,), transitive=True), Path(folder), _PATTERN)
            write_list(release, read_tree(Path(folder, "lib")))
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
