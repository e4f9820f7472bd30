"""The judge of a chaos run finds what is planted, and nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import pytest

from trials.chaos.checker import (
    KEYS,
    LANES,
    Message,
    RelayVerdict,
    Result,
    Rewinds,
    Row,
    Sent,
    Try,
    Verdict,
    acked_batches,
    judge,
    judge_relay,
    read_message,
    rewinds,
)

SENT = Sent("p", acknowledged=8, attempted=10)


def row(number: int, deliveries: int = 1, producer: str = "p") -> Row:
    message = Message(producer, number)
    return Row(message.key, message.body, deliveries)


def result(
    batch: int,
    numbers: Iterable[int],
    *,
    consumer: str = "a",
    deliveries: int = 1,
    acked: bool = True,
) -> Result:
    return Result(consumer, batch, [row(number, deliveries) for number in numbers], acked)


def verdict_of(*results: Result, dead: Sequence[Row] = ()) -> Verdict:
    return judge([SENT], results, dead)


def test_a_run_in_which_everything_is_processed_once_is_fine():
    verdict = verdict_of(result(0, range(5)), result(0, range(5, 8), consumer="b"))

    assert verdict == Verdict(
        published=8,
        acked=8,
        lost=0,
        duplicated=0,
        duplicated_under_lease=0,
        damaged=0,
        reordered=0,
        reordered_by_key=0,
        invented=0,
        unacknowledged=0,
        redelivered=0,
        dead=0,
    )
    assert verdict.is_fine


def test_a_run_without_messages_is_not_fine():
    assert not judge([], [], []).is_fine


def test_what_was_published_and_is_nowhere_is_lost():
    verdict = verdict_of(result(0, [0, 1, 2, 4, 5, 7]))

    assert verdict.lost == 2
    assert not verdict.is_fine


def test_a_dead_letter_is_not_lost():
    verdict = verdict_of(result(0, range(7)), dead=[row(7)])

    assert (verdict.lost, verdict.dead) == (0, 1)
    assert verdict.is_fine


def test_what_was_published_without_an_answer_may_be_there_or_not():
    absent = verdict_of(result(0, range(8)))
    present = verdict_of(result(0, range(9)))

    assert (absent.unacknowledged, absent.lost) == (0, 0)
    assert (present.unacknowledged, present.lost) == (1, 0)
    assert absent.is_fine
    assert present.is_fine


@pytest.mark.parametrize("stranger", [row(10), row(0, producer="q")], ids=["beyond", "unknown"])
def test_what_nobody_has_sent_is_invented(stranger: Row):
    verdict = verdict_of(Result("a", 0, [*map(row, range(8)), stranger], acked=True))

    assert verdict.invented == 1
    assert not verdict.is_fine


@pytest.mark.parametrize(
    "damage",
    [
        lambda sound: replace(sound, body=sound.body[:-1]),
        lambda sound: replace(sound, body=sound.body.replace("a", "b", 1)),
        lambda sound: replace(sound, body=""),
        lambda sound: replace(sound, key="p:0"),
        lambda sound: replace(sound, key=None),
    ],
    ids=["shorter", "another letter", "empty", "another key", "no key"],
)
def test_a_message_that_is_not_as_it_was_sent_is_damaged_and_lost(damage):
    verdict = verdict_of(Result("a", 0, [*map(row, range(7)), damage(row(7))], acked=True))

    assert (verdict.damaged, verdict.lost) == (1, 1)
    assert not verdict.is_fine


def test_a_copy_under_a_broken_lease_is_a_duplicate_with_an_excuse():
    broken = result(1, [7], acked=False)
    again = result(0, [7], consumer="b", deliveries=2)

    verdict = verdict_of(result(0, range(7)), broken, again)

    assert (verdict.duplicated, verdict.duplicated_under_lease, verdict.redelivered) == (1, 0, 1)
    assert verdict.is_fine


def test_a_copy_delivered_after_a_good_ack_has_no_excuse():
    again = result(0, [7], consumer="b", deliveries=2, acked=False)

    verdict = verdict_of(result(0, range(8)), again)

    assert (verdict.duplicated, verdict.duplicated_under_lease) == (1, 1)
    assert not verdict.is_fine


def test_two_good_acks_of_one_message_have_no_excuse():
    verdict = verdict_of(result(0, range(8)), result(1, [7], deliveries=2))

    assert verdict.duplicated_under_lease == 1


def test_a_message_that_is_twice_in_one_batch_has_no_excuse():
    verdict = verdict_of(result(0, [*range(8), 7]))

    assert verdict.duplicated_under_lease == 1


def test_of_a_message_that_was_put_anew_each_copy_has_its_own_acks():
    results = result(0, range(8)), result(1, [7], consumer="b")

    verdict = judge([SENT], results, [], several={Message("p", 7)})

    assert (verdict.duplicated, verdict.duplicated_under_lease) == (1, 0)
    assert judge([SENT], results, [], several={Message("p", 6)}).duplicated_under_lease == 1


def test_a_first_delivery_after_a_later_message_of_its_lane_is_reordered():
    assert verdict_of(result(0, [0, 1, 2, 4, 5, 6, 7]), result(1, [3])).reordered == 1


def test_lanes_and_consumers_have_no_order_among_each_other():
    lanes = [*range(0, 8, LANES), *range(1, 8, LANES)]

    assert verdict_of(result(0, lanes)).reordered == 0
    assert verdict_of(result(0, [6, 7]), result(0, range(6), consumer="b")).reordered == 0


def test_what_is_delivered_again_may_come_later():
    late = result(1, [3], deliveries=2)

    assert verdict_of(result(0, [0, 1, 2, 4, 5, 6, 7]), late).is_fine


def test_batches_are_taken_in_the_order_of_their_numbers():
    assert verdict_of(result(10, range(4, 8)), result(9, range(4))).reordered == 0


def by_key(*results: Result) -> Verdict:
    sent = Sent("p", acknowledged=3 * KEYS, attempted=3 * KEYS)
    return judge([sent], results, [row(each) for each in range(3 * KEYS)], by_key=True)


def test_by_key_other_keys_have_no_order_even_of_one_task():
    assert by_key(result(0, [LANES, 0, KEYS, KEYS + LANES])).is_fine


def test_by_key_a_message_that_another_consumer_processed_too_soon_is_told():
    late = replace(result(0, [0]), stored_at=2)
    soon = replace(result(0, [KEYS], consumer="b"), stored_at=1)

    verdict = by_key(late, soon)

    assert (verdict.reordered, verdict.reordered_by_key) == (0, 1)
    assert not verdict.is_fine
    assert by_key(replace(late, stored_at=0), soon).is_fine


def test_by_key_a_message_that_is_processed_once_more_later_was_in_time():
    first = replace(result(0, [0, KEYS], acked=False), stored_at=1)
    again = replace(result(0, [0], consumer="b", deliveries=2), stored_at=2)

    assert by_key(first, again).reordered_by_key == 0


def test_by_key_order_within_a_batch_counts():
    assert by_key(result(0, [KEYS, 0, 2 * KEYS])).reordered_by_key == 1


STARTED = {"event": "started"}


def stored(batch: int) -> dict[str, object]:
    return {"event": "stored", "batch": batch}


def told(batch: int, lost: int | None) -> dict[str, object]:
    return {"event": "progress", "batch": batch, "lost": lost}


def test_a_batch_is_acked_when_spark_tells_of_the_next_one():
    events = [STARTED, stored(0), told(0, 0), stored(1), told(1, 0), stored(2)]

    assert acked_batches(events) == {0}


def test_a_batch_whose_lease_was_lost_is_not_acked_and_the_ones_after_it_are():
    events = [STARTED, stored(0), told(0, 0), stored(1), told(1, 5), stored(2), told(2, 5)]

    assert acked_batches(events) == {1}


def test_a_batch_before_a_restart_is_not_surely_acked():
    events = [STARTED, stored(0), told(0, 0), STARTED, stored(1), told(1, None)]

    assert acked_batches(events) == set()


def test_a_replayed_batch_is_acked_by_the_one_after_it():
    events = [STARTED, stored(4), STARTED, stored(4), told(4, None), stored(5), told(5, 0)]

    assert acked_batches(events) == {4}


def test_a_batch_before_a_stop_is_not_surely_acked_by_the_next_run_of_the_query():
    query = {"event": "query"}
    events = [STARTED, query, stored(0), told(0, 0), query, stored(1), told(1, 0)]

    assert acked_batches(events) == set()
    assert acked_batches([*events, stored(2), told(2, 0)]) == {1}


def attempt(
    batch: int,
    numbers: Iterable[int],
    *,
    deliveries: int = 1,
    query: str = "a",
    rewound: bool = False,
) -> Try:
    rows = [row(number, deliveries) for number in numbers]
    return Try(query, batch, rows, rewound=rewound)


def relay_of(*tries: Try, arrived: Iterable[int], dead: Iterable[int] = ()) -> RelayVerdict:
    return judge_relay([SENT], tries, map(row, arrived), map(row, dead))


def test_a_relay_that_passes_everything_on_once_is_fine():
    verdict = relay_of(attempt(0, range(5)), attempt(1, range(5, 8)), arrived=range(8))

    assert verdict == RelayVerdict(
        relayed=8,
        relay_lost=0,
        relay_damaged=0,
        relay_invented=0,
        relay_doubled=0,
        relay_doubled_without_reason=0,
        relay_held_twice=0,
        relay_dead=0,
    )
    assert verdict.is_fine


def test_what_a_relay_had_and_did_not_pass_on_is_lost_unless_it_is_dead():
    skipped = attempt(0, range(8))

    lost = relay_of(skipped, arrived=range(6))
    dead = relay_of(skipped, arrived=range(6), dead=[6, 7])

    assert (lost.relay_lost, lost.is_fine) == (2, False)
    assert (dead.relay_lost, dead.relay_dead, dead.is_fine) == (0, 2, True)


def test_a_batch_that_was_tried_twice_and_arrived_twice_has_no_reason():
    tries = attempt(0, range(8)), attempt(0, [7], deliveries=2)

    verdict = relay_of(*tries, arrived=[*range(8), 7])

    assert (verdict.relay_doubled, verdict.relay_doubled_without_reason) == (1, 1)
    assert not verdict.is_fine


@pytest.mark.parametrize(("batch", "query"), [(1, "a"), (0, "b")], ids=["lease", "checkpoint"])
def test_what_came_again_in_another_batch_may_be_there_twice(batch: int, query: str):
    again = attempt(batch, [7], deliveries=2, query=query)

    verdict = relay_of(attempt(0, range(8)), again, arrived=[*range(8), 7])

    assert (verdict.relay_doubled, verdict.relay_doubled_without_reason) == (1, 0)
    assert verdict.is_fine


def test_what_a_rewound_checkpoint_publishes_has_no_reason():
    rewound = attempt(1, [7], deliveries=2, rewound=True)

    verdict = relay_of(attempt(0, range(8)), rewound, arrived=[*range(8), 7])

    assert verdict.relay_doubled_without_reason == 1


def test_two_batches_with_one_delivery_of_a_message_are_held_twice():
    verdict = relay_of(attempt(0, range(8)), attempt(1, [7]), arrived=range(8))

    assert (verdict.relay_held_twice, verdict.is_fine) == (1, False)


def test_a_relay_may_pass_on_each_copy_of_a_message_that_was_put_anew():
    tries, arrived = [attempt(0, range(8)), attempt(1, [7])], [*range(8), 7, 7]

    def verdict_if(several: int) -> RelayVerdict:
        rows = map(row, arrived)
        return judge_relay([SENT], tries, rows, [], several={Message("p", several)})

    assert (verdict_if(7).relay_doubled, verdict_if(7).is_fine) == (2, True)
    other = verdict_if(6)
    assert (other.relay_doubled_without_reason, other.relay_held_twice) == (1, 1)


def test_what_arrives_changed_or_from_nobody_is_found():
    damaged = Row("p:7", "p:7:", 1)

    verdict = judge_relay([SENT], [], [*map(row, range(8)), row(10), damaged], [])

    assert (verdict.relay_damaged, verdict.relay_invented, verdict.relay_lost) == (1, 1, 0)
    assert not verdict.is_fine


def test_what_becomes_of_rewound_checkpoints_is_counted():
    events = [
        STARTED,
        {"event": "rewinding", "copy": 3, "newest": 8},
        {"event": "refused", "error": "BatchOrderError"},
        {"event": "rewinding", "copy": 4, "newest": 9},
        {"event": "not refused", "batch": 5},
    ]

    assert rewinds(events) == Rewinds(rewound=2, refused=1, not_refused=1)


def test_a_message_is_read_back_as_it_is_written():
    message = Message("p", 11)

    assert read_message(message.key, message.body) == message
    assert message.lane == ("p", 11 % LANES)
