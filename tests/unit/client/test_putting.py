from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from cassieq_spark import Client, NewMessage
from cassieq_spark.errors import (
    BatchChangedError,
    BatchOrderError,
    CassieqError,
    MessageError,
    OptionError,
    OutcomeUnknownError,
    QueueStateError,
)
from cassieq_spark.model import Chunk, QueueId, Range
from cassieq_spark.store.memory import MemoryStore
from cassieq_spark.store.tables import Table
from cassieq_spark.testing.faults import Fault, FaultyStore
from cassieq_spark.testing.stores import CountingStore, WrappedStore
from tests.support.faults import FakeClock

SECOND = timedelta(seconds=1)
#: Of a put under a key: it reads the queue, the name, and the head with the name; the LWT.
CALLS_OF_A_PUT = 4


def values(client: Client, queue: str = "q") -> list[bytes]:
    return [message.value for message in client.peek(queue, max=100_000)]


def test_a_message_is_put_by_one_lwt_and_comes_back_as_it_was(
    client: Client, store: CountingStore, clock: FakeClock
):
    assert client.put("q", "häll", key=b"\x00k", headers={"a": "b", "c": ""}) == 0
    assert (store.cas_count, store.read_count, store.serial_read_count) == (1, 2, 0)
    assert client.put("q", b"\xff") == 1

    first, second = client.peek("q")

    assert (first.queue, first.monoton, first.value) == ("q", 0, "häll".encode())
    assert (first.key, first.headers) == (b"\x00k", {"a": "b", "c": ""})
    assert first.published_at == clock.now
    assert (second.value, second.key, second.headers) == (b"\xff", None, {})


def test_a_message_is_put_whole(client: Client, clock: FakeClock):
    client.put("q", NewMessage("a", key="k", headers={"h": "1"}))
    client.put("q", NewMessage("later", delay=SECOND))

    (first,) = client.receive("q", "g", max=10)
    clock.advance(2 * SECOND)
    (second,) = client.receive("q", "g", max=10)

    assert (first.value, first.key, first.headers) == (b"a", b"k", {"h": "1"})
    assert second.value == b"later"


@pytest.mark.parametrize(
    "beside",
    [
        {"key": ""},
        {"headers": {}},
        {"delay": timedelta(0)},
        {"visible_at": datetime(2030, 1, 1, tzinfo=UTC)},
    ],
)
def test_what_is_given_beside_a_whole_message_is_refused(
    client: Client, store: CountingStore, beside: dict[str, Any]
):
    (name,) = beside

    with pytest.raises(OptionError, match=f"a NewMessage and {name} beside it"):
        client.put("q", NewMessage("a"), **beside)

    assert (store.cas_count, values(client)) == (0, [])


def test_many_messages_are_put_by_one_lwt_in_order(client: Client, store: CountingStore):
    client.put("q", "before")
    store.reset()

    monotons = client.put_many("q", (str(number) for number in range(5_000)))

    assert (monotons, store.cas_count) == (Range(1, 5_001), 1)
    assert values(client) == [b"before", *(str(number).encode() for number in range(5_000))]


def test_values_and_messages_with_keys_and_headers_go_together(client: Client):
    client.put_many("q", ["a", NewMessage(b"b", key="k", headers={"h": "1"})])

    first, second = client.peek("q")

    assert (first.value, first.key, first.headers) == (b"a", None, {})
    assert (second.value, second.key, second.headers) == (b"b", b"k", {"h": "1"})


@pytest.mark.parametrize(
    "when", [{"delay": SECOND}, {"visible_at": datetime(2030, 1, 1, tzinfo=UTC)}]
)
def test_a_delay_of_one_among_many_is_refused(
    client: Client, store: CountingStore, when: dict[str, Any]
):
    with pytest.raises(MessageError, match=r"message 1 .* has a delay of its own"):
        client.put_many("q", ["at once", NewMessage("later", **when)])

    assert (store.cas_count, values(client)) == (0, [])


def test_no_messages_are_no_lwt(client: Client, store: CountingStore):
    assert client.put_many("q", []) == Range(0, 0)
    assert store.cas_count == 0


class GreedyStore(WrappedStore):
    """Tells, for each chunk that it is given, how far its writer had read by then."""

    def __init__(self) -> None:
        super().__init__(MemoryStore())
        self.read = 0
        self.ahead: list[int] = []

    def write_chunks(self, queue_id: QueueId, block: object, chunks: Iterator[Chunk]) -> None:
        for chunk in chunks:
            self.ahead.append(self.read - chunk.stop)
            super().write_chunks(queue_id, block, [chunk])

    def messages(self, count: int) -> Iterator[bytes]:
        for _ in range(count):
            self.read += 1
            yield b"x" * 1000


def test_messages_are_written_as_they_come():
    store = GreedyStore()
    client = Client.from_store(store)
    client.create_queue("q")

    client.put_many("q", store.messages(20_000))

    assert len(store.ahead) > 50
    assert max(store.ahead) <= 2_000


@pytest.mark.parametrize("bad", [None, 7, {"a": 1}, "\udc80", b"x" * (8 << 20) + b"y"])
def test_what_a_queue_does_not_take_is_said_so_and_nothing_is_put(
    client: Client, store: CountingStore, bad: object
):
    with pytest.raises(MessageError, match=r"^(the value of )?the message is"):
        client.put("q", bad)
    with pytest.raises(MessageError, match="message 1 "):
        client.put_many("q", ["good", bad])

    assert (store.cas_count, values(client)) == (0, [])


@pytest.mark.parametrize(
    "message",
    [
        NewMessage("v", key=1),
        NewMessage("v", headers={"a": 1}),
        NewMessage("v", headers={1: "a"}),
        NewMessage("v", headers={"a": "\udc80"}),
    ],
)
def test_keys_and_headers_are_checked_too(client: Client, message: NewMessage):
    with pytest.raises(MessageError, match=r"(key|header)"):
        client.put_many("q", [message])


def test_the_limit_counts_key_and_headers(client: Client):
    most = b"x" * ((8 << 20) - 4)
    client.put("q", most, key="ä", headers={"h": "v"})

    with pytest.raises(MessageError, match="8388609 bytes with its key and headers"):
        client.put("q", most, key="ä", headers={"h": "vv"})


def test_a_batch_that_has_a_name_is_published_once(client: Client, store: CountingStore):
    named = {"txn_app_id": "loader", "txn_version": 7}
    assert client.put_many("q", ["a"], **named) == Range(0, 1)
    store.reset()

    assert client.put_many("q", ["a"], **named) is None
    with pytest.raises(BatchChangedError, match="batch 7 with another content"):
        client.put_many("q", ["other"], **named)
    with pytest.raises(BatchOrderError, match=r"up to batch 7, .* is batch 6"):
        client.put_many("q", ["older"], txn_app_id="loader", txn_version=6)
    assert client.put_many("q", [], **named) is None  # nothing that could be lost
    assert (store.cas_count, len(list(store.scan(Table.CHUNK)))) == (0, 1)
    assert client.put_many("q", ["b"], txn_app_id="loader", txn_version=8) == Range(1, 2)
    assert client.put_many("q", ["c"], txn_app_id="other", txn_version=7) == Range(2, 3)
    assert values(client) == [b"a", b"b", b"c"]


@pytest.mark.parametrize("named", [("a", None), (None, 1), ("", 1)])
def test_half_a_name_is_refused(client: Client, named: tuple[str | None, int | None]):
    with pytest.raises(OptionError, match="name a batch together"):
        client.put_many("q", ["a"], txn_app_id=named[0], txn_version=named[1])


def test_a_message_is_not_even_a_part_of_a_millisecond_early(client: Client, clock: FakeClock):
    client.put("q", "a", delay=timedelta(microseconds=1999))
    client.put("q", "b", visible_at=clock.now + timedelta(microseconds=1999))

    clock.advance(timedelta(milliseconds=1))
    assert client.receive("q", "g", max=10) == []
    clock.advance(timedelta(milliseconds=1))
    assert {each.value for each in client.receive("q", "g", max=10)} == {b"a", b"b"}


def test_delayed_messages_come_when_it_is_time(client: Client, clock: FakeClock):
    client.put("q", "later", delay=10 * SECOND)
    client.put_many("q", ["last"], visible_at=clock.now + 20 * SECOND)
    client.put("q", "now", delay=timedelta(0))

    def received() -> list[bytes]:
        return [message.value for message in client.receive("q", "g", max=10)]

    assert (received(), received()) == ([b"now"], [])
    clock.advance(10 * SECOND)
    assert received() == [b"later"]
    clock.advance(10 * SECOND)
    assert received() == [b"last"]


@pytest.mark.parametrize(
    ("when", "complaint"),
    [
        ({"delay": -SECOND}, "delay must be from"),
        ({"delay": timedelta(days=366)}, "delay must be from"),
        ({"visible_at": datetime(2026, 11, 20)}, "no time zone"),  # noqa: DTZ001
        ({"delay": SECOND, "visible_at": datetime(2026, 11, 20, tzinfo=UTC)}, "exclude"),
    ],
)
def test_times_that_make_no_sense_are_refused(
    client: Client, store: CountingStore, when: dict[str, object], complaint: str
):
    with pytest.raises(OptionError, match=complaint):
        client.put("q", "v", **when)
    with pytest.raises(OptionError, match=complaint):
        client.put_many("q", ["v"], **when)
    with client.producer("q") as producer, pytest.raises(OptionError, match=complaint):
        producer.put(NewMessage("v", **when))
    assert store.cas_count == 0


def test_nothing_is_delayed_in_a_strictly_ordered_queue(client: Client):
    client.create_queue("strict", order="strict")

    with pytest.raises(OptionError, match="strictly ordered"):
        client.put("strict", "late", delay=SECOND)
    with pytest.raises(OptionError, match="strictly ordered"):
        client.put_many("strict", ["late"], delay=SECOND)
    with client.producer("strict") as producer:
        good = producer.put("good")
        with pytest.raises(OptionError, match="strictly ordered"):
            producer.put(NewMessage("late", delay=SECOND))
    assert good.result() == 0
    assert values(client, "strict") == [b"good"]


@pytest.mark.parametrize("fault", Fault)
def test_a_put_whose_answer_is_lost_puts_once(client: Client, trouble: FaultyStore, fault: Fault):
    trouble.fault = fault

    assert client.put("q", "v") == 0
    trouble.arrive()
    assert values(client) == [b"v"]


def test_an_unknown_outcome_is_told_as_such(client: Client, trouble: FaultyStore):
    def fail() -> None:
        raise OutcomeUnknownError("nobody answers")

    trouble.fault = Fault.ANSWER_LOST
    trouble.interrupt(fail, after=3)

    with pytest.raises(OutcomeUnknownError):
        client.put("q", "v")


def test_a_queue_that_is_not_there_is_named(client: Client):
    for call in (client.put, client.receive):
        with pytest.raises(QueueStateError, match="there is no queue 'nobody'"):
            call("nobody", "x")
    for call in (client.peek, client.stats, client.queue, client.producer):
        with pytest.raises(QueueStateError, match="there is no queue 'nobody'"):
            call("nobody")


def test_queues_are_made_with_a_dead_letter_queue_unless_told_otherwise():
    client = Client.from_store(MemoryStore())
    client.create_queue("a")
    client.create_queue("b", max_deliveries=2, dead_letter_queue="a.dead", lease=5 * SECOND)
    client.create_queue("c", drop_dead=True)
    client.create_queue("d", max_deliveries=0, order="strict", expire_after=timedelta(days=1))

    found = [client.queue(name) for name in ("a", "a.dead", "b", "c", "d")]

    assert [(each.max_deliveries, each.dead_letter_queue) for each in found] == [
        (5, "a.dead"),
        (0, None),
        (2, "a.dead"),
        (5, None),
        (0, None),
    ]
    assert (found[2].lease, found[4].order) == (5 * SECOND, "strict")
    assert found[4].expire_after == timedelta(days=1)
    with pytest.raises(OptionError, match="cannot be combined with"):
        client.create_queue("e", dead_letter_queue="x", drop_dead=True)


def test_a_closed_client_says_so(client: Client):
    client.close()
    client.close()

    with pytest.raises(CassieqError, match="this client is closed"):
        client.put("q", "v")


def test_what_was_put_stays_as_few_bytes_as_it_needs():
    store = MemoryStore()
    client = Client.from_store(store)
    client.create_queue("q")
    client.put("q", "hello")

    (chunk,) = store.scan(Table.CHUNK)
    (bucket,) = store._chunks.values()

    assert (chunk["start"], chunk["stop"]) == (0, 1)
    assert len(bucket[0].data) < 500


@pytest.mark.parametrize(
    "other",
    [
        ["a", NewMessage("c", "k", {"h": "1"})],
        ["a", NewMessage("b", "l", {"h": "1"})],
        ["a", NewMessage("b", "k", {"h": "2"})],
        ["a", NewMessage("b", "k")],
        ["a"],
        ["a", "a", NewMessage("b", "k", {"h": "1"})],
    ],
)
def test_another_put_under_an_idempotency_key_is_refused(
    client: Client, store: CountingStore, other: list[str | NewMessage]
):
    first = ["a", NewMessage("b", "k", {"h": "1"})]
    client.put_many("q", first, idempotency_key="k")
    store.reset()

    with pytest.raises(
        BatchChangedError, match=r"another content; nothing was published now"
    ) as e:
        client.put_many("q", other, idempotency_key="k")

    assert not e.value.retryable
    assert store.cas_count == 0
    assert values(client) == [b"a", b"b"]
    assert client.put_many("q", reversed(first), delay=SECOND, idempotency_key="k") is None


def test_a_purge_forgets_what_was_put_under_a_key(client: Client):
    client.put_many("q", ["a"], idempotency_key="k")
    client.purge_queue("q")

    assert client.put_many("q", ["b"], idempotency_key="k") == Range(0, 1)


@pytest.mark.parametrize("calls", range(CALLS_OF_A_PUT))
def test_of_two_puts_under_one_key_at_the_same_moment_the_later_one_is_refused(
    client: Client, store: CountingStore, trouble: FaultyStore, calls: int
):
    other = Client.from_store(store)
    trouble.interrupt(
        lambda: other.put_many("q", ["first"], idempotency_key="k") and None, after=calls
    )

    with pytest.raises(BatchChangedError):
        client.put_many("q", ["second"], idempotency_key="k")

    assert values(other) == [b"first"]


def test_what_is_put_under_an_idempotency_key_is_there_once(client: Client):
    assert client.put_many("q", ["a", "b"], idempotency_key="k") == Range(0, 2)
    assert client.put_many("q", ["a", "b"], idempotency_key="k") is None
    assert client.put_many("q", ["c"], idempotency_key="l") == Range(2, 3)
    with pytest.raises(OptionError, match="not empty"):
        client.put_many("q", ["d"], idempotency_key=" ")
    with pytest.raises(OptionError, match="without txn_app_id"):
        client.put_many("q", ["d"], idempotency_key="k", txn_app_id="x", txn_version=1)
