"""Histories on a node whose answers are lost at times; `make linearizability` pauses it, too."""

from __future__ import annotations

import random
import time

import pytest

from cassieq_spark.settings.connection import ConnectionOptions
from cassieq_spark.store import open_store
from cassieq_spark.store.tables import Table
from tests.support.proxy import Proxy
from tests.support.recorded import find_violations
from trials.linearizability import gather

THREADS = 5
CALLS = 20


@pytest.mark.parametrize("partitions", [1, 2])
def test_histories_have_an_order_also_when_answers_are_lost(
    through_proxy: ConnectionOptions, proxy: Proxy, partitions: int
):
    store, chosen = open_store(through_proxy), random.Random(1)

    def lose_answers() -> None:
        proxy.lose_answers()
        time.sleep(0.5)
        proxy.restore()
        time.sleep(chosen.uniform(0.05, 0.3))

    # Mostly the first round has an outcome that no read could tell.
    for seed in range(1, 6):
        histories = gather(
            store,
            threads=THREADS,
            calls=CALLS,
            seed=seed,
            partitions=partitions,
            meanwhile=lose_answers,
        ).histories
        assert find_violations(histories) == {}
        assert len(histories) == 2 * partitions
        assert {each.table for each in histories} == {Table.LEDGER, Table.GROUP_STATE}
        if any(call.is_pending for history in histories.values() for call in history):
            break
    else:
        pytest.fail("every lost answer was resolved")
    store.close()
