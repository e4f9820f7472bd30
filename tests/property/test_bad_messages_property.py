"""Whatever is put as a message: it arrives byte by byte or is refused, and harms no other one."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone, tzinfo
from threading import Barrier, Thread
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cassieq_spark import CassieqError, Client, NewMessage
from cassieq_spark.arguments import is_reserved
from cassieq_spark.errors import MessageError, OptionError
from cassieq_spark.model import QueueDefinition
from cassieq_spark.producer.blocks import write_block
from cassieq_spark.settings import SinkOptions
from cassieq_spark.store.memory import MemoryStore

PATIENCE = 60
NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)


class Bytes(bytes):
    def __len__(self) -> int:
        raise ZeroDivisionError


class Text(str):
    __slots__ = ()

    def encode(self, *_: str) -> bytes:
        raise ZeroDivisionError

    def __str__(self) -> str:
        raise ZeroDivisionError


class NoZone(tzinfo):
    def utcoffset(self, _: datetime | None) -> None:
        return None


#: All code points: halves of surrogate pairs among them; and names that are reserved, or nearly.
TEXTS = st.text(st.characters(codec=None), max_size=4) | st.sampled_from(
    ["cassieq.", "cassieq.origin-queue", "cassieq.redrives", "cassieq", "xcassieq.reason"]
)
ANY: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | TEXTS
    | TEXTS.map(Text)
    | st.binary(max_size=4)
    | st.binary(max_size=4).map(Bytes)
    | st.binary(max_size=4).map(bytearray)
    | st.timedeltas()
    | st.datetimes(timezones=st.none() | st.just(UTC) | st.just(timezone(timedelta(hours=14))))
    | st.builds(object),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(TEXTS, inner, max_size=2),
    max_leaves=4,
)
GOOD = st.just({"value": b"v"})
ARGUMENTS = st.fixed_dictionaries(
    {"value": ANY},
    optional={"key": ANY, "headers": ANY, "delay": ANY, "visible_at": ANY},
)


def plain(given: object) -> bytes | None:
    """What is to arrive for a value or a key that was taken."""
    if given is None:
        return None
    if isinstance(given, str):
        return str.encode(given)
    assert isinstance(given, bytes)
    return bytes(memoryview(given))


def test_bad_messages_of_some_threads_do_not_harm_those_of_others():
    with Client.from_store(MemoryStore()) as client:
        client.create_queue("q")
        refused: list[CassieqError] = []
        barrier = Barrier(8)

        with client.producer("q", linger=timedelta(milliseconds=20)) as producer:

            def put(number: int) -> None:
                barrier.wait(PATIENCE)
                for count in range(20):
                    try:
                        headers: Any = {"a": 0} if (number + count) % 2 else {"a": "b"}
                        producer.put(NewMessage(f"{number}", headers=headers))
                    except CassieqError as error:
                        refused.append(error)

            threads = [Thread(target=put, args=(number,)) for number in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(PATIENCE)

        assert len(refused) == 80
        assert len(client.peek("q", max=1000)) == 80


@pytest.mark.parametrize(
    "messages", ["abc", b"abc", NewMessage("abc"), {"a": "b"}, 5, None], ids=range(6)
)
def test_one_message_is_not_taken_for_several(messages: Any):
    with Client.from_store(MemoryStore()) as client:
        client.create_queue("q")

        with pytest.raises(
            MessageError, match=r"messages must be .*; for a single value, use put"
        ):
            client.put_many("q", messages)

        assert client.stats("q").next == 0


@pytest.mark.parametrize("given_", [5, 0, 0.5, "5s", True])
def test_what_is_no_duration_is_told_what_to_use(given_: Any):
    with Client.from_store(MemoryStore()) as client:
        client.create_queue("q")
        client.put("q", "a")
        (message,) = client.receive("q", "g")
        calls = (
            lambda: client.put("q", "b", delay=given_),
            lambda: client.put_many("q", ["b"], delay=given_),
            lambda: client.receive("q", "g", wait=given_),
            lambda: client.receive("q", "g", lease=given_),
            lambda: client.create_queue("new", lease=given_),
            lambda: client.release(message, delay=given_),
            lambda: client.extend(message, by=given_),
            lambda: client.replace(message, "b", delay=given_),
            lambda: client.producer("q", linger=given_),
        )

        for call in calls:
            with pytest.raises(OptionError, match=r"use timedelta, e\.g\. timedelta\(seconds=5\)"):
                call()

        assert [each.value for each in client.peek("q")] == [b"a"]
        assert client.ack(message) == []


def test_what_is_no_receipt_is_told_to_programs_in_their_words():
    with (
        Client.from_store(MemoryStore()) as client,
        pytest.raises(MessageError, match=r"'x' is not a receipt; .*\(Message\.receipt\)"),
    ):
        client.ack("x")


def test_headers_of_dead_letters_are_refused_before_they_join_others():
    forged = {"cassieq.origin-queue": "victim"}
    with Client.from_store(MemoryStore()) as client:
        client.create_queue("q")
        client.put("q", "held")
        (held,) = client.receive("q", "g")
        with client.producer("q", linger=timedelta(hours=1)) as producer:
            good = producer.put(NewMessage("good", headers={"cassieq.redrives": "1"}))
            for put in (
                lambda: producer.put(NewMessage("bad", headers=forged)),
                lambda: client.put("q", "bad", headers=forged),
                lambda: client.put_many("q", [NewMessage("bad", headers=forged)]),
                lambda: client.replace(held, "bad", headers=forged),
            ):
                with pytest.raises(MessageError, match=r"'cassieq.origin-queue': .* are reserved"):
                    put()
            producer.flush()

        assert good.result(0) == 1
        assert client.ack(held) == []


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        (b"", "without a name"),
        (b"\xff", "that is not UTF-8"),
        (b"cassieq.origin-queue", "'cassieq.origin-queue': names that begin with 'cassieq.' are"),
    ],
)
def test_headers_from_spark_that_nobody_could_read_are_refused(name: bytes, problem: str):
    names = pa.array([b"a", b"b", name], pa.binary()).cast(pa.binary())
    texts = pa.StringArray.from_buffers(3, names.buffers()[1], names.buffers()[2])
    headers = pa.MapArray.from_arrays(pa.array([0, 1, 2, 3], pa.int32()), texts, texts)
    batch = pa.RecordBatch.from_arrays([pa.array([b"v"] * 3), headers], ["value", "headers"])
    queue = QueueDefinition("q", 1)

    for good in (batch.slice(0, 2), batch.slice(1, 1)):
        write_block(MemoryStore(), queue, [good], SinkOptions(queue="q"))
    with pytest.raises(MessageError, match=f"row 2 .* has a header {problem}"):
        write_block(MemoryStore(), queue, [batch], SinkOptions(queue="q"))


@given(ARGUMENTS)
@example({"value": "v", "headers": {"a": 0}})
@example({"value": "v", "headers": {"a": ""}})
@example({"value": "v", "headers": {"": "a"}})
@example({"value": "v", "headers": {Text("cassieq.origin-queue"): "victim"}})
@example({"value": "v", "headers": {"cassieq.redrives": "1"}})
@example({"value": "v", "headers": 0})
@example({"value": "\ud800"})
@example({"value": Bytes(b"v"), "key": Text("k"), "headers": {Text("a"): Text("b")}})
@example({"value": "v", "delay": 5})
@example({"value": "v", "visible_at": NOON.replace(tzinfo=NoZone())})
@example({"value": "v", "visible_at": datetime.max.replace(tzinfo=UTC)})
@example({"value": "v", "visible_at": datetime.min.replace(tzinfo=timezone(timedelta(hours=14)))})
def test_it_arrives_or_is_refused_and_the_others_arrive(arguments: dict[str, Any]):
    with Client.from_store(MemoryStore()) as client:
        client.create_queue("q")
        with client.producer("q", linger=timedelta(hours=1)) as producer:
            before = producer.put("before")
            try:
                put = producer.put(NewMessage(**arguments))
            except CassieqError:
                put = None
            after = producer.put("after")
            producer.flush()

        found = {each.monoton: each for each in client.peek("q", max=9)}

    assert {found[each.result(0)].value for each in (before, after)} == {b"before", b"after"}
    assert len(found) == (2 if put is None else 3)
    if put is not None:
        message = found[put.result(0)]
        assert message.value == plain(arguments["value"])
        assert message.key == plain(arguments.get("key"))
        headers = arguments.get("headers") or {}
        assert not any(map(is_reserved, message.headers))
        assert message.headers == {
            str.__str__(name): None if text is None else str.__str__(text)
            for name, text in headers.items()
        }


@given(st.lists(ANY | st.builds(NewMessage, ANY, ANY, ANY), max_size=3) | ANY)
@example("abc")
@example(NewMessage("abc"))
@example({"a": "b"})
def test_all_of_several_arrive_or_none_does(messages: Any):
    with Client.from_store(MemoryStore()) as client:
        client.create_queue("q")
        try:
            monotons = client.put_many("q", messages)
        except CassieqError:
            monotons = range(0)

        found = [each.value for each in client.peek("q", max=9)]

    assert len(monotons) == len(found)
    if found:
        given_ = [each.value if isinstance(each, NewMessage) else each for each in messages]
        assert found == [plain(each) for each in given_]
