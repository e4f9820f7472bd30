from __future__ import annotations

import json
from datetime import timedelta
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest

from cassieq_spark import Progress, progress
from cassieq_spark.errors import QueueStateError
from cassieq_spark.groups.lease import LeasedSlot
from cassieq_spark.model import QueueId, Range, Ranges
from cassieq_spark.spark.source.offsets import Offset, encode, initial_offset, join_partitions

FIRST = initial_offset("q", "g")
REPORT = {
    "backlog": 15,
    "leased": 5,
    "lost_leases": 3,
    "next": 20,
    "oldest_age_ms": 1500,
    "pointer": 5,
    "v": 1,
    "waiting": 2,
}


def end_of(*ranges: str) -> dict[str, Any]:
    leased = [LeasedSlot(slot, Ranges.parse(text), 1) for slot, text in enumerate(ranges)]
    return encode(Offset(QueueId("q@1"), "g", uuid4(), 9, tuple(leased)))


def progress_of(*sources: dict[str, Any]) -> dict[str, Any]:
    return {"sources": list(sources)}


def source(start: Any, end: Any, latest: Any) -> dict[str, Any]:
    return {"startOffset": start, "endOffset": end, "latestOffset": latest}


def test_figures_and_batch_are_read_from_offsets_as_json_as_spark_has_them():
    offsets = (json.dumps(each) for each in (FIRST, end_of("5-9,12-13", "2-4"), REPORT))

    (found,) = progress(progress_of(source(*offsets)))

    assert found == Progress(
        queue="q",
        group="g",
        batch=(Range(2, 4), Range(5, 9), Range(12, 13)),
        messages=7,
        backlog=15,
        leased=5,
        waiting=2,
        next=20,
        pointer=5,
        oldest_age=timedelta(seconds=1.5),
        borrowed=0,
        lost_leases=3,
    )


def test_messages_of_partitions_beyond_the_share_are_told_apart():
    parts = {0: end_of("0-3"), 2: end_of("4-5")}
    end = join_partitions(parts, queue_id=QueueId("q@1"), group="g")

    (found,) = progress(progress_of(source(FIRST, end, REPORT | {"partitions": [0, 1]})))

    assert (found.messages, found.borrowed, found.partitions) == (4, 1, (0, 1))


def test_offsets_may_be_dicts_and_progress_an_object():
    end = end_of("0-3")
    as_objects = SimpleNamespace(
        sources=[SimpleNamespace(startOffset=None, endOffset=end, latestOffset=REPORT)]
    )

    assert progress(as_objects) == progress(progress_of(source(None, end, REPORT)))


@pytest.mark.parametrize("unknown", ["", "null", "None"])
def test_a_replayed_batch_has_no_figures(unknown: str):
    (found,) = progress(progress_of(source(FIRST, end_of("0-3"), unknown)))

    assert found == Progress(queue="q", group="g", batch=(Range(0, 3),), messages=3)


def test_an_age_that_is_not_known_is_none():
    report = {key: value for key, value in REPORT.items() if key != "oldest_age_ms"}

    (found,) = progress(progress_of(source(FIRST, end_of("0-3"), report)))

    assert (found.backlog, found.oldest_age) == (15, None)


def test_an_idle_trigger_has_no_batch_although_spark_shows_the_one_before():
    end = end_of("0-3")

    (found,) = progress(progress_of(source(end, end, REPORT)))

    assert (found.batch, found.messages, found.backlog) == ((), 0, 15)


def test_before_any_message_came_queue_and_group_are_known():
    (found,) = progress(progress_of(source(None, FIRST, None)))

    assert found == Progress(queue="q", group="g")


@pytest.mark.parametrize("end", ["", "null", "12", "not json", '{"topic": {"0": 7}}', '{"v": 1}'])
def test_sources_of_another_kind_are_passed_over(end: str):
    ours = source(None, end_of("0-3"), REPORT)

    assert len(progress(progress_of(source(None, end, end), ours))) == 1


@pytest.mark.parametrize("nothing", [None, {}, {"sources": []}])
def test_where_there_is_no_progress_there_is_nothing_to_tell(nothing: object):
    assert progress(nothing) == []


def test_offsets_of_another_release_are_refused():
    with pytest.raises(QueueStateError, match="version 99"):
        progress(progress_of(source(None, FIRST | {"v": 99}, None)))
