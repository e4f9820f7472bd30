"""The table of docs/client.md: what the history costs each call, and nothing if it is off."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from cassieq_spark import Client, NewMessage
from cassieq_spark.arrow.receipts import Receipt
from cassieq_spark.groups.history import flush_history
from cassieq_spark.groups.lease import LeaseRequest
from cassieq_spark.store.memory import MemoryStore
from cassieq_spark.testing.stores import CountingStore

DOCS = Path(__file__).parents[3] / "docs" / "client.md"
MINUTE = timedelta(minutes=1)
#: Messages in each lease.
MESSAGES = 10
Call = Callable[[Client, Sequence[Any]], object]


class Counted(CountingStore):
    """Counts plain writes of events, too."""

    def reset(self) -> None:
        super().reset()
        self.event_count = 0

    def write_row(self, partition: Any, row: Any, values: Any, **more: Any) -> None:
        self.event_count += row[0] == "event"
        super().write_row(partition, row, values, **more)


def lease_and_ack(client: Client, held: Sequence[Any]) -> None:
    receipts = [Receipt.parse(each.receipt) for each in held]
    client.exchange("q", "g").round(receipts, LeaseRequest(max_messages=MESSAGES))


def by_two_leases(client: Client, held: Sequence[Any]) -> None:
    client.ack(*held, *client.receive("q", "g", max=MESSAGES))


CALLS: dict[str, Call] = {
    "`put_many`": lambda client, _: client.put_many("q", ["a", NewMessage("b")]),
    "`receive` without messages": lambda client, _: client.receive("idle", "g"),
    "`receive`": lambda client, _: client.receive("q", "g", max=MESSAGES),
    "`ack` of one lease": lambda client, held: client.ack(*held),
    "`ack` with stale receipts only": lambda client, _: client.ack(STALE[client]),
    "`release`": lambda client, held: client.release(*held),
    "`extend`": lambda client, held: client.extend(*held, by=MINUTE),
    "`reject`": lambda client, held: client.reject(*held, reason="broken"),
    "a round of a gateway: acks and a lease": lease_and_ack,
    "`receive`, and `ack` of two leases": by_two_leases,
}
#: A receipt that is stale, by client.
STALE: dict[Client, str] = {}


def cost_of(call: Call, history: timedelta | None) -> tuple[int, int, int]:
    """The LWTs, the reads and the plain writes of events."""
    store = Counted(MemoryStore())
    client = Client.from_store(store)
    for name in ("q", "idle"):
        client.create_queue(name, history=history)
        client.create_group(name, "g")
    client.put_many("q", [str(number) for number in range(5 * MESSAGES)])
    # What a first call reads is known to the next ones.
    (first,) = client.receive("q", "g")
    client.ack(first)
    STALE[client] = first.receipt
    held = client.receive("q", "g", max=MESSAGES)
    flush_history(store, MINUTE)
    store.reset()

    call(client, held)

    flush_history(store, MINUTE)
    return store.cas_count, store.read_count + store.serial_read_count, store.event_count


def told() -> dict[str, list[str]]:
    rows = [
        [cell.strip() for cell in row.split("|")[1:-1]]
        for row in DOCS.read_text(encoding="utf-8").splitlines()
    ]
    return {row[0]: row[1:] for row in rows if len(row) == 4 and row[0] in CALLS}


@pytest.mark.parametrize("name", CALLS)
def test_a_call_costs_what_the_page_says_and_no_lwt_or_read_more(name: str):
    lwts, reads, events = cost_of(CALLS[name], timedelta(days=1))

    assert cost_of(CALLS[name], None) == (lwts, reads, 0)
    assert told()[name] == [str(lwts), str(reads), str(events)]


def test_the_page_has_a_row_for_each_call():
    assert [*told()] == [*CALLS]
