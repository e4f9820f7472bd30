"""What may happen: the actions of the machine, and the troubles that come over them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from hypothesis import strategies as st

from cassieq_spark.model import SinkBatch
from cassieq_spark.repair.steps import Step
from cassieq_spark.testing.faults import Fault
from tests.property.machine.operators import MakeGroup, Remove, Repair, Seek
from tests.property.machine.producers import Key, Publish, PublishLate, WriteOnly
from tests.property.machine.readers import (
    CatchUp,
    Forget,
    GiveBack,
    HoldOn,
    KeepWhole,
    Lease,
    Replay,
    Settle,
)
from tests.property.machine.terms import Terms
from tests.property.machine.world import Trouble

LEASE = timedelta(seconds=3)
SECOND = timedelta(seconds=1)
MOMENT = timedelta(milliseconds=1)
NOTHING = timedelta(0)
LONG = timedelta(minutes=2)
MONTH = timedelta(days=30)
GROUPS = ("one", "one", "one", "two")


@dataclass(frozen=True, slots=True)
class Pass:
    """Time passes."""

    by: timedelta


class Arrive:
    """The oldest request that is late arrives."""


TERMS = st.builds(
    Terms,
    lease=st.just(LEASE),
    max_deliveries=st.sampled_from([0, 1, 2, 3, 4, 5]),
    strict=st.sampled_from([False, False, True]),
    max_in_flight=st.sampled_from([None, None, 2, 6]),
    backoff=st.sampled_from([NOTHING, NOTHING, SECOND]),
    expire_after=st.sampled_from([None, None, LEASE, LONG]),
    keep_settled=st.sampled_from([None, None, LEASE, LONG]),
)

PAUSES = st.sampled_from([NOTHING, NOTHING, MOMENT, SECOND, LEASE, LEASE + MOMENT, LONG])
READERS = st.integers(0, len(GROUPS) - 1)
NAMES = st.sampled_from(["one", "two", "three"])
POSITIONS = st.sampled_from(["earliest", "latest"]) | st.integers(0, 40)
LIMITS = st.none() | st.integers(1, 7)
COUNTS = st.lists(st.integers(1, 6), min_size=1, max_size=3)
TIMES = st.sampled_from([-SECOND, NOTHING, MOMENT, SECOND, 2 * LEASE])
DELAYS = st.lists(
    st.none()
    | st.tuples(st.just("at"), TIMES)
    | st.tuples(st.just("after"), TIMES.filter(lambda by: by >= NOTHING)),
    min_size=1,
    max_size=3,
)
KEYS = st.builds(
    Key, st.sampled_from(["up", "down"]), st.sampled_from([None, "3:one", "3:other", "2:old"])
)
SINK_BATCHES = st.builds(
    SinkBatch,
    st.sampled_from(["left", "right"]),
    st.integers(0, 3),
    st.sampled_from([None, "2:same", "2:same", "2:other", "1:same"]),
)
STALLS = [NOTHING, MOMENT, 2 * SECOND, 4 * SECOND, LONG]
BATCHES = st.none() | SINK_BATCHES | KEYS
FATES = st.sampled_from(
    [
        None,
        ("ack", None),
        ("ack and release", NOTHING),
        ("reject", "bad"),
        ("reject", "worse"),
        ("release", NOTHING),
        ("release", SECOND),
        ("release", 2 * LEASE),
        ("extend", NOTHING),
        ("extend", SECOND),
        ("extend", 2 * LEASE),
    ]
)
#: What tasks record for messages of a batch, in turn.
RECORDED = st.lists(FATES, min_size=1, max_size=4)
STEPS = st.sampled_from(
    [(Step.FINALISE,), (Step.FINALISE,), (Step.FINALISE, Step.FENCE), tuple(Step)]
)

#: The unique ids of messages, in turn.
IDS = st.just(()) | st.lists(st.sampled_from([None, "a", "b", "c"]), min_size=1, max_size=4)
PUBLISH = st.builds(Publish, COUNTS, DELAYS, BATCHES, IDS)
WRITE_ONLY = st.builds(WriteOnly, COUNTS, DELAYS, IDS)
PUBLISH_LATE = st.builds(PublishLate, BATCHES)
TAKE = st.builds(
    Lease,
    READERS,
    LIMITS,
    prefer_fresh=st.booleans(),
    by_memory=st.booleans(),
    as_client=st.sampled_from([False, False, True]),
)
LEASE_WITH_TERMS = st.builds(
    Lease,
    READERS,
    LIMITS,
    prefer_fresh=st.booleans(),
    least=st.sampled_from([0, 0, 5]),
    max_bytes=st.sampled_from([None, None, 1, 1000]),
    skip_older=st.sampled_from([None, None, None, SECOND]),
    paused=st.sampled_from([False, False, False, True]),
    dead_queue_is_gone=st.sampled_from([False, False, False, True]),
)
REPLAY = st.builds(Replay, READERS, LIMITS)
KEEP_WHOLE = st.builds(KeepWhole, READERS)
LATE = st.sampled_from([False, False, True])
HOLD_ON = st.builds(HoldOn, READERS, LATE)
GIVE_BACK = st.builds(GiveBack, READERS, LATE)
FORGET = st.builds(Forget, READERS)
SETTLE = st.builds(
    Settle,
    READERS,
    st.sampled_from([0, 0, 0, 1, 2]),
    st.lists(FATES, min_size=1, max_size=4),
    with_batch=st.booleans(),
    by_client=st.booleans(),
    late=st.booleans(),
)
MAKE_GROUP = st.builds(MakeGroup, NAMES, POSITIONS)
SEEK = st.builds(Seek, NAMES, POSITIONS, force=st.booleans())
REMOVE = st.builds(Remove, NAMES, force=st.booleans())
REPAIR = st.builds(Repair, STEPS, queues=st.sampled_from([("q",), ("q",), ()]))
WRONG_REPAIR = st.builds(
    Repair, STEPS, queues=st.just(("q",)), ahead=st.sampled_from([MONTH, MONTH, -MONTH])
)
CATCH_UP = st.builds(CatchUp, NAMES)
PASS = st.builds(Pass, st.sampled_from([MOMENT, SECOND, LEASE + MOMENT]))


FAULTS = st.none() | st.sampled_from(Fault)
DRAWS = st.text("fs", min_size=1, max_size=6)
READS = st.one_of(TAKE, TAKE, TAKE, SETTLE, SETTLE, REPLAY, KEEP_WHOLE, HOLD_ON, GIVE_BACK)
CHANGES = st.one_of(MAKE_GROUP, SEEK, SEEK, REMOVE)
#: What comes over readers and publishers, over changes of groups, and over repair runs.
TROUBLES = st.none() | st.builds(
    Trouble,
    fault=FAULTS,
    after=st.integers(0, 10),
    meanwhile=st.one_of(
        st.none(), READS, READS, PUBLISH, CHANGES, REPAIR, st.just(Arrive()), PASS
    ),
    draws=DRAWS,
)
GROUP_TROUBLES = st.none() | st.builds(
    Trouble,
    fault=FAULTS,
    after=st.integers(0, 14),
    meanwhile=st.one_of(
        st.none(), REPAIR, REPAIR, READS, PUBLISH, CHANGES, st.just(Arrive()), PASS
    ),
    draws=DRAWS,
)
REPAIR_TROUBLES = st.none() | st.builds(
    Trouble,
    fault=FAULTS,
    after=st.integers(0, 14),
    meanwhile=st.one_of(st.none(), CHANGES, CHANGES, READS, CATCH_UP, PUBLISH, REPAIR, PASS),
    draws=DRAWS,
)


#: How many calls of the store come before the compare-and-set of a lease, or of a settlement.
JUST_BEFORE = st.sampled_from([5, 5, 4, 7])
BACK = st.builds(Seek, NAMES, st.just("earliest") | st.integers(0, 20), force=st.just(value=True))
MADE = st.builds(MakeGroup, NAMES, st.just("earliest"))
