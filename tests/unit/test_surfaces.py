"""Every surface shows every setting of a queue and every figure of a group, or says why not.

The fields come from the dataclasses, so a new one fails here until each surface has it.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest

from cassieq_spark.cli import group as group_commands
from cassieq_spark.cli import queue as queue_commands
from cassieq_spark.cli import top as top_command
from cassieq_spark.client import AsyncClient, Client, NewMessage
from cassieq_spark.console.show import span
from cassieq_spark.display import Displayed, shown_value
from cassieq_spark.http.client import AsyncHttpQueue, HttpQueue, answers
from cassieq_spark.http.gateway.responses import queue_json, stats_json
from cassieq_spark.http.gateway.schemas import QueueOptions
from cassieq_spark.model import QueueDefinition
from cassieq_spark.monitoring.exporter import Exporter
from cassieq_spark.queues import create_queue, read_queue, stats
from cassieq_spark.queues.stats import GroupStats, QueueStats, read_stats
from cassieq_spark.settings import SourceOptions
from cassieq_spark.spark.source.views import VIEWS, read_view
from cassieq_spark.store.memory import MemoryStore
from tests.support.command_line import cassieq, commands, options_of
from tests.unit.console.visitor import forms_of, visiting, words_of

#: The group of queue ``orders`` has stopped in so many of its partitions.
PARTITIONS, STOPPED = 3, 2
#: What the settings of a queue are called for people.
CALLED = {"schemas": "schema"}
SETTINGS = [CALLED.get(it.name, it.name) for it in fields(QueueDefinition)]
SETTINGS.remove("partition")  # Of a part of a queue.
FIGURES = [it.name for it in fields(GroupStats)]
OF_QUEUE = [it.name for it in fields(QueueStats) if it.name not in {"groups", "partitions"}]
OF_QUEUE += [name for name, it in vars(QueueStats).items() if isinstance(it, property)]


@dataclass(frozen=True)
class Surface:
    """A place where somebody sees a queue, or chooses its settings.

    Attributes:
        show: What it shows, by its own words.
        words: Its words for fields that it calls otherwise.
        left_out: Fields that it does not show, with the reason.
        form: How it writes a value.
    """

    show: Callable[[MemoryStore], Mapping[str, Any]]
    words: Mapping[str, str] = field(default_factory=dict)
    left_out: Mapping[str, str] = field(default_factory=dict)
    form: Callable[[Any], Any] = lambda value: value


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> MemoryStore:
    """A queue of which no setting is the usual one, and no two figures of its group are alike."""
    store = MemoryStore()
    create_queue(
        store,
        "orders",
        bucket_size=4096,
        chunk_size=256,
        lease=timedelta(seconds=61),
        max_deliveries=7,
        dead_letter_queue="graves",
        order="key",
        partitions=PARTITIONS,
        on_dead="stop",
        expire_after=timedelta(days=14),
        keep_settled=timedelta(days=3),
        history=timedelta(days=2),
        delay=timedelta(seconds=90),
        deduplicate=timedelta(minutes=5),
        schema="vendor string",
    )
    client = Client.from_store(store)
    client.put_many("orders", [NewMessage({"vendor": "a"}, str(at)) for at in range(30)])
    client.create_group("orders", "billing")

    def figures(ledger: Any, *_: object) -> GroupStats:
        every: dict[str, Any] = {name: 101 + at for at, name in enumerate(FIGURES)}
        every |= {"group": "billing", "oldest_age": timedelta(seconds=every["oldest_age"])}
        is_stopped = int(ledger.queue_id.rpartition(".")[2]) < STOPPED
        return GroupStats(**(every | {"stopped": 0, "dead": every["dead"] * is_stopped}))

    monkeypatch.setattr(stats, "_group_stats", figures)
    for module in (queue_commands, group_commands, top_command):
        monkeypatch.setattr(module, "open_store", lambda _: store)
    return store


def the_queue(store: MemoryStore) -> QueueDefinition:
    return read_queue(store, "orders")


def of_account(store: MemoryStore) -> QueueDefinition:
    """The same queue as one of an account of the gateway."""
    return replace(the_queue(store), name="acme:orders")


def the_stats(store: MemoryStore) -> QueueStats:
    return read_stats(store, the_queue(store))


def the_group(store: MemoryStore) -> GroupStats:
    (group,) = the_stats(store).groups
    return group


def as_line(it: Displayed) -> dict[str, str]:
    """What a line of a REPL shows: ``<GroupStats: group billing, depth 3>``."""
    head, _, facts = repr(it).splitlines()[0].rstrip(">").partition(": ")
    pairs = [each.split(" ", 1) for each in re.split(r", (?=[a-z_]+ )", facts)]
    return {"of": head.partition(" of ")[2], **dict(pairs)}


def as_html(it: Displayed) -> dict[str, str]:
    """What a notebook shows."""
    title, *codes = re.findall(r"<code>(.*?)</code>", it._repr_html_())
    return {"of": title.partition(" of ")[2], **dict(zip(codes[::2], codes[1::2], strict=False))}


def told(*words: str) -> str:
    ended = cassieq(*words)
    assert (ended.code, ended.err) == (0, "")
    return ended.out


def in_json(*words: str) -> Any:
    return json.loads(told(*words, "--json"))


def table(*words: str) -> dict[str, str]:
    """The row of ``orders`` or its group in a table, and what the lines below it say."""
    text = told(*words)
    titles, *rows = [re.split(r" {2,}", line) for line in text.splitlines() if "  " in line]
    row = next(each for each in rows if {"orders", "billing", "billing (stopped)"} & set(each))
    shown = dict(zip(titles, row, strict=True))
    if shown["group"].endswith("(stopped)"):
        shown |= {"group": "billing", "stopped": "(stopped)"}
    for name, told_so in (("unexamined", r"leave out (\d+) mess"), ("stopped", r"in (\d+) part")):
        if found := re.search(told_so, text):
            shown[name] = found[1]
    return shown


def record(*words: str) -> dict[str, str]:
    """A table of names and values."""
    return dict(re.split(r" {2,}", line, maxsplit=1) for line in told(*words).splitlines())


def view_row(store: MemoryStore, view: str, partition: int | None = None) -> dict[str, Any]:
    names = [column.name for column in VIEWS[view].columns]
    rows = read_view(store, SourceOptions(queue="orders", view=view))
    found = [dict(zip(names, row, strict=True)) for row in rows]
    (row,) = [each for each in found if each.get("partition") == partition]
    return row


def exported(store: MemoryStore) -> dict[str, Any]:
    exporter = Exporter(lambda: store)
    exporter.read()
    return {
        each.name: each.value
        for metric in exporter.collect()
        for each in metric.samples
        if each.labels.get("queue") == "orders" and "partition" not in each.labels
    } | {"group": "billing", "queue": "orders"}


def page(store: MemoryStore, path: str, **words: str) -> dict[str, str]:
    """What a page says behind each of these words, or at this pattern."""
    with visiting(store) as visitor:
        visitor.look()
        text = words_of(visitor.page(path))
    found = {
        name: re.search(it if "(" in it else f"{it} ((?:\\S+ \\d+s)|\\S+)", text)
        for name, it in words.items()
    }
    return {name: each[1] for name, each in found.items() if each is not None}


def filled_form(store: MemoryStore) -> dict[str, str]:
    """The fields of the form that alters a queue."""
    with visiting(store, allow_changes=True) as visitor:
        visitor.look()
        text = visitor.page("/queues/orders/settings")
    (form,) = [each for each in forms_of(text) if each.action.endswith("/change/alter")]
    chosen = re.findall(r"<option selected>(.*?)</option>", text)
    return form.fields | dict(zip(("on_dead", "unique_per"), chosen, strict=True))


def answered(body: Any) -> httpx.Response:
    return httpx.Response(200, json=body)


def seconds(value: Any) -> Any:
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat(timespec="seconds")
    return value


def in_utc(value: Any) -> Any:
    return (
        value.isoformat().replace("+00:00", "Z") if isinstance(value, datetime) else seconds(value)
    )


def on_terminal(value: Any) -> Any:
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%d %H:%M:%S} UTC"
    return span(value) if isinstance(value, timedelta) else str(value)


def on_page(value: Any) -> Any:
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%d}"
    return span(value) if isinstance(value, timedelta) else str(value)


def in_repl(value: Any) -> str:
    return shown_value(value, 60)


AGE = {"oldest_age": "oldest_age_seconds"}
_PERIODS = ("lease", "expire_after", "keep_settled", "delay", "deduplicate", "history")
PERIODS = {name: f"{name}_seconds" for name in _PERIODS}
CAMEL = {
    "name": "queueName",
    "bucket_size": "bucketSize",
    "chunk_size": "chunkSize",
    "lease": "leaseSeconds",
    "max_deliveries": "maxDeliveryCount",
    "dead_letter_queue": "dlqName",
    "created_at": "createdAt",
    "on_dead": "onDead",
    "expire_after": "expireAfterSeconds",
    "keep_settled": "keepSettledSeconds",
    "delay": "delaySeconds",
    "deduplicate": "deduplicateSeconds",
    "unique_per": "uniquePer",
    "history": "historySeconds",
}
OF_GROUP_BY_HTTP = {
    "depth": "size",
    "oldest_age": "oldestAgeSeconds",
    "pointer": "next",
}
ON_TERMINAL = {"due": "due again", "oldest_age": "oldest"}
#: Where there is no room for all of them.
ELSEWHERE = "group list shows it"

GROUP_SURFACES = {
    "REPL": Surface(lambda store: as_line(the_group(store)), form=in_repl),
    "notebook": Surface(lambda store: as_html(the_group(store)), form=in_repl),
    "queue stats --json": Surface(
        lambda _: in_json("queue", "stats", "orders")["groups"][0], AGE, form=seconds
    ),
    "group list --json": Surface(
        lambda _: in_json("group", "list", "orders")[0], AGE, form=seconds
    ),
    "queue stats": Surface(
        lambda _: table("queue", "stats", "orders"),
        ON_TERMINAL,
        {"pointer": ELSEWHERE, "floor": ELSEWHERE},
        form=in_repl,
    ),
    "group list": Surface(lambda _: table("group", "list", "orders"), ON_TERMINAL, form=in_repl),
    "top": Surface(
        lambda _: table("top", "--once"),
        {"oldest_age": "oldest"},
        {
            "pointer": ELSEWHERE,
            "floor": ELSEWHERE,
            "unexamined": ELSEWHERE,
            "stopped": "it says that the group has stopped, not in how many partitions",
        },
        form=in_repl,
    ),
    "gateway": Surface(
        lambda store: stats_json(the_stats(store))["groups"][0], OF_GROUP_BY_HTTP, form=seconds
    ),
    "HttpQueue.stats": Surface(
        lambda store: _attributes(
            answers.stats_of(answered(stats_json(the_stats(store)))).groups[0]
        )
    ),
    "HttpQueue.groups": Surface(
        lambda store: _attributes(
            answers.groups_of(answered(stats_json(the_stats(store))["groups"]))[0]
        )
    ),
    "exporter": Surface(
        exported,
        {
            **{name: f"cassieq_group_{name}_messages" for name in FIGURES},
            "group": "group",
            "oldest_age": "cassieq_group_oldest_age_seconds",
            "pointer": "cassieq_group_pointer",
            "stopped": "cassieq_group_stopped_partitions",
        },
        {"floor": "a position; cassieq_group_settled_messages says how far the group is"},
        form=seconds,
    ),
    "page of the group": Surface(
        lambda store: page(
            store,
            "/queues/orders/groups/billing",
            group="Group",
            depth="Depth",
            leased="leased",
            due="due again",
            waiting="waiting",
            dead=r"dead (\d+) not",
            oldest_age="Oldest",
            pointer="Pointer",
            floor="Floor",
            unexamined=r"there are (\d+) more messages",
            stopped=r"stopped at a dead message in (\d+) partition",
        ),
        form=in_repl,
    ),
    "page of the queue": Surface(
        lambda store: page(
            store,
            "/queues/orders",
            group="Groups",
            depth=r"Groups billing Depth (\d+)",
            leased="leased",
            due="due again",
            waiting="waiting",
            dead=r"dead (\d+) not",
            oldest_age="Oldest",
            unexamined=r"there are (\d+) more messages",
            stopped=r"Stopped at a dead message in (\d+) partition",
        ),
        left_out={"pointer": "the page of the group has it", "floor": "the same"},
        form=in_repl,
    ),
}
DEFINITION_SURFACES = {
    "REPL": Surface(lambda store: as_line(the_queue(store)), form=in_repl),
    "notebook": Surface(lambda store: as_html(the_queue(store)), form=in_repl),
    **{
        f"queue {words[0]} --json": Surface(
            lambda _, words=words: _of_orders(in_json("queue", *words)),
            PERIODS | {"name": "queue"},
            form=seconds,
        )
        for words in (("show", "orders"), ("list",), ("alter", "orders", "--max-deliveries", "7"))
    },
    "queue show": Surface(
        lambda _: record("queue", "show", "orders"),
        {
            **{name: name.replace("_", " ") for name in SETTINGS},
            "name": "queue",
            "dead_letter_queue": "dead-letter queue",
            "on_dead": "at a dead message",
            "created_at": "created",
        },
        form=on_terminal,
    ),
    "gateway": Surface(lambda store: queue_json(of_account(store)), CAMEL, form=in_utc),
    "HttpQueue.definition": Surface(
        lambda store: _attributes(answers.definition_of(answered(queue_json(of_account(store)))))
    ),
    "view queues": Surface(
        lambda store: view_row(store, "queues"),
        PERIODS | {"name": "queue"},
        form=lambda value: value if isinstance(value, datetime) else seconds(value),
    ),
    "page of the settings": Surface(
        lambda store: page(
            store,
            "/queues/orders/settings",
            name=r"Queue id (\w+)@",
            version=r"Queue id \w+@(\d+)",
            bucket_size="Bucket size",
            chunk_size="Chunk size",
            lease="Lease",
            max_deliveries="Max deliveries",
            dead_letter_queue="Dead-letter queue",
            created_at=r"Created (\S+) ",
            order="Order",
            on_dead="At a dead message",
            expire_after="Expire after",
            keep_settled="Keep settled",
            delay="Delay",
            deduplicate="Deduplicate",
            unique_per="Unique per",
            history="History",
            schema=r"version before (\w+ \w+)",
            partitions="Partitions",
        ),
        form=on_page,
    ),
    "form of the settings": Surface(
        filled_form,
        left_out={
            "name": "it cannot be altered; the page shows it",
            **dict.fromkeys(
                ("version", "bucket_size", "chunk_size", "created_at", "order", "partitions"),
                "it cannot be altered; the page shows it",
            ),
        },
        form=on_terminal,
    ),
}
QUEUE_SURFACES = {
    "REPL": Surface(lambda store: as_line(the_stats(store)), {"queue_id": "of"}, form=in_repl),
    "notebook": Surface(lambda store: as_html(the_stats(store)), {"queue_id": "of"}, form=in_repl),
    "queue stats --json": Surface(lambda _: in_json("queue", "stats", "orders")),
    "queue stats": Surface(
        lambda _: dict(
            zip(
                ("queue_id", "next", "stored", "settled"),
                re.findall(r"orders@1|\d+(?= )", told("queue", "stats", "orders")),
                strict=False,
            )
        ),
        left_out={"finalised": "what is published less what is stored, which it shows"},
        form=str,
    ),
    "gateway": Surface(lambda store: stats_json(the_stats(store)), {"queue_id": "id"}),
    "HttpQueue.stats": Surface(
        lambda store: _attributes(answers.stats_of(answered(stats_json(the_stats(store)))))
    ),
    "exporter": Surface(
        exported,
        {
            "next": "cassieq_queue_messages_published_total",
            "finalised": "cassieq_queue_messages_finalised_total",
            "settled": "cassieq_queue_settled_messages",
        },
        {"queue_id": "it changes with a purge, and would begin new series"},
    ),
    "page of the queue": Surface(
        lambda store: page(
            store, "/queues/orders", next="Published", stored="Stored", settled="Settled, stored"
        ),
        left_out={
            "queue_id": "the page of the settings has it",
            "finalised": "what is published less what is stored, which it shows",
        },
        form=str,
    ),
}
#: What a new queue can be given; here values do not matter.
CREATING = {
    "Client": lambda: inspect.signature(Client.create_queue).parameters,
    "AsyncClient": lambda: inspect.signature(AsyncClient.create_queue).parameters,
    "HttpQueue": lambda: inspect.signature(HttpQueue.create).parameters,
    "AsyncHttpQueue": lambda: inspect.signature(AsyncHttpQueue.create).parameters,
    "gateway": lambda: {
        _setting_by_http(each.alias or name)
        for name, each in QueueOptions.model_fields.items()
        if not (each.description or "").startswith("Ignored")
    },
    "cassieq": lambda: {
        name.removeprefix("--").replace("-", "_")
        for name in options_of(commands()["queue create"])
    },
    "console": lambda: _fields_of_creating(),  # noqa: PLW0108 (defined below)
}
NOT_CHOSEN = {
    "version": "the store counts",
    "created_at": "the store's clock",
}
NOT_BY_HTTP = {
    "bucket_size": "the keys of all stored messages come from it, for ever: no account chooses it",
    "chunk_size": "the same",
}


def _attributes(it: Any) -> dict[str, Any]:
    return {name: getattr(it, name) for name in dir(it) if not name.startswith("_")}


def _of_orders(found: Any) -> Mapping[str, Any]:
    every = found if isinstance(found, list) else [found]
    (orders,) = [each for each in every if each["queue"] == "orders"]
    return orders


def _setting_by_http(word: str) -> str:
    return {it: name for name, it in CAMEL.items()}.get(
        word, re.sub("([A-Z])", r"_\1", word).lower()
    )


def _fields_of_creating() -> set[str]:
    with visiting(MemoryStore(), allow_changes=True) as visitor:
        text = visitor.page("/create")
    return set(re.findall(r'name="(\w+)"', text))


def differences(surface: Surface, shown: Mapping[str, Any], it: object, *names: str) -> list[str]:
    """What a surface shows otherwise than it is, or shows although it is an exception."""
    found = []
    for name in names:
        word, wanted = surface.words.get(name, name), surface.form(getattr(it, name))
        if (shown.get(word) == wanted) is (name in surface.left_out):
            found.append(f"{name} is {wanted}, and {word} shows {shown.get(word)}")
    return found


@pytest.mark.parametrize("place", GROUP_SURFACES)
def test_the_figures_of_a_group_are_the_same_everywhere(store: MemoryStore, place: str):
    surface = GROUP_SURFACES[place]

    assert differences(surface, surface.show(store), the_group(store), *FIGURES) == []


@pytest.mark.parametrize("partition", range(PARTITIONS))
def test_the_figures_of_a_partition_are_the_same_in_the_view(store: MemoryStore, partition: int):
    surface = Surface(
        lambda store: view_row(store, "stats", partition),
        AGE | {"group": "consumer_group"},
        form=seconds,
    )
    (group,) = the_stats(store).partitions[partition].groups

    assert differences(surface, surface.show(store), group, *FIGURES) == []


@pytest.mark.parametrize("place", DEFINITION_SURFACES)
def test_the_settings_are_the_same_everywhere(store: MemoryStore, place: str):
    surface = DEFINITION_SURFACES[place]

    assert differences(surface, surface.show(store), the_queue(store), *SETTINGS) == []


@pytest.mark.parametrize("place", QUEUE_SURFACES)
def test_the_figures_of_a_queue_are_the_same_everywhere(store: MemoryStore, place: str):
    surface = QUEUE_SURFACES[place]

    assert differences(surface, surface.show(store), the_stats(store), *OF_QUEUE) == []


@pytest.mark.parametrize("place", CREATING)
def test_a_new_queue_can_be_given_every_setting_everywhere(place: str):
    is_of_operator = place in {"cassieq", "Client", "AsyncClient"}
    not_given = NOT_CHOSEN if is_of_operator else {**NOT_CHOSEN, **NOT_BY_HTTP}

    assert set(SETTINGS) - {"name"} - set(CREATING[place]()) == set(not_given)


def test_an_age_of_nothing_is_an_age_by_http(store: MemoryStore):
    young = replace(the_group(store), oldest_age=timedelta(0))
    figures = replace(the_stats(store), groups=(young,))

    assert answers.stats_of(answered(stats_json(figures))) == figures


def test_a_partition_is_stopped_where_the_group_has_stopped(store: MemoryStore):
    text = told("top", "--once", "--partitions")

    assert re.findall(r"orders/(\d) +billing( \(stopped\))?", text) == [
        ("0", " (stopped)"),
        ("1", " (stopped)"),
        ("2", ""),
    ]
