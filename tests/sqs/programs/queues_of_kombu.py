"""kombu's transport alone: what it sends, takes back, rejects and puts in order."""

from __future__ import annotations

import os
from queue import Empty
from typing import Any

from kombu import Connection
from kombu.simple import SimpleQueue


def main() -> None:
    with Connection("sqs://", transport_options=options()) as connection:
        with connection.SimpleQueue("orders") as orders:
            settle(orders)
        with connection.SimpleQueue("payments.fifo") as payments:
            keep_order(payments)


def options() -> dict[str, Any]:
    """Those of kombu, with a queue that others have made, if there is one."""
    url = os.environ.get("ORDERS_URL")
    found: dict[str, Any] = {"wait_time_seconds": 1, "visibility_timeout": 30}
    if url:
        found["predefined_queues"] = {
            "orders": {"url": url},
            "payments.fifo": {"url": os.environ["PAYMENTS_URL"]},
        }
    return found


def settle(orders: SimpleQueue) -> None:
    orders.put({"item": "Grüße", "count": 3})
    message = orders.get(timeout=60)
    print("got", message.payload)
    message.requeue()
    again = orders.get(timeout=60)
    print("again", again.payload == message.payload)
    again.ack()

    orders.put("unwanted")
    orders.get(timeout=60).reject()
    try:
        orders.get(timeout=3)
    except Empty:
        print("rejected for good")

    orders.put("one")
    orders.put("two")
    print("size", orders.qsize())
    orders.clear()
    print("cleared", orders.qsize())


def keep_order(payments: SimpleQueue) -> None:
    for number in range(6):
        payments.put(number, MessageGroupId="ab"[number % 2])
    payments.put("twice", MessageGroupId="c", MessageDeduplicationId="same")
    payments.put("twice", MessageGroupId="c", MessageDeduplicationId="same")
    found = []
    while len(found) < 7:
        message = payments.get(timeout=60)
        found.append(message.payload)
        message.ack()
    numbers = [each for each in found if each != "twice"]
    print("even", [each for each in numbers if not each % 2])
    print("odd", [each for each in numbers if each % 2])
    print("size", payments.qsize())


if __name__ == "__main__":
    main()
