"""On what machine, and with which versions, figures came about."""

from __future__ import annotations

import os
import platform
from importlib.metadata import version
from pathlib import Path

from benchmarks.bench.jars import BROKER, CASSANDRA_CONNECTOR, KAFKA_CONNECTOR
from benchmarks.bench.lab import HEAP_MB
from cassieq_spark.node.jars import DEFAULT_RELEASE

_GIB = 1 << 30


def describe_machine() -> str:
    """One line: cores, memory, kernel, and everything that takes part."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    parts = (
        f"{os.cpu_count()} cores ({_processor()})",
        f"{memory / _GIB:.0f} GiB",
        f"Linux {platform.release().split('-')[0]}",
        f"Python {platform.python_version()}",
        *(f"{name} {version(name)}" for name in ("pyspark", "cassandra-driver", "pyarrow")),
        f"cassandra-{DEFAULT_RELEASE.version} ({HEAP_MB} MiB of heap)",
        *(each.name for each in (BROKER, KAFKA_CONNECTOR, CASSANDRA_CONNECTOR)),
    )
    return ", ".join(parts)


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())
