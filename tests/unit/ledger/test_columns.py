from __future__ import annotations

import ast
from pathlib import Path

import pytest

import cassieq_spark
from cassieq_spark.store.tables import SHAPES, Table

PACKAGE = Path(cassieq_spark.__file__).parent
#: "block" is a kind of rows as well.
COLUMNS = SHAPES[Table.LEDGER].columns.keys() - {"block"}
WRITERS = ("ledger/decide.py", "ledger/ledger.py", "ledger/lifecycle.py", "queues/clocks.py")
READERS = ("ledger/publish.py", "repair/redeliver.py")


@pytest.mark.parametrize("file", WRITERS + READERS)
def test_columns_of_the_ledger_are_named_only_where_its_rows_are_encoded_and_decoded(file: str):
    source = (PACKAGE / file).read_text("utf-8")

    texts = {each.value for each in ast.walk(ast.parse(source)) if isinstance(each, ast.Constant)}

    assert not texts & COLUMNS
