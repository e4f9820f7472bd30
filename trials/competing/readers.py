"""Clients of one group share a queue: threads, clients of one process, and processes.

Each reader receives 1 to 60 messages, releases about a third of them and acks the rest, until
nothing is left. First one reader does all, then eight do: in threads of one client, in two clients
of four threads, in eight clients, and in eight processes. Prints a line for each run, and all of
it as JSON: seconds, receives that got messages, the LWTs by which they were leased and all LWTs of
the group, each divided by these receives, and errors. The exit code is 1 if a message was lost, or
a reader ended with an error.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from cassieq_spark import Client
from cassieq_spark.errors import CassieqError
from cassieq_spark.store.cassandra.store import CassandraStore
from cassieq_spark.store.protocol import Delete, DeleteBelow, Op, Partition, ServerNow
from cassieq_spark.store.tables import Table
from trials.environment import Cassandra, Report, arguments, carry_out, cassandra, tell
from trials.processes import Program

GROUP = "readers"
#: A reader ends when nothing came for so long.
_PATIENCE = timedelta(seconds=2)
_MOST = 60
_LONGEST_RUN = 300
_LOOK_SECONDS = 0.05


class Setting(NamedTuple):
    """How many processes, clients in each of them, and threads of each client."""

    name: str
    processes: int
    clients: int
    threads: int


SETTINGS = (
    Setting("one reader", 1, 1, 1),
    Setting("eight threads of a client", 1, 1, 8),
    Setting("two clients of four threads", 1, 2, 4),
    Setting("eight clients of a process", 1, 8, 1),
    Setting("eight processes", 8, 1, 1),
)


@dataclass
class Work:
    """What the readers of one process have done.

    Attributes:
        done: How often each message was acked.
        receives: Calls that got messages.
        slowest: Seconds of the slowest of them.
        ended_at: When the last message was settled.
        leasing: LWTs that lease messages, whether they were refused or not.
        lwts: All LWTs of the group.
        errors: What readers ended with.
    """

    done: Counter[int]
    receives: int = 0
    slowest: float = 0.0
    ended_at: float = 0.0
    leasing: int = 0
    lwts: int = 0
    errors: Sequence[str] = ()


def main() -> int:
    parser = arguments(__doc__)
    parser.add_argument("--messages", type=int, default=2_000)
    parser.add_argument("--rounds", type=int, default=3, help="how often, all settings in turns")
    parser.add_argument("--settings", nargs="+", type=int, default=[*range(len(SETTINGS))])
    given = parser.parse_args()
    tell(f"seed {given.seed}")

    def play(folder: Path) -> Report:
        runs: list[Report] = []
        with cassandra(nodes=1) as environment:
            for number in range(given.rounds):
                for setting in (SETTINGS[each] for each in given.settings):
                    run = read_all(environment, folder, setting, given, number)
                    tell(run)
                    runs.append(run)
        return {"seed": given.seed, "runs": runs, "medians": medians(runs)}

    return carry_out("readers", play, fine=lambda report: all(map(is_fine, report["runs"])))


def read_all(
    environment: Cassandra, folder: Path, setting: Setting, given: argparse.Namespace, number: int
) -> Report:
    """Let readers settle all messages of a new queue."""
    queue = f"q{number}-{setting.processes}-{setting.clients}-{setting.threads}"
    with Client.from_store(environment.store) as client:
        client.create_queue(queue)
        client.put_many(queue, [str(each) for each in range(given.messages)])
        client.create_group(queue, GROUP)
        began = folder / f"{queue}.began"
        command = [sys.executable, "-m", "trials.competing.readers", "read", environment.hosts]
        command += [queue, str(setting.clients), str(setting.threads), str(began)]
        logs = [folder / f"{queue}-{each}.json" for each in range(setting.processes)]
        programs = [Program(log.stem, [*command, f"{given.seed}-{log.stem}"], log) for log in logs]
        with ExitStack() as held:
            for each in programs:
                held.enter_context(each)
            _wait_until(lambda: all(log.read_text().startswith("ready") for log in logs), 60)
            at = time.time()
            began.touch()
            _wait_until(lambda: not any(each.is_running for each in programs), _LONGEST_RUN)
        parts = [_work_of(log.read_text()) for log in logs]
        dead = {int(letter.value) for letter in client.peek(f"{queue}.dead", max=given.messages)}
        return report_of(setting, parts, dead, given.messages, at)


def report_of(
    setting: Setting, parts: Iterable[Work], dead: Iterable[int], messages: int, began: float
) -> Report:
    """What came out of a run."""
    parts = list(parts)
    done = sum((part.done for part in parts), Counter[int]())
    receives = max(1, sum(part.receives for part in parts))
    return {
        "setting": setting.name,
        "seconds": round(max(part.ended_at for part in parts) - began, 1),
        "receives": receives,
        "leasing_lwts_a_receive": round(sum(part.leasing for part in parts) / receives, 2),
        "lwts_a_receive": round(sum(part.lwts for part in parts) / receives, 2),
        "slowest_receive": round(max(part.slowest for part in parts), 2),
        "lost": len(set(range(messages)) - set(done) - set(dead)),
        "acked_twice": sum(times - 1 for times in done.values()),
        "dead": len(set(dead)),
        "errors": [error for part in parts for error in part.errors],
    }


def is_fine(run: Report) -> bool:
    """Whether nothing was lost, and no reader was told off."""
    return not (run["lost"] or run["acked_twice"] or run["errors"])


def medians(runs: Sequence[Report]) -> Mapping[str, Mapping[str, float]]:
    """The medians of the figures of each setting."""
    figures = ("seconds", "leasing_lwts_a_receive", "lwts_a_receive", "slowest_receive")
    return {
        name: {
            figure: statistics.median(run[figure] for run in runs if run["setting"] == name)
            for figure in figures
        }
        for name in dict.fromkeys(run["setting"] for run in runs)
    }


# -- a process that reads -------------------------------------------------------------------------


def read(hosts: str, queue: str, clients: int, threads: int, began: Path, seed: str) -> None:
    """Read with so many clients and threads, and print what was done."""
    print("ready", flush=True)
    work, lock = Work(Counter()), threading.Lock()
    errors: list[str] = []
    with ExitStack() as held:
        opened = [
            held.enter_context(Client(contact_points=hosts.split(","))) for _ in range(clients)
        ]
        for each in opened:
            each.queue(queue)
        _wait_until(began.exists, 60)
        count = held.enter_context(_counting())
        with ThreadPoolExecutor(clients * threads) as pool:

            def reader(number: int) -> None:
                try:
                    _read(opened[number % clients], queue, Random(f"{seed}-{number}"), work, lock)
                except CassieqError as error:
                    errors.append(f"{type(error).__name__}: {error}")

            list(pool.map(reader, range(clients * threads)))
    work.leasing, work.lwts, work.errors = count["leasing"], count["all"], errors
    print(json.dumps(vars(work)), flush=True)


def _read(client: Client, queue: str, chance: Random, work: Work, lock: threading.Lock) -> None:
    while True:
        began = time.monotonic()
        messages = client.receive(queue, GROUP, max=chance.randint(1, _MOST))
        took = time.monotonic() - began
        if not messages:
            messages = client.receive(queue, GROUP, max=chance.randint(1, _MOST), wait=_PATIENCE)
        if not messages:
            return
        released = {each for each in messages if chance.random() < 1 / 3}
        if released:
            client.release(*released)
        acked = [each for each in messages if each not in released]
        stale = set(client.ack(*acked)) if acked else set()
        with lock:
            work.receives += 1
            work.slowest = max(work.slowest, took)
            work.ended_at = time.time()
            work.done.update(each.monoton for each in acked if each.receipt not in stale)


@contextmanager
def _counting() -> Any:
    """Count the LWTs of groups of all clients of this process."""
    counts, lock, cas = Counter[str](), threading.Lock(), CassandraStore.cas

    def counted(store: CassandraStore, partition: Partition, ops: Sequence[Op]) -> bool:
        if partition.table is Table.GROUP_STATE:
            with lock:
                counts.update(["all", "leasing"] if any(map(_leases, ops)) else ["all"])
        return cas(store, partition, ops)

    CassandraStore.cas = counted  # type: ignore[assignment,method-assign]
    try:
        yield counts
    finally:
        CassandraStore.cas = cas  # type: ignore[method-assign]


def _leases(op: Op) -> bool:
    """Whether it hands messages out: only that is dated by the server."""
    if isinstance(op, Delete | DeleteBelow):
        return False
    return isinstance(op.values.get("last_at"), ServerNow)


def _work_of(text: str) -> Work:
    told = json.loads(text.splitlines()[-1])
    done = Counter({int(monoton): times for monoton, times in told.pop("done").items()})
    return Work(done, **told)


def _wait_until(condition: Callable[[], bool], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited for {seconds} s")
        time.sleep(_LOOK_SECONDS)


if __name__ == "__main__":
    if sys.argv[1:2] == ["read"]:
        _, _, hosts, queue, clients, threads, began, seed = sys.argv
        read(hosts, queue, int(clients), int(threads), Path(began), seed)
    else:
        sys.exit(main())
