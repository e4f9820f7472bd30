"""The demo: 336,776 flights through a queue, with a consumer that is killed half way.

    python -m demo [--contact-points host[:port],...]

Starts a Cassandra node, unless contact points are given, and stops it in the end in any case. The
last line of the output is a JSON object with all figures. The exit code is 0 if no message was
lost, duplicated or left behind.
"""

from __future__ import annotations

import argparse
import getpass
import json
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from cassieq_spark.errors import CassieqError
from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.node import Cluster
from cassieq_spark.queues.stats import queue_stats
from cassieq_spark.settings.connection import DEFAULT_KEYSPACE, ConnectionOptions
from cassieq_spark.store import open_store
from cassieq_spark.store.cassandra.schema import apply_schema
from demo.console import Screen, delays_table, facts_table
from demo.consumer import DELAYS, MESSAGES
from demo.flights import compare, find_data, read_delays, read_files, write_files
from demo.steps import (
    MESSAGES_PER_BATCH,
    QUEUE,
    Consumption,
    Place,
    archive,
    consume,
    count_left,
    make_queue,
    publish,
    repair,
)
from trials.spark import start_spark, stop_spark

_FILES = 16
_FAILED = 1
_INTERRUPTED = 130


def main(arguments: list[str]) -> int:
    """Run the demo, and return 0 if no message was lost, duplicated or left behind."""
    given = _parse(arguments)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    folder = Path(tempfile.mkdtemp(prefix="cassieq-demo-"))
    screen = Screen(folder / "demo.log")
    figures: dict[str, Any] = {}
    status = _FAILED
    try:
        figures, as_promised = _run(given, folder, screen)
        status = 0 if as_promised else _FAILED
    except KeyboardInterrupt:
        screen.say("Stopped.")
        status = _INTERRUPTED
    except Exception as error:  # noqa: BLE001 (every error is shown)
        traceback.print_exc()
        if not isinstance(error, CassieqError):
            screen.say_end_of(getattr(error, "log", None) or folder / "demo.log")
        screen.say(f"{type(error).__name__}: {error}")
    finally:
        if status == _FAILED:
            screen.say(f"Logs, files and results are kept in {folder}.")
        else:
            shutil.rmtree(folder, ignore_errors=True)
        screen.close()
    if figures:
        print(json.dumps(figures))
    return status


def _run(given: argparse.Namespace, folder: Path, screen: Screen) -> tuple[dict[str, Any], bool]:
    started = time.monotonic()
    data = find_data()
    files = folder / "flights"
    with _cluster(given, screen) as connection:
        place = _prepare(folder, connection, screen)
        with screen.step("source files") as step:
            flights = write_files(data, files, files=_FILES)
            megabytes = sum(file.stat().st_size for file in files.iterdir()) / 1e6
            step.tell(f"{flights:,} flights, {megabytes:.0f} MB of JSON in {_FILES} files")
        with _spark(folder, screen) as spark:
            with screen.step("publish") as step:
                publish_seconds = publish(place, spark, files, step)
                published = queue_stats(Ledger(place.store, place.queue.queue_id)).next
                publish_rate = published / publish_seconds
                step.tell(f"{published:,} messages, {publish_rate:,.0f} per second")
            results = folder / "results"
            with screen.step("consume") as step:
                middle = published // 2 // MESSAGES_PER_BATCH
                consumed = consume(place, results, step, kill_in=middle)
                step.tell(f"killed in batch {consumed.killed_in}, and started again")
            with screen.step("second group"):
                archive(place, spark, folder / "archive")
        with screen.step("repair job") as step:
            counts = repair(place)
            step.tell(f"{counts['settled_buckets']:,} buckets deleted")
        owed, buckets = count_left(place)
        place.store.close()
    with screen.step("compare the results with the files, message by message"):
        source = read_files(files)
        first = compare(source, results / MESSAGES)
        second = compare(source, folder / "archive")
        delays = read_delays(data, results / DELAYS)
    figures = {
        "published": published,
        "delivered": first.delivered,
        "lost": first.lost,
        "duplicated": first.duplicated,
        "redelivered": sum(row["again_sum"] for row in delays),
        "consumer_kills": consumed.kills,
        "group2_delivered": second.delivered,
        "left_in_queue": owed,
        "buckets_left": buckets,
        "publish_per_s": round(publish_rate),
        "consume_per_s": round(first.delivered / consumed.seconds),
        "seconds": round(time.monotonic() - started, 1),
    }
    screen.console.print(delays_table(delays))
    screen.console.print(facts_table(place.queue.name, _facts(figures, consumed, counts)))
    surprises = {
        "flights that were not published": flights - published,
        "flights that the consumer lost": first.lost,
        "flights that the consumer has twice": first.duplicated,
        "flights missing in the consumer's statistics": flights
        - sum(row["flights_sum"] for row in delays),
        "flights that the second group lost": second.lost,
        "flights that the second group has twice": second.duplicated,
        "messages that are no flights": first.foreign + second.foreign,
        "messages left in the queue": owed,
        "buckets left in Cassandra": buckets,
        "consumers that should have been killed": int(not consumed.kills),
    }
    for name, number in surprises.items():
        if number:
            screen.say(f"✗ {name}: {number:,}")
    return figures, not any(surprises.values())


def _facts(
    figures: dict[str, Any], consumed: Consumption, counts: dict[str, Any]
) -> list[tuple[str, str, str]]:
    number = {name: f"{value:,}" for name, value in figures.items()}
    moment = f"by SIGKILL, half way through batch {consumed.killed_in}"
    return [
        ("published", number["published"], f"messages, {number['publish_per_s']} per second"),
        ("consumer killed", number["consumer_kills"], moment),
        ("delivered again", number["redelivered"], "messages, when it was started again"),
        ("delivered", number["delivered"], f"messages, {number['consume_per_s']} per second"),
        ("lost", number["lost"], "of the flights in the files"),
        ("duplicated", number["duplicated"], "of the flights in the results"),
        ("second group", number["group2_delivered"], "messages"),
        ("repaired", f"{counts['settled_buckets']:,}", "buckets deleted, as no group needs them"),
        ("left", number["left_in_queue"], f"messages, {number['buckets_left']} buckets"),
    ]


@contextmanager
def _cluster(given: argparse.Namespace, screen: Screen) -> Iterator[ConnectionOptions]:
    """The cluster that the arguments name, or a node that is started."""
    if given.contact_points:
        yield ConnectionOptions(
            contact_points=tuple(point.strip() for point in given.contact_points.split(",")),
            local_dc=given.local_dc,
            username=given.username,
            password=given.password,
            keyspace=given.keyspace,
        )
        return
    with ExitStack() as held:
        # Not live: the download of Cassandra shows its own progress bar.
        with screen.step("Cassandra", live=False) as step:
            cluster = held.enter_context(Cluster(nodes=1, console=screen.console))
            step.tell(f"a node for the demo, at {cluster.contact_points[0]}:{cluster.port}")
        yield ConnectionOptions(
            contact_points=tuple(cluster.contact_points),
            port=cluster.port,
            keyspace=given.keyspace,
        )


def _prepare(folder: Path, connection: ConnectionOptions, screen: Screen) -> Place:
    with screen.step("queue") as step:
        apply_schema(connection)
        store = open_store(connection)
        queue = make_queue(store)
        step.tell(queue.name)
    if queue.name != QUEUE:
        screen.say(f"  A queue {QUEUE} exists already: the demo uses {queue.name}.")
    return Place(folder, connection, store, queue)


@contextmanager
def _spark(folder: Path, screen: Screen) -> Iterator[SparkSession]:
    with screen.step("Spark"):
        spark = start_spark("cassieq demo", folder / "spark")
    try:
        yield spark
    finally:
        stop_spark(spark)


def _parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m demo",
        description="Send 336,776 flights through a queue, and kill the consumer half way.",
    )
    parser.add_argument(
        "--contact-points",
        metavar="HOST[:PORT],...",
        help="your cluster; without it, a node is started",
    )
    parser.add_argument("--local-dc", metavar="NAME", help="data centre of the contact points")
    parser.add_argument("--username", metavar="NAME")
    parser.add_argument("--password", metavar="TEXT", help="asked for if left out")
    parser.add_argument("--keyspace", default=DEFAULT_KEYSPACE, help="%(default)s")
    given = parser.parse_args(arguments)
    if given.username and given.password is None:
        given.password = getpass.getpass(f"Password of {given.username}: ")
    return given


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
