"""What the trial of shares makes of what readers got."""

from __future__ import annotations

from trials.sharing import EVENTS, PARTITIONS, SETTLED_AFTER, Got, judge, missing, owners_of

ENDS = [100.0 + 30 * number for number in range(len(EVENTS) + 1)]


def even_shares(number: int, *, at: float = SETTLED_AFTER) -> list[Got]:
    """What the readers get after an event, each message of a key of its own."""
    there = EVENTS[number].there
    return [
        Got(
            reader,
            ENDS[number] + at,
            {
                each: [f"{number}-{each}:0"]
                for each in range(PARTITIONS)
                if each % len(there) == place
            },
        )
        for place, reader in enumerate(there)
    ]


def a_fine_run() -> list[Got]:
    return [got for number in range(len(EVENTS)) for got in even_shares(number)]


def written(got: list[Got]) -> dict[str, int]:
    values = (each for one in got for them in one.messages.values() for each in them)
    return dict.fromkeys((each.partition(":")[0] for each in values), 1)


def test_even_shares_are_fine():
    got = a_fine_run()

    report = judge(got, ENDS, written(got))

    assert report["fine"]
    assert report["messages"] == PARTITIONS * len(EVENTS)
    assert report["partitions_by_reader"]["one is killed"] == {"a": 6, "b": 5, "d": 5}


def test_what_comes_before_the_shares_have_settled_does_not_count():
    got = sorted([*a_fine_run(), *even_shares(0, at=31)], key=lambda each: each.at)

    assert judge(got, ENDS, written(got))["fine"]


def test_a_reader_that_gets_more_than_its_share_is_told():
    idle = ("b", ENDS[1] + SETTLED_AFTER)
    got = [each for each in a_fine_run() if (each.reader, each.at) != idle]

    report = judge(got, ENDS, written(got))

    assert not report["fine"]
    assert report["uneven"] == ["three more"]


def test_a_partition_is_of_the_reader_that_gets_most_of_it():
    got = [
        Got("a", 1.0, {0: ["k:0", "k:1"], 1: ["l:0"]}),
        Got("b", 2.0, {0: ["k:2"], 1: ["l:1", "l:2"]}),
    ]

    assert owners_of(got) == {0: "a", 1: "b"}


def test_what_is_lost_or_comes_after_a_later_one_is_counted():
    got = [
        Got("a", 1.0, {0: ["k:0", "k:2"]}),
        Got("b", 2.0, {0: ["k:0", "k:1"]}),
    ]

    assert missing(got, {"k": 3, "l": 1}) == (1, 1)
