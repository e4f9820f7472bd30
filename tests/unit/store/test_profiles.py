from __future__ import annotations

import pytest
from cassandra import ConsistencyLevel as Level

from cassieq_spark.settings.connection import ConnectionOptions, Consistency
from cassieq_spark.store.cassandra.clocks import NodeClocks
from cassieq_spark.store.cassandra.session import (
    BULK,
    BULK_READ,
    CAS,
    READ,
    SERIAL_READ,
    _profiles,
)


@pytest.mark.parametrize(
    ("consistency", "plain", "serial"),
    [
        ("LOCAL_QUORUM", Level.LOCAL_QUORUM, Level.LOCAL_SERIAL),
        ("QUORUM", Level.QUORUM, Level.SERIAL),
    ],
)
def test_every_request_has_the_level_of_its_kind(consistency: str, plain: int, serial: int):
    profiles = _profiles(ConnectionOptions(consistency=Consistency(consistency)), NodeClocks())

    kinds = (BULK, CAS, READ, BULK_READ)
    assert {profiles[name].consistency_level for name in kinds} == {plain}
    assert profiles[SERIAL_READ].consistency_level == serial
    assert {each.serial_consistency_level for each in profiles.values()} == {serial}
