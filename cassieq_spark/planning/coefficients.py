"""The measured coefficients of the capacity model, with their units and meanings.

`python -m benchmarks.capacity` writes the file that comes with the package.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Self

from cassieq_spark.errors import OptionError

#: The file that comes with the package.
VALUES = Path(__file__).with_name("coefficients.json")

SECONDS, BYTES, CORES = "µs of a core", "bytes", "cores"
#: The things that work consists of, and what Cassandra and a client do for each.
_THINGS = {
    "cassandra": {
        "message": "a message",
        "byte": "a byte as stored",
        "block": "a block",
        "batch": "a micro-batch",
    },
    "client": {
        "message": "a message",
        "byte": "a byte before compression",
        "task": "a task of Spark",
        "batch": "a micro-batch",
    },
}
_ON = {
    "cassandra": ("cassandra", "Cassandra, one replica"),
    "replica": ("cassandra", "Cassandra, each further replica"),
    "client": ("client", "Spark, Java and Python"),
}
_WIRE = {
    "wire.publish": "publish: from the client to Cassandra",
    "wire.read": "read and ack: from Cassandra to the client",
    "wire.publish.nodes": "publish: between nodes, each further replica",
    "wire.read.nodes": "read and ack: between nodes, each further replica that a quorum asks",
}


def _meanings() -> dict[str, tuple[str, str]]:
    found = {
        f"{operation}.{part}.{thing}": (SECONDS, f"{said}: {on}, for {of}")
        for operation, said in (("publish", "publish"), ("read", "read and ack"))
        for part, (things, on) in _ON.items()
        for thing, of in _THINGS[things].items()
    }
    found |= {
        f"repair.{part}.{step}.{thing}": (SECONDS, f"repair, {does}: {on}, for {of}")
        for part, on in (("cassandra", "Cassandra"), ("client", "the repair's process"))
        for step, does in (("delete", "deletion of what is settled"), ("scan", "scan of chunks"))
        for thing, of in (("message", "a message"), ("byte", "a byte as stored"))
    }
    found |= {
        "flush.byte": (SECONDS, "Cassandra: writing a memtable out, for a byte"),
        "compaction.byte": (SECONDS, "Cassandra: merging files, for a byte that is written"),
        "idle.node": (CORES, "Cassandra: a node that has nothing to do"),
        "idle.query": (CORES, "Spark: a query to which nothing comes"),
        "lwt.cassandra": (SECONDS, "Cassandra, one replica: a publish of one empty block"),
    }
    found |= {
        f"{name}.{thing}": (BYTES, f"{said}, for {of}")
        for name, said in _WIRE.items()
        for thing, of in _THINGS["cassandra"].items()
    }
    found |= {
        f"{name}.{thing}": (BYTES, f"{said}, for {of}")
        for name, said in (("log", "commit log of a replica"), ("disk", "files of a replica"))
        for thing, of in (("message", "a message"), ("byte", "a byte as stored"))
    }
    return found | {
        "disk.garbage": ("times", "maximum size of a replica's files, relative to what is kept"),
        "disk.level": ("times", "bytes that compaction writes, for each level of four files"),
        "disk.flushed": ("times", "size of a new file, for the memory of memtables"),
        "lwt.partition": (
            "a second",
            "publishes of one partition, one replica, one after the other",
        ),
        "lwt.core": (
            "a second",
            "publishes of many partitions, one replica, for each core of Cassandra",
        ),
        "count.publish.lwts": ("LWTs", "publish, for a micro-batch"),
        "count.publish.reads": ("reads", "publish, for a micro-batch of one task"),
        "count.read.lwts": ("LWTs", "read and ack, for a micro-batch"),
        "count.read.reads": ("reads", "read and ack, for a micro-batch"),
    }


#: Unit and meaning of each coefficient, by name.
MEANINGS: Mapping[str, tuple[str, str]] = _meanings()


@dataclass(frozen=True, slots=True)
class Coefficients:
    """The coefficients of one run of the benchmark.

    Attributes:
        values: The values by name; processor time in seconds.
        measured: Facts about the run: ``machine``, ``date``, ``versions``, ``command``.
    """

    values: Mapping[str, float]
    measured: Mapping[str, str]

    def __getitem__(self, name: str) -> float:
        return self.values[name]

    @classmethod
    def of_text(cls, text: str, where: str) -> Self:
        """Read the text of a file.

        Raises:
            OptionError: It is no such file, or a coefficient is missing or not a number.
        """
        try:
            read: Any = json.loads(text)
            values = {name: float(read["values"][name]) for name in MEANINGS}
            return cls(values, {str(name): str(each) for name, each in read["measured"].items()})
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise OptionError(
                f"{where} is not a file of coefficients ({type(error).__name__}: {error}): make "
                "one with python -m benchmarks.capacity"
            ) from error

    def text(self) -> str:
        """The text of a file."""
        values = {name: float(f"{self.values[name]:.4g}") for name in MEANINGS}
        return json.dumps({"measured": dict(self.measured), "values": values}, indent=1) + "\n"


@cache
def read_coefficients(path: Path = VALUES) -> Coefficients:
    """The coefficients of a file.

    Raises:
        OptionError: The file can't be read, or is no such file.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise OptionError(f"coefficients {path} can't be read: {error}") from error
    return Coefficients.of_text(text, str(path))
