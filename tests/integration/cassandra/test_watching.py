"""The exporter as a process that is scraped, and ``top`` on a terminal."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import socket
import struct
import subprocess
import sys
import termios
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from uuid import uuid4

import pytest
from prometheus_client.parser import text_string_to_metric_families

from cassieq_spark.groups.group import ConsumerGroup
from cassieq_spark.groups.registration import ensure_group
from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.ledger.publish import publish
from cassieq_spark.model import QueueDefinition
from cassieq_spark.queues import create_queue
from cassieq_spark.settings.connection import ConnectionOptions
from cassieq_spark.store.protocol import Store
from tests.support.builders import make_pending, make_request
from tests.support.proxy import Proxy

_STYLE = re.compile(r"\x1b\[[0-9;]*m")
_PATIENCE_SECONDS = 60

COMMAND = (sys.executable, "-m", "cassieq_spark.cli")


def reach(connection: ConnectionOptions) -> list[str]:
    points = ",".join(connection.contact_points)
    where = ["--contact-points", points, "--port", str(connection.port)]
    return [*where, "--keyspace", connection.keyspace]


@pytest.fixture
def queue(cassandra_store: Store) -> QueueDefinition:
    """Ten messages for a group that has settled three, with two under a lease."""
    queue = create_queue(cassandra_store, f"w-{uuid4().hex[:10]}")
    publish(Ledger(cassandra_store, queue.queue_id), make_pending([10], datetime.now(UTC)))
    ensure_group(ConsumerGroup(Ledger(cassandra_store, queue.queue_id), "g"), starting="earliest")
    group = ConsumerGroup(Ledger(cassandra_store, queue.queue_id), "g")
    done = group.lease(make_request(stop=10, max_messages=3)).token
    group.lease(make_request(held=done, stop=10, max_messages=2))
    return queue


@contextmanager
def exporting(
    connection: ConnectionOptions, *arguments: str
) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    process = subprocess.Popen(
        [*COMMAND, "exporter", "--listen", "127.0.0.1:0", *arguments, *reach(connection)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            (url,) = re.findall(r"http://\S+/metrics", process.stdout.readline())
            yield url, process
        finally:
            process.kill()


def scrape(url: str) -> dict[tuple[str, tuple[str, ...]], float]:
    with urllib.request.urlopen(url, timeout=10) as answer:
        text = answer.read().decode()
    return {
        (sample.name, tuple(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def scrape_until_up(url: str) -> dict[tuple[str, tuple[str, ...]], float]:
    """The first figures; the hang guard of the tests ends it."""
    while not (samples := scrape(url))["cassieq_up", ()]:
        pass
    return samples


def test_the_exporter_is_scraped_and_ends_cleanly(
    connection: ConnectionOptions, queue: QueueDefinition
):
    with exporting(connection, "--every", "200ms", "--queue", queue.name) as (url, process):
        samples = scrape_until_up(url)
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=60)

    assert samples["cassieq_queue_messages_published_total", (queue.name,)] == 10
    assert samples["cassieq_group_depth_messages", ("g", queue.name)] == 7
    assert samples["cassieq_group_leased_messages", ("g", queue.name)] == 2
    assert samples["cassieq_group_settled_messages", ("g", queue.name)] == 3
    assert (process.returncode, errors) == (0, "")


def test_the_exporter_outlives_an_absence_of_cassandra(
    through_proxy: ConnectionOptions, proxy: Proxy, queue: QueueDefinition
):
    with exporting(through_proxy, "--every", "200ms", "--queue", queue.name) as (url, process):
        scrape_until_up(url)
        proxy.lose_answers()
        wait_for(process, "could not read the queues")
        # It may have had the queues already, and failed only with the repair's history.
        while (while_away := scrape(url))["cassieq_up", ()]:
            pass
        proxy.restore()
        wait_for(process, "can be read again")
        after = scrape_until_up(url)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)

    assert {name for name, _ in while_away} == {"cassieq_up", "cassieq_scrape_errors_total"}
    assert while_away["cassieq_up", ()] == 0
    assert while_away["cassieq_scrape_errors_total", ("",)] >= 1
    assert after["cassieq_group_depth_messages", ("g", queue.name)] == 7
    assert process.returncode == 130


def test_a_queue_that_does_not_exist_ends_the_exporter(connection: ConnectionOptions):
    with exporting(connection, "--queue", "nobody") as (_, process):
        _, errors = process.communicate(timeout=60)

    assert process.returncode == 1
    assert errors.splitlines()[-1].startswith("cassieq: there is no queue 'nobody'")


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_an_exporter_without_a_cassandra_says_so_in_a_line_and_ends_when_told(
    number: int, status: int
):
    # Nobody else can listen there, and this one does not.
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        nowhere = f"127.0.0.1:{unused.getsockname()[1]}"
        with exporting(ConnectionOptions(contact_points=(nowhere,))) as (_, process):
            complaint = process.stderr.readline()
            process.send_signal(number)
            _, rest = process.communicate(timeout=60)

    assert f"no node answers at {nowhere}" in complaint
    assert (process.returncode, rest) == (status, "")


def wait_for(process: subprocess.Popen[str], text: str) -> None:
    """Read what the process logs until there is this."""
    assert any(text in line for line in iter(process.stderr.readline, ""))


@dataclass
class Terminal:
    """A terminal with a program on it."""

    process: subprocess.Popen[bytes]
    master: int
    slave: int
    seen: str = ""

    def read_until(self, pattern: str) -> str:
        """What comes next like this, styles left out."""
        while not (found := re.search(pattern, self.seen)):
            ready, _, _ = select.select([self.master], [], [], _PATIENCE_SECONDS)
            assert ready, f"no {pattern!r} in {self.seen[-2000:]!r}"
            self.seen += os.read(self.master, 65_536).decode(errors="replace")
            self.seen = _STYLE.sub("", self.seen)
        self.seen = self.seen[found.end() :]
        return found[0]

    def press(self, key: bytes) -> None:
        os.write(self.master, key)

    def size(self, columns: int, rows: int) -> None:
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def settings(self) -> list[object]:
        return termios.tcgetattr(self.slave)


@contextmanager
def on_terminal(*arguments: str, columns: int = 100) -> Iterator[Terminal]:
    master, slave = pty.openpty()
    terminal = Terminal(None, master, slave)
    terminal.size(columns, 30)
    before = terminal.settings()
    environment = {"TERM": "xterm", "COLUMNS": "", "LINES": ""}
    terminal.process = subprocess.Popen(
        [*COMMAND, *arguments],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        env=os.environ | environment,
        start_new_session=True,
    )
    try:
        yield terminal
        assert terminal.settings() == before
    finally:
        terminal.process.kill()
        terminal.process.wait()
        os.close(master)
        os.close(slave)


OTHER_SCREEN, FIRST_SCREEN = re.escape("\x1b[?1049h"), re.escape("\x1b[?1049l")


def test_top_shows_rates_as_they_change_until_q_is_pressed(
    connection: ConnectionOptions, cassandra_store: Store, queue: QueueDefinition
):
    arguments = ("top", "--every", "300ms", "--queue", queue.name, *reach(connection))
    with on_terminal(*arguments) as terminal:
        terminal.read_until(OTHER_SCREEN)
        terminal.read_until(rf"{queue.name} +g +- +- +7 +2 ")
        publish(Ledger(cassandra_store, queue.queue_id), make_pending([5000], datetime.now(UTC)))
        rate = terminal.read_until(rf"{queue.name} +g +[1-9][0-9,]* +0 +5,007 ").split()[2]
        terminal.read_until(rf"{queue.name} +g +0 +0 +5,007 ")
        terminal.press(b"xq")
        terminal.read_until(FIRST_SCREEN)
        status = terminal.process.wait(timeout=60)

    assert int(rate.replace(",", "")) > 100
    assert status == 0


def test_top_fits_itself_to_a_terminal_that_becomes_narrow(
    connection: ConnectionOptions, queue: QueueDefinition
):
    arguments = ("top", "--every", "300ms", "--queue", queue.name, *reach(connection))
    with on_terminal(*arguments) as terminal:
        terminal.read_until("depth +leased +due +waiting +dead +oldest +readers")
        terminal.size(50, 20)
        terminal.read_until(r"depth *\r?\n")
        terminal.press(b"q")
        terminal.process.wait(timeout=60)


@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGTERM, 128 + signal.SIGTERM), (signal.SIGINT, 130)]
)
def test_top_leaves_the_terminal_as_it_was_when_a_signal_ends_it(
    connection: ConnectionOptions, queue: QueueDefinition, number: int, status: int
):
    with on_terminal("top", "--queue", queue.name, *reach(connection)) as terminal:
        terminal.read_until(queue.name)
        terminal.process.send_signal(number)
        terminal.read_until(FIRST_SCREEN)

        assert terminal.process.wait(timeout=60) == status
