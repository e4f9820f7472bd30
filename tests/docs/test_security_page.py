"""docs/security.md says what each right costs, by limits and attacks that there are."""

from __future__ import annotations

import re
from fnmatch import fnmatch

import pytest

from cassieq_spark.client import DEFAULT_BUDGET
from cassieq_spark.http.accounts import Right
from cassieq_spark.http.gateway import admission, coalescer
from cassieq_spark.http.serving import connections
from cassieq_spark.settings.gateway import Limits
from tests.docs.pages import ROOT
from trials.attack.__main__ import EVERY

SECTION = (
    (ROOT / "docs/security.md")
    .read_text(encoding="utf-8")
    .split("## What a key of a gateway can cost at most")[1]
    .split("\n## ")[0]
)
ROWS = {
    cells[0].strip(" `"): cells[1:]
    for cells in (line.strip("| ").split(" | ") for line in SECTION.splitlines() if "|" in line)
}
ATTACKS = [each.__name__ for each in EVERY]


def test_each_right_has_a_row():
    assert {right.title for right in Right} == ROWS.keys() - {"right", "any", "---|---|---|---"}


def test_each_attack_that_is_named_is_made():
    names = re.findall(r"`([a-zA-Z]*_[a-z_]*\*?|\*_[a-z_]+|[a-zA-Z]+\*)`", SECTION)

    assert len(names) > 40
    unknown = {name for name in names if not any(fnmatch(each, name) for each in ATTACKS)}
    assert not unknown, sorted(ATTACKS)


@pytest.mark.parametrize(
    ("right", "numbers"),
    [
        ("any", ("account_requests", "requests", "account_threads", "threads")),
        ("PutMessage", ("account_messages",)),
        ("ReadMessage", ("account_polls", "polls")),
        ("CreateQueue", ("account_queues", "account_schedules", "queue_groups")),
    ],
)
def test_the_numbers_are_those_of_the_code(right: str, numbers: tuple[str, ...]):
    told = " ".join(ROWS[right])

    for name in numbers:
        assert re.search(rf"\b{getattr(Limits(), name):,}\b", told), name


def test_the_sizes_and_times_are_those_of_the_code():
    limits = Limits()

    def mib(count: int) -> str:
        return f"{count >> 20}"

    assert f"{mib(limits.account_bytes)} of {mib(limits.held_bytes)} MiB of bodies" in SECTION
    assert f"{limits.account_stored_bytes >> 30} GiB" in SECTION
    assert f"{limits.read_lease.total_seconds() / 60:.0f} minutes (`--max-read-lease`)" in SECTION
    assert f"{limits.lease.total_seconds() / 3600:.0f} h (`--max-lease`)" in SECTION
    assert f"{limits.head_bytes >> 10} KiB of a request's head" in SECTION
    assert f"complete within {limits.head_time.total_seconds():.0f} s" in SECTION
    assert f"{limits.address_connections:,} connections from one address" in SECTION
    ahead = f"{mib(DEFAULT_BUDGET)} of {mib(coalescer.AHEAD_BYTES)} MiB of messages"
    assert f"{ahead} that are read ahead, for {coalescer.RESTS_AFTER:.0f} s" in SECTION
    names = limits.account_queues * admission._NAMES_FOR_EACH_QUEUE
    assert f"{names:,} names in all" in SECTION
    about = f"{admission._ABOUT_QUEUES} of {admission._ABOUT_QUEUES_IN_ALL} requests about queues"
    assert about in SECTION
    waiting = (connections._MOST_PIPELINED, connections._MOST_PIPELINED_HEADERS)
    assert "{} requests with {} headers that wait".format(*waiting) in SECTION
