"""Runs examples/notebook.ipynb, and writes docs/notebooks.md: its cells and what they show.

    python -m docs.notebook > docs/notebooks.md

It starts a Cassandra for itself, or uses that of CASSIEQ_CONTACT_POINTS. ``make notebook`` calls
it; tests/docs/test_notebook.py runs the notebook, too, and compares the page.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from pathlib import Path
from typing import Any
from uuid import uuid4

import nbformat
from nbclient import NotebookClient

from cassieq_spark.node import Cluster
from cassieq_spark.settings.connection import ConnectionOptions
from cassieq_spark.store.cassandra.schema import apply_schema
from tests.docs.pages import connect

NOTEBOOK = Path(__file__).parents[1] / "examples" / "notebook.ipynb"
_NOTE = """<!-- Made by `make notebook` from examples/notebook.ipynb; change it there. -->

This page is [examples/notebook.ipynb](../examples/notebook.ipynb) with all that it shows.
"""
#: What a laptop needs no more of; the notebook says nothing of it.
_SPARK = (
    "--master local[2] --conf spark.ui.enabled=false --conf spark.sql.shuffle.partitions=2 "
    "--conf spark.driver.bindAddress=127.0.0.1 --conf spark.driver.host=127.0.0.1 pyspark-shell"
)
_CELL_SECONDS = 600


def executed(host: str, keyspace: str) -> Any:
    """The notebook with its outputs.

    Args:
        host: A node, and its port.
        keyspace: Which has the tables of the queue.
    """
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    running = deepcopy(notebook)
    for cell in running.cells:
        cell.source = connect(cell.source, host=host, keyspace=keyspace)
    with tempfile.TemporaryDirectory() as folder:
        client = NotebookClient(
            running, timeout=_CELL_SECONDS, resources={"metadata": {"path": folder}}
        )
        client.execute(env=os.environ | {"PYSPARK_SUBMIT_ARGS": _SPARK})
    for cell, its in zip(notebook.cells, running.cells, strict=True):
        cell.outputs = its.get("outputs", [])
    return notebook


def page_of(notebook: Any) -> str:
    """The page: text as it is, code with what it shows below."""
    parts = []
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            parts.append(cell.source.strip() + "\n")
        else:
            parts.append(f"```python\n{cell.source.strip()}\n```\n")
            parts += shown_by(cell)
    # Below the title.
    return "\n".join([parts[0].replace("\n", f"\n\n{_NOTE}", 1), *parts[1:]])


def shown_by(cell: Any) -> Iterator[str]:
    """What a cell shows; not what Spark logs."""
    for output in cell.outputs:
        if output.output_type == "stream":
            if output.name == "stdout":
                yield _fenced(output.text)
        elif "text/html" in output.data:
            yield re.sub(r"\n\s*\n", "\n", output.data["text/html"].strip()) + "\n"
        else:
            yield _fenced(output.data["text/plain"])


def _fenced(text: str) -> str:
    return f"```\n{text.rstrip()}\n```\n"


@contextmanager
def _cassandra() -> Iterator[str]:
    given = os.environ.get("CASSIEQ_CONTACT_POINTS")
    if given:
        yield given
        return
    with Cluster(nodes=1) as cluster:
        yield f"{cluster.contact_points[0]}:{cluster.port}"


def main() -> None:
    """Print the page."""
    with _cassandra() as host:
        keyspace = f"cassieq_{uuid4().hex[:8]}"
        apply_schema(ConnectionOptions(contact_points=(host,), keyspace=keyspace))
        sys.stdout.write(page_of(executed(host, keyspace)))


if __name__ == "__main__":
    main()
