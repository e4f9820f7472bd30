from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import timedelta
from typing import TypeVar
from uuid import UUID

import pytest

from cassieq_spark import Client, NewMessage, Producer
from cassieq_spark.errors import (
    CassieqError,
    MessageError,
    NotAppliedError,
    NotFoundError,
    OptionError,
    QueueStateError,
    SchemaError,
)
from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.ledger.lifecycle import close_ledger
from cassieq_spark.ledger.state import LedgerStatus
from cassieq_spark.model import QueueId
from cassieq_spark.producer import producer as producing
from cassieq_spark.producer.partitioner import partition_of_key
from cassieq_spark.producer.producer import CALLBACK_FAILED
from cassieq_spark.queues import alter_queue
from cassieq_spark.settings.writing import LARGEST_MESSAGE
from cassieq_spark.store.protocol import Store
from cassieq_spark.testing.faults import Fault, FaultyStore
from cassieq_spark.testing.stores import CountingStore, WrappedStore
from tests.support.faults import FakeClock
from tests.support.programs import output_of

_T = TypeVar("_T")

HOUR = timedelta(hours=1)
SECOND = timedelta(seconds=1)
PATIENCE = 60


def values(client: Client) -> dict[int, bytes]:
    return {message.monoton: message.value for message in client.peek("q", max=100_000)}


def in_time(call: Callable[[], _T]) -> _T:
    """The result of a call, in a thread that does not keep a test that hangs from its end."""
    outcome: Future[_T] = Future()

    def run() -> None:
        try:
            outcome.set_result(call())
        except Exception as error:  # noqa: BLE001 (the test gets it, whatever it is)
            outcome.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return outcome.result(PATIENCE)


class SlowStore(WrappedStore):
    """Holds up every write of chunks until it is opened."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.gate = threading.Event()
        self.gate.set()
        self.arrived = threading.Semaphore(0)

    def write_chunks(self, queue_id: QueueId, block: UUID, chunks: object) -> None:
        self.arrived.release()
        assert self.gate.wait(PATIENCE)
        super().write_chunks(queue_id, block, chunks)


@pytest.fixture
def slow(trouble: FaultyStore) -> SlowStore:
    return SlowStore(trouble)


@pytest.fixture
def slow_client(slow: SlowStore) -> Client:
    client = Client.from_store(slow)
    client.create_queue("q")
    return client


def test_puts_of_many_threads_are_few_lwts_and_each_learns_its_monoton(
    client: Client, store: CountingStore
):
    def put(thread: int) -> list[tuple[bytes, int]]:
        texts = [b"%d:%d" % (thread, number) for number in range(250)]
        futures = [(text, producer.put(text)) for text in texts]
        return [(text, future.result(PATIENCE)) for text, future in futures]

    with (
        client.producer("q", linger=50 * timedelta(milliseconds=1)) as producer,
        ThreadPoolExecutor(16) as threads,
    ):
        known = [pair for done in threads.map(put, range(16)) for pair in done]

    assert {monoton: text for text, monoton in known} == values(client)
    assert len(known) == 4_000
    assert store.cas_count <= 40


def test_one_thread_gets_its_monotons_in_the_order_of_its_puts(client: Client):
    with client.producer("q", max_batch=7) as producer:
        futures = [producer.put(str(number)) for number in range(100)]

    assert [future.result(0) for future in futures] == list(range(100))


def test_a_message_keeps_its_key_and_headers(client: Client):
    with client.producer("q") as producer:
        assert producer.put(NewMessage("a", key="k", headers={"h": "1"})).result(PATIENCE) == 0

    (message,) = client.peek("q")
    assert (message.value, message.key, message.headers) == (b"a", b"k", {"h": "1"})


def test_a_full_batch_does_not_linger(client: Client):
    with client.producer("q", linger=HOUR, max_batch=3) as producer:
        futures = [producer.put(text) for text in "abc"]
        assert [future.result(PATIENCE) for future in futures] == [0, 1, 2]
    with client.producer("q", linger=HOUR, max_bytes=2) as producer:
        assert [each.result(PATIENCE) for each in [producer.put("d"), producer.put("e")]] == [3, 4]
        assert producer.put("larger than a batch").result(PATIENCE) == 5


def test_a_message_that_does_not_fit_sends_the_batch_off(client: Client):
    with client.producer("q", linger=HOUR, max_bytes=10) as producer:
        first = producer.put("123456")
        second = producer.put("123456")
        assert first.result(PATIENCE) == 0
        assert not second.done()
    assert second.result(0) == 1


def test_flushing_publishes_what_was_put_and_waits_for_it(client: Client, store: CountingStore):
    with client.producer("q", linger=HOUR) as producer:
        futures = [producer.put(text) for text in "abc"]

        producer.flush()

        assert [future.result(0) for future in futures] == [0, 1, 2]
        assert store.cas_count == 1
        producer.flush()
        assert store.cas_count == 1


def test_closing_publishes_what_is_left_and_takes_no_more(client: Client):
    producer = client.producer("q", linger=HOUR)
    future = producer.put("a")

    producer.close()
    producer.close()

    assert future.result(0) == 0
    with pytest.raises(CassieqError, match="producer for queue 'q' is closed"):
        producer.put("b")


def test_puts_one_after_the_other_share_a_thread_that_ends_at_the_close(
    client: Client, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("cassieq_spark.producer.producer._IDLE", HOUR)
    threads: list[threading.Thread] = []

    def put_two() -> None:
        with client.producer("q", linger=HOUR) as producer:
            for value in ("a", "b"):
                put = producer.put(value)
                put.add_done_callback(lambda _: threads.append(threading.current_thread()))
                producer.flush()

    in_time(put_two)

    first, second = threads
    assert first is second
    assert not first.is_alive()


def test_a_producer_that_is_closed_under_load_loses_nothing_that_it_took(client: Client):
    producer = client.producer("q", max_batch=5)
    taken: list[Future[int]] = []
    begun = threading.Semaphore(0)

    def put_for_ever() -> None:
        while True:
            taken.append(producer.put("v"))
            begun.release()

    def put() -> None:
        with pytest.raises(CassieqError, match="closed"):
            put_for_ever()

    with ThreadPoolExecutor(8) as threads:
        running = [threads.submit(put) for _ in range(8)]
        for _ in range(50):
            assert begun.acquire(timeout=PATIENCE)
        producer.close()
        for each in running:
            each.result(PATIENCE)

    assert sorted(future.result(0) for future in taken) == sorted(values(client))


def test_puts_wait_while_there_is_no_room(slow_client: Client, slow: SlowStore):
    producer = slow_client.producer("q", max_batch=10, linger=timedelta(0))
    slow.gate.clear()
    first = producer.put("under way")
    assert slow.arrived.acquire(timeout=PATIENCE)
    for number in range(10):
        producer.put(str(number))

    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(producer.put, "one too many")
        with pytest.raises(TimeoutError):
            waiting.result(0.2)
        assert not first.done()
        slow.gate.set()
        waiting.result(PATIENCE)
    producer.close()

    assert len(values(slow_client)) == 12


def test_a_put_that_may_not_wait_is_refused_while_there_is_no_room(
    slow_client: Client, slow: SlowStore
):
    slow.gate.clear()
    with slow_client.producer("q", linger=0 * SECOND, max_batch=1) as producer:
        under_way = producer.try_put("a")
        assert under_way is not None
        assert slow.arrived.acquire(timeout=PATIENCE)
        gathered = producer.try_put("b")

        assert gathered is not None
        assert producer.try_put("c") is None
        slow.gate.set()
        assert (under_way.result(PATIENCE), gathered.result(PATIENCE)) == (0, 1)
        again = producer.try_put(NewMessage("d", delay=SECOND))
        assert again is not None
        assert again.result(PATIENCE) == 2
    with pytest.raises(CassieqError, match="closed"):
        producer.try_put("e")


def test_what_is_cancelled_in_time_is_left_out(slow_client: Client, slow: SlowStore):
    producer = slow_client.producer("q", linger=timedelta(0))
    slow.gate.clear()
    under_way = producer.put("under way")
    assert slow.arrived.acquire(timeout=PATIENCE)
    waiting = [producer.put(text) for text in "ab"]

    assert waiting[0].cancel()
    assert not under_way.cancel()
    slow.gate.set()
    producer.close()

    assert values(slow_client) == {0: b"under way", 1: b"b"}
    assert waiting[1].result(0) == 1


def test_a_batch_that_is_cancelled_altogether_is_no_publish(slow_client: Client, slow: SlowStore):
    producer = slow_client.producer("q", linger=timedelta(0))
    slow.gate.clear()
    producer.put("under way")
    assert slow.arrived.acquire(timeout=PATIENCE)
    assert producer.put("a").cancel()
    slow.gate.set()

    producer.close()

    assert values(slow_client) == {0: b"under way"}


@pytest.mark.parametrize("fault", Fault)
def test_a_lost_answer_publishes_once(client: Client, trouble: FaultyStore, fault: Fault):
    with client.producer("q", linger=HOUR) as producer:
        futures = [producer.put(text) for text in "ab"]
        trouble.fault = fault
    trouble.arrive()

    assert [future.result(0) for future in futures] == [0, 1]
    assert values(client) == {0: b"a", 1: b"b"}


def fail_next(trouble: FaultyStore) -> None:
    def fail() -> None:
        raise NotAppliedError("no replicas")

    trouble.interrupt(fail, after=0)


def test_an_error_reaches_every_future_of_its_batch_and_the_log(
    client: Client, trouble: FaultyStore, caplog: pytest.LogCaptureFixture
):
    with client.producer("q", linger=HOUR) as producer:
        futures = [producer.put(text) for text in "ab"]
        fail_next(trouble)
        with pytest.raises(NotAppliedError):
            producer.flush()

        for future in futures:
            assert isinstance(future.exception(0), NotAppliedError)
        assert producer.put("c").cancel()

    (record,) = [each for each in caplog.records if hasattr(each, "action")]
    assert (record.action, record.count) == ("producer.publish_failed", 2)


def test_an_error_that_somebody_asked_for_is_not_told_again(client: Client, trouble: FaultyStore):
    with client.producer("q", linger=timedelta(0)) as producer:
        fail_next(trouble)
        with pytest.raises(NotAppliedError):
            producer.put("a").result(PATIENCE)

        assert producer.put("b").result(PATIENCE) == 0
        producer.flush()


def test_leaving_tells_of_an_error_that_nobody_asked_for(client: Client, trouble: FaultyStore):
    def put(producer: Producer) -> None:
        with producer:
            producer.put("a")
            fail_next(trouble)

    with pytest.raises(NotAppliedError):
        put(client.producer("q", linger=HOUR))


def test_leaving_with_an_error_keeps_that_error(client: Client, trouble: FaultyStore):
    def leave(producer: Producer) -> None:
        producer.put("a")
        fail_next(trouble)
        raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"), client.producer("q", linger=HOUR) as producer:
        leave(producer)


def test_a_callback_may_put_even_where_there_is_no_room(client: Client):
    with client.producer("q", max_batch=1) as producer:
        follow_ups: list[Future[int]] = []
        done = threading.Event()

        def follow(_: Future[int]) -> None:
            follow_ups.extend(producer.put(text) for text in "bc")
            done.set()

        producer.put("a").add_done_callback(follow)
        assert done.wait(PATIENCE)
        producer.flush()

    assert sorted(future.result(0) for future in follow_ups) == [1, 2]


def test_each_time_of_delivery_keeps_its_messages_and_their_order(
    client: Client, store: CountingStore, clock: FakeClock
):
    with client.producer("q", linger=HOUR) as producer:
        futures = [
            producer.put("now"),
            producer.put(NewMessage("in 5", delay=4.5 * SECOND)),
            producer.put("now too"),
            producer.put(NewMessage("in 5 too", delay=5 * SECOND)),
            producer.put(NewMessage("at 7", visible_at=clock.now + 6.001 * SECOND)),
        ]
    assert store.cas_count == 1
    assert {future.result(0): text for future, text in zip(futures, "abcde", strict=True)} == {
        0: "a",
        1: "c",
        2: "b",
        3: "d",
        4: "e",
    }

    def received() -> list[bytes]:
        return [message.value for message in client.receive("q", "g", max=10)]

    assert received() == [b"now", b"now too"]
    clock.advance(4.999 * SECOND)
    assert received() == []
    clock.advance(0.001 * SECOND)
    assert received() == [b"in 5", b"in 5 too"]
    clock.advance(2 * SECOND)
    assert received() == [b"at 7"]


def test_many_times_of_delivery_make_batches_of_few_blocks(client: Client, store: CountingStore):
    with client.producer("q", linger=HOUR) as producer:
        for number in range(250):
            producer.put(NewMessage("v", delay=number * SECOND))

    assert store.cas_count == 3


def test_bad_messages_are_refused_at_once_and_leave_the_batch_alone(client: Client):
    with client.producer("q", linger=HOUR) as producer:
        good = producer.put("good")
        with pytest.raises(MessageError, match="of type int"):
            producer.put(7)
    assert good.result(0) == 0


def test_settings_that_make_no_sense_are_refused(client: Client):
    for bad in ({"linger": -SECOND}, {"max_batch": 0}, {"max_bytes": 0}):
        with pytest.raises(OptionError, match=next(iter(bad))):
            client.producer("q", **bad)
    with pytest.raises(QueueStateError, match="no queue 'nobody'"):
        client.producer("nobody")


@pytest.mark.parametrize("key", ["None", "str(number)"])
@pytest.mark.parametrize("partitions", [1, 4])
def test_a_program_that_ends_without_closing_it_publishes_all_the_same(partitions: int, key: str):
    program = f"""
        import atexit
        from datetime import timedelta
        from cassieq_spark import Client, NewMessage
        from cassieq_spark.store.memory import MemoryStore

        client = Client.from_store(MemoryStore())
        client.create_queue("q", partitions={partitions})
        atexit.register(lambda: print(len(client.peek("q", max=100))))
        producer = client.producer("q", linger=timedelta(milliseconds=300))
        for number in range(50):
            producer.put(NewMessage(str(number), key={key}))
    """

    assert output_of(program) == "50\n"


@pytest.mark.parametrize("partitions", [1, 4])
def test_a_thread_that_outlives_the_main_thread_puts_and_receives(partitions: int):
    program = f"""
        import threading
        from cassieq_spark import Client, NewMessage
        from cassieq_spark.store.memory import MemoryStore

        client = Client.from_store(MemoryStore())
        client.create_queue("q", partitions={partitions})
        producer = client.producer("q")

        def work():
            threading.main_thread().join()
            for _ in range(2):
                futures = [producer.put(NewMessage("v", key=str(key))) for key in range(20)]
                done = [future.exception(60) for future in futures]
                print(set(done), len(client.receive("q", "g", max=20)))

        threading.Thread(target=work).start()
    """

    assert output_of(program) == "{None} 20\n{None} 20\n"


def test_a_put_whose_thread_could_not_be_started_is_refused_and_the_next_one_is_published(
    client: Client, monkeypatch: pytest.MonkeyPatch
):
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    producer = client.producer("q", linger=HOUR)
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        with pytest.raises(RuntimeError, match="can't start new thread"):
            producer.put("a")
        producer.flush()
    future = producer.put("b")
    producer.close()

    assert future.result(0) == 0
    assert values(client) == {0: b"b"}


def test_a_put_that_was_interrupted_as_its_thread_started_leaves_one_thread(
    client: Client, monkeypatch: pytest.MonkeyPatch
):
    start = threading.Thread.start

    def interrupted(thread: threading.Thread) -> None:
        start(thread)
        raise KeyboardInterrupt

    producer = client.producer("q", linger=HOUR)
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", interrupted)
        with pytest.raises(KeyboardInterrupt):
            producer.put("a")
    future = producer.put("b")
    producer.close()

    assert future.result(0) == 0
    assert values(client) == {0: b"b"}


@pytest.mark.parametrize("method", ["close", "flush"])
def test_a_signal_handler_that_interrupts_a_put_does_not_wait_for_it(
    client: Client, monkeypatch: pytest.MonkeyPatch, method: str
):
    producer = client.producer("q", linger=HOUR)
    notify_all = threading.Condition.notify_all
    interrupted: list[int] = []

    def notify_and_handle(condition: threading.Condition) -> None:
        notify_all(condition)
        if interrupted == [threading.get_ident()]:
            interrupted.clear()
            getattr(producer, method)()

    def put() -> Future[int]:
        interrupted.append(threading.get_ident())
        return producer.put("a")

    monkeypatch.setattr(threading.Condition, "notify_all", notify_and_handle)

    assert in_time(put).result(PATIENCE) == 0
    assert interrupted == []
    producer.close()
    assert values(client) == {0: b"a"}


@pytest.mark.parametrize("method", ["close", "flush"])
def test_a_callback_does_not_wait_for_itself(client: Client, method: str):
    producer = client.producer("q", linger=0 * SECOND)
    called = threading.Event()

    def call(_: Future[int]) -> None:
        getattr(producer, method)()
        called.set()

    producer.put("a").add_done_callback(call)

    assert called.wait(PATIENCE)
    in_time(producer.close)
    assert values(client) == {0: b"a"}


@pytest.mark.parametrize("is_failing", [False, True])
def test_a_callback_that_exits_does_not_end_the_producer(
    client: Client, trouble: FaultyStore, caplog: pytest.LogCaptureFixture, *, is_failing: bool
):
    producer = client.producer("q", linger=HOUR)
    futures = [producer.put(text) for text in "ab"]
    futures[0].add_done_callback(lambda _: sys.exit(1))
    if is_failing:
        fail_next(trouble)
        with pytest.raises(NotAppliedError):
            in_time(producer.flush)
    else:
        in_time(producer.flush)
    last = producer.put("c")
    in_time(producer.close)

    assert [isinstance(each.exception(0), NotAppliedError) for each in futures] == [is_failing] * 2
    assert last.exception(0) is None
    (record,) = [each for each in caplog.records if each.__dict__.get("action") == CALLBACK_FAILED]
    assert "SystemExit: 1" in record.getMessage()


def test_messages_that_wait_while_a_column_is_dropped_are_published_with_it(
    slow: SlowStore, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(producing, "CACHED_FOR", timedelta(0))
    client = Client.from_store(slow)
    client.create_queue("t", schema="a string, b int")
    with client.producer("t", linger=timedelta(0)) as producer:
        slow.gate.clear()
        first = producer.put({"a": "first", "b": 0})
        assert slow.arrived.acquire(timeout=PATIENCE)
        row = {"a": "waits", "b": 1}
        waits = producer.put(row)
        row["a"] = "changed by the program since"
        alter_queue(slow, "t", schema="a string")
        slow.gate.set()
        assert [first.result(PATIENCE), waits.result(PATIENCE)] == [0, 1]

        assert producer.put({"a": "later"}).result(PATIENCE) == 2
        with pytest.raises(SchemaError, match="no column 'b'"):
            producer.put({"a": "later", "b": 2})

    values = [message.value for message in client.peek("t", max=9)]
    assert values == [{"a": "first"}, {"a": "waits"}, {"a": "later"}]


def test_messages_checked_before_and_after_an_alter_are_two_publishes_in_order(slow: SlowStore):
    client = Client.from_store(slow)
    client.create_queue("t", schema="a string")
    with client.producer("t", linger=timedelta(0)) as producer:
        slow.gate.clear()
        first = producer.put({"a": "first"})
        assert slow.arrived.acquire(timeout=PATIENCE)
        alter_queue(slow, "t", schema="a string, b int")
        puts = [producer.put({"a": "old"}), producer.put({"a": "new", "b": 1})]
        slow.gate.set()
        assert [put.result(PATIENCE) for put in (first, *puts)] == [0, 1, 2]

    values = [message.value for message in client.peek("t", max=9)]
    assert values == [{"a": "first", "b": None}, {"a": "old", "b": None}, {"a": "new", "b": 1}]


def test_messages_without_columns_do_not_become_rows_of_nulls_in_a_queue_that_was_created_again(
    client: Client,
):
    with client.producer("q", linger=timedelta(0)) as producer:
        assert producer.put("plain").result(PATIENCE) == 0
        client.delete_queue("q")
        client.create_queue("q", schema="a string, b int", max_deliveries=0)
        refused = producer.put('{"a": "x", "b": 1}')
        with pytest.raises(QueueStateError, match="created again with another schema"):
            refused.result(PATIENCE)

        assert producer.put('{"a": "x", "b": 1}').result(PATIENCE) == 0

    assert [message.value for message in client.peek("q")] == [{"a": "x", "b": 1}]


def test_rows_are_not_put_into_a_queue_that_was_created_again_without_columns(client: Client):
    client.create_queue("t", schema="a string")
    with client.producer("t", linger=timedelta(0)) as producer:
        client.delete_queue("t")
        client.create_queue("t", max_deliveries=0)
        with pytest.raises(QueueStateError, match="created again with another schema"):
            producer.put({"a": "x"}).result(PATIENCE)

        assert producer.put("plain").result(PATIENCE) == 0


def test_delayed_messages_do_not_fail_others_in_a_queue_that_was_created_again_with_an_order(
    client: Client,
):
    with client.producer("q", linger=timedelta(0)) as producer:
        client.delete_queue("q")
        client.create_queue("q", order="strict")
        with pytest.raises(QueueStateError, match="created again"):
            producer.put(NewMessage("late", delay=HOUR)).result(PATIENCE)
        with pytest.raises(OptionError, match="strict"):
            producer.put(NewMessage("late", delay=HOUR))

        assert producer.put("plain").result(PATIENCE) == 0


@pytest.mark.parametrize("partitions", [1, 4])
@pytest.mark.parametrize("cached_for", [timedelta(0), HOUR])
def test_a_producer_goes_on_after_a_purge(
    client: Client, monkeypatch: pytest.MonkeyPatch, cached_for: timedelta, partitions: int
):
    monkeypatch.setattr(producing, "CACHED_FOR", cached_for)
    client.create_queue("p", partitions=partitions)
    keys = "abcdefgh"
    with client.producer("p", linger=50 * timedelta(milliseconds=1)) as producer:
        for text in ("before", "after"):
            puts = [producer.put(NewMessage(text, key=key)) for key in keys]
            producer.flush()
            assert min(put.result(PATIENCE) for put in puts) == 0
            if text == "before":
                client.purge_queue("p")

    assert [message.value for message in client.peek("p", max=99)] == [b"after"] * len(keys)


def test_messages_that_one_partition_has_taken_are_not_put_again_as_another_is_closed(
    client: Client, store: CountingStore, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(producing, "CACHED_FOR", HOUR)
    client.create_queue("p", partitions=2)
    queue = client.queue("p")
    keys = {partition_of_key(key, 2): key for key in map(str, range(9))}
    with client.producer("p", linger=50 * timedelta(milliseconds=1)) as producer:
        close_ledger(
            Ledger(store, queue.of_partition(1).queue_id),
            LedgerStatus.PURGED,
            bucket_size=queue.bucket_size,
        )
        taken, refused = (producer.put(NewMessage("x", key=keys[each])) for each in (0, 1))
        with pytest.raises(QueueStateError):
            refused.result(PATIENCE)
        assert taken.result(PATIENCE) == 0

    assert Ledger(store, queue.of_partition(0).queue_id).read_head().next == 1


def test_a_producer_of_a_queue_that_is_deleted_says_so_and_publishes_nothing(
    client: Client, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(producing, "CACHED_FOR", HOUR)
    with client.producer("q", linger=timedelta(0)) as producer:
        assert producer.put("before").result(PATIENCE) == 0
        client.delete_queue("q")
        with pytest.raises(NotFoundError, match="no queue 'q'"):
            producer.put("after").result(PATIENCE)


def test_a_producer_under_load_does_not_read_the_queue_for_each_batch(
    client: Client, store: CountingStore, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(producing, "CACHED_FOR", HOUR)
    with client.producer("q", linger=timedelta(0)) as producer:
        store.reset()
        for number in range(10):
            assert producer.put("x").result(PATIENCE) == number

    assert (store.cas_count, store.read_count, store.serial_read_count) == (10, 10, 0)


@pytest.mark.parametrize("headers", [None, {f"h{number}": None for number in range(100)}])
def test_a_row_is_refused_by_itself_if_its_key_and_headers_make_it_too_large(
    client: Client, headers: dict[str, None] | None
):
    client.create_queue("t", schema="t string")
    names = sum(len(name) for name in headers or ())
    room = LARGEST_MESSAGE - 4 - 4 - 4 - names - 8 * len(headers or ())
    with client.producer("t") as producer:
        largest = producer.put(NewMessage({"t": "x" * room}, headers=headers))
        small = producer.put({"t": "small"})
        with pytest.raises(MessageError, match="the message is 8388609 bytes"):
            producer.put(NewMessage({"t": "x" * (room + 1)}, headers=headers))

        assert sorted([largest.result(PATIENCE), small.result(PATIENCE)]) == [0, 1]
