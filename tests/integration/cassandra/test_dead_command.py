from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest

from cassieq_spark.dead_letters.claims import CLAIM_RESOLVED
from cassieq_spark.dead_letters.redrive import redrive
from cassieq_spark.dead_letters.survey import survey
from cassieq_spark.errors import OptionError, QueueStateError
from cassieq_spark.groups.group import ConsumerGroup
from cassieq_spark.groups.partitions import ADMIN_GROUP
from cassieq_spark.groups.registration import ensure_group, read_group_states
from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.ledger.publish import publish
from cassieq_spark.model import QueueDefinition
from cassieq_spark.producer.blocks import write_block
from cassieq_spark.queues import create_queue
from cassieq_spark.settings import SinkOptions
from cassieq_spark.settings.connection import ConnectionOptions
from cassieq_spark.store.protocol import Partition, Store
from cassieq_spark.testing.faults import FaultyStore
from tests.support.command_line import Command, make_command
from tests.unit.dead_letters.dead_queue import HEADERS, headers_of, read_all

#: Letters of each of two queues, turn by turn.
COUNT = 3_000


@pytest.fixture
def dead_command(connection: ConnectionOptions) -> Command:
    return make_command(connection, "dead")


@dataclass(frozen=True)
class Queues:
    """Two queues, and the one that both send their dead letters to."""

    store: Store
    orders: QueueDefinition
    payments: QueueDefinition
    dead: QueueDefinition

    def arrived(self, queue: QueueDefinition) -> list[int]:
        return [int(row["value"]) for row in read_all(self.store, queue)]


@pytest.fixture
def queues(cassandra_store: Store) -> Queues:
    name = f"cli-{uuid4().hex[:10]}"
    dead = create_queue(cassandra_store, f"{name}.dead", lease=timedelta(seconds=1))
    orders, payments = (
        create_queue(
            cassandra_store, f"{name}.{each}", max_deliveries=5, dead_letter_queue=dead.name
        )
        for each in ("orders", "payments")
    )
    for queue in (orders, payments):
        ensure_group(
            ConsumerGroup(Ledger(cassandra_store, queue.queue_id), "g"), starting="earliest"
        )
    homes = (orders.name, payments.name)
    headers = [headers_of(at, homes[at % 2], dead_lettered_at=hour(at)) for at in range(2 * COUNT)]
    values = [str(at) for at in range(2 * COUNT)]
    batch = pa.record_batch({"value": pa.array(values), "headers": pa.array(headers, HEADERS)})
    options = SinkOptions(queue=dead.name)
    written = write_block(cassandra_store, dead, [batch], options, takes_reserved=True)
    publish(Ledger(cassandra_store, dead.queue_id), [written])
    return Queues(cassandra_store, orders, payments, dead)


def hour(at: int) -> str:
    """Half of them died an hour later than the other half."""
    return f"2026-11-20T1{2 + at // COUNT}:00:00+00:00"


def counts(dead_command: Command, queues: Queues, *which: str) -> dict[str, int]:
    listed = json.loads(dead_command("list", queues.dead.name, *which, "--json").stdout)
    return {each["origin_queue"].split(".")[1]: each["count"] for each in listed["letters"]}


def test_letters_are_listed_shown_redriven_and_purged(dead_command: Command, queues: Queues):
    orders, payments = queues.orders.name, queues.payments.name
    assert counts(dead_command, queues) == {"orders": COUNT, "payments": COUNT}
    assert counts(dead_command, queues, "--since", "2026-11-20T13:00:00Z", "--limit", "100") == {
        "orders": 50,
        "payments": 50,
    }
    assert "too often" in dead_command("show", orders, "7").stdout
    before = dead_command("redrive", orders, "--until", "2026-11-20T13:00:00Z", "--dry-run")
    assert f"1,500 would go to queue {orders}." in before.stdout
    assert counts(dead_command, queues) == {"orders": COUNT, "payments": COUNT}

    done = dead_command("redrive", orders, "--until", "2026-11-20T13:00:00Z", "--yes")
    assert f"Redrove 1,500 message(s): 1,500 to queue {orders}." in done.stdout
    assert queues.arrived(queues.orders) == list(range(0, COUNT, 2))
    assert counts(dead_command, queues) == {"orders": COUNT // 2, "payments": COUNT}
    purged = dead_command("purge", orders, "--yes", "--json")
    assert json.loads(purged.stdout)["purged"] == COUNT // 2
    done = dead_command("redrive", queues.dead.name, "--yes", "--json")
    assert json.loads(done.stdout)["redriven"] == {payments: COUNT}

    assert queues.arrived(queues.payments) == list(range(1, 2 * COUNT, 2))
    assert queues.arrived(queues.orders) == list(range(0, COUNT, 2))
    assert counts(dead_command, queues) == {}
    state = read_group_states(Ledger(queues.store, queues.dead.queue_id))[ADMIN_GROUP]
    assert (state.floor, state.waiting) == (2 * COUNT, ())
    with pytest.raises(QueueStateError, match="no dead letter 7"):
        dead_command("show", orders, "7")


def test_a_rate_is_kept(dead_command: Command, queues: Queues):
    # Two batches, the second one a second after the first was begun. The node has our clock.
    begun = datetime.now(UTC)

    dead_command("redrive", queues.orders.name, "--rate", "10/s", "--limit", "20", "--yes")

    published = [row["published_at"] for row in read_all(queues.store, queues.orders)]
    assert len(published) == 20
    assert len(set(published)) == 2
    assert published[-1] - begun >= timedelta(seconds=1)


def test_bad_choices_are_told(dead_command: Command, queues: Queues):
    name = queues.orders.name
    with pytest.raises(OptionError, match="--rate must be"):
        dead_command("redrive", name, "--rate", "fast")
    with pytest.raises(OptionError, match="no terminal"):
        dead_command("redrive", name)
    with pytest.raises(QueueStateError, match="there is no queue 'nowhere'"):
        dead_command("redrive", name, "--to", "nowhere", "--yes")
    ensure_group(
        ConsumerGroup(Ledger(queues.store, queues.orders.queue_id), "other"), starting="earliest"
    )
    with pytest.raises(QueueStateError, match=r"again: other;.*--force"):
        dead_command("redrive", name, "--yes")

    assert read_group_states(Ledger(queues.store, queues.dead.queue_id)) == {}


def test_a_run_that_broke_off_after_its_publish_is_finished_by_the_next(
    queues: Queues, caplog: pytest.LogCaptureFixture
):
    class Crash(Exception):  # noqa: N818 (it is one)
        pass

    def crash(partition: Partition) -> None:
        if partition.key == (queues.orders.queue_id,):
            raise Crash

    troubled: Any = FaultyStore(queues.store, crash)
    with pytest.raises(Crash):
        redrive(troubled, survey(queues.store, queues.orders.name))
    arrived = queues.arrived(queues.orders)
    assert arrived
    caplog.set_level("INFO")

    found = survey(queues.store, queues.orders.name)
    report = redrive(queues.store, found)

    assert found.monotons.count == COUNT - len(arrived)
    assert report.redriven == {queues.orders.name: found.monotons.count}
    assert queues.arrived(queues.orders) == list(range(0, 2 * COUNT, 2))
    assert CLAIM_RESOLVED in [getattr(record, "action", None) for record in caplog.records]
