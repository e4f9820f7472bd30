"""Readers of one group divide the partitions of a queue; they come, stop, hang and are killed.

A writer puts messages of many keys, in order, into a queue of 16 partitions, ordered by key. Each
reader is a process that reads batches as Spark's source does, and records its messages. Prints, as
JSON, how many partitions each reader had two lease times after each event, and how many messages
were lost or out of order. The exit code is 1 if there were any, or if the shares were not even.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from cassieq_spark import Client, NewMessage
from cassieq_spark.consumer.message import stored_messages
from cassieq_spark.fetch.read import fetch
from cassieq_spark.groups.lease import LeaseRequest
from cassieq_spark.queues import create_queue, read_queue
from cassieq_spark.settings.connection import ConnectionOptions
from cassieq_spark.spark.source.offsets import initial_offset
from cassieq_spark.spark.source.queue_reader import QueueReader
from cassieq_spark.store import open_store
from trials.environment import Cassandra, Report, arguments, carry_out, cassandra, tell
from trials.processes import Program

QUEUE, GROUP = "orders", "billing"
PARTITIONS, KEYS = 16, 400
LEASE = timedelta(seconds=8)
#: Shares are judged this long after an event.
SETTLED_AFTER = 2 * LEASE.total_seconds()
_EACH_SECONDS = 30.0
_BATCH = 400
_PAUSE = 0.1
_DRAIN_SECONDS = 120


class Event(NamedTuple):
    """What happens to which readers, and which of them work afterwards."""

    name: str
    does: str
    to: str
    there: str


EVENTS = (
    Event("one reader", "start", "a", "a"),
    Event("three more", "start", "bcd", "abcd"),
    Event("one hangs", "pause", "b", "acd"),
    Event("it goes on", "resume", "b", "abcd"),
    Event("one is killed", "kill", "c", "adb"),
    Event("one stops", "stop", "d", "ab"),
    Event("two come", "start", "cd", "abcd"),
)


@dataclass(frozen=True, slots=True)
class Got:
    """A batch of a reader: when it arrived, and its messages by partition."""

    reader: str
    at: float
    messages: Mapping[int, Sequence[str]]


def main() -> int:
    parser = arguments(__doc__)
    parser.add_argument("--rate", type=int, default=400, help="messages a second")
    parser.add_argument("--draw", type=Path, help="file of the figure of the shares, SVG or PNG")
    given = parser.parse_args()
    tell(f"seed {given.seed}")

    def play(folder: Path) -> Report:
        with cassandra(nodes=1) as environment:
            return share(environment, folder, given)

    return carry_out("sharing", play, fine=lambda report: report["fine"])


def share(environment: Cassandra, folder: Path, given: argparse.Namespace) -> Report:
    """Let the events happen, wait until all messages are settled, and judge."""
    create_queue(environment.store, QUEUE, order="key", partitions=PARTITIONS, lease=LEASE)
    command = [sys.executable, "-m", "trials.sharing", "read", environment.hosts]
    readers = {
        name: Program(name, [*command, str(folder / f"{name}.jsonl")], log=folder / f"{name}.log")
        for name in "abcd"
    }
    ends: list[float] = []
    client = Client.from_store(environment.store)
    client.create_group(QUEUE, GROUP)
    done = threading.Event()
    counts: Counter[str] = Counter()
    writer = threading.Thread(target=_write, args=(client, given, counts, done))
    with ExitStack() as held:
        for reader in readers.values():
            held.callback(reader.kill)
        held.callback(writer.join)
        held.callback(done.set)
        writer.start()
        for event in EVENTS:
            tell(f"{event.name}: {event.does} {event.to}")
            ends.append(time.time())
            for name in event.to:
                _happen(event.does, readers[name])
            time.sleep(_EACH_SECONDS)
        ends.append(time.time())
        done.set()
        writer.join()
        until = time.monotonic() + _DRAIN_SECONDS
        while client.stats(QUEUE).groups[0].depth and time.monotonic() < until:
            time.sleep(1)
    got = sorted(_read_all(folder), key=lambda each: each.at)
    if given.draw:
        draw(given.draw, got, ends)
    report = judge(got, ends, counts)
    return report | {"exit_codes": {name: reader.exit_code for name, reader in readers.items()}}


def judge(got: Sequence[Got], ends: Sequence[float], written: Mapping[str, int]) -> Report:
    """The report: how even the shares were, and what is lost or out of order. Pure."""
    shares = {}
    uneven = []
    for event, (began, ended) in zip(EVENTS, pairwise(ends), strict=True):
        owners = owners_of(each for each in got if began + SETTLED_AFTER <= each.at < ended)
        count = Counter(owners.values())
        shares[event.name] = dict(sorted(count.items()))
        least, rest = divmod(PARTITIONS, len(event.there))
        allowed = {least, least + 1} if rest else {least}
        if set(count) != set(event.there) or not set(count.values()) <= allowed:
            uneven.append(event.name)
    lost, late = missing(got, written)
    return {
        "fine": not (uneven or lost or late),
        "messages": sum(written.values()),
        "lost": lost,
        "out_of_order": late,
        "partitions_by_reader": shares,
        "uneven": uneven,
    }


def owners_of(got: Iterable[Got]) -> dict[int, str]:
    """Which reader got the most messages of each partition. Pure."""
    counts: defaultdict[int, Counter[str]] = defaultdict(Counter)
    for each in got:
        for number, messages in each.messages.items():
            counts[number][each.reader] += len(messages)
    return {number: count.most_common(1)[0][0] for number, count in sorted(counts.items())}


def missing(got: Sequence[Got], written: Mapping[str, int]) -> tuple[int, int]:
    """How many messages are lost, and how many came after a later one of their key. Pure.

    Args:
        got: The batches in order of time.
        written: The number of messages of each key.
    """
    last: defaultdict[str, int] = defaultdict(lambda: -1)
    seen: set[str] = set()
    late = 0
    for message in (each for batch in got for them in batch.messages.values() for each in them):
        if message in seen:
            continue
        seen.add(message)
        key, _, number = message.partition(":")
        late += int(number) < last[key]
        last[key] = max(last[key], int(number))
    return sum(written.values()) - len(seen), late


def draw(path: Path, got: Sequence[Got], ends: Sequence[float]) -> None:
    """Draw each reader's share of the messages of each second, and the events."""
    from trials.figures import pictured  # noqa: PLC0415 (only here: it takes a second)

    seconds = range(int(ends[-1] - ends[0]))
    counts = {name: [0] * len(seconds) for name in "abcd"}
    for each in got:
        second = int(each.at - ends[0])
        if 0 <= second < len(seconds):
            counts[each.reader][second] += sum(map(len, each.messages.values()))
    sums = [max(1, sum(parts)) for parts in zip(*counts.values(), strict=True)]
    parts = {
        name: [100 * one / of for one, of in zip(count, sums, strict=True)]
        for name, count in counts.items()
    }
    with pictured(path, (8.6, 3.3)) as (ax, colours):
        ax.stackplot(
            seconds,
            list(parts.values()),
            labels=[f"reader {name}" for name in parts],
            colors=colours,
            step="post",
        )
        for event, at in zip(EVENTS, ends, strict=False):
            ax.axvline(at - ends[0], color="#808890", linewidth=1, linestyle="--")
            ax.text(at - ends[0] + 0.5, 102, event.name, fontsize=8)
        ax.set(xlabel="seconds", ylabel="% of the messages", ylim=(0, 100), xlim=(0, seconds[-1]))
        ax.legend(loc="center left", bbox_to_anchor=(1, 0.5))


def read(hosts: str, path: Path) -> None:
    """Read batches until SIGTERM, and record each before the next."""
    stopping = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    store = open_store(ConnectionOptions(contact_points=tuple(hosts.split(","))))
    request = LeaseRequest(lease=LEASE)
    queue = read_queue(store, QUEUE)
    reader = QueueReader(store, queue, GROUP, starting="earliest", request=request)
    done: Mapping[str, Any] = initial_offset(QUEUE, GROUP)
    with path.open("a") as out:
        while not stopping.is_set():
            end = reader.next_batch(done, limit=_BATCH)
            if end is done:
                continue
            got: defaultdict[int, list[str]] = defaultdict(list)
            for parts in reader.tasks(end, messages_per_task=_BATCH):
                for part in parts:
                    for message in stored_messages(fetch(store, part.queue, part.pieces)):
                        got[message.partition].append(bytes(message.value).decode())
            print(json.dumps([time.time(), got]), file=out, flush=True)
            os.fsync(out.fileno())
            done = end
            # A query of Spark takes a moment for each batch, too.
            stopping.wait(_PAUSE)
    reader.stop()


def _write(
    client: Client, given: argparse.Namespace, counts: Counter[str], done: threading.Event
) -> None:
    chance = Random(given.seed)
    began, number = time.monotonic(), 0
    while not done.is_set():
        due = int((time.monotonic() - began) * given.rate) - number
        messages = []
        for _ in range(max(0, due)):
            key = str(chance.randrange(KEYS))
            messages.append(NewMessage(f"{key}:{counts[key]}", key))
            counts[key] += 1
        if messages:
            client.put_many(QUEUE, messages)
        number += len(messages)
        done.wait(_PAUSE)


def _happen(what: str, reader: Program) -> None:
    if what == "start":
        reader.start()
    elif what == "kill":
        reader.kill()
    else:
        number = {"pause": signal.SIGSTOP, "resume": signal.SIGCONT, "stop": signal.SIGTERM}[what]
        reader.send(number)


def _read_all(folder: Path) -> Iterator[Got]:
    for path in folder.glob("*.jsonl"):
        for line in path.read_text().splitlines():
            at, messages = json.loads(line)
            yield Got(path.stem, at, {int(number): them for number, them in messages.items()})


if __name__ == "__main__":
    if sys.argv[1:2] == ["read"]:
        read(sys.argv[2], Path(sys.argv[3]))
        sys.exit()
    sys.exit(main())
