"""The SDKs of AWS for Java from Maven Central, checked by the digests in java/*.jars.

``python -m tests.sqs.jars`` downloads what is missing; with ``renew``, PySpark's Ivy resolves the
SDKs anew, and the lists are written: do that after a change of a version in `SDKS`.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from benchmarks.bench.jars import TREE, Jars, read_tree, run_ivy
from cassieq_spark.node.download import default_cache, download
from cassieq_spark.node.jars import Jar
from cassieq_spark.terminal import PlainConsole

JAVA = Path(__file__).with_name("java")
#: The last release of 1.11 speaks the Query protocol; the others speak JSON.
SDKS = {
    "v1": "com.amazonaws:aws-java-sdk-sqs:1.12.797",
    "v1-query": "com.amazonaws:aws-java-sdk-sqs:1.11.1034",
    "v2": "software.amazon.awssdk:sqs:2.57.8",
}


def class_path(sdk: str) -> str:
    """The class path of an SDK, which has been downloaded."""
    return ":".join(str(_folder(sdk) / jar.file_name) for jar in read_list(sdk))


def read_list(sdk: str) -> list[Jar]:
    """The jars of an SDK, and of all that it needs."""
    found = (line.split() for line in (JAVA / f"{sdk}.jars").read_text().splitlines())
    return [Jar(coordinates, int(size), sha256) for coordinates, size, sha256 in found]


def _folder(sdk: str) -> Path:
    return default_cache() / "sqs" / sdk


def _download(sdk: str) -> None:
    folder = _folder(sdk)
    folder.mkdir(parents=True, exist_ok=True)
    missing = [jar for jar in read_list(sdk) if jar.damage(folder)]
    if missing:
        download(missing, folder, name=SDKS[sdk], console=PlainConsole(stderr=True))


def _renew(sdk: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        run_ivy(Jars(sdk, (SDKS[sdk],), transitive=True), Path(folder), TREE)
        jars = sorted(read_tree(Path(folder, "lib")), key=lambda jar: jar.file_name)
    lines = (f"{jar.coordinates} {jar.size} {jar.sha256}\n" for jar in jars)
    (JAVA / f"{sdk}.jars").write_text("".join(lines))


if __name__ == "__main__":
    for name in SDKS:
        (_renew if "renew" in sys.argv else _download)(name)
