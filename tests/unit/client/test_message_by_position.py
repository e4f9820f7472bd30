"""One message is read by its position; why there is none is told."""

from __future__ import annotations

import asyncio
from decimal import Decimal

import pytest

from cassieq_spark import AsyncClient, Client, NewMessage
from cassieq_spark.errors import DeletedError, NotYetError, OptionError, UnreadableError
from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.model import Chunk
from cassieq_spark.store.memory import MemoryStore
from cassieq_spark.testing.stores import CountingStore
from tests.support.repair import delete_settled


def test_a_message_is_read_with_its_key_and_headers(client: Client):
    client.put_many("q", ["a", NewMessage(b"\xff", "k", {"lang": "en"}), "c"])
    client.ack(*client.receive("q", "g", max=2))

    found = client.message("q", 1)

    assert (found.queue, found.monoton, found.partition) == ("q", 1, 0)
    assert (found.value, found.key, found.headers) == (b"\xff", b"k", {"lang": "en"})
    assert found == client.peek("q", start=1, max=1)[0]


def test_it_costs_five_reads_and_no_lwt(client: Client, store: CountingStore):
    client.put("q", "a")
    store.reset()

    client.message("q", 0)

    # The fifth read is that of its chunk.
    counts = (store.cas_count, store.serial_read_count, store.read_count, store.scan_count)
    assert counts == (0, 1, 3, 0)


def test_a_typed_message_has_the_values_of_its_columns(client: Client):
    client.create_queue("trips", schema="vendor string, fare decimal(10,2)")
    client.put("trips", {"vendor": "v", "fare": Decimal("1.50")})

    assert client.message("trips", 0).value == {"vendor": "v", "fare": Decimal("1.50")}


def test_a_position_that_no_message_has_yet_is_told(client: Client):
    client.put("q", "a")

    with pytest.raises(NotYetError, match=r"no message 1 yet: .* gets position 1"):
        client.message("q", 1)


def test_a_message_that_is_settled_and_deleted_is_told(client: Client, store: CountingStore):
    client.put_many("q", ["a", "b", "c"])
    client.ack(*client.receive("q", "g", max=2))
    delete_settled(store)

    for monoton in (0, 1):
        with pytest.raises(DeletedError, match=rf"message {monoton} .* is left is 2"):
            client.message("q", monoton)
    assert client.message("q", 2).value == b"c"


def test_a_message_of_several_partitions_needs_its_partition(client: Client):
    client.create_queue("parts", partitions=3)
    (at,) = client.put_many("parts", ["a", "b"]).by_partition

    assert client.message("parts", 1, partition=at).value == b"b"
    assert client.message("parts", 1, partition=at).partition == at
    with pytest.raises(OptionError, match="3 partitions"):
        client.message("parts", 1)
    with pytest.raises(OptionError, match="at most 2"):
        client.message("parts", 1, partition=3)
    with pytest.raises(NotYetError, match=f"parts/{(at + 1) % 3} has no message 0 yet"):
        client.message("parts", 0, partition=(at + 1) % 3)


def test_a_damaged_message_is_an_error(client: Client, store: CountingStore):
    client.put("q", "a")
    (block,) = Ledger(store, client.queue("q").queue_id).read_blocks()
    store.write_chunks(client.queue("q").queue_id, block.block, [Chunk(0, 0, 1, b"no frame")])

    with pytest.raises(UnreadableError):
        client.message("q", 0)


def test_coroutines_read_messages_and_list_groups():
    async def program() -> None:
        store = MemoryStore()
        async with AsyncClient.from_store(store) as queues:
            await queues.create_queue("q")
            await queues.put("q", "a")
            await queues.create_group("q", "g")
            assert (await queues.message("q", 0)).value == b"a"
            assert [each.depth for each in await queues.groups("q")] == [1]

    asyncio.run(program())
