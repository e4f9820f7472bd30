from __future__ import annotations

import pickle
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest

from cassieq_spark.arrow.typed_chunks import TypedForm
from cassieq_spark.client.settling import Action, LeaseKey
from cassieq_spark.errors import MessageError
from cassieq_spark.groups.state import Settlement
from cassieq_spark.model import QueueDefinition, QueueId, Ranges
from cassieq_spark.schemas.ddl import schema_of
from cassieq_spark.spark.sink.receipt_rows import Defaults, Outcomes, read_outcomes

QUEUE = QueueId("q@1")
DEFINITION = QueueDefinition("q", 1)
ONE, OTHER = UUID(int=1), UUID(int=2)
SECOND = timedelta(seconds=1)


def receipt(monoton: int, lease: UUID | str = ONE, queue: str = QUEUE) -> str:
    return f"{queue}/g/{lease}/{monoton}"


def read(operation: str, *batches: dict[str, Any], **defaults: Any) -> Any:
    given = {
        "queue": DEFINITION,
        "operation": operation,
        "delay": timedelta(0),
        "seconds": 60 * SECOND,
        "reason": "rejected",
        "max_message_bytes": 100,
    }
    return read_outcomes(
        (pa.record_batch(batch) for batch in batches), Defaults(**(given | defaults))
    )


def settlement(operation: str, *batches: dict[str, Any], **defaults: Any) -> Settlement | None:
    (outcomes,) = read(operation, *batches, **defaults).values()
    found: Settlement | None = outcomes.settlement()
    return found


def test_receipts_are_dealt_by_lease_and_delivery_and_joined_to_ranges():
    receipts = [receipt(3), receipt(1, OTHER), receipt(4), receipt(9)]
    receipts += [receipt(3, f"{ONE}.1"), receipt(5, f"{ONE}.2"), receipt(6, f"{ONE}.2")]

    found = read("ack", {"receipt": receipts})

    assert {key: each.settlement().acked for key, each in found.items()} == {
        LeaseKey(QUEUE, "g", ONE, None): Ranges.parse("3-5,9-10"),
        LeaseKey(QUEUE, "g", OTHER, None): Ranges.parse("1-2"),
        LeaseKey(QUEUE, "g", ONE, 1): Ranges.parse("3-4"),
        LeaseKey(QUEUE, "g", ONE, 2): Ranges.parse("5-7"),
    }


@pytest.mark.parametrize(
    ("operation", "defaults", "expected"),
    [
        ("release", {"delay": SECOND}, Settlement(released={SECOND: Ranges.parse("1-3")})),
        ("extend", {}, Settlement(extended={60 * SECOND: Ranges.parse("1-3")})),
        ("reject", {"reason": "bad"}, Settlement(rejected={"bad": Ranges.parse("1-3")})),
    ],
)
def test_options_hold_for_rows_that_do_not_say_it(
    operation: str, defaults: dict[str, Any], expected: Settlement
):
    rows = {"receipt": [receipt(1), receipt(2)]}

    assert settlement(operation, rows, **defaults) == expected


def test_a_long_reason_is_cut_as_the_client_cuts_it():
    long = "x" * 3000
    rows = {"receipt": [receipt(1), receipt(2)], "reason": [long, None]}

    cut = Action("reject", long).settlement_of(Ranges.parse("1-3"))

    assert settlement("reject", rows, reason=long) == cut


@pytest.mark.parametrize(
    "delays",
    [
        pa.array([5 * SECOND, None, 5 * SECOND], pa.duration("us")),
        pa.array([5, None, 5]),
        pa.array([5.0, None, 5.0]),
    ],
)
def test_rows_that_say_it_are_dealt_by_what_they_say(delays: pa.Array):
    rows = {"receipt": [receipt(1), receipt(2), receipt(3)], "delay": delays}

    assert settlement("release", rows, delay=SECOND) == Settlement(
        released={5 * SECOND: Ranges.parse("1-2,3-4"), SECOND: Ranges.parse("2-3")}
    )


def test_each_row_may_say_what_is_to_be_done():
    rows = {
        "receipt": [receipt(number) for number in range(5)],
        "operation": ["ack", "release", "extend", "reject", "replace"],
        "delay": [None, 2, None, None, 3],
        "seconds": [None, None, 7, None, None],
        "reason": [None, None, None, "bad", None],
        "value": [None, None, None, None, "new"],
    }

    (outcomes,) = read("each", rows).values()

    assert outcomes.settlement() == Settlement(
        acked=Ranges.parse("0-1"),
        released={2 * SECOND: Ranges.parse("1-2")},
        extended={7 * SECOND: Ranges.parse("2-3")},
        rejected={"bad": Ranges.parse("3-4")},
    )
    ((delay, (monotons, new)),) = outcomes.replacements()
    assert (delay, monotons, new.to_pylist()) == (3 * SECOND, [4], [{"value": "new"}])


@pytest.mark.parametrize("others", [{}, {"key": ["k", "k"]}], ids=["no columns", "a key"])
@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        (None, "replaces its message, and there is no column 'value'"),
        ("fare int", "a queue with a schema: .* with 'operation' = 'replace'"),
    ],
    ids=["bytes", "a schema"],
)
def test_a_row_that_replaces_by_nothing_is_named(
    others: dict[str, Any], schema: str | None, problem: str
):
    rows = {"receipt": [receipt(1), receipt(2)], **others}
    queue = replace(DEFINITION, schemas=() if schema is None else (schema,))
    acked, replaced = ({"operation": ["ack", each]} for each in ("ack", "replace"))

    with pytest.raises(MessageError, match=f"^row 3 of this task, .* {problem}"):
        read("each", rows | acked, rows | replaced, queue=queue)


def test_only_replacements_are_no_settlement():
    rows = {"receipt": [receipt(1)], "value": ["new"]}

    assert settlement("replace", rows) is None


def test_what_several_tasks_ask_for_is_put_together():
    total = Outcomes()
    for monoton in (1, 2):
        rows = {"receipt": [receipt(monoton)], "operation": ["reject"], "reason": ["bad"]}
        news = {"receipt": [receipt(monoton + 5)], "value": [f"new {monoton}"]}
        for found in (read("each", rows), read("replace", news)):
            # As Spark brings it from its executors.
            (outcomes,) = pickle.loads(pickle.dumps(found)).values()
            total.merge(outcomes)

    assert total.settlement() == Settlement(rejected={"bad": Ranges.parse("1-3")})
    ((_, (monotons, new)),) = total.replacements()
    assert (monotons, new.column("value").to_pylist()) == ([6, 7], ["new 1", "new 2"])


@pytest.mark.parametrize(
    ("operations", "monotons", "expected"),
    [
        (["replace", "replace"], [1, 1], "1-2"),
        (["ack", "replace"], [1, 1], "1-2"),
        (["replace", "release", "replace", "extend"], [5, 5, 6, 6], "5-7"),
        (["replace", "replace", "ack", "reject", "ack"], [1, 2, 3, 3, 3], ""),
    ],
)
def test_what_one_row_replaces_and_another_one_names_is_told(
    operations: list[str], monotons: list[int], expected: str
):
    total = Outcomes()
    for operation, monoton in zip(operations, monotons, strict=True):
        row = {"receipt": [receipt(monoton)], "operation": [operation], "value": ["new"]}
        (outcomes,) = read("each", row).values()
        total.merge(outcomes)

    assert str(total.replaced_and_named_again()) == expected


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ({"receipt": ["nonsense"]}, "'nonsense' is not a receipt"),
        ({"receipt": pa.array([None], pa.string())}, "'' is not a receipt"),
        ({"receipt": [receipt(1, queue="q@2")]}, "is of queue q@2, not of q@1"),
        (
            {"receipt": [receipt(1)], "operation": ["nack"]},
            "row 1 .* the operation 'nack': expected ack, release, extend, reject, replace",
        ),
        (
            {"receipt": [receipt(1)], "operation": pa.array([None], pa.string())},
            "row 1 .* operation None",
        ),
        (
            {"receipt": [receipt(1)], "operation": ["release"], "delay": [-1]},
            "row 1 .* has -1 as 'delay'",
        ),
        (
            {
                "receipt": [receipt(1)],
                "operation": ["replace"],
                "value": pa.array([None], pa.string()),
            },
            "row 1 .* has no value",
        ),
    ],
)
def test_what_makes_no_sense_is_refused_by_its_row(rows: dict[str, Any], message: str):
    before = {"receipt": [receipt(7)], "operation": ["ack"]}

    with pytest.raises(MessageError, match=message):
        read("each", before, {"operation": ["ack"], **rows})


TYPED = TypedForm(schema_of("fare decimal(10,2) not null, receipt string, monoton int"), 1)
METADATA = pa.array([{"queue": "q", "receipt": receipt(number)} for number in (4, 5)])


def test_rows_of_a_schema_replace_messages_by_their_metadata():
    rows = {
        "FARE": pa.array([1, 2]),
        "receipt": pa.array(["a", None]),
        "_metadata": METADATA,
        "_key": ["k", None],
        "_delay": pa.array([timedelta(seconds=3), None], pa.duration("us")),
    }

    (outcomes,) = read("replace", rows, rows, form=TYPED, delay=SECOND).values()

    (at_first, (first, one)), (later, (second, two)) = outcomes.replacements()
    assert (at_first, first, later, second) == (SECOND, [5, 5], 3 * SECOND, [4, 4])
    assert (
        one.to_pylist()
        == [{"fare": Decimal("2.00"), "receipt": None, "monoton": None, "_key": None}] * 2
    )
    assert two.to_pylist()[0] == {
        "fare": Decimal("1.00"),
        "receipt": "a",
        "monoton": None,
        "_key": b"k",
    }


def test_a_row_that_does_not_fit_the_queue_is_named():
    good = {"fare": pa.array([1.0, 2.0]), "_metadata": METADATA}
    bad = {"fare": pa.array([1.0, 0.001]), "_metadata": METADATA}

    with pytest.raises(MessageError, match=r"column 'fare', row 3 \(counted from 0\)"):
        read("replace", good, bad, form=TYPED)


def test_no_rows_ask_for_nothing():
    assert read("ack", {"receipt": pa.array([], pa.string())}) == {}
