from __future__ import annotations

from dataclasses import replace

import pytest

from cassieq_spark.store.cassandra.upgrade import compare, upgrade_statements
from cassieq_spark.store.tables import SHAPES, Shape, Table
from tests.support.earlier_release import EARLIER, NEWER_COLUMNS, NEWER_TABLES

CURRENT: dict[str, Shape] = {str(table): shape for table, shape in SHAPES.items()}


def test_a_keyspace_of_this_release_lacks_nothing():
    difference = compare(CURRENT)

    assert (difference.missing, difference.conflicts, difference.unknown) == ((), (), ())
    assert upgrade_statements("ks", difference) == []


def test_without_a_keyspace_everything_is_missing():
    difference = compare(None)

    assert difference.missing == ("keyspace", *(f"table {table}" for table in Table))
    assert upgrade_statements("ks", difference) == [], "tables are created with all columns"


def test_a_keyspace_that_somebody_made_for_us_lacks_the_tables_only():
    assert compare({}).missing == tuple(f"table {table}" for table in Table)


def test_an_earlier_release_lacks_what_came_since():
    difference = compare({str(table): shape for table, shape in EARLIER.items()})

    assert difference.tables == NEWER_TABLES
    assert {table: tuple(names) for table, names in difference.columns.items()} == NEWER_COLUMNS
    assert difference.conflicts == ()
    assert "column queue.strict_fifo boolean" in difference.missing
    statements = upgrade_statements("ks", difference)
    assert len(statements) == len(NEWER_COLUMNS)
    assert statements[0].startswith("ALTER TABLE ks.queue ADD IF NOT EXISTS (")
    assert "strict_fifo boolean" in statements[0]


def test_what_a_later_release_or_somebody_else_has_added_is_named_and_left_alone():
    lock = CURRENT["lock"]
    wider = replace(lock, columns={**lock.columns, "colour": "text"})

    difference = compare({**CURRENT, "lock": wider, "invoices": lock})

    assert (difference.missing, difference.conflicts) == ((), ())
    assert difference.unknown == ("column lock.colour text",)
    assert upgrade_statements("ks", difference) == []


@pytest.mark.parametrize(
    ("table", "change", "conflict"),
    [
        (
            "ledger",
            {"columns": {**CURRENT["ledger"].columns, "next": "int"}},
            "column ledger.next is int instead of bigint",
        ),
        (
            "chunk",
            {"clustering": ("stop",)},
            (
                "table chunk has the primary key ((queue_id, block, bucket), stop) "
                "instead of ((queue_id, block, bucket), start)"
            ),
        ),
        (
            "queue",
            {"partition": ("version",), "clustering": ("name",)},
            "table queue has the primary key ((version), name) instead of ((name))",
        ),
    ],
)
def test_what_adding_does_not_mend_is_a_conflict(
    table: str, change: dict[str, object], conflict: str
):
    found = {**CURRENT, table: replace(CURRENT[table], **change)}  # type: ignore[arg-type]

    assert compare(found).conflicts == (conflict,)
