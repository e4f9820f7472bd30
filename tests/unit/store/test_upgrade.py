from __future__ import annotations

from dataclasses import replace

import pytest

from cassieq_spark.errors import MissingSchemaError
from cassieq_spark.store.cassandra.upgrade import (
    check_usable,
    compare,
    upgrade_statements,
    version_statement,
)
from cassieq_spark.store.tables import SHAPES, Shape, Table
from tests.support.earlier_release import EARLIER, NEWER_COLUMNS, NEWER_TABLES, SHORT_GRACES

CURRENT: dict[str, Shape] = {str(table): shape for table, shape in SHAPES.items()}
RECORD = "cassieq-spark schema 4"


def test_a_keyspace_of_this_release_lacks_nothing():
    difference = compare(CURRENT, RECORD)

    assert (difference.missing, difference.conflicts, difference.unknown) == ((), (), ())
    assert upgrade_statements("ks", difference) == []


def test_without_a_keyspace_everything_is_missing():
    difference = compare(None)

    tables = (f"table {table}" for table in Table)
    assert difference.missing == ("keyspace", *tables, "schema version 4")
    assert upgrade_statements("ks", difference) == [], "tables are created with all columns"


def test_a_keyspace_that_somebody_made_for_us_lacks_the_tables_only():
    assert "keyspace" not in compare({}).missing
    assert compare({}).tables == tuple(Table)


def test_an_earlier_release_lacks_what_came_since():
    difference = compare({str(table): shape for table, shape in EARLIER.items()})

    assert difference.tables == NEWER_TABLES
    assert {table: tuple(names) for table, names in difference.columns.items()} == NEWER_COLUMNS
    assert difference.conflicts == ()
    assert "column queue.strict_fifo boolean" in difference.missing
    statements = upgrade_statements("ks", difference)
    assert len(statements) == len(NEWER_COLUMNS) + len(SHORT_GRACES)
    assert statements[0].startswith("ALTER TABLE ks.queue ADD IF NOT EXISTS (")
    assert "strict_fifo boolean" in statements[0]


def test_marks_of_deletions_that_go_too_early_are_kept_longer_and_never_shorter():
    ledger, group_state = CURRENT["ledger"], CURRENT["group_state"]
    found = {
        **CURRENT,
        "ledger": replace(ledger, gc_grace_seconds=10 * ledger.gc_grace_seconds),
        "group_state": replace(group_state, gc_grace_seconds=group_state.gc_grace_seconds - 1),
    }

    difference = compare(found, RECORD)

    assert difference.missing == ("gc_grace_seconds group_state 86400",)
    assert upgrade_statements("ks", difference) == [
        "ALTER TABLE ks.group_state WITH gc_grace_seconds = 86400"
    ]
    check_usable(difference, "ks")


def test_what_a_later_release_or_somebody_else_has_added_is_named_and_left_alone():
    lock = CURRENT["lock"]
    wider = replace(lock, columns={**lock.columns, "colour": "text"})

    difference = compare({**CURRENT, "lock": wider, "invoices": lock}, RECORD)

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

    difference = compare(found, RECORD)

    assert difference.conflicts == (conflict,)
    with pytest.raises(MissingSchemaError) as refused:
        check_usable(difference, "ks")
    assert conflict in str(refused.value)
    assert "use another keyspace" in str(refused.value)
    assert "schema apply" not in str(refused.value), "which does not mend it"


def test_tables_that_lack_something_can_be_added_to_and_what_is_there_is_used():
    difference = compare({str(table): shape for table, shape in EARLIER.items()})

    check_usable(difference, "ks")


def test_tables_made_before_versions_were_recorded_are_used_and_lack_the_record_only():
    difference = compare(CURRENT, "made by Ann")

    check_usable(difference, "ks")
    assert (difference.version, difference.missing) == (None, ("schema version 4",))
    assert version_statement("ks", difference) == (
        "ALTER TABLE ks.queue WITH comment = 'made by Ann; cassieq-spark schema 4'"
    )


def test_tables_of_a_newer_version_are_refused_whatever_they_look_like():
    difference = compare({**CURRENT, "lock": CURRENT["repair"]}, "cassieq-spark schema 20")

    assert difference.is_newer
    assert "schema version 4" not in difference.missing
    with pytest.raises(
        MissingSchemaError, match=r"'ks' have schema version 20, .* above 4; .*upgrade cassieq"
    ):
        check_usable(difference, "ks")


@pytest.mark.parametrize("version", [1, 2])
def test_tables_of_an_older_version_are_refused_whatever_they_look_like(version: int):
    difference = compare(CURRENT, f"cassieq-spark schema {version}; made by Ann")

    assert difference.is_older
    assert difference.missing == ()
    with pytest.raises(
        MissingSchemaError,
        match=rf"schema version {version}, .* needs 4; nothing was changed: .*another keyspace$",
    ):
        check_usable(difference, "ks")


def test_tables_of_an_older_version_are_refused_even_if_their_version_is_not_recorded():
    difference = compare({**CURRENT, "delivery": CURRENT["group_state"]}, "made by Ann")

    with pytest.raises(MissingSchemaError, match="table delivery is of schema version 2 or earl"):
        check_usable(difference, "ks")


def test_a_table_of_somebody_else_is_not_taken_for_one_of_an_older_version():
    difference = compare({**CURRENT, "delivery": CURRENT["lock"]}, RECORD)

    check_usable(difference, "ks")
    assert difference.missing == ()
