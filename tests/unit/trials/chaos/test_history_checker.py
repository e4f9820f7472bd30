"""The judge of the history of a chaos run finds each wrong event, and nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import pytest

from tests.unit.trials.chaos.test_client_checker import put, received, settled, settling
from trials.chaos.client_checker import Event
from trials.chaos.history_checker import Entry, HistoryVerdict, judge_history

GROUP = "g"
#: A time before all that clerks do, and one far behind it.
LONG_AGO, LATE = -1000.0, 1000.0


def receiving(call: str, at: float) -> Event:
    return {"event": "receiving", "call": call, "at": at}


def failed() -> Event:
    return {"event": "failed", "error": "lost"}


def entry(
    did: str, monoton: int, at: float, deliveries: int | None = None, by: str = "c"
) -> Entry:
    return Entry(GROUP, (0, monoton), did, by, at, "lease", deliveries)


#: A clerk gets messages 0 to 2, extends 0, releases 1, acks 0 and 2.
TOLD: Sequence[Event] = [
    receiving("1", 100),
    received("1", 100, [0, 1, 2]),
    settling("1", 110, 0, verb="extend"),
    settled("1", 111, 0, verb="extend", by=25),
    settling("1", 120, 1, verb="release"),
    settled("1", 121, 1, verb="release", delay=1),
    settling("1", 130, 0, 2),
    settled("1", 131, 0, 2),
]
HISTORY: Sequence[Entry] = [
    *(entry("leased", monoton, 100.5, 1) for monoton in range(3)),
    entry("extended", 0, 110.5),
    entry("released", 1, 120.5),
    entry("acked", 0, 130.5),
    entry("acked", 2, 130.5),
]


def verdict_of(
    history: Iterable[Entry],
    told: Mapping[str, Sequence[Event]] | None = None,
    puts: Iterable[Event] = (),
    end: int = 10,
) -> HistoryVerdict:
    told = {"c": TOLD} if told is None else told
    return judge_history([*history], told, puts, group=GROUP, ends={0: end})


def figures(verdict: HistoryVerdict) -> tuple[int, int]:
    assert verdict.is_fine == (verdict.history_wrong == 0 and verdict.history_events > 0)
    return verdict.history_wrong, verdict.history_missing


def test_a_history_that_is_what_the_clerk_has_told_is_fine_and_complete():
    assert figures(verdict_of(HISTORY)) == (0, 0)
    assert verdict_of(HISTORY).history_events == 7


def test_a_run_without_any_history_is_not_fine():
    assert not verdict_of([], {}).is_fine


@pytest.mark.parametrize("gone", range(len(HISTORY)))
def test_what_is_missing_is_counted_and_not_wrong(gone: int):
    assert figures(verdict_of([*HISTORY[:gone], *HISTORY[gone + 1 :]])) == (0, 1)


@pytest.mark.parametrize(
    "wrong",
    [
        # By nobody, by somebody else, of a message of others.
        replace(HISTORY[3], by=None),
        entry("acked", 3, 130.5, by="d"),
        entry("acked", 3, 130.5),
        entry("leased", 3, 100.5, 1),
        # It was released; it was never rejected.
        entry("acked", 1, 130.5),
        entry("rejected", 1, 130.5),
        # Long before, long after.
        entry("leased", 0, LONG_AGO, 1),
        entry("leased", 0, LATE, 1),
        replace(entry("extended", 0, LATE), lease="other"),
        # A second ack; another delivery.
        entry("acked", 0, 130.6),
        entry("leased", 2, 100.6, 2),
        # A message that there is not.
        entry("leased", 10, 100.5, 1),
        # It was handed over, so the receive has not released it.
        entry("released", 0, 100.5),
        # Messages died, or were given back, although nobody received.
        entry("released", 5, LATE),
        entry("dead", 5, LATE, 5),
        entry("returned", 5, LATE),
    ],
    ids=str,
)
def test_each_event_that_contradicts_the_clerk_is_counted(wrong: Entry):
    assert figures(verdict_of([*HISTORY, wrong])) == (1, 0)


def test_a_receive_releases_what_it_cannot_read():
    unread = [entry("leased", 3, 100.5, 2), entry("released", 3, 100.5)]

    # It has handed over the messages of other partitions, or failed.
    assert figures(verdict_of([*HISTORY, *unread])) == (0, 0)
    assert figures(verdict_of(unread, {"c": [receiving("1", 100), failed()]})) == (0, 0)


def test_an_event_before_its_message_was_put_is_wrong():
    assert figures(verdict_of(HISTORY, puts=put([0, 3], 90))) == (0, 0)
    assert figures(verdict_of(HISTORY, puts=put([0, 1], 105))) == (1, 0)


def test_an_event_before_its_lease_is_wrong():
    early = [*HISTORY[1:], entry("leased", 0, 117.0, 1)]
    told = [receiving("1", 100), received("1", 100, [0, 1, 2], deliveries=1), *TOLD[2:]]
    told[1] = {**told[1], "at": 118}

    assert figures(verdict_of(early, {"c": told})) == (1, 0)


def test_two_acks_of_a_group_that_has_told_nothing_are_wrong():
    others = [replace(entry("acked", 0, at), group="stream", by="spark") for at in (1, 2)]

    assert figures(verdict_of([*HISTORY, others[0]])) == (0, 0)
    assert figures(verdict_of([*HISTORY, *others])) == (1, 0)


def test_what_was_done_by_a_call_without_an_answer_is_certain_in_neither_way():
    told = [
        receiving("1", 100),
        failed(),
        receiving("2", 150),
        received("2", 150, [0, 1]),
        settling("2", 160, 0, 1),
        failed(),
        receiving("3", 200),
    ]
    sure = [entry("leased", monoton, 150.5, 2) for monoton in (0, 1)]
    maybe = [
        *(replace(entry("leased", monoton, 100.5, 1), lease="other") for monoton in (0, 7)),
        entry("acked", 0, 160.5),
        entry("leased", 9, 200.5, 1),
    ]
    told[3] = received("2", 150, [0, 1], deliveries=2)

    assert figures(verdict_of(sure, {"c": told})) == (0, 0)
    assert figures(verdict_of([*sure, *maybe], {"c": told})) == (0, 0)
    # The clerk had begun something else by then; and it had not named this message.
    after = replace(entry("leased", 7, 160, 1), lease="third")
    assert figures(verdict_of([*sure, after], {"c": told})) == (1, 0)
    assert figures(verdict_of([*sure, entry("acked", 2, 160.5)], {"c": told})) == (1, 0)


def test_an_attempt_that_failed_may_have_leased_other_messages_than_the_last_one():
    told = [receiving("1", 100), failed(), received("1", 100, [0])]
    history = [entry("leased", 0, 100.5, 1), entry("leased", 4, 100.2, 1)]

    assert figures(verdict_of(history, {"c": told})) == (0, 0)
    without = [each for each in told if each["event"] != "failed"]
    assert figures(verdict_of(history, {"c": without})) == (1, 0)


def test_messages_that_were_given_back_unread_or_died_are_no_contradiction():
    told = [receiving("1", 100), received("1", 100, [0])]
    history = [
        entry("leased", 0, 100.5, 1),
        entry("leased", 1, 100.5, 1),
        entry("returned", 1, 100.6),
        entry("dead", 2, 100.5, 5),
    ]

    assert figures(verdict_of(history, {"c": told})) == (0, 0)


def test_a_stale_receipt_of_an_ack_explains_no_event():
    told = [*TOLD[:2], settling("1", 110, 0, 1), settled("1", 111, 0)]
    history = [*HISTORY[:3], entry("acked", 0, 110.5)]

    assert figures(verdict_of(history, {"c": told})) == (0, 0)
    assert figures(verdict_of([*history, entry("acked", 1, 110.5)], {"c": told})) == (1, 0)
