from __future__ import annotations

import json
from uuid import UUID

import pytest

from cassieq_spark.errors import QueueStateError
from cassieq_spark.groups.lease import LeasedSlot
from cassieq_spark.model import QueueId, Ranges
from cassieq_spark.spark.source.offsets import Offset, decode, encode, initial_offset

OFFSET = Offset(
    QueueId("flights@2"),
    "delays",
    UUID(int=7),
    pointer=12,
    leased=(LeasedSlot(0, Ranges.parse("3-5,7-9"), 1), LeasedSlot(4, Ranges.parse("9-12"), 2)),
)


def test_an_offset_survives_sparks_log():
    text = json.dumps(encode(OFFSET))

    assert decode(json.loads(text), queue_id=OFFSET.queue_id, group="delays") == OFFSET


def test_offsets_are_text_with_keys_in_order():
    assert json.dumps(encode(OFFSET)) == (
        '{"group": "delays", "lease": "00000000-0000-0000-0000-000000000007", "pointer": 12, '
        '"queue_id": "flights@2", "ranges": [[0, "3-5,7-9", 1], [4, "9-12", 2]], "v": 1}'
    )
    for values in (encode(OFFSET), initial_offset("flights", "delays")):
        assert json.dumps(values) == json.dumps(values, sort_keys=True)


def test_the_offset_before_the_first_batch_holds_nothing():
    first = initial_offset("flights", "delays")

    assert first == initial_offset("flights", "delays")
    assert decode(first, queue_id=QueueId("flights@2"), group="delays") is None


def test_an_offset_knows_whether_its_messages_were_handed_out_before():
    fresh = Offset(OFFSET.queue_id, "delays", OFFSET.lease, 12, OFFSET.leased[:1])

    assert OFFSET.is_redelivery
    assert not fresh.is_redelivery


@pytest.mark.parametrize("values", [encode(OFFSET), initial_offset("flights", "delays")])
@pytest.mark.parametrize(
    ("queue_id", "group"), [("trains@2", "delays"), ("flights@2", "late"), ("lights@2", "delays")]
)
def test_a_checkpoint_of_another_queue_or_group_is_refused_with_both_names(
    values: dict[str, object], queue_id: str, group: str
):
    with pytest.raises(QueueStateError, match=r"of queue 'flights', not to .* new checkpoint"):
        decode(values, queue_id=QueueId(queue_id), group=group)


def test_a_checkpoint_of_an_earlier_queue_of_that_name_is_refused():
    with pytest.raises(QueueStateError, match=r"version 2 .*version 3.*new checkpoint location"):
        decode(encode(OFFSET), queue_id=QueueId("flights@3"), group="delays")


@pytest.mark.parametrize("values", [encode(OFFSET), initial_offset("flights", "delays")])
@pytest.mark.parametrize("version", [2, 0, "1", None])
def test_a_checkpoint_of_another_release_is_refused(
    values: dict[str, object], version: int | str | None
):
    with pytest.raises(
        QueueStateError, match=f"offsets of version {version!r}, this release reads version 1"
    ):
        decode(values | {"v": version}, queue_id=OFFSET.queue_id, group="delays")


def test_a_checkpoint_without_a_version_is_refused():
    values = encode(OFFSET)
    del values["v"]

    with pytest.raises(QueueStateError, match="offsets of version None"):
        decode(values, queue_id=OFFSET.queue_id, group="delays")


@pytest.mark.parametrize(
    "damage",
    [
        {"lease": "no uuid"},
        {"lease": 7},
        {"pointer": None},
        {"pointer": "twelve"},
        {"ranges": None},
        {"ranges": [[0, "3-5"]]},
        {"ranges": [[0, "5-3", 1]]},
        {"ranges": [[0, 35, 1]]},
        {"ranges": [["x", "3-5", 1]]},
    ],
    ids=str,
)
def test_a_damaged_offset_is_refused_and_shown(damage: dict[str, object]):
    with pytest.raises(QueueStateError, match=r"damaged offset .*new checkpoint location") as bad:
        decode(encode(OFFSET) | damage, queue_id=OFFSET.queue_id, group="delays")

    assert str(next(iter(damage.values()))) in str(bad.value)


@pytest.mark.parametrize("lost", ["pointer", "ranges"])
def test_an_offset_that_lacks_something_is_refused(lost: str):
    values = encode(OFFSET)
    del values[lost]

    with pytest.raises(QueueStateError, match=rf"damaged offset \(KeyError: '{lost}'\)"):
        decode(values, queue_id=OFFSET.queue_id, group="delays")
