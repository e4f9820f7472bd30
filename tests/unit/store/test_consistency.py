from __future__ import annotations

from itertools import combinations

import pytest

from cassieq_spark.errors import OptionError
from cassieq_spark.settings.connection import Consistency, parse_consistency
from cassieq_spark.store.consistency import check_consistency

LOCAL, QUORUM = Consistency.LOCAL_QUORUM, Consistency.QUORUM
BOTH = {"dc1": 3, "dc2": 3}


def check(
    consistency: Consistency,
    replicas: dict[str, int],
    *,
    data_centres: tuple[str, ...] = ("dc1", "dc2"),
    local_dc: str = "dc1",
    given: bool = False,
) -> None:
    check_consistency(
        consistency,
        keyspace="queues",
        replicas=replicas,
        data_centres=data_centres,
        local_dc=local_dc,
        local_dc_given=given,
    )


def quorum(count: int) -> int:
    return count // 2 + 1


@pytest.mark.parametrize("consistency", Consistency)
@pytest.mark.parametrize("replicas", [{"dc1": 1}, {"dc1": 3}, {"dc1": 3, "dc2": 2}, BOTH])
def test_a_read_meets_every_write_and_every_completed_compare_and_set(
    consistency: Consistency, replicas: dict[str, int]
):
    """A compare-and-set that broke off is completed by others at a quorum of its serial level.

    Whichever replicas of the whole cluster that quorum has, the replicas that a plain read asks
    include one of them. So it is with the replicas that a plain write waits for.
    """
    everywhere = [(dc, n) for dc, count in replicas.items() for n in range(count)]
    here = [replica for replica in everywhere if replica[0] == "dc1"]
    asked = {"LOCAL_QUORUM": here, "QUORUM": everywhere}[consistency.value]
    completed = {"LOCAL_SERIAL": here, "SERIAL": everywhere}[consistency.of_conditions]

    for written in (asked, completed):
        for one in combinations(written, quorum(len(written))):
            for other in combinations(asked, quorum(len(asked))):
                assert set(one) & set(other)


def test_compare_and_sets_stay_in_the_data_centre_only_if_all_else_does():
    assert {each: each.of_conditions for each in Consistency} == {
        LOCAL: "LOCAL_SERIAL",
        QUORUM: "SERIAL",
    }


@pytest.mark.parametrize("text", ["QUORUM", "quorum", " Quorum "])
def test_a_level_is_read_in_any_case(text: str):
    assert parse_consistency(text) is QUORUM


@pytest.mark.parametrize("text", ["ONE", "any", "LOCAL_ONE", "TWO", "ALL", "SERIAL", "", "strong"])
def test_weak_and_unknown_levels_are_refused_with_a_reason(text: str):
    with pytest.raises(OptionError, match=r"expected LOCAL_QUORUM, QUORUM\. .*a quorum"):
        parse_consistency(text)


@pytest.mark.parametrize("text", ["EACH_QUORUM", "each_quorum "])
def test_a_quorum_of_each_data_centre_is_refused_with_what_to_use_instead(text: str):
    with pytest.raises(
        OptionError, match=r"a read .* may miss, .* lost\. Use QUORUM if .*, LOCAL_QUORUM if"
    ):
        parse_consistency(text)


@pytest.mark.parametrize(
    ("consistency", "replicas", "given"),
    [
        (LOCAL, {"dc1": 3}, False),
        (LOCAL, {"dc1": 1}, True),
        (LOCAL, {"dc1": 3, "dc2": 0}, False),
        (LOCAL, BOTH, True),
        (QUORUM, BOTH, False),
        (QUORUM, {"dc2": 3}, False),
        (QUORUM, {"SimpleStrategy": 3}, False),
    ],
)
def test_what_a_keyspace_can_keep_is_accepted(
    consistency: Consistency, replicas: dict[str, int], given: bool
):
    check(consistency, replicas, given=given)


def test_a_local_quorum_of_a_simple_strategy_needs_a_cluster_of_one_data_centre():
    check(LOCAL, {"SimpleStrategy": 3}, data_centres=("dc1",))

    with pytest.raises(OptionError, match="replicas belong to no data centre; use QUORUM"):
        check(LOCAL, {"SimpleStrategy": 3}, given=True)


def test_a_data_centre_without_replicas_is_named_with_those_that_there_are():
    with pytest.raises(
        OptionError, match=r"\(dc1=3, dc2=3\): it has no replica in data centre 'dc3'"
    ):
        check(LOCAL, BOTH, local_dc="dc3", given=True)


def test_with_replicas_in_several_data_centres_the_local_one_must_be_named():
    with pytest.raises(OptionError, match="the local one must be named, and be the same for all"):
        check(LOCAL, BOTH)
