"""docs/troubleshooting.md quotes what the sources say, and has what users of Spark meet."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache

import pytest

from tests.docs.pages import ROOT

PACKAGE = ROOT / "cassieq_spark"
PAGE = (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
QUOTES = re.findall(r"^\| `(.+?)` \|", PAGE, flags=re.MULTILINE)
GAP = "\0"
#: Those that raise what a reader or writer in Spark meets while it runs.
MET_IN_SPARK = (
    "fetch/read.py",
    "ledger/publish.py",
    "queues/record.py",
    "schemas/union.py",
    "spark/datasource.py",
    "spark/shipping.py",
    "spark/sink/message_writer.py",
    "spark/source/offsets.py",
    "spark/source/selection.py",
)


def _text_of(node: ast.AST) -> str:
    """A text of the sources, with a gap where something is filled in; empty if it is none."""
    if isinstance(node, ast.JoinedStr):
        text = "".join(map(_text_of, node.values))
    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
        text = node.value
    elif isinstance(node, ast.FormattedValue):
        return GAP
    else:
        return ""
    return re.sub(r"%[sd]|\{ca\}", GAP, text)


def _is_quoted_in(quote: str, text: str) -> bool:
    pieces = (re.escape(piece) for piece in quote.split("…"))
    return re.search(rf"{GAP}[^\n]*?".join(pieces), text) is not None


def _raised_in(module: str) -> Iterator[str]:
    tree = ast.parse((PACKAGE / module).read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        made = node.exc if isinstance(node, ast.Raise) else getattr(node, "value", None)
        if not isinstance(node, (ast.Raise, ast.Return)) or not isinstance(made, ast.Call):
            continue
        # A function that makes an error returns it, and what calls the function raises it.
        name = ast.unparse(made.func)
        if name.endswith("Error") and name != "InvariantError":
            yield " ".join(filter(None, map(_text_of, made.args)))


@cache
def _texts() -> str:
    return "\n\n".join(
        text
        for path in sorted(PACKAGE.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if (text := _text_of(node))
    )


@pytest.mark.parametrize("quote", QUOTES)
def test_a_quoted_error_is_one_of_the_sources(quote: str):
    assert _is_quoted_in(quote, _texts()), quote


@pytest.mark.parametrize("module", MET_IN_SPARK)
def test_what_is_raised_where_spark_reads_and_writes_is_on_the_page(module: str):
    raised = list(_raised_in(module))

    assert raised
    for text in raised:
        assert any(_is_quoted_in(quote, text) for quote in QUOTES), text
