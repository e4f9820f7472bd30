"""Runs documents and examples, one after the other, with one Spark.

    python run_pages.py HOST KEYSPACE docs/sink.md examples/publish_files.py ...

What each of them prints goes to standard output behind a line with its name; the exit code is 1 if
any of them fails.
"""

from __future__ import annotations

import runpy
import sys
import traceback

from pyspark.sql import SparkSession
from typer.testing import CliRunner

from cassieq_spark import Client
from cassieq_spark.cli import app
from tests.docs.pages import ROOT, blocks_of, connect

#: What needs a machine of its own, or what the test does instead.
_NOT_HERE = {"node", "schema", "spark"}
#: What the programs of a page take for granted.
_GRANTED = {
    "docs/dead-letters.md": (
        "spark = SparkSession.builder.getOrCreate()\nClient().create_queue('orders')"
    ),
    "docs/repair.md": (
        "from cassieq_spark.store.memory import MemoryStore\n"
        "store, work, carry_out = MemoryStore(), lambda: ['repair', 'rest'], print"
    ),
    "docs/monitoring.md": "spark = SparkSession.builder.getOrCreate()",
    "docs/security.md": "spark = SparkSession.builder.getOrCreate()",
}


def main(host: str, keyspace: str, *documents: str) -> int:
    """Run each of them, in the working folder."""
    failed = False
    for document in documents:
        _say(f"== {document}")
        try:
            if document.endswith(".py"):
                _run_example(document, host, keyspace)
            else:
                _run_page(document, host, keyspace)
        except (Exception, SystemExit):  # noqa: BLE001 (told, and the others run)
            failed = True
            _say(traceback.format_exc())
    return int(failed)


def _run_page(page: str, host: str, keyspace: str) -> None:
    names = {"__name__": page, "Client": Client, "SparkSession": SparkSession}
    exec(connect(_GRANTED.get(page, ""), host=host, keyspace=keyspace), names)
    for block in blocks_of(page):
        if block.language == "python":
            text = connect(block.text, host=host, keyspace=keyspace)
            # That is what a reader of the page does, block by block.
            exec(compile(text, page, "exec"), names)
        elif block.language == "sh":
            for command in block.commands():
                _run_command(command, host, keyspace)


def _run_command(command: list[str], host: str, keyspace: str) -> None:
    if command[0] != "cassieq" or command[1] in _NOT_HERE:
        return
    given = [*command[1:], "--contact-points", host, "--keyspace", keyspace]
    done = CliRunner().invoke(app, given)
    _say(done.output)
    if done.exception is not None:
        raise done.exception


def _run_example(path: str, host: str, keyspace: str) -> None:
    program = runpy.run_path(str(ROOT / path))
    status = program["main"](["--contact-points", host, "--keyspace", keyspace])
    if status:
        raise SystemExit(f"{path} ended with {status}")


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
