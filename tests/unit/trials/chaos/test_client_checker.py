"""The judge of the clients of a chaos run finds each fault in a history, and nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pytest

from trials.chaos.checker import KEYS, Message, Row, Sent
from trials.chaos.client_checker import (
    MARGIN_SECONDS,
    ClientVerdict,
    Event,
    judge_clients,
    name_of,
    put_anew,
    sent_by,
)

LEASE, WINDOW = 10.0, 180.0
SCRIBE = "s"
#: The first three messages of one key.
A, B, C = 0, KEYS, 2 * KEYS
WRONG = [
    "client_lost",
    "client_damaged",
    "client_invented",
    "client_reordered",
    "client_early",
    "client_held_twice",
    "client_again",
    "client_visible_twice",
]


def received(
    call: str, began: float, numbers: Iterable[int], *, place: int = 0, deliveries: int = 1
) -> Event:
    """A receive that took a second; message n is at monoton n."""
    names = ((name_of(Message(SCRIBE, each)), each + place) for each in numbers)
    messages = [(name, 0, monoton, deliveries) for name, monoton in names]
    times = {"began": began, "at": began + 1, "lease": LEASE}
    return {"event": "received", "call": call, **times, "messages": messages}


def processed(call: str, at: float, nth: int = 0) -> Event:
    return {"event": "processed", "call": call, "nth": nth, "at": at}


def settling(call: str, at: float, *nth: int, verb: str = "ack") -> Event:
    return {"event": "settling", "call": call, "verb": verb, "messages": nth, "at": at}


def settled(call: str, at: float, *nth: int, verb: str = "ack", **more: Any) -> Event:
    told = {"event": "settled", "call": call, "verb": verb, "messages": nth}
    return told | {"at": at, "began": at - 1, **more}


def done(call: str, began: float, numbers: Sequence[int], **more: Any) -> list[Event]:
    """A call whose messages are processed two seconds later, and acked by the fourth."""
    every = range(len(numbers))
    return [
        received(call, began, numbers, **more),
        *(processed(call, began + 2 + nth / 10, nth) for nth in every),
        settling(call, began + 3, *every),
        settled(call, began + 4, *every),
    ]


def put(numbers: Sequence[int], at: float, place: int | None = None) -> list[Event]:
    told = {"producer": SCRIBE, "numbers": numbers}
    return [
        {"event": "putting", **told, "at": at},
        {"event": "put", **told, "at": at + 1, "place": None if place is None else (0, place)},
    ]


def verdict_of(
    *told: Sequence[Event],
    sent: int = 0,
    puts: Sequence[Event] = (),
    dead: Iterable[int] = (),
    elsewhere: Iterable[int] = (),
) -> ClientVerdict:
    letters = (Message(SCRIBE, each) for each in dead)
    return judge_clients(
        [Sent(SCRIBE, acknowledged=sent, attempted=4 * KEYS)],
        puts,
        told,
        [Row(each.key, each.body, 1) for each in letters],
        window=WINDOW,
        is_elsewhere=lambda message: message.number in elsewhere,
    )


def wrong(verdict: ClientVerdict) -> dict[str, int]:
    found = {name: getattr(verdict, name) for name in WRONG if getattr(verdict, name)}
    assert verdict.is_fine == (not found and verdict.client_acked > 0)
    return found


def test_a_run_in_which_each_message_comes_once_in_order_is_fine():
    verdict = verdict_of(done("1", 0, [0, 1]), done("2", 0.5, [2, 3]), sent=4)

    assert wrong(verdict) == {}
    assert (verdict.client_deliveries, verdict.client_acked) == (4, 4)
    assert verdict.client_redelivered == verdict.client_repeats == verdict.client_dead == 0


def test_a_run_in_which_nobody_received_anything_is_not_fine():
    assert not verdict_of().is_fine


def test_what_was_published_and_not_processed_is_lost_unless_it_is_dead():
    assert wrong(verdict_of(done("1", 0, [0, 1]), sent=4)) == {"client_lost": 2}
    assert wrong(verdict_of(done("1", 0, [0, 1]), sent=4, dead=[2, 3])) == {}


def test_what_was_sent_to_a_queue_that_the_clerks_do_not_read_is_not_theirs():
    assert wrong(verdict_of(done("1", 0, [0, 1]), sent=4, elsewhere=[2, 3])) == {}
    assert wrong(verdict_of(done("1", 0, [0, 1]), sent=2, elsewhere=[1])) == {"client_invented": 1}


def test_what_was_only_received_is_lost():
    verdict = verdict_of(done("1", 0, [0]), [received("2", 0, [1])], sent=2)

    assert wrong(verdict) == {"client_lost": 1}


def test_what_was_changed_or_sent_by_nobody_is_found():
    strange: dict[str, Any] = {
        "event": "received",
        "call": "1",
        "began": 0,
        "at": 1,
        "lease": LEASE,
    }
    damaged = strange | {"messages": [(None, 0, 0, 1)]}
    invented = strange | {"messages": [("t:0", 0, 9, 1)]}

    assert wrong(verdict_of(done("2", 0, [0]), [damaged])) == {"client_damaged": 1}
    assert wrong(verdict_of(done("2", 0, [0]), [invented])) == {"client_invented": 1}


def test_a_message_that_is_processed_after_a_later_one_of_its_key_is_out_of_order():
    first, second = done("1", 0, [A]), done("2", 5, [B])
    first[1], second[1] = processed("1", 8), processed("2", 7)

    assert wrong(verdict_of(first, second)) == {"client_reordered": 1}


def test_a_message_that_was_processed_in_time_may_be_processed_once_more_later():
    once = [received("1", 0, [A]), processed("1", 2), settling("1", 3, 0)]

    assert wrong(verdict_of(once, done("2", 5, [B]), done("3", 20, [A], deliveries=2))) == {}


@pytest.mark.parametrize("later", [B, C])
def test_a_message_that_is_handed_out_before_an_earlier_one_of_its_key_is_settled(later: int):
    held = [received("1", 0, [A]), processed("1", 1.5)]

    assert wrong(verdict_of(held, done("2", 2, [later]))) == {"client_early": 1}
    assert wrong(verdict_of(held, done("2", 2, [1]))) == {}


def test_it_is_so_if_nobody_holds_the_earlier_one():
    released = [received("1", 0, [A]), settling("1", 1.5, 0, verb="release")]
    released.append(settled("1", 2, 0, verb="release"))
    never = done("2", 50, [B])

    assert wrong(verdict_of(released, never)) == {"client_early": 1}
    assert wrong(verdict_of(never)) == {"client_early": 1}


def test_it_may_come_after_the_earlier_one_in_the_same_call_and_not_before_it():
    assert wrong(verdict_of(done("1", 0, [A, B, C]))) == {}
    assert wrong(verdict_of(done("1", 0, [B, A]))) == {"client_early": 1, "client_reordered": 1}


def test_it_may_come_once_the_ack_of_the_earlier_one_has_begun_whatever_became_of_that():
    unknown = [received("1", 0, [A]), processed("1", 1.5), settling("1", 2.5, 0)]

    assert wrong(verdict_of(unknown, done("2", 2, [B]))) == {}
    assert wrong(verdict_of(unknown, done("2", 1, [B]))) == {"client_early": 1}


def test_an_ack_that_came_too_late_settles_nothing():
    stale = [received("1", 0, [A]), processed("1", 1.5), settling("1", 2.5, 0), settled("1", 3)]

    assert wrong(verdict_of(stale, done("2", 20, [B]))) == {"client_early": 1}


def test_it_may_come_if_the_earlier_one_is_a_dead_letter():
    assert wrong(verdict_of(done("2", 0, [B]), dead=[A])) == {}


def held(*more: Event) -> list[Event]:
    return [received("1", 0, [A]), processed("1", 1.5), *more]


def again(began: float) -> list[Event]:
    return done("2", began, [A], deliveries=2)


def test_a_message_that_somebody_gets_while_another_one_holds_it_is_held_twice():
    at_the_end = LEASE - MARGIN_SECONDS - 1

    assert wrong(verdict_of(held(), again(2))) == {"client_held_twice": 1}
    assert wrong(verdict_of(held(), again(at_the_end - 0.1))) == {"client_held_twice": 1}
    assert wrong(verdict_of(held(), again(at_the_end))) == {}


@pytest.mark.parametrize("verb", ["ack", "release"])
def test_nobody_certainly_holds_what_is_being_settled(verb: str):
    assert wrong(verdict_of(held(settling("1", 2.5, 0, verb=verb)), again(2))) == {}
    assert wrong(verdict_of(held(settling("1", 3.5, 0, verb=verb)), again(2))) == {
        "client_held_twice": 1
    }


def test_a_lease_that_was_extended_lasts_longer():
    extending = settling("1", 4, 0, verb="extend")
    extended = settled("1", 5, 0, verb="extend", by=15.0)

    verdict = verdict_of(held(extending, extended), again(17))

    assert wrong(verdict) == {"client_held_twice": 1}
    assert wrong(verdict_of(held(extending, extended), again(18.5))) == {}
    assert wrong(verdict_of(held(extending), again(17))) == {}


def test_an_answer_that_comes_when_the_lease_is_over_holds_nothing():
    late = received("1", 0, [A])

    assert wrong(verdict_of([{**late, "at": 14}], again(12))) == {}


def test_a_message_that_comes_again_after_its_ack_was_confirmed_is_told():
    verdict = verdict_of(done("1", 0, [A]), again(20))

    assert wrong(verdict) == {"client_again": 1}
    assert verdict.client_redelivered == 1
    assert wrong(verdict_of(done("1", 0, [A]), again(3.5))) == {}


def test_a_message_that_is_in_two_places_was_published_twice():
    twice = done("2", 5, [A], place=7)

    assert wrong(verdict_of(done("1", 0, [A]), twice)) == {"client_visible_twice": 1}


def test_an_answer_that_names_another_place_is_a_second_message():
    verdict = verdict_of(done("1", 0, [A]), puts=put([A, A + 1], 0, place=7))

    assert wrong(verdict) == {"client_visible_twice": 1}
    assert wrong(verdict_of(done("1", 0, [A]), puts=put([A, A + 1], 0, place=A))) == {}


def test_a_put_that_is_repeated_after_the_window_is_another_message():
    def verdict_when_repeated(at: float) -> ClientVerdict:
        puts = [*put([A, A + 2], 0), *put([A, A + 2], at)]
        return verdict_of(done("1", 0, [A]), done("2", 300, [A], place=7), puts=puts)

    assert verdict_when_repeated(WINDOW).client_visible_twice == 0
    assert put_anew([*put([A, A + 2], 0), *put([A, A + 1], WINDOW)], WINDOW) == {
        Message(SCRIBE, A)
    }
    assert verdict_when_repeated(WINDOW - 2).client_visible_twice == 1
    assert verdict_when_repeated(5).client_repeats == 2


def test_what_a_scribe_has_sent_is_told_by_what_it_began_and_what_was_answered():
    echo = [{**each, "producer": "t"} for each in put([90, 99], 3)]
    tried = put([5, 8], 4)[:1]

    assert sent_by(SCRIBE, [*put([0, 5], 0), *tried, *put([0, 2], 5), *echo]) == Sent(SCRIBE, 5, 8)
    assert sent_by(SCRIBE, []) == Sent(SCRIBE, 0, 0)
