"""A queue's life against a model: made, altered, paused, purged, deleted, retired, in any order.

Every compare-and-set that is applied is checked, also those in the middle of a command; commands
break off, lose answers, and meet each other, writers and readers of any version at every step.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from datetime import timedelta

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from cassieq_spark import backoff
from cassieq_spark.errors import BatchOrderError, OutcomeUnknownError, QueueStateError
from cassieq_spark.groups.group import ConsumerGroup
from cassieq_spark.groups.registration import ensure_group
from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.ledger.publish import publish
from cassieq_spark.ledger.state import check_open
from cassieq_spark.model import QueueDefinition, QueueId, SinkBatch
from cassieq_spark.queues import (
    Status,
    alter_queue,
    create_queue,
    delete_queue,
    is_paused,
    pause_queue,
    purge_queue,
    read_queue,
    resume_queue,
)
from cassieq_spark.store.memory import MemoryStore
from cassieq_spark.testing.faults import Fault, FaultyStore
from tests.property.machine.lifecycle import LifecycleModel
from tests.support.builders import last_batch, make_pending, make_request
from tests.support.faults import FakeClock
from tests.unit.queues.scene import Crash, retire

LEASE = timedelta(seconds=3)
GROUPS = ("one", "two")
COMMANDS = st.sampled_from(["create", "alter", "pause", "resume", "purge", "delete", "retire"])
USES = st.sampled_from(["publish", "publish a batch", "lease", "register"])


class LifecycleMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.clock = FakeClock()
        self.memory = MemoryStore(self.clock)
        self.model = LifecycleModel(self.memory)
        self.store = FaultyStore(self.memory, self.model.watch)
        #: The last version of which some command has said that it is over.
        self.over = 0
        #: Every queue that somebody has read, and may use for ever.
        self.known: list[QueueDefinition] = []

    # -- commands -----------------------------------------------------------------------------

    @rule(command=COMMANDS, lease=st.integers(1, 3))
    def command(self, command: str, lease: int) -> None:
        self._command(command, lease)

    @rule(
        command=COMMANDS,
        other=COMMANDS | USES,
        after=st.integers(0, 24),
        number=st.integers(0, 9),
        lease=st.integers(1, 3),
    )
    def command_meets_another(
        self, command: str, other: str, after: int, number: int, lease: int
    ) -> None:
        def meanwhile() -> None:
            if other in ("publish", "publish a batch", "lease", "register"):
                self._use(other, number)
            else:
                self._command(other, lease + 1, alone=False)

        self.store.interrupt(meanwhile, after=after)
        self._command(command, lease, alone=False)
        self.store.calm()

    @rule(command=COMMANDS, after=st.integers(0, 24), fault=st.sampled_from(Fault))
    def command_in_trouble(self, command: str, after: int, fault: Fault) -> None:
        self.store.interrupt(lambda: setattr(self.store, "fault", fault), after=after)
        self._command(command, 2)
        self.store.calm()

    @rule(command=COMMANDS, after=st.integers(0, 24))
    def command_breaks_off(self, command: str, after: int) -> None:
        def crash() -> None:
            raise Crash

        self.store.interrupt(crash, after=after)
        with contextlib.suppress(Crash):
            self._command(command, 2, alone=False)
        self.store.calm()

    @rule()
    def something_late_arrives(self) -> None:
        self.store.arrive()

    def _command(self, command: str, lease: int, *, alone: bool = True) -> None:
        actions: dict[str, Callable[[int], None]] = {
            "create": self._create,
            "alter": self._alter,
            "pause": lambda _: self._pause(paused=True),
            "resume": lambda _: self._pause(paused=False),
            "purge": lambda _: self._purge(alone=alone),
            "delete": lambda _: self._delete(alone=alone),
            "retire": lambda _: self._retire(),
        }
        status = self.model.record.status if self.model.record else None
        gone = status in (None, Status.DELETING, Status.DELETED)
        possible = {
            "create": gone,
            "purge": not gone,
            "delete": status not in (None, Status.DELETED),
        }
        try:
            actions[command](lease)
        except QueueStateError:
            assert not alone or not possible.get(command, status is Status.ACTIVE), command

    def _create(self, lease: int) -> None:
        made = create_queue(
            self.store, "q", bucket_size=8, chunk_size=4, lease=timedelta(seconds=lease)
        )
        assert made.queue_id not in {queue.queue_id for queue in self.known}, "I10"
        self.known.append(made)
        self.over = max(self.over, made.version - 1)

    def _alter(self, lease: int) -> None:
        altered = alter_queue(self.store, "q", lease=timedelta(seconds=lease))
        assert altered.lease == timedelta(seconds=lease)

    def _pause(self, *, paused: bool) -> None:
        (pause_queue if paused else resume_queue)(self.store, "q")

    def _purge(self, *, alone: bool) -> None:
        before, record = set(self.model.published), self.model.record
        groups = self._groups() if alone else []
        paused = alone and self._is_paused()
        queue = purge_queue(self.store, "q", force=True)
        self.known.append(queue)
        self.over = max(self.over, queue.version - 1)
        there = {block.block for block in Ledger(self.memory, queue.queue_id).read_blocks()}
        assert not there & before, "what was published before is gone"
        if alone and record is not None and record.status is Status.ACTIVE:
            assert queue.version == record.version + 1
            assert [
                group.name for group in Ledger(self.memory, queue.queue_id).read_groups()
            ] == groups
            assert {
                group.starts_at for group in Ledger(self.memory, queue.queue_id).read_groups()
            } <= {0}
            assert is_paused(self.memory, "q") is paused

    def _delete(self, *, alone: bool) -> None:
        version = self.model.record.version if self.model.record else 0
        delete_queue(self.store, "q", force=True)
        self.over = max(self.over, version)
        if alone:
            assert self.model.record is not None
            assert self.model.record.is_gone
            for version in range(1, self.model.record.version + 1):
                assert Ledger(self.memory, QueueId(f"q@{version}")).read_head().is_closed

    def _retire(self) -> None:
        # Whatever is not known is left to the next run.
        with contextlib.suppress(OutcomeUnknownError):
            retire(self.store)

    def _groups(self) -> list[str]:
        if self.model.record is None:
            return []
        return [
            each.name
            for each in Ledger(self.memory, self.model.record.definition.queue_id).read_groups()
        ]

    def _is_paused(self) -> bool:
        with contextlib.suppress(QueueStateError):
            return is_paused(self.memory, "q")
        return False

    # -- writers and readers ------------------------------------------------------------------

    @rule(sinks=st.integers(0, 3))
    def it_is_in_use(self, sinks: int) -> None:
        """By all who know it now, whatever it went through."""
        if self.model.record is not None and self.model.record.status is Status.PURGING:
            self._purge(alone=False)
        if self.model.record is None or self.model.record.is_gone:
            self._create(2)
        self.known.append(read_queue(self.store, "q"))
        resume_queue(self.store, "q")
        for number in range(sinks):
            self._publish(self.known[-1], SinkBatch("app:a", number))
        for group in GROUPS:
            self._publish(self.known[-1], None)
            self._lease(self.known[-1], group)

    @precondition(lambda self: self.known)
    @rule(use=USES, number=st.integers(0, 9))
    def use(self, use: str, number: int) -> None:
        self._use(use, number)

    @precondition(lambda self: self.known)
    @rule(
        use=USES,
        command=COMMANDS,
        number=st.integers(0, 9),
        after=st.integers(0, 5),
        fault=st.none() | st.sampled_from(Fault),
    )
    def use_meets_a_command(
        self, use: str, command: str, number: int, after: int, fault: Fault | None
    ) -> None:
        self.store.fault = fault
        self.store.interrupt(lambda: self._command(command, 2, alone=False), after=after)
        self._use(use, number)
        self.store.calm()

    def _use(self, use: str, number: int) -> None:
        if not self.known:
            return
        queue = self.known[-1 - number % len(self.known)]
        over = self.model.heads[queue.queue_id].is_closed
        before = set(self.model.published)
        try:
            if use == "publish":
                self._publish(queue, None)
            elif use == "publish a batch":
                self._publish(queue, SinkBatch("app:a", number))
            elif use == "lease":
                self._lease(queue, GROUPS[number % 2])
            else:
                ensure_group(
                    ConsumerGroup(Ledger(self.store, queue.queue_id), GROUPS[number % 2]),
                    starting="earliest",
                )
                return
        except QueueStateError:
            assert self.model.heads[queue.queue_id].is_closed
            return
        if use != "publish a batch":
            assert not over, "an old version was used"
        assert not over or set(self.model.published) == before

    def _publish(self, queue: QueueDefinition, batch: SinkBatch | None) -> None:
        pending = make_pending([2], self.clock.now)
        self.model.intended[pending[0].block] = queue.queue_id
        before = last_batch(self.memory, queue.queue_id, "app:a")
        # Of a version that is over, a read may see what not all replicas have deleted yet.
        over = queue.version <= self.over
        troubles = self.store.unrest
        try:
            monotons = publish(Ledger(self.store, queue.queue_id), pending, batch=batch).monotons
        except OutcomeUnknownError:
            assert self.store.unrest > troubles
            return
        except BatchOrderError:
            last = last_batch(self.memory, queue.queue_id, "app:a")
            assert batch is not None
            assert over if last is None else last > batch.batch_id
            assert pending[0].block not in self.model.published
            return
        except QueueStateError:
            assert pending[0].block not in self.model.published
            raise
        if monotons is not None:
            assert pending[0].block in self.model.published
        elif self.store.unrest == troubles:
            assert batch is not None
            assert over if before is None else before >= batch.batch_id

    def _lease(self, queue: QueueDefinition, group: str) -> None:
        over = queue.version <= self.over
        ensure_group(ConsumerGroup(Ledger(self.store, queue.queue_id), group), starting="earliest")
        head = Ledger(self.store, queue.queue_id).read_head()
        troubles = self.store.unrest
        with contextlib.suppress(QueueStateError):
            check_open(queue.queue_id, head)
        request = make_request(stop=head.offered_below(), lease=LEASE)
        lease = ConsumerGroup(Ledger(self.store, queue.queue_id), group).lease(request)
        assert not (over and lease.leased), "nothing comes out of what is over"
        if head.paused and self.store.unrest == troubles:
            assert not lease.leased
        check_open(queue.queue_id, head)
        self.clock.advance(LEASE)

    # -- what always holds --------------------------------------------------------------------

    @invariant()
    def batches_are_published_once_over_all_purges(self) -> None:
        record = self.model.record
        if record is None or record.is_gone:
            return
        last = [
            last_batch(self.memory, QueueId(f"q@{version}"), "app:a")
            for version in range(max(self.model.made_as, record.retired + 1), record.version)
        ]
        if record.status is Status.ACTIVE and last and last[-1] is not None:
            now = last_batch(self.memory, record.definition.queue_id, "app:a")
            assert now is not None
            assert now >= last[-1], "I4"


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backoff, "_LONGEST_PAUSE", 0.0)


TestLifecycleMachine = LifecycleMachine.TestCase
TestLifecycleMachine.settings = settings(
    stateful_step_count=50, suppress_health_check=list(HealthCheck)
)
