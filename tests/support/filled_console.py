"""A store in memory with queues as a company has them, and a console that has watched it fill."""

from __future__ import annotations

import json
import math
import random
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

from cassieq_spark.client import Client
from cassieq_spark.console import Console
from cassieq_spark.console.looking import Pace
from cassieq_spark.console.watcher import DEFAULT_READS
from cassieq_spark.dead_letters.dead_letter import dead_letter_messages
from cassieq_spark.groups.group import ConsumerGroup
from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.model import QueueId
from cassieq_spark.producer.new_message import NewMessage
from cassieq_spark.queues import alter_queue, pause_queue
from cassieq_spark.repair.report import Counts, Outcome, QueueReport, Report
from cassieq_spark.repair.runs import Recorder
from cassieq_spark.store.memory import MemoryStore

LONG_NAME = (
    "eu-central-1.warehouse.ingest.partner-feeds.hourly-reconciliation-of-supplier-deliveries"
)
TRIPS = "vendor string not null, picked_up timestamp not null, distance double, fare decimal(10,2)"
STEP = timedelta(seconds=20)
_MONTH = timedelta(days=30)
_CITIES = ("Porto", "Kraków", "Nairobi", "São Paulo", "Hà Nội", "Québec")
_REASONS = (
    "card declined by issuer: insufficient funds",
    "HTTP 503 from payments-gateway after 4 attempts",
    "KeyError: 'shipping_address'",
)


class SteppingClock:
    """Stands still until it is told to go on; then, if it is told to, runs with the real one."""

    def __init__(self, now: datetime) -> None:
        self._now: datetime | None = now

    def __call__(self) -> datetime:
        return self._now or datetime.now(UTC)

    def advance(self, by: timedelta) -> None:
        assert self._now is not None
        self._now += by

    def run(self) -> None:
        """From now on it is the real one."""
        self._now = None


@dataclass
class Filled:
    """A store with queues, and a console that has watched it for some time.

    Attributes:
        store: The store.
        clock: Its clock, and that of the console.
        console: The console; its thread does not run yet.
    """

    store: MemoryStore
    clock: SteppingClock
    console: Console
    client: Client
    random: random.Random = field(default_factory=lambda: random.Random(7))


def filled(steps: int = 90, *, runs: bool = True, **console: Any) -> Filled:
    """Fill a store in steps of twenty seconds, up to now; then time goes on if it ``runs``."""
    clock = SteppingClock(datetime.now(UTC) - steps * STEP)
    store = MemoryStore(clock)
    watched = Console(store, title="production", clock=clock, reads_per_second=1e9, **console)
    it = Filled(store, clock, watched, Client.from_store(store))
    _create(it)
    _repair_runs(it)
    for step in range(steps):
        _step(it, step)
        clock.advance(STEP)
        watched.watcher.forget("")
        watched.watcher.round()
    _step(it, steps)
    clock.advance(STEP - timedelta(seconds=3))
    _at_last(it)
    clock.advance(timedelta(seconds=1))
    if runs:
        clock.run()
    watched.watcher.forget("")
    watched.watcher.round()
    # Hours of the store were read in a moment, which is no load of this console.
    watched.watcher._background.pace = Pace(DEFAULT_READS, at_once=30 * DEFAULT_READS)
    return it


def _create(it: Filled) -> None:
    make = it.client.create_queue
    make("orders", lease=timedelta(minutes=2))
    make("clickstream", partitions=8, order="key", max_deliveries=0)
    make("trips", schema=TRIPS, keep_settled=timedelta(days=7))
    make("payments", order="strict")
    make("emails", lease=timedelta(minutes=1))
    make("thumbnails", drop_dead=True, expire_after=timedelta(days=14))
    make("audit-log", max_deliveries=0, keep_settled=timedelta(days=30))
    make("acme:invoices", dead_letter_queue="orders.dead")
    make(LONG_NAME, max_deliveries=0)
    for queue, groups in {
        "orders": ("billing", "shipping"),
        "clickstream": ("sessions", "warehouse"),
        "trips": ("pricing",),
        "payments": ("ledger",),
        "emails": ("senders",),
        "thumbnails": ("resizers",),
        "acme:invoices": ("archive",),
        LONG_NAME: ("reconciliation-service-of-the-finance-department",),
    }.items():
        for group in groups:
            it.client.create_group(queue, group)


def _wave(step: int, low: float, high: float, period: int) -> int:
    return round(low + (high - low) * (1 + math.sin(step / period * 2 * math.pi)) / 2)


def _publish(it: Filled, step: int) -> None:
    put, luck = it.client.put_many, it.random
    put("orders", [_order(luck, step, n) for n in range(_wave(step, 40, 110, 30))])
    put("clickstream", [_click(luck) for _ in range(_wave(step, 200, 700, 45))])
    put("trips", [_trip(luck, it.clock()) for _ in range(_wave(step, 60, 90, 20))])
    put("emails", [_email(luck) for _ in range(luck.randrange(4, 12))])
    put("thumbnails", [b"\x89PNG\r\n\x1a\n" + luck.randbytes(200) for _ in range(6)])
    put("audit-log", [json.dumps({"user": "ana", "did": "login"}) for _ in range(3)])
    put("acme:invoices", [f"invoice {step}-{n}" for n in range(luck.randrange(3))])
    put(LONG_NAME, [b"row"] * 2)
    if step % 3 == 0:
        put("payments", [json.dumps({"amount": 12.5 + step, "currency": "EUR"})])
    if step % 10 == 4:
        later = timedelta(minutes=30)
        put("emails", [json.dumps({"to": "newsletter"})] * 5, delay=later)


def _step(it: Filled, step: int) -> None:
    _publish(it, step)
    for queue, group, most in (
        # Twice: fresh messages and those that are due take turns.
        *[("orders", "billing", _wave(step + 8, 30, 110, 30))] * 2,
        *[("orders", "shipping", 105)] * 2,
        ("clickstream", "sessions", 900),
        ("clickstream", "warehouse", _wave(step, 150, 560, 60)),
        *[("trips", "pricing", 80)] * 2,
        ("emails", "senders", 15),
        ("acme:invoices", "archive", 5),
        (LONG_NAME, "reconciliation-service-of-the-finance-department", 2),
    ):
        _consume(it, queue, group, most)
    if step == 5:
        _consume(it, "payments", "ledger", 2)


def _consume(it: Filled, queue: str, group: str, most: int) -> None:
    messages = it.client.receive(queue, group, max=max(1, most))
    may_fail = queue in {"orders", "trips", "emails"}
    bad = [each for each in messages if may_fail and each.monoton % 211 == 97]
    slow = [each for each in messages if may_fail and each.monoton % 187 == 5]
    for each in bad:
        it.client.reject(each, reason=_REASONS[each.monoton // 211 % len(_REASONS)])
    if slow:
        it.client.release(*slow, delay=timedelta(minutes=9))
    gone = {id(each) for each in (*bad, *slow)}
    done = [each for each in messages if id(each) not in gone]
    if done:
        it.client.ack(*done)


def _at_last(it: Filled) -> None:
    """What is under way now: leases of several readers, some that ran out, a paused queue."""
    receive = it.client.receive
    receive("orders", "billing", max=24, lease=timedelta(seconds=1))
    it.clock.advance(timedelta(seconds=2))
    for most in (60, 45, 45, 30, 18, 12):
        receive("orders", "billing", max=most, lease=timedelta(minutes=15))
    receive("orders", "shipping", max=20, lease=timedelta(minutes=10))
    receive("trips", "pricing", max=40, lease=timedelta(minutes=10))
    for _ in range(5):
        receive("clickstream", "warehouse", max=120, lease=timedelta(minutes=10))
    for queue in ("orders", "clickstream", "trips", "emails"):
        definition = it.client.queue(queue)
        for part in definition.by_partition:
            ledger = Ledger(it.store, part.queue_id)
            for known in ledger.read_groups():
                group = ConsumerGroup(ledger, known.name)
                dead = [each for each in group.read().waiting if each.reason is not None]
                dead_letter_messages(it.store, part, group, dead)
    pause_queue(it.store, "payments")
    alter_queue(it.store, "trips", schema=TRIPS + ", tip decimal(10,2)")


def _repair_runs(it: Filled) -> None:
    often, audit = ("redeliver", "expire", "finalise", "fence", "retire"), ("clean", "audit")
    start = it.clock()
    for number in range(1, 16):
        steps = audit if number == 12 else often
        # As the lock tells of it.
        held: Any = SimpleNamespace(
            epoch=number, entered_at=start - timedelta(minutes=5 * (15 - number))
        )
        recorder = Recorder(
            it.store, held, runner=f"repair-{number % 2}:4117", steps=steps, kept=_MONTH
        )
        recorder.begin()
        recorder.end(_report(number, steps))


def _report(number: int, steps: tuple[str, ...]) -> Report:
    queue = QueueReport(QueueId("orders@1"))
    queue.counts = (
        Counts(audited_messages=184_220, unpublished_blocks=1)
        if "audit" in steps
        else Counts(finalised=1_900 + 37 * number, settled_buckets=2, trimmed_blocks=30 + number)
    )
    failed = number == 9
    if failed:
        queue.error = "StoreError: clickstream@1.3: request timed out at 2 of 3 replicas"
    return Report(
        steps=steps,
        dry_run=False,
        queues={"orders": queue},
        outcome=Outcome.SOME_FAILED if failed else Outcome.DONE,
        seconds=41.0 if "audit" in steps else 2.0 + number % 3,
    )


def _order(luck: random.Random, step: int, number: int) -> NewMessage:
    body = {
        "order": f"O-{step:03d}{number:03d}",
        "customer": {"id": luck.randrange(10_000, 99_999), "city": luck.choice(_CITIES)},
        "lines": [{"sku": f"SKU-{luck.randrange(999):03d}", "quantity": luck.randrange(1, 4)}],
        "total": f"{luck.uniform(5, 400):.2f}",
        "express": luck.random() < 0.2,
    }
    key = f"customer-{body['customer']['id']}"  # type: ignore[index]
    return NewMessage(
        json.dumps(body, ensure_ascii=False), key, {"trace": luck.randbytes(8).hex()}
    )


def _click(luck: random.Random) -> NewMessage:
    visitor = f"v-{luck.randrange(400):04d}"
    return NewMessage(json.dumps({"visitor": visitor, "page": "/shop/summer-sale"}), visitor)


def _trip(luck: random.Random, now: datetime) -> dict[str, Any]:
    return {
        "vendor": luck.choice(("CMT", "VTS", "Juno")),
        "picked_up": now - timedelta(minutes=luck.randrange(30)),
        "distance": round(luck.uniform(0.4, 19), 2),
        "fare": Decimal(luck.randrange(400, 8900)) / 100,
    }


def _email(luck: random.Random) -> NewMessage:
    to = f"user{luck.randrange(1000)}@example.org"
    return NewMessage(json.dumps({"to": to, "template": "receipt"}), to)
