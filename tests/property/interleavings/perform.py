"""A scene, played once or in every order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from cassieq_spark.testing.faults import Fault
from tests.property.interleavings.scenes import SCENES
from tests.property.interleavings.schedule import Choice, orders, read, written
from tests.property.interleavings.stage import EVENTS, Trouble
from tests.support.repeatable import repeatable


def perform(scene: str, trouble: Trouble | None, turns: Sequence[str]) -> Sequence[Choice]:
    """Play a scene, its processes taking these turns first, and check all that has to hold.

    Returns:
        The turns that were taken, with what else could have been.
    """
    set_up = SCENES[scene]()
    patch = repeatable(set_up.clock)
    play = None
    try:
        set_up.begin()
        play = set_up.stage.play(trouble, set_up.check)
        play.run(turns)
        set_up.stage.close()
        set_up.end()
    except BaseException as error:
        taken = written(choice.chosen for choice in play.choices) if play else ""
        played = (scene, str(trouble or ""))
        error.add_note(f"to repeat it: @example(played={played!r}, turns={taken!r})")
        raise
    finally:
        set_up.stage.close()
        patch.undo()
    return play.choices


def perform_as_written(scene: str, trouble: str, turns: str) -> None:
    """The same, all of it in writing."""
    perform(scene, Trouble.read(trouble), read(turns))


def perform_in_every_order(scene: str, trouble: Trouble | None, preemptions: int) -> int:
    """Play a scene in every order with so few preemptions.

    Returns:
        How many orders there were.
    """
    # With two kinds of events that may come anywhere there are too many orders.
    events = EVENTS if trouble is None else EVENTS - {"t"}
    every = orders(lambda turns: perform(scene, trouble, turns), preemptions, events=events)
    return sum(1 for _ in every)


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
