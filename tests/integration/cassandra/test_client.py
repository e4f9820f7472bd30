from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from textwrap import dedent
from uuid import uuid4

import pytest
from click.testing import Result
from typer.testing import CliRunner

from cassieq_spark import AsyncClient, Client, NewMessage
from cassieq_spark.cli import app
from cassieq_spark.errors import OptionError, QueueStateError
from cassieq_spark.groups.history import flush_history
from cassieq_spark.model import Range
from cassieq_spark.settings.connection import ConnectionOptions
from cassieq_spark.store.protocol import Store
from cassieq_spark.testing.stores import CountingStore

Command = Callable[..., Result]
SECOND = timedelta(seconds=1)
LARGE = 4_000_000


@pytest.fixture
def store(cassandra_store: Store) -> CountingStore:
    return CountingStore(cassandra_store)


@pytest.fixture
def client(store: CountingStore) -> Client:
    return Client.from_store(store)


@pytest.fixture
def queue(client: Client) -> str:
    name = f"client-{uuid4().hex[:10]}"
    client.create_queue(name, max_deliveries=3)
    return name


@pytest.fixture
def reach(connection: ConnectionOptions) -> list[str]:
    return [
        *("--contact-points", ",".join(connection.contact_points)),
        *("--port", str(connection.port), "--keyspace", connection.keyspace),
    ]


@pytest.fixture
def command(reach: list[str]) -> Command:
    def run(*arguments: str, stdin: bytes | None = None) -> Result:
        result = CliRunner().invoke(app, [*arguments, *reach], input=stdin)
        if result.exception and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result

    return run


def program(text: str, connection: ConnectionOptions) -> str:
    """Run a program that finds in ``REACH`` how to reach the node; what it prints."""
    reach = {
        "contact_points": connection.contact_points,
        "port": connection.port,
        "keyspace": connection.keyspace,
    }
    done = subprocess.run(
        [sys.executable, "-c", f"REACH = {reach!r}\n{dedent(text)}"],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_messages_go_the_whole_way_by_one_lwt_for_each_call(
    client: Client, store: CountingStore, queue: str
):
    client.put(queue, "first of all")
    client.ack(*client.receive(queue, "g"))
    store.reset()

    assert client.put(queue, "a", key="k", headers={"h": "ü"}) == 1
    assert client.put_many(queue, [b"\xff", NewMessage("c")]) == Range(2, 4)
    assert store.cas_count == 2
    messages = client.receive(queue, "g", max=10, lease=20 * SECOND)
    assert (store.cas_count, store.serial_read_count) == (3, 0)
    (first, second, third) = messages
    assert (first.value, first.key, first.headers) == (b"a", b"k", {"h": "ü"})
    assert (second.value, second.key, second.headers) == (b"\xff", None, {})
    assert 19 * SECOND < first.lease_until - first.published_at < 30 * SECOND
    assert client.ack(first, second.receipt) == []
    assert store.cas_count == 4
    assert client.receive(queue, "g") == []
    assert store.cas_count == 4

    assert client.reject(third, reason="bad") == []
    assert client.ack(first, third) == [first.receipt, third.receipt]
    assert client.stats(queue).groups[0].depth == 0
    assert [each.value for each in client.peek(f"{queue}.dead")] == [b"c"]


def test_what_is_released_extended_or_replaced_is_so(client: Client, queue: str):
    client.put_many(queue, ["a", "b", "c", "d"])
    released, late, kept, old = client.receive(queue, "g", max=4, lease=2 * SECOND)

    assert client.release(released) == client.release(late, delay=3600 * SECOND) == []
    assert client.extend(kept, by=3600 * SECOND) == []
    assert client.replace(old, "e", headers={"x": "y"}, delay=SECOND) == []

    received: list[tuple[bytes, int]] = []
    while messages := client.receive(queue, "g", max=4, wait=4 * SECOND):
        received += [(each.value, each.delivery_count) for each in messages]
        client.ack(*messages)
    assert sorted(received) == [(b"a", 2), (b"e", 1)]
    assert client.ack(kept) == []
    assert client.stats(queue).groups[0].depth == 1


def test_a_batch_that_has_a_name_is_published_once(client: Client, queue: str):
    named = {"txn_app_id": "loader", "txn_version": 1}

    assert client.put_many(queue, ["a", "b"], **named) == Range(0, 2)
    assert client.put_many(queue, ["a", "b"], **named) is None
    assert client.stats(queue).next == 2


def test_a_call_with_100_000_unique_ids_takes_one_lwt_though_every_other_one_is_known(
    store: CountingStore, client: Client, queue: str
):
    client.alter_queue(queue, deduplicate=timedelta(hours=1))
    messages = [NewMessage(str(number), unique_id=str(number)) for number in range(100_000)]
    client.put_many(queue, messages[::2])
    another = Client.from_store(store)
    store.reset()

    published = another.put_many(queue, messages)

    assert (published, store.cas_count) == (Range(50_000, 100_000), 1)
    found = [message.value for message in client.peek(queue, max=100_001)]
    assert Counter(found) == Counter(str(number).encode() for number in range(100_000))


def test_many_threads_put_and_receive_by_few_lwts_and_nothing_is_lost_or_held_twice(
    client: Client, store: CountingStore, queue: str
):
    def put(thread: int) -> None:
        for number in range(500):
            producer.put(f"{thread}:{number}")

    store.reset()
    with client.producer(queue) as producer, ThreadPoolExecutor(8) as threads:
        for done in [threads.submit(put, thread) for thread in range(8)]:
            done.result(120)
    assert store.cas_count <= 100

    seen: Counter[bytes] = Counter()
    lock = threading.Lock()

    def consume() -> None:
        while messages := client.receive(queue, "g", max=200):
            with lock:
                seen.update(message.value for message in messages)
            assert client.ack(*messages) == []

    with ThreadPoolExecutor(4) as threads:
        for done in [threads.submit(consume) for _ in range(4)]:
            done.result(120)

    assert seen == Counter(f"{a}:{b}".encode() for a in range(8) for b in range(500))
    assert client.stats(queue).groups[0].depth == 0


def test_a_waiting_receive_wakes_up_soon_after_a_put(client: Client, queue: str):
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(client.receive, queue, "g", wait=60 * SECOND)
        client.put(queue, "v")

        (message,) = waiting.result(30)

    assert message.value == b"v"


def test_clients_connect_by_themselves(connection: ConnectionOptions, queue: str):
    reach = {
        "contact_points": connection.contact_points[0],
        "port": connection.port,
        "keyspace": connection.keyspace,
    }

    async def main() -> None:
        async with AsyncClient(**reach) as queues:
            async with queues.producer(queue) as producer:
                await asyncio.gather(*(producer.put(str(number)) for number in range(100)))
            messages = await queues.receive(queue, "async", max=100)
            assert len(messages) == 100
            assert await queues.ack(*messages) == []

    asyncio.run(main())
    with Client(**reach) as client:
        assert [each.group for each in client.stats(queue).groups] == ["async"]
        assert client.stats(queue).groups[0].depth == 0


def test_a_child_and_its_parent_work_on_after_a_fork(connection: ConnectionOptions, queue: str):
    told = program(
        f"""
        import os
        from cassieq_spark import Client

        client = Client(**REACH)
        client.put({queue!r}, "before")
        pid = os.fork()
        if pid == 0:
            (message,) = client.receive({queue!r}, "g")
            client.ack(message)
            client.put({queue!r}, "child")
            client.close()
            os._exit(0)
        assert os.waitpid(pid, 0)[1] == 0
        client.put({queue!r}, "parent")
        print([each.value for each in client.receive({queue!r}, "g", max=9)])
        client.close()
        """,
        connection,
    )

    assert told == "[b'child', b'parent']\n"


def test_the_shell_puts_receives_and_acks(command: Command, queue: str, tmp_path: Path):
    lines = tmp_path / "lines"
    lines.write_bytes(b"three\n\nf\xffve")

    assert "monotons [0, 2)" in command("put", queue, "one", "two").stdout
    put = command("put", queue, "--file", str(lines), "--key", "k", "--header", "a=b=c")
    assert "Put 3 message(s)" in put.stdout
    command("put", queue, "--file", "-", stdin=b"six\nseven\n")

    assert command("peek", queue, "--max", "2", "--from", "1").stdout == "two\nthree\n"
    one = command("receive", queue, "--group", "g")
    assert one.stdout_bytes == b"one\n"
    rest = command("receive", queue, "--group", "g", "--max", "9", "--wait", "1s")
    assert rest.stdout_bytes == b"two\nthree\n\nf\xffve\nsix\nseven\n"
    assert command("receive", queue, "--group", "g").stdout == ""


def test_the_shell_prints_json_with_base64_where_there_is_no_text(command: Command, queue: str):
    command("put", queue, "täxt", "--key", "k", "--header", "a=b", "--delay", "1ms")
    command("put", queue, "--file", "-", stdin=b"\xff\n")

    peeked = [json.loads(line) for line in command("peek", queue, "--json").stdout.splitlines()]
    assert (peeked[0]["value"], peeked[0]["key"], peeked[0]["headers"]) == (
        "täxt",
        "k",
        {"a": "b"},
    )
    assert (peeked[1]["value_base64"], peeked[1]["key"], peeked[1]["monoton"]) == ("/w==", None, 1)
    assert "receipt" not in peeked[0]
    received = command("receive", queue, "--group", "g", "--json", "--wait", "10s")
    (message,) = map(json.loads, received.stdout.splitlines())
    assert (message["group"], message["delivery_count"]) == ("g", 1)
    assert message["receipt"].startswith(f"{queue}@1/g/")


def test_the_shell_keeps_or_gives_back_what_it_is_told_to(
    command: Command, client: Client, queue: str
):
    command("put", queue, "a", "b")

    assert command("receive", queue, "--group", "g", "--release").stdout == "a\n"
    (again,) = client.receive(queue, "g", wait=10 * SECOND)
    assert (again.value, again.delivery_count) in [(b"a", 2), (b"b", 1)]
    client.ack(again)
    shown = command("receive", queue, "--group", "g", "--keep", "--json", "--wait", "10s").stdout
    assert client.stats(queue).groups[0].leased == 1
    assert client.ack(json.loads(shown)["receipt"]) == []


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["put", "q", "a", "--file", "-"], "only one of them"),
        (["put", "q", "a", "--header", "no"], "NAME=VALUE"),
        (["put", "q", "a", "--delay", "soon"], "--delay must be a duration"),
        (["receive", "q", "--group", "g", "--keep", "--ack"], "exclude each other"),
        (["receive", "q", "--group", "g", "--wait", "1"], "--wait must be a duration"),
        (["receive", "q", "--group", "no group"], "group name 'no group' is not valid"),
        (["peek", "q", "--from", "there"], "--from must be earliest"),
        (["peek", "q", "--from", "2026-11-20"], "no time zone"),
    ],
)
def test_the_shell_says_what_is_wrong(command: Command, arguments: list[str], complaint: str):
    with pytest.raises(OptionError, match=complaint):
        command(*arguments, stdin=b"")


def test_the_shell_names_a_queue_that_is_not_there(command: Command):
    for arguments in (["put", "nobody", "a"], ["receive", "nobody", "--group", "g"]):
        with pytest.raises(QueueStateError, match="there is no queue 'nobody'"):
            command(*arguments)


class Receiving:
    """``cassieq receive`` in a process of its own; no pipe is large enough for its second line."""

    def __init__(
        self, client: Client, queue: str, reach: list[str], *, unbuffered: str = ""
    ) -> None:
        self.client = client
        self.queue = queue
        client.put_many(queue, [letter * LARGE for letter in "abc"])
        self.process = subprocess.Popen(
            [
                *(sys.executable, "-m", "cassieq_spark.cli", "receive", queue),
                *("--group", "g", "--max", "3", *reach),
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=os.environ | {"PYTHONUNBUFFERED": unbuffered},
        )

    def read_into_the_second_line(self) -> None:
        """Then the first one is surely done with."""
        assert self.process.stdout is not None
        assert self.process.stdout.read(LARGE + 2) == b"a" * LARGE + b"\nb"

    def came_back(self) -> list[tuple[bytes, int]]:
        back: list[tuple[bytes, int]] = []
        while messages := self.client.receive(self.queue, "g", max=9, wait=2 * SECOND):
            back += [(each.value[:1], each.delivery_count) for each in messages]
        return back


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_broken_pipe_gives_back_what_was_not_printed(
    client: Client, queue: str, reach: list[str], unbuffered: str
):
    receiving = Receiving(client, queue, reach, unbuffered=unbuffered)
    receiving.read_into_the_second_line()

    receiving.process.stdout.close()
    assert receiving.process.wait(60) == 0
    assert receiving.process.stderr.read() == b""
    receiving.process.stderr.close()

    # Of the last one, the reader has not seen anything.
    assert sorted(receiving.came_back()) == [(b"b", 2), (b"c", 1)]


def test_ctrl_c_gives_back_what_was_not_printed(client: Client, queue: str, reach: list[str]):
    receiving = Receiving(client, queue, reach)
    receiving.read_into_the_second_line()

    receiving.process.send_signal(signal.SIGINT)
    receiving.process.communicate(timeout=60)
    assert receiving.process.returncode == 130

    # Of the last one, the reader has not seen anything.
    assert sorted(receiving.came_back()) == [(b"b", 2), (b"c", 1)]


def test_the_history_says_who_had_a_message_and_a_command_shows_it(
    store: CountingStore, queue: str, reach: list[str]
):
    billing = Client.from_store(store, name="billing")
    billing.alter_queue(queue, history=timedelta(hours=1))
    billing.put(queue, "a")
    billing.ack(*billing.receive(queue, "g"))
    flush_history(store, 30 * SECOND)

    shown = CliRunner().invoke(app, ["history", queue, "0", "--json", *reach])

    assert [(it["did"], it["by"], it["delivery"]) for it in json.loads(shown.stdout)] == [
        ("leased", "billing", 1),
        ("acked", "billing", None),
    ]
    assert billing.history(queue, 1) == []
