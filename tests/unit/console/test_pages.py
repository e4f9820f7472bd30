from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from cassieq_spark.client import Client
from cassieq_spark.console import overview
from cassieq_spark.console.messages import SEARCHED, look
from cassieq_spark.console.pages import PAGES
from cassieq_spark.errors import ConnectError, NotAppliedError
from cassieq_spark.groups.history import flush_history
from cassieq_spark.ledger.ledger import Ledger
from cassieq_spark.producer.new_message import NewMessage
from cassieq_spark.queues import create_queue, pause_queue
from cassieq_spark.repair.report import Outcome, QueueReport, Report
from cassieq_spark.repair.runs import Recorder
from cassieq_spark.store.grants import User
from cassieq_spark.store.memory import MemoryStore
from cassieq_spark.store.tables import Table
from cassieq_spark.testing.stores import CountingStore
from tests.support.many_queues import many_queues
from tests.support.repair import delete_settled
from tests.support.role_store import RoleStore
from tests.unit.console.visitor import Visitor, visiting, words_of
from tests.unit.monitoring.watched import AilingStore

ADDRESSES = [
    "/",
    "/?sort=-depth&state=dead&q=o&page=9&size=25",
    "/queues/orders",
    "/queues/orders?span=3h",
    "/queues/clicks",
    "/queues/empty",
    "/queues/orders.dead",
    "/queues/orders/groups/billing",
    "/queues/clicks/groups/sessions",
    "/queues/orders/messages",
    "/queues/orders/messages?from=earliest&n=20",
    "/queues/orders/messages?from=2026-11-20T12:00:00Z",
    "/queues/orders/messages?key=key-1",
    "/queues/clicks/messages?partition=2",
    "/queues/clicks/messages?key=v7",
    "/queues/trips/messages",
    "/queues/empty/messages",
    "/queues/orders/messages/0/5",
    "/queues/orders/messages/0/5?as=hex",
    "/queues/orders/messages/0/5?as=base64&byte=3",
    "/queues/trips/messages/0/1",
    "/queues/orders/messages/0/5/history",
    "/queues/clicks/messages/2/1/history",
    "/queues/orders/dead",
    "/queues/orders/dead?reason=address&group=shipping&since=2026-01-01T00:00:00Z",
    "/queues/orders.dead/dead",
    "/queues/empty/dead",
    "/queues/orders/schedules",
    "/queues/orders/schedules/nightly",
    "/queues/empty/schedules",
    "/queues/orders/settings",
    "/queues/trips/settings",
    "/repair",
    "/repair?show=problems",
]


def test_all_pages_need_the_grants_of_a_viewer_and_no_fewer(store: MemoryStore):
    role = RoleStore(store, User.VIEWER)

    with visiting(role) as visitor:
        visitor.look()
        for address in ADDRESSES:
            visitor.page(address)

    assert role.tables == set(Table) - {Table.ACCOUNT}


@pytest.mark.parametrize("address", ADDRESSES)
def test_every_page_is_there(visitor: Visitor, operator: Visitor, address: str):
    for each in (visitor, operator):
        text = each.page(address)

        assert '<main id="main"' in text
        assert "style=" not in text
        assert "<script>" not in text


def test_no_page_is_without_a_test():
    tested = [each.partition("?")[0].strip("/").split("/") for each in ADDRESSES]
    for page in PAGES:
        parts = page.path.strip("/").split("/")
        of_change = "POST" in page.methods or page.path in {"/create", "/repair/{epoch}"}
        is_file = page.path.endswith("/value")
        assert (
            of_change
            or is_file
            or any(
                len(parts) == len(each)
                and all(a == b or a.startswith("{") for a, b in zip(parts, each, strict=True))
                for each in tested
            )
        ), page.path


def test_the_first_page_tells_what_each_queue_holds(visitor: Visitor):
    words = words_of(visitor.page("/"))

    assert "orders billing 16 " in words
    assert "shipping 18 " in words
    assert "Queues 7 " in words
    assert "clicks 3p by key" in words
    assert "trips typed" in words
    assert "audit" not in words


def test_queues_are_sorted_searched_and_narrowed_down(visitor: Visitor, store: MemoryStore):
    pause_queue(store, "trips")
    visitor.look()

    def names(address: str) -> list[str]:
        text = visitor.page(address)
        return [part.split('"')[0] for part in text.split('id="q-')[1:]]

    assert names("/")[0] == "clicks"
    assert names("/?sort=-name")[0] == "trips.dead"
    assert names("/?sort=depth")[0] == "clicks"
    assert names("/?q=SHIP") == ["orders"]
    assert names("/?state=paused") == ["trips"]
    assert names("/?q=nothing") == []
    assert "No queue is like this" in visitor.page("/?q=nothing")


def test_a_thousand_queues_are_carried_page_by_page():
    memory = MemoryStore()
    many_queues(memory, 1_000)
    store = CountingStore(memory)
    with visiting(store) as visitor:
        visitor.look()
        store.reset()
        text = visitor.page("/?page=20")

        assert "951\u20131,000 of 1,000" in words_of(text)
        assert text.count('id="q-') == 50
        assert "queue-00999" in text
        assert len(text) < 150_000
        assert "1\u20131 of 1" in words_of(visitor.page("/?q=queue-00777"))
        assert (store.read_count, store.scan_count) == (0, 0)


def test_figures_that_were_not_read_yet_are_not_guessed():
    memory = MemoryStore()
    create_queue(memory, "mail")
    with visiting(memory) as visitor:
        visitor.console.watcher._survey()
        visitor.console.watcher._backlog.clear()
        visitor.console.watcher._errors["mail"] = NotAppliedError("later")
        words = words_of(visitor.page("/"))

    assert "Figures of 0 of 1 queues are read so far" in words
    assert "later" in words


def test_before_the_first_survey_no_page_says_what_queues_there_are(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(overview, "_PATIENCE", timedelta(0))
    with visiting() as visitor:
        for address in ("/", "/?q=orders", "/?state=paused"):
            words = words_of(visitor.page(address))
            assert "The queues are being read" in words
            assert "No queue is like this" not in words


def test_a_page_waits_for_the_first_survey_only_once(monkeypatch: pytest.MonkeyPatch):
    waits: list[timedelta] = []
    with visiting() as visitor:
        monkeypatch.setattr(visitor.console.watcher, "show", lambda _, *, wait: waits.append(wait))
        visitor.page("/")

    assert len(waits) == 1


def test_without_queues_the_first_page_says_how_to_make_one():
    with visiting() as visitor:
        visitor.look()
        assert "cassieq queue create NAME" in words_of(visitor.page("/"))
    with visiting(allow_changes=True) as visitor:
        visitor.look()
        assert 'href="/create"' in visitor.page("/")


def test_while_cassandra_is_away_the_last_figures_are_shown_with_the_error(store: MemoryStore):
    ailing = AilingStore(store)
    with visiting(ailing) as visitor:
        visitor.look()
        ailing.away = ConnectError("no node answers at 10.0.0.1:9042")
        visitor.look()

        words = words_of(visitor.page("/"))
        assert "Cassandra does not answer. The figures are of" in words
        assert "no node answers at 10.0.0.1:9042" in words
        assert "orders billing 16" in words
        failed = visitor.get("/queues/orders/messages")
        assert failed.status_code == 503
        assert "no node answers at 10.0.0.1:9042" in words_of(failed.text)


def test_a_queue_shows_where_its_messages_stand(visitor: Visitor):
    text = visitor.page("/queues/orders")
    words = words_of(text)

    assert "leased 3 due again 0 waiting 0 dead 0 not offered yet 13" in words
    assert "16 messages owed: 3 leased, 0 due again" in text
    assert "4\u20136" in words
    assert "1 of 2" in words
    assert "orders.dead" in words


def test_each_partition_has_a_strip(visitor: Visitor):
    text = visitor.page("/queues/clicks")

    assert [f"Partition {number}: " in text for number in range(4)] == [True, True, True, False]


def test_readers_of_partitions_that_said_they_are_there_are_listed(visitor: Visitor):
    text = words_of(visitor.page("/queues/clicks/groups/sessions"))

    assert "Readers that are there Readers that said that they are there Reader Said so" in text


def test_messages_are_shown_from_a_position_on(visitor: Visitor):
    def shown(query: str) -> list[str]:
        text = visitor.page(f"/queues/orders/messages?{query}")
        return [part.split('"')[0] for part in text.split("/messages/0/")[1:]]

    assert shown("from=earliest&n=3") == ["0", "1", "2"]
    assert shown("n=2") == ["18", "19"]
    assert shown("from=7&n=2") == ["7", "8"]
    assert shown("from=1,0&n=1") == ["10"]
    assert shown("from=2000-01-01T00:00:00Z&n=1") == ["0"]
    assert shown("from=20&n=1") == []
    assert shown("key=key-2&n=3") == ["2", "5", "8"]


def test_a_key_is_looked_for_in_its_own_partition(visitor: Visitor):
    words = words_of(visitor.page("/queues/clicks/messages?key=v7"))

    assert "1 with this key, among" in words
    assert "where this key is" in words


def test_a_key_is_looked_for_among_so_many_messages_at_a_time(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("cassieq_spark.console.messages.SEARCHED", 10)
    store = MemoryStore()
    client = Client.from_store(store)
    queue = client.create_queue("q")
    client.put_many("q", [NewMessage(b"v", f"k{number}") for number in range(25)])
    head = Ledger(store, queue.queue_id).read_head()

    first = look(store, queue, head, 0, limit=5, key=b"k17")
    second = look(store, queue, head, first.looked.stop, limit=5, key=b"k17")

    assert SEARCHED == 20_000
    assert (first.messages, first.looked.stop) == ([], 10)
    assert [each.monoton for each in second.messages] == [17]


def test_typed_messages_are_a_table_of_their_columns(visitor: Visitor):
    text = visitor.page("/queues/trips/messages")

    assert "<code>vendor</code>" in text
    assert "CMT 7.50" in words_of(text)
    assert "VTS null" in words_of(text)


def test_a_message_tells_where_it_stands_in_each_group(visitor: Visitor):
    words = words_of(visitor.page("/queues/orders/messages/0/5"))

    assert "Group billing leased until" in words
    assert "delivered 1 time lease" in words
    assert "Group shipping not offered yet" in words
    assert '"order": 5' in words


def test_the_history_of_a_message_says_who_had_it(store: MemoryStore):
    billing = Client.from_store(store, name="<billing>")
    billing.alter_queue("orders", history=timedelta(days=2))
    (held,) = billing.receive("orders", "late")
    billing.reject(held, reason="no address")
    flush_history(store, timedelta(seconds=30))

    with visiting(store) as visitor:
        visitor.look()
        first = visitor.page("/queues/orders/messages/0/0")
        text = visitor.page("/queues/orders/messages/0/0/history")
        other = words_of(visitor.page("/queues/orders/messages/0/9/history"))

    assert 'href="/queues/orders/messages/0/0/history"' in first
    words, times = words_of(text), re.findall(r'<time datetime="(.*?)"', text)
    titles = "When Ago Event Group Who Delivery Lease Together with Reason"
    assert titles in words
    assert re.search(r"\d \d+s leased late <billing> 1 [0-9a-f]{8} 0 ", words), words
    assert re.search(r"rejected late <billing> [0-9a-f]{8} 0 no address", words), words
    assert len(times) >= 2
    assert 'href="/queues/orders/groups/late"' in text
    assert "<billing>" not in text
    assert "No reader has had the message in the last 2d" in other


def test_a_deleted_message_still_has_its_history(store: MemoryStore):
    client = Client.from_store(store)
    client.create_queue("brief", history=timedelta(days=1))
    client.put_many("brief", ["a", "b"])
    client.ack(*client.receive("brief", "g"))
    flush_history(store, timedelta(seconds=30))
    delete_settled(store)

    with visiting(store) as visitor:
        visitor.look()
        gone = visitor.get("/queues/brief/messages/0/0")
        words = words_of(visitor.page("/queues/brief/messages/0/0/history"))
        never = visitor.get("/queues/brief/messages/0/2/history")

    assert gone.status_code == 404
    assert "settled by every group, or expired, and deleted" in words
    assert "leased g" in words
    assert "acked g" in words
    assert never.status_code == 404
    assert "it has published those of the monotons" in words_of(never.text)


def test_of_a_queue_without_a_history_the_page_says_how_to_keep_one(visitor: Visitor):
    words = words_of(visitor.page("/queues/orders/messages/0/5/history"))

    assert "cassieq queue alter orders --history 7d" in words


def test_the_settings_of_a_queue_end_with_its_attributes(store: MemoryStore):
    given = {"team": "payments", "sqs.tag.tier": "", "long": "x" * 10_000 + "end"}
    Client.from_store(store).set_attributes("orders", given)

    with visiting(store) as visitor:
        visitor.look()
        text = visitor.page("/queues/orders/settings")
        other = words_of(visitor.page("/queues/empty/settings"))

    words = words_of(text)
    assert "team payments" in words
    assert "tier tag of SQS empty" in words
    assert "xxx…" in words
    assert "xend" not in text
    assert "None. To set one: cassieq queue attributes empty --set NAME=VALUE" in other


def test_a_message_that_there_is_not_is_not_found(visitor: Visitor):
    for address in ("0/20", "0/x", "1/5", "x/5", "0/-1", f"0/{2**70}"):
        answer = visitor.get(f"/queues/orders/messages/{address}")
        assert answer.status_code == 404, address


def test_a_value_is_sent_as_a_file_that_no_browser_opens(visitor: Visitor):
    answer = visitor.get("/queues/orders/messages/0/5/value")

    assert answer.content == b'{"order": 5}'
    assert answer.headers["content-type"] == "application/octet-stream"
    assert answer.headers["content-disposition"] == 'attachment; filename="0-5.bin"'
    assert "sandbox" in answer.headers["content-security-policy"]
    typed = visitor.get("/queues/trips/messages/0/1/value")
    assert json.loads(typed.content) == {"vendor": "VTS", "fare": None}


def test_messages_that_cannot_be_read_are_told_and_the_others_shown(store: MemoryStore):
    queue = Client.from_store(store).queue("orders")
    (block,) = Ledger(store, queue.queue_id).read_blocks()
    for chunks in store._chunks.values():
        for start, chunk in chunks.items():
            if chunk.data and block.block and start == 0 and len(chunks) == 1:
                object.__setattr__(chunk, "data", b"no frame")
    with visiting(store) as visitor:
        words = words_of(visitor.page("/queues/orders/messages"))

    assert "can\u2019t be read and are left out" in words


def test_dead_letters_are_counted_by_reason(visitor: Visitor):
    words = words_of(visitor.page("/queues/orders/dead"))

    assert "2 no such address orders shipping" in words
    assert "key-0 {&quot;order" not in words
    assert '{"order": 0}' in words


def test_a_queue_without_dead_letters_says_why(visitor: Visitor):
    assert "nowhere to put any" in words_of(visitor.page("/queues/empty/dead"))
    assert "No dead letters." in words_of(visitor.page("/queues/trips/dead"))


def test_the_repair_page_tells_of_runs_and_steps(store: MemoryStore):
    with visiting(store) as visitor:
        assert "No repair run is known" in words_of(visitor.page("/repair"))
        held: Any = SimpleNamespace(epoch=7, entered_at=datetime.now(UTC))
        recorder = Recorder(store, held, runner="host:1", steps=("fence",), kept=timedelta(days=1))
        recorder.begin()
        queue = QueueReport("orders@1", error="StoreError: timed out")  # type: ignore[arg-type]
        recorder.end(Report(("fence",), False, {"orders": queue}, outcome=Outcome.SOME_FAILED))
        words = words_of(visitor.page("/repair"))
        assert "The last run needs a look: some queues failed, 1 problem(s)" in words
        assert "StoreError: timed out" in words_of(visitor.page("/repair/7"))
        assert visitor.get("/repair/8").status_code == 404


@pytest.mark.parametrize(
    ("address", "status", "message"),
    [
        ("/queues/nope", 404, "there is no queue 'nope'"),
        ("/queues/orders/groups/nope", 404, "has no group 'nope'"),
        ("/nope", 404, "there is no such page"),
        ("/queues/orders/messages?from=soon", 400, "'soon' is no position"),
        ("/queues/orders/messages?from=2026-11-20T12:00:00", 400, "has no time zone"),
        ("/queues/orders/messages?n=0", 400, "n must be from 1 to 200, not 0"),
        ("/queues/clicks/messages?partition=3", 400, "partition must be from 0 to 2, not 3"),
        ("/queues/orders/dead?since=today", 400, "since must be an instant"),
        ("/?page=x", 400, "page must be a whole number"),
    ],
)
def test_what_is_wrong_is_said_in_its_own_words(
    visitor: Visitor, address: str, status: int, message: str
):
    answer = visitor.get(address)

    assert answer.status_code == status
    assert message in words_of(answer.text)


def test_an_error_of_nobody_is_a_page_too(visitor: Visitor, monkeypatch: pytest.MonkeyPatch):
    def fail(*_: object) -> None:
        raise ZeroDivisionError("<b>by zero</b>")

    monkeypatch.setattr(visitor.console.watcher, "fleet", fail)
    answer = visitor.get("/")

    assert answer.status_code == 500
    assert "ZeroDivisionError: <b>by zero</b>" in words_of(answer.text)
    assert "<b>by zero" not in answer.text
