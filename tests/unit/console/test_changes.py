from __future__ import annotations

import re
import time
from dataclasses import replace
from datetime import timedelta

import httpx
import pytest

from cassieq_spark.client import Client
from cassieq_spark.console.changes import CHANGED
from cassieq_spark.console.group_plans import MAKING
from cassieq_spark.console.plans import OF_QUEUE
from cassieq_spark.console.schedule_plans import SCHEDULING
from cassieq_spark.console.schedules import OF_SCHEDULE
from cassieq_spark.model import Order
from cassieq_spark.queues import create_queue, is_paused, purge_queue, read_queue
from cassieq_spark.queues.stats import GroupStats, read_stats
from cassieq_spark.store.memory import MemoryStore
from cassieq_spark.store.protocol import Store
from cassieq_spark.testing.stores import CountingStore
from tests.unit.console.conftest import SCHEMA
from tests.unit.console.visitor import Visitor, forms_of, words_of

CHANGES = [
    *(f"/queues/orders/change/{name}" for name in {**OF_QUEUE, **MAKING, **SCHEDULING}),
    *(f"/queues/orders/groups/billing/change/{name}" for name in ("delete", "seek")),
    "/queues/ledger/groups/booking/change/resume",
    "/queues/orders/dead/change/redrive",
    "/queues/orders/dead/change/purge",
    *(f"/queues/orders/schedules/nightly/change/{name}" for name in OF_SCHEDULE),
    "/create",
]


def group_of(store: Store, queue: str, name: str) -> GroupStats | None:
    groups = read_stats(store, read_queue(store, queue)).groups
    return next((each for each in groups if each.group == name), None)


def release_all(store: MemoryStore) -> None:
    """Let no reader hold a message of group billing any more."""
    client = Client.from_store(store)
    client.seek_group("orders", "billing", 4, force=True)


@pytest.mark.parametrize("path", CHANGES)
@pytest.mark.parametrize("step", ["", "do"])
def test_a_console_that_only_looks_refuses_every_change(
    visitor: Visitor, store: MemoryStore, path: str, step: str
):
    token = visitor.console.access.token
    visitor.page("/")
    (cookie,) = [each.value for each in visitor._client.cookies.jar]
    session = type("Session", (), {"nonce": str(cookie).split(".")[0]})()
    before = {key: dict(rows) for key, rows in store._rows.items()}

    answer = visitor.post(path, {"token": token(session), "step": step, "to": "latest"})

    assert answer.status_code == 403
    assert "start it with --allow-changes" in words_of(answer.text)
    assert store._rows == before


@pytest.mark.parametrize(
    "path",
    [
        "/queues/orders",
        "/queues/orders/settings",
        "/queues/orders/dead",
        "/queues/orders/schedules",
        "/",
    ],
)
def test_a_console_that_only_looks_offers_no_change(visitor: Visitor, path: str):
    actions = {form.action for form in forms_of(visitor.page(path)) if form.method == "post"}

    assert actions == {"/theme"}
    assert visitor.get("/create").status_code == 403


@pytest.mark.parametrize("path", CHANGES)
def test_a_change_that_was_not_confirmed_changes_nothing(
    operator: Visitor, store: MemoryStore, path: str
):
    text = operator.page("/queues/orders")
    token = forms_of(text)[-1].fields["token"]
    fields = {"token": token, "to": "latest", "name": "new", "lease": "90s", "force": "yes"}
    if "dead" in path:
        del fields["to"]
    if "create-schedule" in path:
        fields |= {"every": "5m", "message": "x"}
    if path.endswith("/alter") and "/schedules/" in path:
        fields |= {"message": "x"}
    if "resume" in path:
        stop(store)
        fields["how"] = "drop"
        before = {key: dict(rows) for key, rows in store._rows.items()}
    before = {key: dict(rows) for key, rows in store._rows.items()}
    counting = CountingStore(store)
    operator.console.store = counting

    planned = operator.post(path, fields)
    forced = operator.post(path, fields | {"step": "do"})
    forged = operator.post(
        path, fields | {"step": "do", "seal": "x", "sure_until": str(int(time.time()) + 60)}
    )

    assert planned.status_code == 200, words_of(planned.text)
    assert {forced.status_code, forged.status_code} == {409}
    assert "this confirmation does not hold any more" in words_of(forged.text)
    assert store._rows == before
    assert counting.cas_count == 0


def test_schedules_are_shown_with_what_they_put_next(visitor: Visitor):
    words = words_of(visitor.page("/queues/orders/schedules"))

    assert re.search(r"beat paused every 5m - - - tick", words)
    assert re.search(
        r'nightly 0 3 \* \* \* UTC - 20\S+ 03:00:00.* - \{"day": "\{\{date\}\}"\}', words
    )


def test_a_schedule_is_paused_resumed_run_and_deleted(operator: Visitor, store: MemoryStore):
    client = Client.from_store(store)
    page = "/queues/orders/schedules"

    def do(change: str, of: str) -> str:
        asked = operator.submit(operator.page(page), f"/schedules/{of}/change/{change}")
        command = "run-now" if change == "run" else change
        assert f"cassieq schedule {command} {of} --queue orders" in words_of(asked.text)
        return words_of(operator.confirm(asked).text)

    assert "Schedule nightly is paused." in do("pause", "nightly")
    assert client.schedule("orders", "nightly").schedule.paused
    assert "Schedule nightly goes on." in do("resume", "nightly")
    assert "Schedule beat has put message 20 of partition 0." in do("run", "beat")
    assert client.message("orders", 20).value == b"tick"
    assert "Schedule beat is deleted." in do("delete", "beat")
    assert [each.schedule.name for each in client.schedules("orders")] == ["nightly"]


def test_the_plan_of_a_deletion_counts_schedules(operator: Visitor):
    asked = operator.submit(operator.page("/queues/orders/settings"), "/change/delete")

    assert re.search(r"leased now \d+ schedules 2\b", words_of(asked.text))


def test_a_change_of_a_schedule_that_was_made_again_does_not_hold(
    operator: Visitor, store: MemoryStore
):
    client = Client.from_store(store)
    page = operator.page("/queues/orders/schedules")
    asked = operator.submit(page, "/schedules/nightly/change/delete")
    client.delete_schedule("orders", "nightly")
    client.create_schedule("orders", "nightly", "new", cron="0 3 * * *")

    assert operator.confirm(asked).status_code == 409
    assert len(client.schedules("orders")) == 2


def test_a_group_is_moved_after_it_was_shown_what_that_does(operator: Visitor, store: MemoryStore):
    release_all(store)
    text = operator.page("/queues/orders/groups/billing")

    asked = operator.submit(text, "/change/seek", to="1")

    words = words_of(asked.text)
    assert "delivered again, though settled 3 skipped, though owed 0 owed afterwards 19" in words
    assert "cassieq group seek orders billing --to 1" in words
    assert group_of(store, "orders", "billing").depth == 16  # type: ignore[union-attr]
    done = operator.confirm(asked)
    assert "Group billing continues from 1." in words_of(done.text)
    assert group_of(store, "orders", "billing").depth == 19  # type: ignore[union-attr]


def test_what_a_move_says_is_what_it_does(operator: Visitor, store: MemoryStore):
    release_all(store)
    for to, again, skipped, depth in (
        ("12", 0, 8, 8),
        ("earliest", 12, 0, 20),
        ("latest", 0, 20, 0),
    ):
        asked = operator.submit(
            operator.page("/queues/orders/groups/billing"), "/change/seek", to=to
        )

        assert (
            f"delivered again, though settled {again} skipped, though owed {skipped} owed "
            f"afterwards {depth}" in words_of(asked.text)
        )
        operator.confirm(asked)
        assert group_of(store, "orders", "billing").depth == depth  # type: ignore[union-attr]
        operator.console.watcher._looked.clear()


def test_a_move_in_one_partition_leaves_the_others(operator: Visitor, store: MemoryStore):
    Client.from_store(store).seek_group("clicks", "sessions", "earliest", force=True)
    before = read_stats(store, read_queue(store, "clicks")).partitions

    asked = operator.submit(
        operator.page("/queues/clicks/groups/sessions"), "/change/seek", to="latest", partition="1"
    )
    operator.confirm(asked)

    after = read_stats(store, read_queue(store, "clicks")).partitions
    assert [each.groups[0].depth for each in after] == [
        before[0].groups[0].depth,
        0,
        before[2].groups[0].depth,
    ]


def test_where_readers_hold_messages_force_is_asked_for_on_its_own(
    operator: Visitor, store: MemoryStore
):
    text = operator.page("/queues/orders/groups/billing")
    asked = operator.submit(text, "/change/seek", to="latest")

    assert "readers hold 3 message(s)" in words_of(asked.text)
    assert not [form for form in forms_of(asked.text) if "seal" in form.fields]
    (again,) = [form for form in forms_of(asked.text) if form.fields.get("step") == "check"]
    forced = operator.post(asked.request.url.path, again.fields | {"force": "yes"})
    assert "--force" in words_of(forced.text)
    operator.confirm(forced)
    assert group_of(store, "orders", "billing").depth == 0  # type: ignore[union-attr]


def test_a_confirmation_is_not_for_another_change(operator: Visitor, store: MemoryStore):
    release_all(store)
    asked = operator.submit(operator.page("/queues/orders/groups/billing"), "/change/seek", to="5")
    (form,) = [each for each in forms_of(asked.text) if "seal" in each.fields]
    for path, changed in (
        (asked.request.url.path, {"to": "latest"}),
        (asked.request.url.path, {"force": "yes"}),
        (asked.request.url.path.replace("billing", "shipping"), {}),
        (asked.request.url.path, {"sure_until": str(int(time.time()) + 9999)}),
    ):
        answer = operator.post(path, form.fields | changed)

        assert answer.status_code == 409
    assert group_of(store, "orders", "billing").depth == 16  # type: ignore[union-attr]


def test_a_confirmation_ends_after_ten_minutes(operator: Visitor, monkeypatch: pytest.MonkeyPatch):
    asked = operator.submit(operator.page("/queues/orders"), "/change/pause")
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 601)

    assert operator.confirm(asked).status_code == 409


def test_a_purge_that_is_sent_twice_purges_once(operator: Visitor, store: MemoryStore):
    release_all(store)
    asked = operator.submit(operator.page("/queues/orders/settings"), "/change/purge")
    first = operator.confirm(asked, typed="orders")
    Client.from_store(store).put("orders", b"new")

    second = operator.confirm(asked, typed="orders")

    assert "goes on as orders@2" in words_of(first.text)
    assert second.status_code == 409
    assert read_stats(store, read_queue(store, "orders")).next == 1


def test_a_purge_is_refused_if_the_queue_was_purged_since(operator: Visitor, store: MemoryStore):
    release_all(store)
    asked = operator.submit(operator.page("/queues/orders/settings"), "/change/purge")
    purge_queue(store, "orders")
    operator.console.watcher._looked.clear()

    assert operator.confirm(asked, typed="orders").status_code == 409


@pytest.mark.parametrize("change", ["purge", "delete"])
def test_readers_that_began_after_the_confirmation_lose_nothing(
    operator: Visitor, store: MemoryStore, change: str
):
    release_all(store)
    asked = operator.submit(operator.page("/queues/orders/settings"), f"/change/{change}")
    Client.from_store(store).receive("orders", "billing", max=2)

    answer = operator.confirm(asked, typed="orders")

    assert answer.status_code == 409
    assert "readers of group 'billing'" in words_of(answer.text)
    assert group_of(store, "orders", "billing").leased == 2  # type: ignore[union-attr]


@pytest.mark.parametrize("change", ["purge", "delete"])
@pytest.mark.parametrize("typed", ["", "order", "Orders", "orders "])
def test_what_gives_up_a_queue_takes_its_name(
    operator: Visitor, store: MemoryStore, change: str, typed: str
):
    release_all(store)
    asked = operator.submit(operator.page("/queues/orders/settings"), f"/change/{change}")

    answer = operator.confirm(asked, typed=typed)

    if typed.strip() == "orders":
        assert answer.status_code == 200
    else:
        assert answer.status_code == 400
        assert "type the name 'orders' to confirm" in words_of(answer.text)
        assert read_stats(store, read_queue(store, "orders")).next == 20


def test_a_queue_is_deleted_with_what_it_holds_shown_before(operator: Visitor, store: MemoryStore):
    asked = operator.submit(operator.page("/queues/trips/settings"), "/change/delete")
    assert "messages stored 2 groups 0 leased now 0" in words_of(asked.text)

    done = operator.confirm(asked, typed="trips")

    assert "Queue trips is deleted." in words_of(done.text)
    assert operator.get("/queues/trips").status_code == 404


def test_a_queue_pauses_and_goes_on(operator: Visitor, store: MemoryStore):
    done = operator.confirm(operator.submit(operator.page("/queues/orders"), "/change/pause"))
    assert is_paused(store, "orders")

    done = operator.confirm(operator.submit(done.text, "/change/resume"))

    assert "Queue orders goes on." in words_of(done.text)
    assert not is_paused(store, "orders")


def test_a_queue_is_created_as_the_command_does_it(operator: Visitor, store: MemoryStore):
    asked = operator.submit(
        operator.page("/create"),
        "/create",
        name="parcels",
        lease="90s",
        max_deliveries="3",
        dead_letter_queue="parcels.dead",
        order="key",
        partitions="4",
        expire_after="14d",
        keep_settled="12h",
    )
    assert (
        "cassieq queue create parcels --lease 90s --max-deliveries 3 --dead-letter-queue "
        "parcels.dead --partitions 4 --order key --expire-after 14d --keep-settled 12h"
        in words_of(asked.text)
    )

    operator.confirm(asked)

    queue = read_queue(store, "parcels")
    assert (queue.lease, queue.max_deliveries) == (timedelta(seconds=90), 3)
    assert (queue.order, queue.partitions) == (Order.KEY, 4)
    assert (queue.expire_after, queue.keep_settled) == (timedelta(days=14), timedelta(hours=12))
    assert queue.dead_letter_queue == "parcels.dead"


def test_a_queue_with_columns_is_created(operator: Visitor, store: MemoryStore):
    asked = operator.submit(
        operator.page("/create"), "/create", name="rides", schema="a INT,\n b string not null"
    )
    operator.confirm(asked)

    assert read_queue(store, "rides").schema == "a int, b string not null"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"name": "a b"}, "queue name 'a b' is not valid"),
        ({"name": "orders"}, "there is a queue 'orders' already"),
        ({"name": "x", "lease": "soon"}, "lease must be"),
        ({"name": "x", "max_deliveries": "-1"}, "max_deliveries must be a whole number"),
        ({"name": "x", "partitions": "0"}, "partitions must be from 1"),
        ({"name": "x", "schema": "a nonsense"}, "nonsense"),
        ({"name": "x", "order": "random"}, "order must be one of"),
    ],
)
def test_a_queue_that_cannot_be_is_refused_before_it_is_confirmed(
    operator: Visitor, fields: dict[str, str], message: str
):
    answer = operator.submit(operator.page("/create"), "/create", **fields)

    assert answer.status_code in {400, 409}
    assert message in words_of(answer.text)


def test_settings_are_altered_and_only_those_that_changed(operator: Visitor, store: MemoryStore):
    asked = operator.submit(
        operator.page("/queues/orders/settings"), "/change/alter", lease="10m", keep_settled="7d"
    )
    words = words_of(asked.text)
    assert "lease 5m → 10m" in words
    assert "keep settled not kept → 7d" in words
    assert "cassieq queue alter orders --lease 10m --keep-settled 7d" in words

    operator.confirm(asked)

    queue = read_queue(store, "orders")
    assert (queue.lease, queue.keep_settled) == (timedelta(minutes=10), timedelta(days=7))
    assert (queue.max_deliveries, queue.dead_letter_queue) == (2, "orders.dead")


def test_a_form_that_changes_no_setting_says_so(operator: Visitor):
    answer = operator.submit(operator.page("/queues/orders/settings"), "/change/alter")

    assert answer.status_code == 400
    assert "nothing is to be altered" in words_of(answer.text)


def test_a_schema_is_changed_after_its_columns_were_compared(
    operator: Visitor, store: MemoryStore
):
    text = operator.page("/queues/trips/settings")
    refused = operator.submit(text, "/change/alter", schema="vendor int")
    assert refused.status_code == 400

    asked = operator.submit(text, "/change/alter", schema=SCHEMA + ", tip double")
    assert "schema version 1 → 2" in words_of(asked.text)
    done = operator.confirm(asked)

    assert read_queue(store, "trips").schema == SCHEMA + ", tip double"
    assert done.status_code == 200
    assert "tip double new" in words_of(operator.page("/queues/trips/settings"))


def test_a_group_is_created_and_deleted(operator: Visitor, store: MemoryStore):
    asked = operator.submit(
        operator.page("/queues/orders/settings"), "/change/create-group", name="audit", start="15"
    )
    operator.confirm(asked)
    assert group_of(store, "orders", "audit").depth == 5  # type: ignore[union-attr]

    asked = operator.submit(operator.page("/queues/orders/groups/audit"), "/change/delete")
    assert "not settled by it 5" in words_of(asked.text)
    done = operator.confirm(asked, typed="audit")

    assert "Group audit is deleted." in words_of(done.text)
    assert group_of(store, "orders", "audit") is None


def stop(store: MemoryStore) -> None:
    """Let a group stop at a dead message."""
    client = Client.from_store(store)
    client.create_queue("ledger", order="strict", on_dead="stop")
    client.put_many("ledger", [b"first", b"second"])
    client.reject(*client.receive("ledger", "booking"), reason="no such account")


@pytest.mark.parametrize(("how", "depth"), [("retry", 2), ("dead-letter", 1), ("drop", 1)])
def test_a_group_that_has_stopped_is_shown_and_resumed(
    operator: Visitor, store: MemoryStore, how: str, depth: int
):
    stop(store)
    operator.look()
    assert "Stopped 1" in words_of(operator.page("/"))
    assert "Stopped at a dead message" in words_of(operator.page("/queues/ledger"))
    text = operator.page("/queues/ledger/groups/booking")
    assert "no such account" in words_of(text)

    asked = operator.submit(text, "/change/resume", how=how)
    assert "dead messages 1" in words_of(asked.text)
    assert f"cassieq group resume ledger booking --{how}" in words_of(asked.text)
    done = operator.confirm(asked)

    assert "Group booking continues: 1 dead message(s)" in words_of(done.text)
    found = group_of(store, "ledger", "booking")
    assert found is not None
    assert (found.depth, found.stopped) == (depth, 0)
    assert len(Client.from_store(store).receive("ledger", "booking")) == 1


def test_a_group_that_has_not_stopped_cannot_be_resumed(operator: Visitor, store: MemoryStore):
    stop(store)
    token = forms_of(operator.page("/queues/orders"))[-1].fields["token"]
    for path, how, message in (
        ("/queues/orders/groups/billing", "drop", "does not stop at dead messages"),
        ("/queues/ledger/groups/booking", "x", "choose retry, dead-letter or drop"),
    ):
        answer = operator.post(f"{path}/change/resume", {"token": token, "how": how})

        assert answer.status_code == 400
        assert message in words_of(answer.text)


def redrive(operator: Visitor, **fields: str) -> httpx.Response:
    text = operator.page("/queues/orders/dead")
    form = [each for each in forms_of(text) if each.action.endswith("/redrive")][-1]
    return operator.post(form.action, form.fields | fields)


def test_dead_letters_are_redriven_after_they_were_counted(operator: Visitor, store: MemoryStore):
    asked = redrive(operator)
    assert "other groups of the queue get these messages once more" in words_of(asked.text)
    assert "billing" in words_of(asked.text)

    (again,) = [form for form in forms_of(asked.text) if form.fields.get("step") == "check"]
    forced = operator.post(asked.request.url.path, again.fields | {"force": "yes"})
    words = words_of(forced.text)
    assert "2 dead letter(s) of queue orders.dead are published again" in words
    assert "to queue orders 2" in words
    done = operator.confirm(forced)

    assert "Redrove 2 message(s): 2 to queue orders." in words_of(done.text)
    assert read_stats(store, read_queue(store, "orders")).next == 22


def test_dead_letters_are_redriven_to_another_queue(operator: Visitor, store: MemoryStore):
    assert redrive(operator, to="nope").status_code == 409

    done = operator.confirm(redrive(operator, to="empty"))

    assert "Redrove 2 message(s): 2 to queue empty." in words_of(done.text)


def test_dead_letters_that_came_later_are_not_touched(operator: Visitor, store: MemoryStore):
    asked = operator.submit(operator.page("/queues/orders/dead"), "/dead/change/purge")
    client = Client.from_store(store)
    client.reject(*client.receive("orders", "shipping", max=1), reason="no such address")

    done = operator.confirm(asked, typed="orders.dead")

    assert "Purged 2 dead letter(s)." in words_of(done.text)
    assert client.dead_letters("orders").monotons.count == 1


def test_dead_letters_are_purged_by_reason(operator: Visitor, store: MemoryStore):
    client = Client.from_store(store)
    client.reject(*client.receive("orders", "shipping", max=3), reason="out of stock")
    text = operator.page("/queues/orders/dead")
    (form,) = [
        each
        for each in forms_of(text)
        if each.action.endswith("/purge") and each.fields.get("reason") == "out of stock"
    ]

    done = operator.confirm(operator.post(form.action, form.fields), typed="orders.dead")

    assert "Purged 3 dead letter(s)." in words_of(done.text)
    (left,) = client.dead_letters("orders").groups
    assert left.reason == "no such address"


def test_each_change_is_logged_with_who_asked_for_it(
    operator: Visitor, caplog: pytest.LogCaptureFixture
):
    with caplog.at_level("INFO", "cassieq_spark.console"):
        operator.confirm(operator.submit(operator.page("/queues/orders"), "/change/pause"))

    (record,) = [each for each in caplog.records if getattr(each, "action", "") == CHANGED]
    assert "Queue orders is paused." in record.getMessage()
    assert record.client == "127.0.0.1"  # type: ignore[attr-defined]


def test_a_change_that_there_is_not_is_not_found(operator: Visitor):
    token = forms_of(operator.page("/queues/orders"))[-1].fields["token"]

    assert operator.post("/queues/orders/change/nope", {"token": token}).status_code == 404
    assert operator.get("/queues/orders/change/pause").status_code == 405


def test_a_queue_made_with_the_defaults_of_the_form_is_that_of_a_client(
    operator: Visitor, store: MemoryStore
):
    client = Client.from_store(store)

    done = operator.confirm(operator.submit(operator.page("/create"), "/create", name="mine"))

    assert "Queue mine is ready (mine@1)." in words_of(done.text)
    usual = client.create_queue("usual", dead_letter_queue="mine.dead")
    assert replace(client.queue("mine"), name="usual", created_at=usual.created_at) == usual
    assert client.queue("mine.dead").max_deliveries == 0


def test_a_new_queue_drops_dead_messages_if_that_is_ticked(operator: Visitor, store: MemoryStore):
    text = operator.page("/create")

    asked = operator.submit(text, "/create", name="mine", drop_dead="yes")
    both = operator.submit(
        text, "/create", name="mine", drop_dead="yes", dead_letter_queue="graves"
    )

    assert "cassieq queue create mine --drop-dead" in words_of(asked.text)
    operator.confirm(asked)
    assert read_queue(store, "mine").dead_letter_queue is None
    assert both.status_code == 400
    assert "'graves' cannot be combined with dropping dead messages" in words_of(both.text)


def test_the_command_of_a_new_limit_says_that_dead_messages_are_dropped(
    operator: Visitor, store: MemoryStore
):
    create_queue(store, "endless")

    asked = operator.submit(
        operator.page("/queues/endless/settings"),
        "/change/alter",
        max_deliveries="4",
        drop_dead="yes",
    )
    operator.confirm(asked)

    assert "cassieq queue alter endless --max-deliveries 4 --drop-dead" in words_of(asked.text)
    queue = read_queue(store, "endless")
    assert (queue.max_deliveries, queue.dead_letter_queue) == (4, None)


def test_no_queue_begins_to_drop_dead_messages_because_a_field_is_empty(
    operator: Visitor, store: MemoryStore
):
    text = operator.page("/queues/orders/settings")

    refused = operator.submit(text, "/change/alter", dead_letter_queue="")
    ticked = operator.submit(text, "/change/alter", dead_letter_queue="", drop_dead="yes")

    assert refused.status_code == 400
    assert "name a dead-letter queue, such as orders.dead, or tick" in words_of(refused.text)
    operator.confirm(ticked)
    assert read_queue(store, "orders").dead_letter_queue is None
    (form,) = [
        each
        for each in forms_of(operator.page("/queues/orders/settings"))
        if each.action.endswith("/change/alter")
    ]
    assert form.fields["drop_dead"] == "yes"
