"""The cost of unique ids: messages that are put with and without them, in turns.

Two clients, which remember ids apart as two processes do, put messages by threads one at a time,
by a producer each, and in lists. Each message has an id of its own, so all are published. Prints
JSON lines: LWTs and reads for each message, processor time of this process, and the ratios of
means. Runs on one node.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from statistics import mean
from typing import Any

from benchmarks.lines import show
from cassieq_spark import Client, NewMessage
from cassieq_spark.store.protocol import Store
from cassieq_spark.testing.stores import CountingStore
from trials.environment import cassandra

VALUE = b"x" * 200
THREADS = 8
LIST = 1_000
Put = Callable[[Client, str, list[NewMessage]], None]


def one_at_a_time(client: Client, queue: str, messages: list[NewMessage]) -> None:
    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(lambda message: client.put(queue, message), messages))


def by_producer(client: Client, queue: str, messages: list[NewMessage]) -> None:
    with client.producer(queue) as producer:
        for message in messages:
            producer.put(message)


def in_lists(client: Client, queue: str, messages: list[NewMessage]) -> None:
    for at in range(0, len(messages), LIST):
        client.put_many(queue, messages[at : at + LIST])


#: How messages are put, and how many by each client.
WAYS: Mapping[str, tuple[Put, int]] = {
    "put": (one_at_a_time, 2_000),
    "producer": (by_producer, 30_000),
    "put_many": (in_lists, 60_000),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--clients", type=int, default=2)
    parser.add_argument("--way", choices=WAYS, action="append", help="only these")
    given = parser.parse_args()
    with cassandra(nodes=1) as environment:
        for way in given.way or WAYS:
            for ids in (False, True):
                run(environment.store, f"warm-{way}-{ids}", way, given.clients, ids=ids)
            found: dict[bool, list[Mapping[str, Any]]] = {False: [], True: []}
            for turn in range(given.turns):
                for ids in (False, True):
                    name = f"{way}-{turn}-{ids}"
                    figures = run(environment.store, name, way, given.clients, ids=ids)
                    found[ids].append(figures)
                    show(what="unique ids", way=way, ids=ids, **figures)
            show(what="ratios", way=way, **{name: _ratio(found, name) for name in found[True][0]})


def _ratio(found: Mapping[bool, list[Mapping[str, Any]]], name: str) -> float:
    with_ids, without = (mean(each[name] for each in found[ids]) for ids in (True, False))
    return round(with_ids / without, 3)


def run(store: Store, name: str, way: str, clients: int, *, ids: bool) -> Mapping[str, Any]:
    """Put messages into a queue of its own."""
    put, count = WAYS[way]
    counted = CountingStore(store)
    every = [Client.from_store(counted) for _ in range(clients)]
    every[0].create_queue(name, deduplicate=timedelta(minutes=5) if ids else None)

    def messages(number: int) -> list[NewMessage]:
        return [
            NewMessage(VALUE, unique_id=f"{number}-{at}" if ids else None) for at in range(count)
        ]

    given = [messages(number) for number in range(clients)]
    counted.reset()
    began, processor = time.perf_counter(), time.process_time()
    with ThreadPoolExecutor(clients) as pool:
        list(pool.map(lambda at: put(every[at], name, given[at]), range(clients)))
    seconds, taken = time.perf_counter() - began, time.process_time() - processor
    total = count * clients
    return {
        "messages_per_second": round(total / seconds, 1),
        "processor_microseconds": round(1e6 * taken / total, 2),
        "lwts_per_message": round(counted.cas_count / total, 6),
        "reads_per_message": round((counted.read_count + counted.serial_read_count) / total, 6),
    }


if __name__ == "__main__":
    main()
