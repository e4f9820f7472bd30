"""A program that repeats a call gets a true answer, though Cassandra did not answer all requests.

An error that lets a gateway answer 503 promises that nothing was changed: `HttpQueue` and programs
repeat such a call. If the first call was carried out all the same, the second one reports its own
receipts as stale, publishes a message twice, or counts a delivery that nobody has got.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import ExitStack
from datetime import timedelta
from enum import Enum, auto
from functools import partial
from itertools import count
from typing import Any, NamedTuple, Self

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cassieq_spark import Client, Message, NewMessage, backoff
from cassieq_spark.arrow.receipts import Receipt
from cassieq_spark.client import LeaseRequest
from cassieq_spark.errors import ExistsError, NotAppliedError, OutcomeUnknownError, StoreError
from cassieq_spark.http.accounts import Accounts, Secrets
from cassieq_spark.http.accounts.account import full_name
from cassieq_spark.http.client import HttpError
from cassieq_spark.store.memory import MemoryStore
from cassieq_spark.store.protocol import EVERYTHING, Op, Partition, Rows, Slice
from cassieq_spark.testing.faults import Fault, FaultyStore
from tests.support.gateway import SECRET, InProcess

QUEUE = full_name("acme", "q")
MESSAGES = 4
#: The status codes of errors: the call may be repeated; it may have been carried out.
REPEAT, UNKNOWN = 503, 504


class Refused(Enum):
    """A compare-and-set that certainly is not carried out."""

    TOO_FEW_REPLICAS = auto()


class Unanswered(FaultyStore):
    """A store that does not answer some reads, and does not carry out some compare-and-sets.

    Attributes:
        faults: What happens to each of the next compare-and-sets; nothing happens to all others.
        silent: Which of the next reads get no answer, by number from 0; all others get one.
    """

    faults: Iterator[Fault | Refused | None] = iter(())
    silent: Container[int] = ()
    reads: Iterator[int] = count()

    def cas(self, partition: Partition, ops: Sequence[Op]) -> bool:
        fault = next(self.faults, None)
        if isinstance(fault, Refused):
            raise NotAppliedError(f"compare-and-set on {partition}: too few replicas")
        self.fault = fault
        return super().cas(partition, ops)

    def read_rows(
        self, partition: Partition, which: Slice = EVERYTHING, *, serial: bool = False
    ) -> Rows:
        if next(self.reads) in self.silent:
            raise NotAppliedError(f"read of {partition}: no answer")
        return super().read_rows(partition, which, serial=serial)


class Trouble(NamedTuple):
    """The requests that Cassandra refuses, loses, delays or does not answer.

    Attributes:
        faults: What happens to each of the first compare-and-sets.
        silent: Which of the first reads get no answer, by number from 0.
        late: After how many calls a request arrives that was delayed.
    """

    faults: list[Fault | Refused | None]
    silent: set[int]
    late: int = 24


class Scene:
    """A queue of four messages, which a client has received; and one more, which waits.

    Args:
        settings: The settings of the queue.
        by_http: True if the client is that of a gateway.
    """

    def __init__(self, settings: Mapping[str, Any], *, by_http: bool = False) -> None:
        self.store = Unanswered(MemoryStore())
        self.client = Client.from_store(self.store)
        self._stack = ExitStack()
        self.client.create_queue(QUEUE, drop_dead=True, **settings)
        self.client.receive(QUEUE, "g")
        new = [NewMessage(b"%d" % number, key=b"%d" % number) for number in range(MESSAGES)]
        self.client.put_many(QUEUE, new)
        door: Any = self.client
        self.put: Callable[..., Any] = partial(self.client.put, QUEUE)
        self.receive = partial(self.client.receive, QUEUE, "g")
        if by_http:
            door = self._stack.enter_context(InProcess(self.store)).queue("q")
            door._queue._requests._patience = 0.0
            self.put, self.receive = door.put, partial(door.receive, "g")
        self.settle = {
            "ack": door.ack,
            "release": door.release,
            "reject": partial(door.reject, reason="bad"),
        }
        self.held: Sequence[Message] = self.receive(max=MESSAGES)
        assert len(self.held) == MESSAGES
        self.client.put(QUEUE, b"next", key=b"0")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def repeat(self, call: Callable[[], Any], trouble: Trouble, *, named: bool = False) -> Any:
        """Call, and call again after each error that allows it; then deliver delayed requests.

        Args:
            named: True if the call has a name, so that it may be repeated after any error.

        Returns:
            The answer; None if the outcome is unknown.
        """
        store = self.store
        store.faults = iter(trouble.faults)
        store.reads, store.silent = count(), trouble.silent
        store.interrupt(store.arrive, after=trouble.late)
        answer, may_repeat = None, True
        while may_repeat:
            may_repeat = False
            try:
                answer = call()
            except OutcomeUnknownError:
                may_repeat = named
            except HttpError as error:
                if error.status not in {REPEAT, UNKNOWN}:
                    raise
                may_repeat = named or error.status == REPEAT
            except StoreError:
                may_repeat = True
        store.faults, store.silent = iter(()), ()
        store.calm()
        while store.late:
            store.arrive()
        return answer

    def count_of(self, value: bytes) -> int:
        """The number of messages with this value in the queue, leased or not."""
        return [each.value for each in self.client.peek(QUEUE, max=100)].count(value)


SETTINGS = st.sampled_from(
    [{}, {"partitions": 3}, {"order": "key", "partitions": 2}, {"order": "strict"}]
)
TROUBLES = st.builds(
    Trouble,
    st.lists(st.none() | st.sampled_from([*Fault, *Refused]), max_size=6),
    st.sets(st.integers(0, 16), max_size=3),
    st.integers(0, 24),
)


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backoff, "_LONGEST_PAUSE", 0.0)


@given(st.sampled_from(["ack", "release", "reject"]), TROUBLES, SETTINGS, st.booleans())
@example("ack", Trouble([Fault.ANSWER_LOST], {2}), {}, False)
@example("ack", Trouble([Fault.REQUEST_LATE], {3}, 4), {}, False)
def test_a_settlement_that_is_repeated_is_not_told_to_be_stale(
    verb: str, trouble: Trouble, queue: dict[str, Any], by_http: bool
):
    with Scene(queue, by_http=by_http) as scene:
        settle = partial(scene.settle[verb], *scene.held[:3])

        assert scene.repeat(settle, trouble) in (None, [])


@given(TROUBLES, SETTINGS)
@example(Trouble([Fault.ANSWER_LOST], {1, 5}), {"order": "key", "partitions": 2})
def test_an_exchange_that_is_repeated_acks_and_counts_once(
    trouble: Trouble, queue: dict[str, Any]
):
    scene = Scene(queue)
    desk = scene.client.exchange(QUEUE, "g")
    receipts = [Receipt.parse(each.receipt) for each in scene.held]
    wanted = LeaseRequest(max_messages=1)

    told = scene.repeat(lambda: desk.round(receipts, wanted), trouble)

    if told is not None:
        assert not told.stale
        assert {each.delivery_count for each in told.messages} <= {1}


@given(TROUBLES, SETTINGS, st.booleans())
def test_a_receive_that_is_repeated_counts_once(
    trouble: Trouble, queue: dict[str, Any], by_http: bool
):
    with Scene(queue, by_http=by_http) as scene:
        got = scene.repeat(scene.receive, trouble)

        # What was leased, but could neither be read nor be given back, is due later.
        assert {each.delivery_count for each in got or ()} <= {1}


@given(TROUBLES, SETTINGS, st.booleans())
def test_a_put_that_is_repeated_is_there_once(
    trouble: Trouble, queue: dict[str, Any], by_http: bool
):
    with Scene(queue, by_http=by_http) as scene:
        done = scene.repeat(lambda: scene.put(b"new"), trouble)

        assert scene.count_of(b"new") in ([0, 1] if done is None else [1])


@given(TROUBLES, SETTINGS)
def test_a_replacement_that_is_repeated_is_there_once(trouble: Trouble, queue: dict[str, Any]):
    scene = Scene(queue)

    done = scene.repeat(lambda: scene.client.replace(scene.held[0], b"new"), trouble)

    assert done in (None, [])
    assert scene.count_of(b"new") in ([0, 1] if done is None else [1])


@given(st.sampled_from(["idempotency_key", "unique_id"]), TROUBLES, SETTINGS, st.booleans())
def test_a_put_that_is_repeated_under_a_name_is_there_once_whatever_the_error(
    name: str, trouble: Trouble, queue: dict[str, Any], by_http: bool
):
    with Scene(queue | {"deduplicate": timedelta(minutes=5)}, by_http=by_http) as scene:
        put = partial(scene.put, b"new", key=b"0", **{name: "once"})

        scene.repeat(put, trouble, named=True)

        assert scene.count_of(b"new") == 1


@given(TROUBLES, SETTINGS, st.booleans())
def test_a_receive_that_is_repeated_under_its_attempt_is_counted_once_whatever_the_error(
    trouble: Trouble, queue: dict[str, Any], by_http: bool
):
    with Scene(queue, by_http=by_http) as scene:
        got = scene.repeat(partial(scene.receive, attempt="first"), trouble, named=True)

        assert {each.delivery_count for each in got} <= {1}


#: What is created by a call that refuses to create it twice.
CREATIONS: Mapping[str, Callable[[Client, Accounts], object]] = {
    "queue": lambda client, _: client.create_queue("new", partitions=2),
    "group": lambda client, _: client.create_group(QUEUE, "new"),
    "schedule": lambda client, _: client.create_schedule(
        QUEUE, "new", "tick", every=timedelta(hours=1)
    ),
    "account": lambda _, accounts: accounts.create("new"),
    "key": lambda _, accounts: accounts.add_key("old", "new"),
}


@given(st.sampled_from(sorted(CREATIONS)), TROUBLES, SETTINGS)
@example("account", Trouble([Fault.ANSWER_LOST], {1}), {})
@example("group", Trouble([Fault.ANSWER_LOST], {4}), {})
@example("queue", Trouble([None, None, None, Fault.ANSWER_LOST], {5}), {})
def test_a_creation_that_is_repeated_does_not_say_that_it_exists_already(
    what: str, trouble: Trouble, queue: dict[str, Any]
):
    scene = Scene(queue)
    accounts = Accounts(scene.store, Secrets((SECRET,)))
    accounts.create("old")

    def create() -> bool:
        CREATIONS[what](scene.client, accounts)
        return True

    if scene.repeat(create, trouble):
        with pytest.raises(ExistsError):
            create()


class SqsScene(Scene):
    """A FIFO queue of SQS with two messages, which are received; clients repeat after any 5xx."""

    queue = full_name("acme", "q.fifo")

    def __init__(self) -> None:
        self.store = Unanswered(MemoryStore())
        self.client = Client.from_store(self.store)
        self._stack = ExitStack()
        self._gateway = self._stack.enter_context(InProcess(self.store))
        found = self.ask("CreateQueue", QueueName="q.fifo", Attributes={"FifoQueue": "true"})
        self.url = found["QueueUrl"]
        for number in range(2):
            self.send(f"{number}", unique_id=f"{number}", group=f"{number}")
        self.handles = [each["ReceiptHandle"] for each in self.receive("first")]

    def ask(self, operation: str, **given: Any) -> Any:
        """The answer; an `HttpError` if the door refuses."""
        answer = self._gateway.sqs(operation, **given)
        if answer.is_error:
            raise HttpError(answer.text, answer.status_code)
        return answer.json() if answer.content else {}

    def send(self, body: str, *, unique_id: str, group: str) -> None:
        """Send a message."""
        given = {"MessageDeduplicationId": unique_id, "MessageGroupId": group}
        self.ask("SendMessage", QueueUrl=self.url, MessageBody=body, **given)

    def receive(self, attempt: str) -> Any:
        """Receive messages under an attempt's name."""
        given = {"MaxNumberOfMessages": 10, "ReceiveRequestAttemptId": attempt}
        names = {"AttributeNames": ["ApproximateReceiveCount"]}
        return self.ask("ReceiveMessage", QueueUrl=self.url, **given, **names).get("Messages", [])

    def delete(self) -> None:
        """Delete what was received; a failed entry counts as a refusal."""
        entries = [
            {"Id": str(number), "ReceiptHandle": each} for number, each in enumerate(self.handles)
        ]
        told = self.ask("DeleteMessageBatch", QueueUrl=self.url, Entries=entries)
        for each in told.get("Failed", ()):
            assert each["Code"] == "ServiceUnavailable", each
            raise HttpError(each["Message"], REPEAT)

    def bodies(self) -> list[bytes]:
        """The values of all messages in the queue, of settled ones too."""
        return [each.value for each in self.client.peek(self.queue, max=10)]


@given(TROUBLES)
def test_a_message_that_is_sent_again_by_sqs_is_there_once(trouble: Trouble):
    with SqsScene() as scene:
        scene.repeat(lambda: scene.send("new", unique_id="n", group="g"), trouble, named=True)

        assert len(scene.bodies()) == 3


@given(TROUBLES)
def test_a_receive_that_is_repeated_by_sqs_gets_the_same_counted_once(trouble: Trouble):
    with SqsScene() as scene:
        scene.send("new", unique_id="n", group="g")

        got = scene.repeat(lambda: scene.receive("second"), trouble, named=True)

        # What was leased, but could neither be read nor be given back, is due later.
        assert {each["Attributes"]["ApproximateReceiveCount"] for each in got} <= {"1"}


@given(TROUBLES)
def test_a_deletion_that_is_repeated_by_sqs_succeeds(trouble: Trouble):
    with SqsScene() as scene:
        scene.repeat(scene.delete, trouble, named=True)

        (group,) = scene.client.groups(scene.queue)
        assert group.depth == 0


@given(TROUBLES)
def test_a_creation_that_is_repeated_by_sqs_succeeds(trouble: Trouble):
    with SqsScene() as scene:
        create = partial(scene.ask, "CreateQueue", QueueName="new")

        assert scene.repeat(create, trouble, named=True)["QueueUrl"].endswith("/acme/new")
