"""Messages from a shell: put, received, settled, and handed to commands."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import typer

from cassieq_spark.cli import execute, messages, put, receive
from cassieq_spark.cli.execute import Commands
from cassieq_spark.client import Client
from cassieq_spark.groups.history import flush_history
from cassieq_spark.queues import create_queue
from cassieq_spark.signals import Stop
from cassieq_spark.store.memory import MemoryStore
from tests.support.builders import make_clocked_store
from tests.support.command_line import Ended, cassieq

Run = Callable[..., Ended]


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> MemoryStore:
    store = MemoryStore()
    create_queue(store, "orders", max_deliveries=3, dead_letter_queue=None)
    for module in (messages, receive):
        monkeypatch.setattr(module, "open_store", lambda _: store)
    return store


@pytest.fixture
def client(store: MemoryStore) -> Client:
    return Client.from_store(store)


def values(client: Client, queue: str = "orders") -> list[Any]:
    return [each.value for each in client.peek(queue, max=100)]


def depth(client: Client, group: str = "g") -> int:
    return next(each.depth for each in client.stats("orders").groups if each.group == group)


# -- history --------------------------------------------------------------------------------------


def test_the_history_of_a_message_is_a_line_for_each_event(client: Client, store: MemoryStore):
    billing = Client.from_store(store, name="billing")
    client.alter_queue("orders", history=timedelta(days=1))
    client.put("orders", "one")
    billing.reject(*billing.receive("orders", "g"), reason="no address")
    flush_history(store, timedelta(seconds=30))

    ended = cassieq("history", "orders", "0")

    assert ended.code == 0
    titles, leased, rejected = ended.out.splitlines()
    assert titles.split() == ["at", "did", "group", "by", "delivery", "lease", "reason"]
    assert leased.split()[1:5] == ["leased", "g", "billing", "1"]
    assert rejected.endswith("no address")


def test_of_a_queue_without_a_history_it_says_how_to_keep_one(client: Client):
    client.put("orders", "one")

    ended = cassieq("history", "orders", "0")

    assert "no history of message 0: cassieq queue alter orders --history 7d" in ended.out


# -- put ------------------------------------------------------------------------------------------


def test_messages_are_arguments(client: Client):
    ended = cassieq("put", "orders", "one", "two", "--key", "k", "--header", "a=b=c")

    assert (ended.code, ended.err) == (0, "")
    assert ended.out == "Put 2 message(s) into queue orders: monotons [0, 2).\n"
    first, _ = client.peek("orders")
    assert (first.value, first.key, dict(first.headers)) == (b"one", b"k", {"a": "b=c"})


@pytest.mark.parametrize("words", [["-"], [], ["--file", "-"]], ids=["dash", "pipe", "file"])
def test_standard_input_has_a_message_on_each_line(client: Client, words: list[str]):
    ended = cassieq("put", "orders", *words, said=b"one\n\n\xfftwo")

    assert ended.code == 0
    assert values(client) == [b"one", b"", b"\xfftwo"]
    assert ended.err.startswith("3 message(s) in ")
    assert ended.err.endswith("/s)\n")


def test_without_messages_and_without_a_pipe_it_says_what_to_give(
    client: Client, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(put, "is_piped", lambda: False)

    ended = cassieq("put", "orders")

    assert (ended.code, ended.out) == (2, "")
    assert "there is nothing to put" in ended.err


def test_a_line_of_json_says_key_value_and_headers(client: Client):
    lines = [
        {"key": "k", "value": "one", "headers": {"a": "b"}},
        {"key_base64": "/w==", "value_base64": "/w=="},
        {"value": "three"},
    ]
    said = "\n\n".join(map(json.dumps, lines)).encode()

    cassieq("put", "orders", "--json-lines", "-", "--key", "usual", "--header", "c=d", said=said)

    found = [(each.key, each.value, dict(each.headers)) for each in client.peek("orders")]
    assert found == [
        (b"k", b"one", {"a": "b", "c": "d"}),
        (b"\xff", b"\xff", {"c": "d"}),
        (b"usual", b"three", {"c": "d"}),
    ]


def test_a_message_with_a_unique_id_is_put_once(client: Client):
    client.alter_queue("orders", deduplicate=timedelta(minutes=5))
    words = ("put", "orders", "hello", "--unique-id", "1")

    told = [cassieq(*words).out for _ in range(2)]
    in_json = json.loads(cassieq(*words, "--json").out)
    lines = [{"value": "b", "unique_id": "2"}, {"value": "c", "unique_id_base64": "MQ=="}]
    said = "\n".join(map(json.dumps, lines)).encode()
    more = cassieq("put", "orders", "--json-lines", "-", said=said).out

    assert told[0] == "Put 1 message(s) into queue orders: monotons [0, 1).\n"
    assert told[1] == "Put 0 message(s) into queue orders. 1 with the same unique id were there.\n"
    assert in_json == {"queue": "orders", "start": 1, "stop": 1, "repeated": 1}
    assert more.startswith("Put 1 message(s)")
    assert values(client) == [b"hello", b"b"]


@pytest.mark.parametrize("words", [("a", "b"), ("-",)])
def test_a_unique_id_is_that_of_one_message(client: Client, words: tuple[str, ...]):
    del client
    ended = cassieq("put", "orders", *words, "--unique-id", "1", said=b"a\n")

    assert ended.code == 2
    assert "--unique-id is for one message" in ended.err


def test_what_peek_and_receive_print_as_json_can_be_put_again(client: Client, store: MemoryStore):
    create_queue(store, "copies")
    client.put("orders", b"\xff\x00", key=b"\xfe", headers={"a": "b"})
    client.put("orders", "text")

    for words in (
        ["peek", "orders", "--json"],
        ["receive", "orders", "--group", "g", "--max", "9"],
    ):
        printed = cassieq(*words, *["--json"] * (words[0] == "receive")).out
        cassieq("put", "copies", "--json-lines", "-", said=printed.encode())

    copies = [(each.key, each.value, dict(each.headers)) for each in client.peek("copies")]
    assert copies == [(b"\xfe", b"\xff\x00", {"a": "b"}), (None, b"text", {})] * 2


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("binary", b"\xff\x00"),
        ("decimal(38,3)", Decimal("12345678901234567890123456789012345.678")),
        ("timestamp", datetime(2026, 11, 20, 12, tzinfo=UTC)),
        ("date", date(2026, 11, 20)),
        ("double", 0.1),
        ("map<int,string>", {1: "a"}),
        ("struct<a: array<string>>", {"a": ["x", None]}),
    ],
)
def test_what_is_printed_of_a_queue_with_a_schema_can_be_put_again(
    client: Client, store: MemoryStore, kind: str, value: Any
):
    for name in ("typed", "copies"):
        create_queue(store, name, schema=f"it {kind}", dead_letter_queue=None)
    client.put("typed", {"it": value})

    printed = cassieq("peek", "typed", "--json").out
    ended = cassieq("put", "copies", "--json-lines", "-", said=printed.encode())

    assert ended.code == 0
    assert values(client, "copies") == [{"it": value}]


def test_an_object_is_its_text_in_a_queue_without_a_schema(client: Client):
    cassieq("put", "orders", "--json-lines", "-", said=b'{"value": {"a": [1, null, "\\u00e9"]}}')

    assert [json.loads(each) for each in values(client)] == [{"a": [1, None, "é"]}]


def test_numbers_of_json_keep_their_digits(client: Client, store: MemoryStore):
    create_queue(store, "typed", schema="it decimal(38,3), other double", dead_letter_queue=None)
    line = b'{"value": {"it": 12345678901234567890.125, "other": 1e300}}'

    cassieq("put", "typed", "--json-lines", "-", said=line)

    assert values(client, "typed") == [{"it": Decimal("12345678901234567890.125"), "other": 1e300}]


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("{", "line 2: this is no JSON"),
        ('{"value":' + "[" * 100_000, "line 2: this is no JSON"),
        ('{"value":' + '{"a":' * 900 + "1" + "}" * 901, "line 2: "),
        ("[1]", "line 2 is no JSON object, but list"),
        ('{"vale": "x"}', "line 2 has unknown names: vale"),
        ("{}", "line 2 has no value"),
        ('{"value": 5}', "line 2 has no value"),
        ('{"value": "x", "key": 5}', "line 2: key and unique_id must be texts"),
        ('{"value": "x", "headers": 0}', "headers an object of texts"),
        ('{"value": "x", "headers": ""}', "headers an object of texts"),
        ('{"value": "x", "headers": false}', "headers an object of texts"),
        ('{"value": "x", "headers": []}', "headers an object of texts"),
        ('{"value_base64": "!"}', "line 2: value_base64 is not Base64"),
    ],
)
def test_a_line_that_is_no_message_is_named_and_nothing_is_put(
    client: Client, line: str, complaint: str
):
    ended = cassieq(
        "put", "orders", "--json-lines", "-", said=f'{{"value": "x"}}\n{line}'.encode()
    )

    assert (ended.code, ended.out) == (1, "")
    assert complaint in ended.err
    assert values(client) == []


def test_lines_are_published_as_they_come_if_asked(
    client: Client, monkeypatch: pytest.MonkeyPatch
):
    reader, writer = os.pipe()
    thread = threading.Thread(target=_write_when, args=(writer, client))
    thread.start()

    with os.fdopen(reader, "rb", 0) as stream:
        monkeypatch.setattr(put, "standard_input", lambda: stream)
        ended = cassieq("put", "orders", "-", "--follow", "--json")
    thread.join()

    assert ended.code == 0
    assert json.loads(ended.out) == {"queue": "orders", "count": 3, "publications": 2}
    assert values(client) == [b"one", b"two", b"three"]


def test_a_line_that_is_no_message_ends_it_after_those_that_were_put(
    client: Client, monkeypatch: pytest.MonkeyPatch
):
    lines = [[b'{"value": "one"}', b""], [b'{"value": "two"}', b"{"]]
    monkeypatch.setattr(put, "batches", lambda *_: lines)

    ended = cassieq("put", "orders", "-", "--follow", "--json-lines")

    assert (ended.code, ended.out) == (1, "Put 1 message(s) into queue orders: monotons [0, 1).\n")
    assert "line 4: this is no JSON" in ended.err
    assert "lines from 3 on" in ended.err
    assert "nothing was put" not in ended.err
    assert values(client) == [b"one"]


def _write_when(writer: int, client: Client) -> None:
    """Two lines; and the third when the others are published."""
    os.write(writer, b"one\ntwo\nth")
    deadline = time.monotonic() + 20
    while len(values(client)) < 2 and time.monotonic() < deadline:
        time.sleep(0.01)
    os.write(writer, b"ree\n")
    os.close(writer)


# -- receive --------------------------------------------------------------------------------------


def test_messages_are_printed_and_acked(client: Client):
    client.put_many("orders", ["one", "two", "three"])

    ended = cassieq("receive", "orders", "--group", "g", "--max", "2")

    assert (ended.code, ended.out, ended.err) == (0, "one\ntwo\n", "")
    assert depth(client) == 1


def test_without_messages_nothing_is_printed(client: Client):
    assert cassieq("receive", "orders", "--group", "g") == Ended(0, "", "")


def test_messages_are_printed_until_there_are_enough(client: Client, monkeypatch):
    monkeypatch.setattr(receive, "_TOGETHER", 2)
    client.put_many("orders", [str(number) for number in range(9)])

    ended = cassieq("receive", "orders", "--group", "g", "--max", "5")

    assert ended.out.split() == ["0", "1", "2", "3", "4"]
    assert depth(client) == 4


@pytest.fixture
def piped(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Ended]:
    """Run a command whose output is read by a function, until that returns."""

    def run(read: Callable[[int], None], *words: str) -> Ended:
        reader, writer = os.pipe()

        def take() -> None:
            read(reader)
            os.close(reader)

        thread = threading.Thread(target=take)
        with os.fdopen(writer, "wb", buffering=0) as stream:
            monkeypatch.setattr(typer, "get_binary_stream", lambda _: stream)
            thread.start()
            ended = cassieq(*words)
        thread.join()
        return ended

    return run


def test_what_the_reader_of_a_pipe_has_not_read_is_not_acked(client: Client, piped: Run):
    client.put_many("orders", [f"message {number}" for number in range(100)])
    read: list[bytes] = []

    ended = piped(
        lambda reader: read.append(os.read(reader, 65_536)),
        *("receive", "orders", "--group", "g", "--max", "100"),
    )

    assert read == [b"message 0\n"]
    assert (ended.code, ended.err) == (0, "")
    assert depth(client) == 99
    again = client.receive("orders", "g", max=100)
    assert {each.delivery_count for each in again} == {1}, "nobody had seen them"


def test_a_reader_of_a_peek_may_go_when_it_has_enough(client: Client, piped: Run):
    client.put_many("orders", ["x" * 1000] * 100)

    ended = piped(lambda reader: os.read(reader, 100), "peek", "orders", "--max", "100")

    assert ended == Ended(0, "", "")


def test_a_reader_that_reads_all_gets_all(client: Client, piped: Run):
    client.put_many("orders", [f"message {number}" for number in range(100)])
    read: list[bytes] = []

    def take(reader: int) -> None:
        while more := os.read(reader, 65_536):
            read.append(more)
            if sum(each.count(b"\n") for each in read) == 100:
                return

    piped(take, "receive", "orders", "--group", "g", "--max", "100")

    assert b"".join(read).count(b"\n") == 100
    assert depth(client) == 0


def test_what_a_slow_reader_has_read_is_acked_meanwhile(client: Client, piped: Run):
    client.put_many("orders", ["one", "two", "three"])
    depths: list[int] = []

    def take(reader: int) -> None:
        os.read(reader, 100)
        deadline = time.monotonic() + 20
        while (not depths or depths[-1] > 2) and time.monotonic() < deadline:
            time.sleep(0.01)
            depths.append(depth(client))
        os.read(reader, 100)
        os.read(reader, 100)

    ended = piped(take, "receive", "orders", "--group", "g", "--max", "3", "--lease", "300ms")

    assert (ended.code, ended.err, depths[-1]) == (0, "", 2)
    assert depth(client) == 0


def test_a_reader_that_takes_each_line_soon_keeps_its_leases(
    piped: Run, monkeypatch: pytest.MonkeyPatch
):
    store, clock = make_clocked_store()
    create_queue(store, "orders")
    monkeypatch.setattr(receive, "open_store", lambda _: store)
    begun = clock()

    def monotonic() -> float:
        return (clock() - begun).total_seconds()

    monkeypatch.setattr(receive.time, "monotonic", monotonic)
    client = Client.from_store(store)
    client.put_many("orders", [str(number) for number in range(20)])
    taken_by_others: list[Any] = []

    def take(reader: int) -> None:
        for _ in range(20):
            clock.advance(timedelta(seconds=10))
            os.read(reader, 100)
            taken_by_others.extend(client.receive("orders", "g", max=100))

    ended = piped(take, "receive", "orders", "--group", "g", "--max", "20", "--lease", "60s")

    assert (ended.code, ended.err, taken_by_others) == (0, "", [])
    assert depth(client) == 0


@pytest.mark.parametrize(("how", "left"), [("--release", 2), ("--keep", 2), ("--ack", 0)])
def test_what_becomes_of_messages_is_chosen(client: Client, how: str, left: int):
    client.put_many("orders", ["one", "two"])

    ended = cassieq("receive", "orders", "--group", "g", "--max", "2", how)

    assert ended.out.split() == ["one", "two"]
    assert depth(client) == left


def test_messages_that_are_released_are_printed_once(
    client: Client, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(receive, "_TOGETHER", 2)
    client.put_many("orders", ["one", "two", "three", "four", "five"])

    ended = cassieq("receive", "orders", "--group", "g", "--max", "100", "--release")

    assert (ended.code, ended.err) == (0, "")
    assert ended.out.split() == ["one", "two", "three", "four", "five"]
    again = [each for _ in range(5) for each in client.receive("orders", "g", max=100)]
    assert [each.delivery_count for each in again] == [2] * 5


def test_messages_that_are_to_be_released_are_held_until_the_end():
    store, clock = make_clocked_store()
    create_queue(store, "orders")
    client = Client.from_store(store)
    client.put("orders", "one")
    held = receive.HeldMessages(
        store, "orders", "g", lease=timedelta(seconds=60), fate=receive.PrintedFate.RELEASE
    )
    (message,) = held.receive(1, timedelta(0))
    held.done(message)
    held.settle()

    held._beats_at = 0.0
    clock.advance(timedelta(seconds=50))
    held.beat()
    clock.advance(timedelta(seconds=50))
    others = client.receive("orders", "g")
    held.finish()

    assert (others, held.stale) == ([], 0)
    assert client.receive("orders", "g")


def test_messages_are_not_released_without_an_end(client: Client):
    ended = cassieq("receive", "orders", "--group", "g", "--release", "--follow")

    assert (ended.code, ended.out) == (2, "")
    assert "cassieq peek" in ended.err


def test_receipts_are_printed_of_messages_that_are_held(client: Client):
    client.put_many("orders", ["one", "two"])

    printed = cassieq("receive", "orders", "--group", "g", "--max", "2", "--receipts").out

    found = [json.loads(line) for line in printed.splitlines()]
    assert [each["value"] for each in found] == ["one", "two"]
    assert client.ack(*(each["receipt"] for each in found)) == []
    assert depth(client) == 0


# -- settling by receipts -------------------------------------------------------------------------


def test_messages_are_settled_by_receipts(client: Client):
    client.put_many("orders", ["one", "two", "three", "four"])
    one, two, three, four = (each.receipt for each in client.receive("orders", "g", max=4))

    assert cassieq("ack", one).out == "1 message(s) acked.\n"
    assert cassieq("extend", two, "--by", "5m").out == "1 message(s) extended.\n"
    assert cassieq("release", three, "--delay", "1h").out == "1 message(s) released.\n"
    assert cassieq("reject", four, "--reason", "bad").out == "1 message(s) rejected.\n"

    (group,) = client.stats("orders").groups
    assert (group.depth, group.leased, group.waiting, group.dead) == (2, 1, 1, 0)


@pytest.mark.parametrize("as_json", [True, False])
def test_receipts_come_from_standard_input(client: Client, as_json: bool):
    client.put_many("orders", ["one", "two"])
    receipts = [each.receipt for each in client.receive("orders", "g", max=2)]
    lines = [json.dumps({"receipt": each, "value": "x"}) if as_json else each for each in receipts]

    ended = cassieq("ack", "-", "--json", said="\n".join(lines).encode())

    assert (ended.code, json.loads(ended.out)) == (0, {"acked": 2, "stale": [], "malformed": []})
    assert depth(client) == 0


def test_a_stale_receipt_is_told_and_the_others_are_settled(client: Client):
    client.put_many("orders", ["one", "two"])
    one, two = (each.receipt for each in client.receive("orders", "g", max=2))
    client.ack(one)

    ended = cassieq("ack", one, two)

    assert (ended.code, ended.out) == (1, "1 message(s) acked.\n")
    assert f"1 receipt(s) are stale, the first is {one}" in ended.err
    assert depth(client) == 0


def test_a_receipt_that_is_given_twice_is_counted_once(client: Client):
    client.put("orders", "one")
    (message,) = client.receive("orders", "g")

    acked = cassieq("ack", message.receipt, message.receipt)
    stale = cassieq("ack", message.receipt, message.receipt, "--json")

    assert acked == Ended(0, "1 message(s) acked.\n", "")
    assert json.loads(stale.out)["acked"] == 0
    assert stale.code == 1


@pytest.mark.parametrize("line", ["nonsense", "{", "{}", '{"receipt": 5}', '{"receipt": "x"}'])
def test_a_line_without_a_receipt_is_told_and_the_others_are_settled(client: Client, line: str):
    client.put_many("orders", ["one", "two"])
    one, two = (each.receipt for each in client.receive("orders", "g", max=2))

    ended = cassieq("ack", "-", "--json", said=f"{one}\n{line}\n{two}\n".encode())

    told = json.loads(ended.out)
    assert (ended.code, told["acked"], told["stale"]) == (1, 2, [])
    assert len(told["malformed"]) == 1
    assert ended.err.startswith("cassieq: 1 line(s) have no receipt, the first: ")
    assert depth(client) == 0


def test_what_could_not_be_settled_is_told_together(client: Client):
    client.put("orders", "one")
    (message,) = client.receive("orders", "g")
    client.ack(message)

    ended = cassieq("ack", "-", said=f"{message.receipt}\n{'[' * 100_000}\n".encode())
    deep = cassieq("ack", "-", said=b'{"receipt":' + b"[" * 100_000)

    assert (ended.code, ended.out) == (1, "0 message(s) acked.\n")
    assert "1 receipt(s) are stale" in ended.err
    assert "1 line(s) have no receipt" in ended.err
    assert (deep.code, "1 line(s) have no receipt" in deep.err) == (1, True)


# -- a command for each message -------------------------------------------------------------------


def test_a_command_gets_the_message_and_its_exit_code_decides(client: Client, tmp_path: Path):
    client.put("orders", b"\xffone", key="k", headers={"a": "b"})
    client.put("orders", "two")
    script = (
        f'cat > "{tmp_path}/$CASSIEQ_MESSAGE_MONOTON"; env | grep ^CASSIEQ_MESSAGE_ >> '
        f'"{tmp_path}/env"; exit $CASSIEQ_MESSAGE_MONOTON'
    )

    ended = cassieq(
        "receive", "orders", "--group", "g", "--exec", script, "--max", "2", "--retry-after", "1h"
    )

    assert (ended.code, ended.out) == (1, "")
    assert ended.err.splitlines()[-1].endswith(": 1 acked, 1 released")
    assert (tmp_path / "0").read_bytes() == b"\xffone"
    variables = dict(line.split("=", 1) for line in (tmp_path / "env").read_text().splitlines())
    assert json.loads(variables["CASSIEQ_MESSAGE_HEADERS"]) in ({"a": "b"}, {})
    assert variables["CASSIEQ_MESSAGE_GROUP"] == "g"
    assert variables["CASSIEQ_MESSAGE_KEY"] == "k"
    (group,) = client.stats("orders").groups
    assert (group.depth, group.waiting) == (1, 1)


def test_commands_run_side_by_side(client: Client, tmp_path: Path):
    client.put_many("orders", ["a", "b", "c"])
    # Each waits until all three are there.
    script = f'cd "{tmp_path}"; touch "$(cat)"; while [ $(ls | wc -l) -lt 3 ]; do sleep 0.05; done'

    ended = cassieq("receive", "orders", "--group", "g", "--exec", script, "--parallel", "3")

    assert ended.code == 0
    assert ended.err.endswith(": 3 acked, 0 released\n")
    assert depth(client) == 0


@pytest.mark.parametrize(("beats", "stale"), [(True, 0), (False, 1)])
def test_a_lease_is_extended_while_a_message_is_not_done(
    monkeypatch: pytest.MonkeyPatch, beats: bool, stale: int
):
    store, clock = make_clocked_store()
    create_queue(store, "orders")
    client, passed = Client.from_store(store), 0.0
    client.put("orders", "one")
    monkeypatch.setattr(receive.time, "monotonic", lambda: passed)
    held = receive.HeldMessages(
        store, "orders", "g", lease=timedelta(seconds=60), fate=receive.PrintedFate.ACK
    )
    (message,) = held.receive(1, timedelta(0))

    for _ in range(5):
        passed += 25
        clock.advance(timedelta(seconds=25))
        if beats:
            held.beat()
    others = client.receive("orders", "g")
    held.done(message)
    held.settle()

    assert (held.stale, len(others)) == (stale, stale)


def test_nothing_waits_longer_than_a_short_lease_lasts(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    waits: list[float] = []

    class Watched(Commands):
        def wait(self, seconds: float) -> list[execute.Ended]:
            waits.append(seconds)
            if len(waits) == 5:
                (tmp_path / "end").touch()
            return super().wait(seconds)

    monkeypatch.setattr(receive, "Commands", Watched)
    client.put("orders", "one")
    script = f'while [ ! -e "{tmp_path}/end" ]; do sleep 0.05; done'

    words = ["receive", "orders", "--group", "g", "--exec", script]
    ended = cassieq(*words, "--lease", "300ms", "--max", "1")

    assert ended.code == 0
    assert max(waits) <= 0.1


def test_a_command_that_cannot_be_started_has_failed(client: Client):
    client.put("orders", "one", headers={"long": "x" * 300_000})

    ended = cassieq("receive", "orders", "--group", "g", "--exec", "true", "--max", "1")

    assert ended.code == 1
    assert "the command cannot be started" in ended.err
    assert ended.err.splitlines()[-1].endswith(": 0 acked, 1 released")


def test_commands_side_by_side_would_not_keep_an_order(client: Client, store: MemoryStore):
    create_queue(store, "strict", order="strict")

    ended = cassieq("receive", "strict", "--group", "g", "--exec", "cat", "--parallel", "2")

    assert ended.code == 2
    assert "has an order (strict)" in ended.err


@pytest.fixture
def stop(monkeypatch: pytest.MonkeyPatch) -> Iterator[Stop]:
    """What Ctrl-C would set."""
    found = Stop()
    monkeypatch.setattr(receive, "stopped_by_signals", lambda: nullcontext(found))
    yield found
    found.close()


@pytest.mark.parametrize("presses", [1, 2])
def test_ctrl_c_lets_commands_end_and_a_second_one_ends_them(
    client: Client, stop: Stop, tmp_path: Path, presses: int
):
    client.put_many("orders", ["one", "two"])
    script = f'touch "{tmp_path}/begun"; while [ ! -e "{tmp_path}/end" ]; do sleep 0.05; done'

    def interrupt() -> None:
        _wait_for(tmp_path / "begun")
        for _ in range(presses):
            stop.handle(signal.SIGINT, None)
        if presses == 1:
            (tmp_path / "end").touch()

    thread = threading.Thread(target=interrupt)
    thread.start()
    ended = cassieq("receive", "orders", "--group", "g", "--exec", script)
    thread.join()

    assert ended.code == 130
    acked = 1 if presses == 1 else 0
    assert ended.err.splitlines()[-1].endswith(f": {acked} acked, {1 - acked} released")
    assert depth(client) == 2 - acked


def _wait_for(path: Path) -> None:
    deadline = time.monotonic() + 20
    while not path.exists() and time.monotonic() < deadline:
        time.sleep(0.01)
