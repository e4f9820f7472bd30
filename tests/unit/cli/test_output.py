from __future__ import annotations

import pytest

from cassieq_spark.cli.output import tell_unexamined
from cassieq_spark.queues.stats import GroupStats


def test_people_are_told_of_the_messages_that_stats_did_not_look_at(
    capsys: pytest.CaptureFixture[str],
):
    whole = GroupStats("billing", 5, 0, 0, 5, 0, None, 0, 0)
    cut = GroupStats("shipping", 20_000, 0, 0, 10_000, 0, None, 0, 0, unexamined=9_999)

    tell_unexamined([whole, cut])

    assert capsys.readouterr().out == (
        "Group shipping: waiting and oldest leave out 9,999 messages after the first 10,000 "
        "blocks, some of them delayed.\n"
    )
