from __future__ import annotations

import pytest

from cassieq_spark.store.tables import Table, named_texts, parse_named_texts


def test_a_name_leads_to_its_text_without_comments():
    texts = parse_named_texts("-- a file\n\n-- one --\n-- What it does.\nSELECT 1\nFROM x\n\n")

    assert {name: text.template for name, text in texts.items()} == {"one": "SELECT 1\nFROM x"}


def test_a_name_occurs_once():
    with pytest.raises(ValueError, match="'one' occurs twice"):
        parse_named_texts("-- one --\nSELECT 1\n-- one --\nSELECT 2\n")


def test_a_name_has_a_text():
    with pytest.raises(ValueError, match="'one' is empty"):
        parse_named_texts("-- one --\n-- Nothing.\n-- two --\nSELECT 2\n")


def test_both_files_load():
    assert list(named_texts("schema.cql")) == ["keyspace", *Table]
    assert set(named_texts("cassandra/statements.cql")) == {
        "insert",
        "update",
        "delete",
        "delete_below",
        "read_rows",
        "write_row",
        "delete_row",
        "write_chunk",
        "read_chunks",
        "delete_bucket",
        "scan",
    }
