from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from cassieq_spark.errors import InvariantError
from cassieq_spark.groups.state import head_of as group_head_of
from cassieq_spark.groups.state import registration_of, slots_of, waiting_of
from cassieq_spark.ledger.once import used_of
from cassieq_spark.ledger.state import block_of, group_of, head_of, seek_pin_of, sink_batch_of
from cassieq_spark.store.tables import SHAPES, Table

DECODERS: dict[str, tuple[Table, str, Callable[[Any], object]]] = {
    "head": (Table.LEDGER, "head", head_of),
    "group": (Table.LEDGER, "group", group_of),
    "seek pin": (Table.LEDGER, "seek_pin", seek_pin_of),
    "block": (Table.LEDGER, "block", block_of),
    "sink": (Table.LEDGER, "sink", sink_batch_of),
    "name": (Table.LEDGER, "once", used_of),
    "group's head": (Table.GROUP_STATE, "head", group_head_of),
    "registration": (Table.GROUP_STATE, "registration", registration_of),
    "slot": (Table.GROUP_STATE, "slot", lambda row: slots_of([row])),
    "waiting": (Table.GROUP_STATE, "waiting", lambda row: waiting_of([row])),
}


@pytest.mark.parametrize("what", DECODERS)
def test_a_row_of_nulls_is_one_error_that_names_it(what: str):
    table, kind, decode = DECODERS[what]
    shape = SHAPES[table]
    row = dict.fromkeys((*shape.partition, *shape.clustering, *shape.columns))
    row |= {"queue_id": "q@1", "kind": kind, "ordinal": 0, "position": 0, "name": ""}

    with pytest.raises(InvariantError, match=f"queue_id 'q@1'.*kind '{kind}'.* can't be read"):
        decode(row)
