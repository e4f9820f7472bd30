"""A scene, played once or in every order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from cassieq_spark.testing.faults import Fault
from cassieq_spark.testing.tearing import Draws
from tests.property.interleavings.scenes import SCENES
from tests.property.interleavings.schedule import Choice, orders, read, written
from tests.property.interleavings.stage import EVENTS, Trouble
from tests.support.repeatable import repeatable

#: Which replicas plain reads ask while a commit is on one only; see `TearingStore`.
DRAWS: tuple[Draws, ...] = ("sf", "fs", "s")


@dataclass(frozen=True, slots=True)
class Performance:
    """What came of a scene.

    Attributes:
        choices: The turns that were taken, with what else could have been.
        is_torn: Whether plain reads could have seen something else by asking other replicas.
    """

    choices: Sequence[Choice]
    is_torn: bool


def perform(
    scene: str, trouble: Trouble | None, turns: Sequence[str], draws: Draws = DRAWS[0]
) -> Performance:
    """Play a scene, its processes taking these turns first, and check all that has to hold."""
    set_up = SCENES[scene]()
    patch = repeatable(set_up.clock)
    play = None
    try:
        set_up.begin()
        set_up.replicas.draw(draws)
        play = set_up.stage.play(trouble, set_up.check)
        play.run(turns)
        set_up.stage.close()
        set_up.end()
    except BaseException as error:
        taken = written(choice.chosen for choice in play.choices) if play else ""
        played = (scene, str(trouble or ""), draws)
        error.add_note(f"to repeat it: @example(played={played!r}, turns={taken!r})")
        raise
    finally:
        set_up.stage.close()
        patch.undo()
    return Performance(play.choices, is_torn=set_up.replicas.drawn > 0)


def perform_as_written(scene: str, trouble: str, draws: Draws, turns: str) -> None:
    """The same, all of it in writing."""
    perform(scene, Trouble.read(trouble), read(turns), draws)


def perform_in_every_order(
    scene: str, trouble: Trouble | None, preemptions: int, most: int | None = None
) -> int:
    """Play a scene in every order with so few preemptions; if reads can tear, in several ways.

    ``most`` limits how many orders are played; see `orders`.

    Returns:
        How many orders there were.
    """
    # With two kinds of events that may come anywhere there are too many orders.
    events = EVENTS if trouble is None else EVENTS - {"t"}

    def run(turns: Sequence[str]) -> Sequence[Choice]:
        first = perform(scene, trouble, turns)
        taken = [choice.chosen for choice in first.choices]
        for draws in DRAWS[1:] if first.is_torn else ():
            perform(scene, trouble, taken, draws)
        return first.choices

    return sum(1 for _ in orders(run, preemptions, events=events, most=most))


def troubles_of(scene: str) -> Iterator[Trouble]:
    """Whatever may befall one of the processes of a scene."""
    set_up = SCENES[scene]()
    patch = repeatable(set_up.clock)
    try:
        set_up.begin()
    finally:
        patch.undo()
    for name in set_up.stage.names:
        yield Trouble(name)
        for at in range(set_up.writes):
            yield from (Trouble(name, fault, at) for fault in Fault)
