"""Pop receipts: only what a gateway has made is one, and all else costs nothing."""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from uuid import uuid4

import pytest

from cassieq_spark import Client
from cassieq_spark.http.accounts import Secrets
from cassieq_spark.http.gateway.pop_receipts import PopReceipts
from cassieq_spark.http.serving.errors import RefusedError
from cassieq_spark.store.memory import MemoryStore
from cassieq_spark.testing.stores import CountingStore
from tests.support.gateway import RECEIPTS, InProcess

OLD, NEW = "an-old-secret-of-these-gateways-here", "a-new-secret-of-these-gateways-here"
QUEUE = "acme:orders"
RECEIPT = f"{QUEUE}@1/g/1267ade1-d684-4bd9-809a-b561e7bf5f98/7"


def encoded(plain: bytes) -> str:
    return urlsafe_b64encode(plain).rstrip(b"=").decode()


def test_a_receipt_comes_back_as_it_was_also_if_the_secret_is_replaced_meanwhile():
    before = PopReceipts(Secrets((OLD,)))
    after = PopReceipts(Secrets((NEW, OLD)))

    for made, read in [(before, before), (before, after), (after, after)]:
        assert str(read.parse(made.of(RECEIPT), QUEUE)) == RECEIPT


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "é",
        encoded(RECEIPT.encode()),
        encoded(RECEIPT.encode() + bytes(16)),
        encoded(b"no receipt" + bytes(16)),
        PopReceipts(Secrets((OLD,))).of(RECEIPT),
    ],
)
def test_what_no_gateway_made_is_no_receipt(text: str):
    with pytest.raises(
        RefusedError, match="this is not a pop receipt of these gateways"
    ) as raised:
        PopReceipts(Secrets((NEW,))).parse(text, QUEUE)

    assert raised.value.status == 400


def test_no_byte_of_a_receipt_can_be_altered():
    text = RECEIPTS.of(RECEIPT)
    sealed = urlsafe_b64decode(text + "=" * (-len(text) % 4))

    for at in range(len(sealed)):
        altered = bytearray(sealed)
        altered[at] ^= 1
        with pytest.raises(RefusedError, match="not a pop receipt"):
            RECEIPTS.parse(encoded(bytes(altered)), QUEUE)


def test_a_receipt_of_another_queue_is_refused_as_that():
    with pytest.raises(RefusedError, match="of another queue"):
        RECEIPTS.parse(RECEIPTS.of(RECEIPT), "acme:others")


def test_a_receipt_of_one_message_is_made_into_no_other_of_the_same_lease():
    store = MemoryStore()
    with InProcess(store) as gateway, Client.from_store(store) as client:
        client.create_queue(QUEUE)
        client.create_group(QUEUE, "g")
        client.put_many(QUEUE, ["mine", "yours"])
        mine, yours = gateway.queue("orders").receive("g", max=2)
        sealed = urlsafe_b64decode(mine.receipt + "=" * (-len(mine.receipt) % 4))
        forged = encoded(sealed[:-17] + b"1" + sealed[-16:])

        refused = gateway.ask("DELETE", "/orders/messages", params={"popReceipt": forged})

        assert refused.status_code == 400
        assert gateway.queue("orders").ack(mine, yours) == []


@pytest.mark.parametrize("what", ["ack", "release", "reject"])
def test_receipts_that_were_invented_cost_neither_a_read_nor_an_lwt(what: str):
    store = CountingStore(MemoryStore())
    with InProcess(store) as gateway, Client.from_store(store) as client:
        client.create_queue(QUEUE)
        gateway.ask("GET", "/orders/messages/next")
        store.reset()
        invented = [f"{QUEUE}@1/default/{uuid4()}.1/{number}" for number in range(400)]
        body = {"popReceipts": [encoded(each.encode()) for each in invented]}

        answer = gateway.ask(
            "POST",
            f"/orders/messages/{what}",
            json=body | ({"reason": "x"} if what == "reject" else {}),
        )

        assert answer.status_code == 400
        assert (store.read_count, store.serial_read_count, store.cas_count) == (0, 0, 0)
