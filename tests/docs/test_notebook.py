"""The notebook of examples runs as it stands, and docs/notebooks.md shows what it shows."""

from __future__ import annotations

import re

import nbformat
import pytest

from cassieq_spark.settings.connection import ConnectionOptions
from cassieq_spark.store.cassandra.schema import apply_schema
from docs.notebook import NOTEBOOK, executed, page_of
from tests.docs.pages import ROOT
from tests.support.cassandra_node import CassandraNode

PAGE = ROOT / "docs" / "notebooks.md"
KEYSPACE = "cassieq_notebook"
#: What differs from run to run, and what is compared instead.
VARIES = {
    r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ": "INSTANT",
    r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}": "UUID",
    r"<code>\d+[dhms]( \d+[hms])?</code>": "<code>AGE</code>",
}
#: The same in the view of a query: a fast one is seen less often.
SEEN = {r"<code>([\d.,]+|-)</code>": "<code>FIGURE</code>", "[█░]+": "BAR"}


def without_what_varies(page: str) -> list[str]:
    return [
        _replaced(line, VARIES | SEEN if "query fares" in line else VARIES)
        for line in page.splitlines()
    ]


def _replaced(text: str, patterns: dict[str, str]) -> str:
    for pattern, instead in patterns.items():
        text = re.sub(pattern, instead, text)
    return text


@pytest.mark.spark
@pytest.mark.timeout(900)
def test_the_notebook_shows_what_its_page_says(cassandra_node: CassandraNode):
    host = f"{cassandra_node.contact_points[0]}:{cassandra_node.port}"
    apply_schema(ConnectionOptions(contact_points=(host,), keyspace=KEYSPACE))

    page = page_of(executed(host, KEYSPACE))

    assert without_what_varies(page) == without_what_varies(PAGE.read_text(encoding="utf-8"))


def test_the_notebook_is_kept_without_outputs():
    cells = [each for each in nbformat.read(NOTEBOOK, 4).cells if each.cell_type == "code"]

    assert not any(each.outputs or each.execution_count for each in cells)
