"""kombu's transport alone: what it sends, takes back, rejects and puts in order."""

from __future__ import annotations

import json
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
        with connection.SimpleQueue("fragile") as fragile, connection.SimpleQueue("dead") as dead:
            give_up(fragile, dead)


def options() -> dict[str, Any]:
    """Those of kombu, with the queues that it is told."""
    urls = json.loads(os.environ["PREDEFINED"])
    found: dict[str, Any] = {"wait_time_seconds": 1, "visibility_timeout": 30}
    if urls:
        found["predefined_queues"] = {name: {"url": url} for name, url in urls.items()}
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


def give_up(fragile: SimpleQueue, dead: SimpleQueue) -> None:
    """What is rejected stays in a queue with a dead-letter queue, until SQS moves it there."""
    fragile.put("poison")
    for _ in range(2):
        fragile.get(timeout=60).reject()
    try:
        fragile.get(timeout=4)
    except Empty:
        message = dead.get(timeout=60)
        print("dead", message.payload)
        message.ack()


if __name__ == "__main__":
    main()
