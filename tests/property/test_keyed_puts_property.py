"""Puts under idempotency keys: the first content of a key is there once, and no other one."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cassieq_spark import Client, NewMessage
from cassieq_spark.errors import BatchChangedError
from cassieq_spark.ledger.once import once_of_key
from cassieq_spark.producer.new_message import batches_of, check_message
from cassieq_spark.producer.partitioned import write_messages
from cassieq_spark.queues import read_queue
from cassieq_spark.testing.faults import Fault, FaultyStore
from tests.support.builders import make_clocked_store
from tests.support.dying import publish_some

#: A message: its key, and its value.
MESSAGES = st.tuples(st.none() | st.sampled_from("abcde"), st.integers(0, 2))
CONTENTS = st.lists(MESSAGES, min_size=1, max_size=4)
PUTS = st.tuples(
    st.sampled_from(["up", "down"]),
    st.integers(0, 2),
    # How many partitions publish before the process dies; None: it does not.
    st.none() | st.integers(0, 2),
    st.none() | st.sampled_from([Fault.ANSWER_LOST, Fault.REQUEST_LOST]),
)
Message = tuple[str | None, int]


@given(
    partitions=st.sampled_from([1, 3]),
    typed=st.booleans(),
    contents=st.lists(CONTENTS, min_size=3, max_size=3),
    puts=st.lists(PUTS, max_size=8),
)
@example(  # a put that is repeated with another key
    partitions=3,
    typed=False,
    contents=[[("a", 0)], [("b", 0)], [("c", 0)]],
    puts=[("up", 0, None, None), ("up", 1, None, None), ("up", 2, None, None)],
)
def test_the_first_content_of_a_key_is_there_once_and_no_other_one(
    partitions: int,
    typed: bool,
    contents: list[list[Message]],
    puts: list[tuple[str, int, int | None, Fault | None]],
):
    store = FaultyStore(make_clocked_store()[0])
    client = Client.from_store(store)
    client.create_queue("q", partitions=partitions, schema="number bigint" if typed else None)
    queue = read_queue(store, "q")
    of_keys: dict[str, list[Message]] = {}
    whole: set[str] = set()

    for name, which, dies_after, fault in puts:
        content = contents[which]
        messages = [
            NewMessage({"number": value} if typed else str(value), key) for key, value in content
        ]
        is_other = name in of_keys and Counter(of_keys[name]) != Counter(content)
        if dies_after is not None and name not in of_keys:
            checked = [check_message(each, queue) for each in messages]
            written = write_messages(store, queue, batches_of(checked, queue), once_of_key(name))
            publish_some(store, written, written[:dies_after])
            if written[:dies_after]:
                of_keys[name] = content
                whole |= {name} if len(written) <= dies_after else set()
            continue
        store.fault = fault
        if is_other:
            with pytest.raises(BatchChangedError):
                client.put_many("q", messages, idempotency_key=name)
        else:
            told = client.put_many("q", messages, idempotency_key=name)
            assert (told is None) == (name in whole)
            of_keys[name] = content
            whole.add(name)
        store.calm()

    for name in set(of_keys) - whole:
        messages = [NewMessage({"number": v} if typed else str(v), k) for k, v in of_keys[name]]
        client.put_many("q", messages, idempotency_key=name)
    expected = Counter(each for content in of_keys.values() for each in content)
    assert Counter(map(as_put, client.peek("q", max=1000))) == expected


def as_put(message: Any) -> Message:
    value = message.value["number"] if isinstance(message.value, dict) else int(message.value)
    return message.key and message.key.decode(), value
