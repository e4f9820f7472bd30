from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from cassandra.util import Duration

from cassieq_spark.model import QueueId
from cassieq_spark.store.cassandra.statements import (
    columns_of,
    selection_of,
    statement_of,
)
from cassieq_spark.store.checks import check_ops
from cassieq_spark.store.protocol import (
    Delete,
    DeleteBelow,
    Insert,
    Op,
    ServerNow,
    Slice,
    Update,
    When,
    partition_of_ledger,
    partition_of_queue,
)
from cassieq_spark.store.tables import SHAPES, Table

LEDGER = partition_of_ledger(QueueId("q@1"))
HEAD = ("head", 0, "")
WHOLE_KEY = "queue_id = ? AND kind = ? AND position = ? AND name = ?"
NOW = "toTimestamp(now()) + (duration) ?"


def words(op: Op) -> tuple[str, tuple[object, ...]]:
    statement = statement_of("ks", LEDGER, op)
    return " ".join(statement.text.split()), statement.values


def test_an_insert_leaves_nulls_out():
    assert words(Insert(HEAD, {"next": 1, "sink": None})) == (
        "INSERT INTO ks.ledger (queue_id, kind, position, name, next) VALUES (?, ?, ?, ?, ?)",
        ("q@1", "head", 0, "", 1),
    )


def test_an_insert_if_absent_says_so():
    text, _ = words(Insert(HEAD, {}, if_absent=True))

    assert text.endswith("VALUES (?, ?, ?, ?) IF NOT EXISTS")


def test_a_condition_may_go_by_the_clock_by_which_rows_expire():
    update = Update(HEAD, {"next": 6}, (When("fence", "<", ServerNow(wall=True)),))

    text, _ = words(update)

    assert text.endswith("IF fence < currentTimestamp() + (duration) ?")


def test_an_update_binds_values_then_key_then_conditions():
    update = Update(HEAD, {"next": 6}, (When("next", "=", 5), When("fence", "<", ServerNow())))

    assert words(update) == (
        f"UPDATE ks.ledger SET next = ? WHERE {WHOLE_KEY} IF next = ? AND fence < {NOW}",
        (6, "q@1", "head", 0, "", 5, Duration()),
    )


def test_the_servers_time_may_be_written_with_a_duration_in_whole_milliseconds():
    later = ServerNow(timedelta(seconds=1, microseconds=1500))

    assert words(Update(HEAD, {"fence": later}, (When("next", "=", None),))) == (
        f"UPDATE ks.ledger SET fence = {NOW} WHERE {WHOLE_KEY} IF next = ?",
        (Duration(nanoseconds=1_001_000_000), "q@1", "head", 0, "", None),
    )


def test_instants_are_bound_as_milliseconds():
    _, values = words(Insert(HEAD, {"fence": datetime(1970, 1, 1, 0, 0, 1, 2999, tzinfo=UTC)}))

    assert values[-1] == 1002


def test_an_update_of_nothing_or_with_null_is_refused():
    for values in ({}, {"next": None}):
        with pytest.raises(ValueError, match="an update needs values"):
            words(Update(HEAD, values, (When("next", "=", 1),)))


def test_deletes_name_a_row_or_what_is_below():
    assert words(Delete(HEAD)) == (
        f"DELETE FROM ks.ledger WHERE {WHOLE_KEY} IF EXISTS",
        ("q@1", "head", 0, ""),
    )
    assert words(DeleteBelow("block", 7)) == (
        "DELETE FROM ks.ledger WHERE queue_id = ? AND kind = ? AND position < ?",
        ("q@1", "block", 7),
    )


def test_equal_shapes_have_equal_text():
    one = words(Update(HEAD, {"next": 1}, (When("next", "=", 0),)))
    two = words(Update(("sink", 0, "a"), {"next": 2}, (When("next", "=", 1),)))

    assert one[0] == two[0]


def test_a_slice_of_everything_names_the_partition_only():
    text = selection_of("ks", LEDGER, Slice()).text

    assert " ".join(text.split()).endswith("FROM ks.ledger WHERE queue_id = ?")


def test_bounds_order_and_limit_follow_the_kind():
    which = Slice(kinds=("block",), start=1, stop=9, limit=2, reverse=True)

    statement = selection_of("ks", LEDGER, which)

    assert statement.values == ("q@1", "block", 1, 9, 2)
    assert " ".join(statement.text.split()).endswith(
        "AND kind = ? AND position >= ? AND position < ? "
        "ORDER BY kind DESC, position DESC, name DESC LIMIT ?"
    )


@pytest.mark.parametrize(
    "which",
    [
        Slice(start=1),
        Slice(kinds=("a", "b"), stop=1),
        Slice(kinds=("a", "b"), limit=1),
        Slice(row=HEAD, kinds=("head",)),
        Slice(row=HEAD, limit=1),
    ],
)
def test_a_slice_that_the_protocol_rules_out_is_refused(which: Slice):
    with pytest.raises(ValueError, match="a slice"):
        selection_of("ks", LEDGER, which)


def test_a_table_without_clustering_key_has_rows_without_one():
    text = selection_of("ks", partition_of_queue("q"), Slice(row=(), reverse=False)).text

    assert " ".join(text.split()).endswith("FROM ks.queue WHERE name = ?")


def test_columns_are_read_keys_first_and_without_payload():
    assert columns_of(Table.CHUNK) == ("queue_id", "block", "bucket", "start", "stop")
    assert set(columns_of(Table.LEDGER)) == {
        "queue_id",
        "kind",
        "position",
        "name",
        *SHAPES[Table.LEDGER].columns,
    }


def test_a_compare_and_set_has_a_condition_and_one_operation_per_row():
    with pytest.raises(ValueError, match="needs a condition"):
        check_ops(LEDGER, [Update(HEAD, {"next": 1}, ())])
    with pytest.raises(ValueError, match="two operations on one row"):
        check_ops(LEDGER, [Delete(HEAD), Insert(HEAD, {"next": 1})])
