"""The cost of a held key in a queue that is ordered by key.

Threads of one client receive and ack messages of 64 keys until nothing is left to be had. One key
has a 64th of the messages, or every other one. In each pair of runs nothing is held in the first;
in the second, a client holds the first message of that key from before the readers begin; in the
third, the queue has no order. Prints JSON lines: messages acked per second, LWTs and reads for
each, and the ratios of the rates. Runs on one node.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from statistics import mean
from typing import Any

from benchmarks.lines import show
from cassieq_spark import Client, NewMessage
from cassieq_spark.store.protocol import Store
from cassieq_spark.testing.stores import CountingStore
from trials.environment import cassandra

KEYS = [f"key-{number}" for number in range(64)]
HOT = KEYS[0]
GROUP = "g"
#: Every how many-th message is of the hot key.
SHARES = (64, 2)
#: The order of the queue, and whether a message of the hot key is held.
SETTINGS = (("key", False), ("key", True), ("none", False))
_LONG = timedelta(hours=1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=12_800, help="of each run")
    parser.add_argument("--readers", type=int, default=16)
    parser.add_argument("--partitions", type=int, default=4)
    parser.add_argument("--most", type=int, default=10, help="messages of each receive")
    parser.add_argument("--turns", type=int, default=3)
    given = parser.parse_args()
    with cassandra(nodes=1) as environment:
        for order, held in SETTINGS:
            run(environment.store, f"warm-{order}-{held}", 64, given, order=order, held=held)
        for every in SHARES:
            rates: dict[str, list[float]] = {}
            for turn in range(given.turns):
                for order, held in SETTINGS:
                    name = f"every-{every}-{turn}-{order}-{held}"
                    figures = run(environment.store, name, every, given, order=order, held=held)
                    show(what="lanes", hot_every=every, order=order, held=held, **figures)
                    kind = "held" if held else order
                    rates.setdefault(kind, []).append(figures["messages_per_second"])
            means = {kind: mean(each) for kind, each in rates.items()}
            show(
                what="rates",
                hot_every=every,
                held_to_free=round(means["held"] / means["key"], 3),
                key_to_none=round(means["key"] / means["none"], 3),
            )


def run(
    store: Store, name: str, every: int, given: argparse.Namespace, *, order: str, held: bool
) -> Mapping[str, Any]:
    """Let readers drain a queue, as far as nothing is held up."""
    counted = CountingStore(store)
    others = [key for key in KEYS if key != HOT]
    with Client.from_store(counted) as client:
        client.create_queue(name, partitions=given.partitions, order=order, lease=_LONG)
        client.create_group(name, GROUP)
        if held:
            client.put(name, b"x" * 200, key=HOT)
            client.receive(name, GROUP, max=1)
        keys = [
            HOT if number % every == 0 else others[number % len(others)]
            for number in range(given.messages)
        ]
        for at in range(0, len(keys), 400):
            messages = [NewMessage(b"x" * 200, key) for key in keys[at : at + 400]]
            client.put_many(name, messages)
        wanted = sum(key != HOT for key in keys) if held else len(keys)
        acked: list[int] = []

        def work(_: int) -> None:
            while sum(acked) < wanted:
                messages = client.receive(name, GROUP, max=given.most)
                if messages:
                    client.ack(*messages)
                    acked.append(len(messages))

        counted.reset()
        began = time.perf_counter()
        with ThreadPoolExecutor(given.readers) as pool:
            list(pool.map(work, range(given.readers)))
        seconds = time.perf_counter() - began
        if sum(acked) != wanted:
            raise SystemExit(f"{sum(acked)} messages were acked, and {wanted} are there")
        return {
            "messages": wanted,
            "messages_per_second": round(wanted / seconds, 1),
            "lwts_per_message": round(counted.cas_count / wanted, 4),
            "reads_per_message": round(counted.read_count / wanted, 3),
        }


if __name__ == "__main__":
    main()
