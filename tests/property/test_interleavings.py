"""Several at once on one store, in every order with few preemptions, and in any other order.

Each process stops before every call of the store and goes on when it is told to. Meanwhile time
passes, a compare-and-set is lost, late, or on one replica only, or a process is killed. What has
to hold is checked at every compare-and-set, after every turn and at the end; see
`interleavings.scenes`.
"""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.property.interleavings.perform import (
    DRAWS,
    perform,
    perform_as_written,
    perform_in_every_order,
    troubles_of,
)
from tests.property.interleavings.scenes import SCENES
from tests.property.interleavings.schedule import written

PROFILE = settings.get_current_profile_name()
IS_NIGHTLY = PROFILE == "nightly"
#: Orders of a scene that are run beside a change; all of them by night, and against mutants.
MOST = {"ci": 12, "dev": 40}.get(PROFILE)
#: Actors and events; one that is not there is passed over.
ACTORS = st.sampled_from("aabbcctnk")
TURNS = st.lists(st.builds("{}{}".format, ACTORS, st.integers(1, 12)), max_size=12).map(" ".join)
PLAYED = [
    (scene, trouble, draws)
    for scene in SCENES
    for trouble in ("", *map(str, troubles_of(scene)))
    for draws in DRAWS
]


@pytest.mark.timeout(timedelta(hours=1).total_seconds())
@pytest.mark.parametrize("scene", SCENES)
def test_in_every_order_with_few_preemptions_every_invariant_holds(scene: str):
    orders = perform_in_every_order(scene, None, SCENES[scene].preemptions + IS_NIGHTLY, MOST)

    assert orders > 1


@pytest.mark.timeout(timedelta(hours=1).total_seconds())
@pytest.mark.parametrize("scene", SCENES)
def test_whoever_is_killed_wherever_every_invariant_holds(scene: str):
    for trouble in troubles_of(scene):
        if trouble.fault is None or IS_NIGHTLY:
            assert perform_in_every_order(scene, trouble, 0, MOST) > 1


@given(played=st.sampled_from(PLAYED), turns=TURNS)
@example(played=("lease against lease", "a ANSWER_LOST 0", "sf"), turns="a6 b9 a9")
@example(played=("replay against replay", "a REQUEST_LOST 0", "sf"), turns="a5 b9 a9")
def test_in_any_order_and_in_any_trouble_every_invariant_holds(
    played: tuple[str, str, str], turns: str
):
    perform_as_written(*played, turns)


@pytest.mark.parametrize("scene", SCENES)
def test_an_order_that_is_repeated_is_the_same_again(scene: str):
    first = perform(scene, None, "abacabbca").choices

    again = perform(scene, None, [choice.chosen for choice in first]).choices

    assert written(each.chosen for each in again) == written(each.chosen for each in first)
    assert again == first
