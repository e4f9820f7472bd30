"""Forks, and objects that are sent to other processes."""

from __future__ import annotations

import asyncio
import inspect
import pickle
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from pyspark import cloudpickle

from cassieq_spark import errors
from cassieq_spark.arrow.receipts import Receipt
from cassieq_spark.client import Action, AsyncClient, Client, Message, NewMessage, StoredMessage
from cassieq_spark.dead_letters.letters import DeadLetterGroup, Filter
from cassieq_spark.dead_letters.purge import PurgeReport
from cassieq_spark.dead_letters.redrive import RedriveReport
from cassieq_spark.dead_letters.stopped import Stopped
from cassieq_spark.dead_letters.survey import DeadLetterMessage, Survey
from cassieq_spark.display import Listing
from cassieq_spark.errors import CassieqError
from cassieq_spark.http.client import (
    AsyncHttpQueue,
    HttpError,
    HttpQueue,
    HttpStateError,
    HttpSurvey,
)
from cassieq_spark.lock.bakery import Bakery
from cassieq_spark.model import Positions, QueueDefinition, QueueId, Range, Ranges
from cassieq_spark.monitoring import QueryMetrics
from cassieq_spark.queues.stats import GroupStats, QueueStats
from cassieq_spark.settings.connection import ConnectionOptions
from cassieq_spark.spark.progress import Progress
from cassieq_spark.store.cassandra.store import CassandraStore
from cassieq_spark.store.memory import MemoryStore
from cassieq_spark.testing.stores import CountingStore
from tests.support.programs import output_of

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
KEY = "A" * 43 + "="

# -- a fork ---------------------------------------------------------------------------------------

#: A child that does not end is killed, so that the test fails and does not wait.
FORKING = r"""
    import os, signal, sys, threading
    from cassieq_spark import Client
    from cassieq_spark.store.memory import MemoryStore

    def fork(child):
        if (pid := os.fork()) == 0:
            signal.alarm(60)
            child()
            sys.stdout.flush()
            os._exit(0)
        status = os.waitpid(pid, 0)[1]
        # Past `sys.stdout`: what waits in its buffer, the child of another thread prints as well.
        os.write(1, b"ended\n" if status == 0 else b"was killed: %d\n" % status)
"""


def test_a_child_puts_though_the_first_put_was_under_way_in_another_thread():
    program = """
    client = Client.from_store(MemoryStore())
    client.create_queue("q")
    first = threading.Thread(target=client.put, args=("q", "of the parent"))
    first.start()
    # Arrow imports it before its first array.
    while "pandas" not in sys.modules:
        pass
    fork(lambda: print(client.put("q", "of the child") >= 0))
    first.join()
    """

    assert output_of(FORKING + program) == "True\nended\n"


@pytest.mark.parametrize(
    "lock",
    [
        "lock_across_forks()",
        "processes.importing",
        "MemoryStore()._lock",
        "CountingStore(MemoryStore())._lock",
        "__import__('pyarrow').lib._pandas_api._lock",
    ],
)
def test_a_fork_waits_for_the_lock_of_another_thread(lock: str):
    program = f"""
    from cassieq_spark import processes
    from cassieq_spark.processes import lock_across_forks
    from cassieq_spark.testing.stores import CountingStore

    lock, held, begun = {lock}, threading.Event(), threading.Event()

    def hold():
        with lock:
            held.set()
            begun.wait()

    threading.Thread(target=hold).start()
    held.wait()
    # Registered last, it is called first.
    os.register_at_fork(before=begun.set)

    def child():
        with lock:
            print("has it")

    fork(child)
    with lock:
        print("so has the parent")
    """

    assert output_of(FORKING + program) == "has it\nended\nso has the parent\n"


def test_threads_that_fork_at_once_do_not_wait_for_each_other():
    program = """
    stores = [MemoryStore() for _ in range(20)]
    threads = [threading.Thread(target=fork, args=(lambda: None,)) for _ in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    """

    assert output_of(FORKING + program).split() == ["ended"] * 8


def test_a_client_imports_no_module_of_ours_once_it_is_made():
    program = """
    client = Client.from_store(MemoryStore())
    before = set(sys.modules)

    client.create_queue("q", max_deliveries=1)
    client.create_queue("t", schema="a int, s string", partitions=2, order="key")
    client.put("q", "x")
    client.put_many("t", [{"a": 1, "s": "x"}])
    with client.producer("q") as producer:
        producer.put("y")
    client.ack(*client.receive("t", "g"))
    client.receive_table("t", "g")
    client.replace(client.receive("q", "g")[0], "z")
    client.reject(*client.receive("q", "g"), reason="bad")
    client.redrive(client.dead_letters("q"))
    client.peek("q"), client.stats("t"), client.stored("q")
    client.seek_group("q", "g", "earliest", force=True)
    client.purge_queue("q", force=True)
    client.delete_queue("t", force=True)
    print(sorted(name for name in set(sys.modules) - before if name.startswith("cassieq")))
    """

    assert (
        output_of("import logging; logging.disable()\n" + inspect.cleandoc(FORKING + program))
        == "[]\n"
    )


def test_a_child_has_connections_to_a_gateway_of_its_own():
    program = """
    from cassieq_spark.http.client import HttpQueue

    queue = HttpQueue("http://127.0.0.1:9", "acme", "orders", key="A" * 43 + "=")
    of_parent = queue._http

    def child():
        print(queue._http is of_parent, queue._http is queue._http)
        queue.close()

    fork(child)
    print(queue._http is of_parent, of_parent.is_closed)
    """

    assert output_of(FORKING + program) == "False True\nended\nTrue False\n"


def test_a_child_is_told_that_it_has_no_threads_of_a_client_for_asyncio():
    program = """
    import asyncio
    from cassieq_spark import AsyncClient

    def child():
        try:
            asyncio.run(client.stored("q"))
        except Exception as error:
            print(type(error).__name__, error)

    async def main():
        global client
        async with AsyncClient.from_store(MemoryStore()) as client:
            await client.create_queue("q")
            loop = asyncio.get_running_loop()
            await loop.run_in_executor(None, fork, child)

    asyncio.run(main())
    """

    assert output_of(FORKING + program) == (
        "CassieqError this process was forked, and has no threads of this client: create another "
        "one\nended\n"
    )


# -- other processes ------------------------------------------------------------------------------


def sent(it: Any) -> Any:
    """What another process gets, by Python's own pickle and by that of Spark's closures."""
    by_spark = pickle.loads(cloudpickle.dumps(lambda: it))
    plain = pickle.loads(pickle.dumps(it))
    assert type(by_spark()) is type(plain)
    return plain


MESSAGE = Message(
    "q", 3, b"k", {"a": 1}, {"n": None}, NOON, "g", 1, "q@1/g/r/3", NOON, partition=1
)
GROUP = GroupStats("g", 3, 1, 0, 0, 0, timedelta(seconds=1), 1, 0, stopped=1)
LETTERS = DeadLetterGroup("q", "g", "bad", Ranges.of(Range(0, 3)), NOON, None)
QUEUE = QueueDefinition("q", 2, schemas=("a int",), created_at=NOON)
VALUES = [
    MESSAGE,
    StoredMessage("q", 3, None, b"v", {}, NOON),
    NewMessage("v", "k", {"n": "x"}, timedelta(seconds=3)),
    Positions({0: Range(0, 3)}),
    Ranges.of(Range(0, 3)),
    Receipt.parse("q@1/g/00000000-0000-0000-0000-000000000000/3"),
    QUEUE,
    GROUP,
    QueueStats(QueueId("q@1"), 0, 3, (GROUP,)),
    Survey(QUEUE, (LETTERS,)),
    HttpSurvey("q@1", (LETTERS,)),
    DeadLetterMessage("q", 0, NOON, [("n", "x")], b"k", b"v"),
    Filter(group="g"),
    RedriveReport({"q": 1}, 0, is_stopped=False),
    PurgeReport(1, 0, is_stopped=False),
    Stopped(None, Ranges.of(Range(0, 3)), 5, "bad", NOON),
    Action("ack"),
    Progress(queue="q", group="g"),
    ConnectionOptions(keyspace="other"),
    Listing([MESSAGE]),
]


@pytest.mark.parametrize("it", VALUES, ids=lambda it: type(it).__name__)
def test_a_value_is_the_same_in_another_process(it: Any):
    assert sent(it) == it


def test_messages_that_were_received_are_the_same_in_another_process():
    client = a_client()
    client.create_queue("t", schema="a map<string, decimal(5,2)>, b binary")
    client.put("q", NewMessage("v", "k", {"n": None}))
    client.put("t", {"a": {"x": Decimal("1.50")}, "b": b"\xff"})

    for queue in ("q", "t"):
        messages = client.receive(queue, "g")
        assert sent(messages) == messages
        assert sent(client.peek(queue)) == client.peek(queue)


@pytest.mark.parametrize(
    "kind",
    [it for it in vars(errors).values() if inspect.isclass(it) and issubclass(it, CassieqError)],
)
def test_an_error_says_the_same_in_another_process(kind: type[CassieqError]):
    error = kind("what was wrong")
    error.add_note("and where")

    assert (str(sent(error)), sent(error).__notes__) == ("what was wrong", ["and where"])


@pytest.mark.parametrize("kind", [HttpError, HttpStateError])
def test_an_error_of_a_gateway_keeps_its_status(kind: type[HttpError]):
    assert sent(kind("409: in use", 409)).status == 409


class Unconnected:
    """In place of the driver: says who wants to connect."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked: list[ConnectionOptions] = []
        monkeypatch.setattr("cassieq_spark.store.cassandra.store.join", self._join)

    def _join(self, options: ConnectionOptions, _: object) -> Any:
        self.asked.append(options)
        if len(self.asked) > 1:
            raise errors.ConnectError("nobody is here")
        return type("Session", (), {"pid": -1, "users": set()})()


def test_a_client_is_its_settings_and_connects_where_it_is_used(monkeypatch: pytest.MonkeyPatch):
    joined = Unconnected(monkeypatch)
    client = Client(contact_points="here:1234", keyspace="mine")

    other = sent(client)

    options = ConnectionOptions(contact_points=("here:1234",), keyspace="mine")
    assert joined.asked == [options]
    with pytest.raises(errors.ConnectError, match="nobody is here"):
        other.queue("q")
    assert joined.asked == [options, options]


def test_a_store_is_its_settings_and_connects_where_it_is_used(monkeypatch: pytest.MonkeyPatch):
    joined = Unconnected(monkeypatch)

    other = sent(CassandraStore(ConnectionOptions(keyspace="mine")))

    assert len(joined.asked) == 1
    with pytest.raises(errors.ConnectError, match="nobody is here"):
        list(other.scan("queue"))


def test_a_client_for_asyncio_is_its_settings(monkeypatch: pytest.MonkeyPatch):
    joined = Unconnected(monkeypatch)

    async def use(client: AsyncClient) -> None:
        async with client:
            await client.queue("q")

    async def main() -> AsyncClient:
        return AsyncClient(threads=3, keyspace="mine")

    other = sent(asyncio.run(main()))

    assert joined.asked == []
    with pytest.raises(errors.ConnectError, match="nobody is here"):
        asyncio.run(use(other))
    assert joined.asked[0].keyspace == "mine"


@pytest.mark.parametrize("kind", [HttpQueue, AsyncHttpQueue])
def test_a_queue_by_http_is_its_settings(kind: type[HttpQueue]):
    queue = kind("http://127.0.0.1:8080/base", "acme", "orders", key=KEY, sign=True)

    other = sent(queue)

    given = {"key": KEY, "sign": True}
    assert other._again.args == ("http://127.0.0.1:8080/base", "acme", "orders")
    assert {name: other._again.keywords[name] for name in given} == given


@pytest.mark.parametrize(
    ("make", "instead"),
    [
        (
            MemoryStore,
            "MemoryStore cannot be sent to another process: what it stores is",
        ),
        (lambda: CountingStore(MemoryStore()), "CountingStore cannot be sent to another process:"),
        (
            lambda: Client.from_store(MemoryStore()),
            "MemoryStore cannot be sent to another process",
        ),
        (
            lambda: a_client().producer("q"),
            "Producer cannot be sent .*: send the client, and make",
        ),
        (lambda: a_client().exchange("q", "g"), "Exchange cannot be sent .*: send the client"),
        (
            lambda: a_client().receiver("q", "g"),
            "QueueReceiver cannot be sent .*: send the client",
        ),
        (
            lambda: Bakery(MemoryStore(), "l", owner="me"),
            "Bakery cannot be sent to another process",
        ),
        (
            lambda: QueryMetrics(CollectorRegistry()),
            "QueryMetrics cannot be sent .*: it publishes in the driver",
        ),
    ],
)
def test_what_cannot_be_sent_says_so_in_one_sentence(make: Callable[[], Any], instead: str):
    it = make()

    with pytest.raises(CassieqError, match=instead) as refused:
        pickle.dumps(it)
    with pytest.raises(CassieqError, match=instead):
        cloudpickle.dumps(lambda: it)
    assert "\n" not in str(refused.value)


def a_client() -> Client:
    client = Client.from_store(MemoryStore())
    client.create_queue("q")
    return client
