"""The costs of order by key, and of partitions, for the streams of a queue.

A query writes messages with 40 keys into a new queue, and another one reads them, in batches of
the same size: with several partitions in order by key, with as many without an order, and with
one. The queues take turns, after one round to warm up. Prints a JSON line for each write and read,
and for each size of batch the ratios of the medians of a batch's time and of the processor time of
all processes.
"""

from __future__ import annotations

import argparse
import statistics
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from benchmarks.bench.lab import Lab, open_lab
from benchmarks.bench.measures import Took, run_stream
from benchmarks.bench.payloads import FILES_PER_BATCH, RANDOM, Payload, write_payload
from benchmarks.bench.systems import cassieq_options
from benchmarks.lines import show
from cassieq_spark import Client

_KEYS = 40
_KEY = f"concat('key-', pmod(xxhash64(value), {_KEYS})) as key"
#: Batches at the start of a stream that are not counted.
_NOT_COUNTED = 2


class Kind(NamedTuple):
    """A kind of queue."""

    partitions: int
    order: str

    def __str__(self) -> str:
        return f"{self.partitions}/{self.order}"


class Cost(NamedTuple):
    """The cost of a stream: of a batch in the middle, and of all."""

    batch_ms: float
    processor_seconds: float


#: The costs of each write and read, by kind of queue.
Costs = Mapping[Kind, Mapping[str, Sequence[Cost]]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--partitions", type=int, default=8)
    parser.add_argument("--batches", default="200,20000", help="messages of a batch")
    parser.add_argument("--times", type=int, default=20, help="batches of a stream")
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    if given.times <= _NOT_COUNTED:
        parser.error(f"--times must be more than {_NOT_COUNTED}, not {given.times}")
    by_key, unordered, single = kinds = [
        Kind(given.partitions, "key"),
        Kind(given.partitions, "none"),
        Kind(1, "none"),
    ]
    with open_lab() as lab:
        for batch in map(int, given.batches.split(",")):
            folder = lab.folder / f"payload-{batch}"
            payload = write_payload(RANDOM, batch * given.times, folder, batches=(batch,))
            costs = measure(lab, kinds, payload, batch=batch, rounds=given.rounds)
            for what, ratios in (
                ("order by key to no order", ratios_of(costs, by_key, unordered)),
                (f"{given.partitions} partitions to 1", ratios_of(costs, unordered, single)),
            ):
                show(what=what, batch=batch, **dict(ratios))


def measure(
    lab: Lab, kinds: Sequence[Kind], payload: Payload, *, batch: int, rounds: int
) -> Costs:
    """Write and read a queue of each kind, in turns."""
    found: dict[Kind, dict[str, list[Cost]]] = {kind: defaultdict(list) for kind in kinds}
    for number in range(rounds + 1):
        for kind in kinds:
            queue = f"streams-{kind.partitions}-{kind.order}-{batch}-{number}"
            with Client.from_store(lab.store) as client:
                client.create_queue(queue, partitions=kind.partitions, order=kind.order)
                client.create_group(queue, "g")
            for way, took in (
                ("write", write(lab, payload, queue, batch=batch)),
                ("read", read(lab, payload, queue, batch=batch)),
            ):
                cost = cost_of(took)
                if number:
                    found[kind][way].append(cost)
                    show(what=way, kind=str(kind), batch=batch, **cost._asdict())
    return found


def write(lab: Lab, payload: Payload, queue: str, *, batch: int) -> Took:
    """Write all messages by a stream."""
    source = lab.spark.readStream.schema("value binary")
    source = source.option("maxFilesPerTrigger", FILES_PER_BATCH)
    frame = source.parquet(payload.files(batch)).selectExpr("value", _KEY)
    options = {**cassieq_options(lab), "queue": queue}
    return run_stream(lab, frame, payload.count, "cassieq", options)


def read(lab: Lab, payload: Payload, queue: str, *, batch: int) -> Took:
    """Read all messages by a stream, and drop them."""
    options = {**cassieq_options(lab), "queue": queue, "group": "g"}
    options["maxMessagesPerTrigger"] = str(batch)
    frame = lab.spark.readStream.format("cassieq").options(**options).load()
    return run_stream(lab, frame, payload.count, "noop", {})


def cost_of(took: Took) -> Cost:
    """The cost of a stream."""
    times = [each.ms for each in took.batches[_NOT_COUNTED:]]
    return Cost(statistics.median(times), sum(took.cpu.values()))


def ratios_of(costs: Costs, kind: Kind, other: Kind) -> Iterator[tuple[str, float]]:
    """The medians of one kind of queue to those of another one."""
    for way in costs[kind]:
        for figure in Cost._fields:
            ours, theirs = (
                statistics.median(getattr(each, figure) for each in costs[it][way])
                for it in (kind, other)
            )
            yield f"{way}_{figure}", round(ours / theirs, 2)


if __name__ == "__main__":
    main()
