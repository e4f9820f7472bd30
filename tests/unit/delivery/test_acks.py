from __future__ import annotations

from datetime import timedelta
from uuid import uuid4

import pytest

from cassieq_spark.delivery.acks import are_gone, kept_token, settled_of
from cassieq_spark.delivery.follow import follow, is_quiet, later
from cassieq_spark.delivery.groups import ensure_group
from cassieq_spark.delivery.lease import Delivery
from cassieq_spark.delivery.plan import plan_batch
from cassieq_spark.delivery.settle import Settlement, settle
from cassieq_spark.model import Ranges
from cassieq_spark.store.protocol import When
from cassieq_spark.testing.faults import Fault, FaultyStore
from cassieq_spark.testing.stores import CountingStore
from tests.support.builders import LEASE, make_clocked_store, make_queue, make_wish
from tests.support.faults import FakeClock
from tests.unit.delivery.test_plan import OURS, THEIRS, make_slot, make_state
