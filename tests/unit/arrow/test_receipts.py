from __future__ import annotations

from uuid import UUID

import pytest

from cassieq_spark.arrow.receipts import Receipt, receipt_prefix
from cassieq_spark.errors import MessageError
from cassieq_spark.model import QueueId

LEASE = UUID("01234567-89ab-cdef-0123-456789abcdef")
TEXT = f"q@1/g/{LEASE}/7"


def test_a_receipt_is_read_as_it_was_written():
    receipt = Receipt(QueueId("q.a:b-c_d@12"), "g.a:b-c_d", LEASE, 2**62)

    assert Receipt.parse(str(receipt)) == receipt


def test_the_receipt_of_a_batch_says_which_delivery_it_is_of():
    receipt = Receipt.parse(f"q@1/g/{LEASE}.12/7")

    assert receipt == Receipt(QueueId("q@1"), "g", LEASE, 7, 12)
    assert receipt_prefix(receipt.queue_id, receipt.group, LEASE, 12) + "7" == str(receipt)


def test_a_receipt_is_the_prefix_of_its_lease_and_the_monoton():
    receipt = Receipt.parse(TEXT)

    assert receipt == Receipt(QueueId("q@1"), "g", LEASE, 7)
    assert receipt_prefix(receipt.queue_id, receipt.group, receipt.lease) + "7" == TEXT


@pytest.mark.parametrize(
    "text",
    [
        "",
        "7",
        f"q@1/g/{LEASE}",
        f"q@1/g/{LEASE}/",
        f"q@1/g/{LEASE}/seven",
        f"q@1/g/{LEASE}/-7",
        f"q@1/g/{LEASE}/+7",
        f"q@1/g/{LEASE}/07",
        f"q@1/g/{LEASE}/7_0",
        f"q@1/g/{LEASE}/ 7",
        f"q@1/g/{LEASE}/7/8",
        f"q@1/g/{LEASE.hex}/7",
        f"q@1/g/{LEASE}./7",
        f"q@1/g/{LEASE}.0/7",
        f"q@1/g/{LEASE}.-1/7",
        f"q@1/g/{LEASE}.01/7",
        f"q@1/g/{LEASE}.1.2/7",
        f"q@1/g/{LEASE}.two/7",
        "q@1/g/.1/7",
        "q@1/g/not-a-token/7",
        f"q/g/{LEASE}/7",
        f"q@one/g/{LEASE}/7",
        f"no name@1/g/{LEASE}/7",
        f"q@1/no name/{LEASE}/7",
        f"\ud800@1/g/{LEASE}/7",
    ],
)
def test_what_is_no_receipt_is_refused_with_where_to_get_one(text: str):
    with pytest.raises(MessageError, match="is not a receipt; look there"):
        Receipt.parse(text, advice="look there")


def test_of_what_is_no_receipt_a_hundred_characters_are_shown():
    with pytest.raises(MessageError) as caught:
        Receipt.parse("x" * 5000)

    assert "x" * 100 in str(caught.value)
    assert "x" * 101 not in str(caught.value)
