"""What a soak has come to: all that is left in the store, and what was noted, judged."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from datetime import UTC, datetime, timedelta

from cassieq_spark import Client
from cassieq_spark.ledger.read import read_groups
from cassieq_spark.queues import list_queues, list_records
from cassieq_spark.queues.stats import queue_stats
from cassieq_spark.store.protocol import Store
from cassieq_spark.store.tables import Table
from trials.soak.actors import MAX_DELIVERIES, NATURES, World
from trials.soak.checker import Letter, Owed, judge
from trials.soak.disk import trend_of
from trials.soak.tables import Tables, find_strays
from trials.soak.watching import Watch, alarmed

_NO_LETTERS = 1_000_000
#: Far more leases than are held of a group at once, far less than are made in a minute.
_MOST_SLOTS = 300


def report_of(world: World, watch: Watch, *, drained: bool) -> dict[str, object]:
    """Judge everything."""
    store, now = world.store, datetime.now(UTC)
    owed: list[Owed] = []
    letters: list[Letter] = []
    with alarmed(world):
        owed = debts(store, watch.expired)
        letters = read_letters(store)
    verdict = judge(world.journal, owed, letters, max_deliveries=MAX_DELIVERIES)
    tables = Tables(
        list_records(store),
        list(store.scan(Table.LEDGER)),
        list(store.scan(Table.DELIVERY)),
        list(store.scan(Table.CHUNK)),
    )
    for stray in find_strays(tables, now=now, write_timeout=timedelta(seconds=1)):
        verdict.accuse("stray", stray)
    slots = Counter(
        f"{row['queue_id']}/{row['consumer_group']}"
        for row in tables.delivery
        if row["kind"] == "slot"
    )
    verdict.figures["most_slots"] = max(slots.values(), default=0)
    for group, count in slots.items():
        if count > _MOST_SLOTS:
            verdict.accuse("slots", f"{group} has {count}, and nobody held so many leases at once")
    trend = trend_of(watch.samples)
    if trend is not None and not trend.is_flat:
        verdict.accuse("disk", trend)
    return verdict.to_json() | {
        "drained": drained,
        "rows_left": {
            "queue": len(tables.queues),
            "ledger": len(tables.ledger),
            "delivery": len(tables.delivery),
            "chunk": len(tables.chunks),
        },
        "disk": None if trend is None else asdict(trend) | {"flat": trend.is_flat},
        "disk_samples": [asdict(each) for each in watch.samples],
        "events": dict(sorted(world.events.items())),
    }


def debts(store: Store, expired: Counter[tuple[str, str]]) -> list[Owed]:
    """What every group of every living queue was owed, and is."""
    found = []
    for queue in list_queues(store):
        queue_id = queue.queue_id
        starts = {group.name: group.starts_at for group in read_groups(store, queue_id)}
        stats = queue_stats(store, queue_id)
        found += [
            Owed(
                queue_id,
                group.group,
                starts[group.group],
                stats.next,
                group.depth,
                expired[queue_id, group.group],
            )
            for group in stats.groups
        ]
    return found


def read_letters(store: Store) -> list[Letter]:
    """All dead letters of all queues."""
    client = Client.from_store(store)
    letters = []
    for nature in NATURES:
        for each in client.peek(f"{nature.name}.dead", max=_NO_LETTERS):
            headers = each.headers
            letters.append(
                Letter(
                    int(each.value.partition(b":")[0]),
                    str(headers["cassieq.origin-queue"]),
                    str(headers["cassieq.origin-group"]),
                    int(headers["cassieq.origin-monoton"] or -1),
                )
            )
    return letters
