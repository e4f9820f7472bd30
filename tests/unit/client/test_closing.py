"""Closing a client while calls are under way, also from within one of them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest

from cassieq_spark import Client
from cassieq_spark.errors import CassieqError
from cassieq_spark.store.memory import MemoryStore
from cassieq_spark.testing.faults import FaultyStore
from tests.support.programs import output_of

PATIENCE = 30
MINUTE = timedelta(minutes=1)


class ClosingStore(FaultyStore):
    """Counts how often it was closed."""

    closed = 0

    def close(self) -> None:
        self.closed += 1


@pytest.fixture
def store() -> ClosingStore:
    return ClosingStore(MemoryStore())


@pytest.fixture
def client(store: ClosingStore) -> Client:
    client = Client.from_store(store)
    client._closes_store = True
    client.create_queue("q")
    client.receive("q", "g")
    return client


def in_time(call: Callable[[], object]) -> object:
    """The result of a call, in a thread that does not keep a test that hangs from its end."""
    results: list[object] = []
    thread = threading.Thread(target=lambda: results.append(call()), daemon=True)
    thread.start()
    thread.join(PATIENCE)
    assert results, "it hangs, or has failed"
    return results[0]


def test_a_close_within_a_call_lets_it_end_and_then_disconnects(
    client: Client, store: ClosingStore
):
    def messages() -> Iterator[str]:
        yield "a"
        client.close()
        assert store.closed == 0
        yield "b"

    in_time(lambda: client.put_many("q", messages()))

    assert store.closed == 1
    assert [each.value for each in Client.from_store(store).peek("q")] == [b"a", b"b"]
    with pytest.raises(CassieqError, match="this client is closed"):
        client.peek("q")
    client.close()
    assert store.closed == 1


def test_a_receive_that_waits_ends_if_it_is_closed_from_within(
    client: Client, store: ClosingStore
):
    store.interrupt(client.close, after=3)

    assert in_time(lambda: client.receive("q", "g", wait=MINUTE)) == []
    assert store.closed == 1


def test_a_call_within_a_call_that_has_closed_is_refused_and_the_outer_one_ends(
    client: Client, store: ClosingStore
):
    def messages() -> Iterator[str]:
        client.close()
        with pytest.raises(CassieqError, match="this client is closed"):
            client.peek("q")
        assert store.closed == 0
        yield "a"

    in_time(lambda: client.put_many("q", messages()))

    assert store.closed == 1


@pytest.mark.parametrize("is_closed_again", [False, True])
def test_the_last_of_the_calls_disconnects(
    client: Client, store: ClosingStore, *, is_closed_again: bool
):
    begun, go_on = threading.Event(), threading.Event()

    def slowly() -> Iterator[str]:
        yield "slow"
        begun.set()
        assert go_on.wait(PATIENCE)

    def closing() -> Iterator[str]:
        yield "closing"
        client.close()

    with ThreadPoolExecutor(2) as threads:
        slow = threads.submit(client.put_many, "q", slowly())
        assert begun.wait(PATIENCE)
        in_time(lambda: client.put_many("q", closing()))
        assert store.closed == 0
        again = threads.submit(client.close) if is_closed_again else None
        go_on.set()
        slow.result(PATIENCE)
        if again:
            again.result(PATIENCE)

    assert store.closed == 1


def test_two_threads_that_close_within_their_calls_do_not_wait_for_each_other(
    client: Client, store: ClosingStore
):
    both = threading.Barrier(2)

    def messages() -> Iterator[str]:
        both.wait(PATIENCE)
        client.close()
        yield "a"

    with ThreadPoolExecutor(2) as threads:
        calls = [
            threads.submit(lambda: in_time(lambda: client.put_many("q", messages())))
            for _ in range(2)
        ]
        for each in calls:
            each.result(2 * PATIENCE)

    assert store.closed == 1


def test_a_signal_handler_may_close_while_a_receive_waits():
    program = """
        import signal
        from datetime import timedelta
        from cassieq_spark import Client
        from cassieq_spark.store.memory import MemoryStore

        client = Client.from_store(MemoryStore())
        client.create_queue("q")
        signal.signal(signal.SIGALRM, lambda *_: client.close())
        signal.setitimer(signal.ITIMER_REAL, 0.2, 0.2)
        received = client.receive("q", "g", wait=timedelta(hours=1))
        signal.setitimer(signal.ITIMER_REAL, 0)
        print(len(received))
    """

    assert output_of(program) == "0\n"


def test_a_child_that_is_forked_within_a_call_can_close():
    program = """
        import os
        from cassieq_spark import Client
        from cassieq_spark.store.memory import MemoryStore

        client = Client.from_store(MemoryStore())
        client.create_queue("q")
        pids = []

        def messages():
            yield "a"
            pids.append(os.fork())

        client.put_many("q", messages())
        client.close()
        if pids == [0]:
            os._exit(0)
        print(os.waitpid(pids[0], 0)[1])
    """

    assert output_of(program) == "0\n"
