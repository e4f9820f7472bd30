"""How objects look in a REPL and in a notebook."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cassieq_spark.arrow.receipts import Receipt
from cassieq_spark.client import Client, NewMessage
from cassieq_spark.consumer.message import Message, StoredMessage
from cassieq_spark.dead_letters.letters import DeadLetter, DeadLetterGroup
from cassieq_spark.dead_letters.survey import DeadLetterMessage, Survey
from cassieq_spark.display import Displayed, Listing, ObjectView, shown_value
from cassieq_spark.groups.lease import Lease, LeasedSlot, LeaseRequest
from cassieq_spark.groups.state import GroupState
from cassieq_spark.http.client import HttpSurvey
from cassieq_spark.lock.bakery import Bakery
from cassieq_spark.model import QueueDefinition, QueueId, Range, Ranges
from cassieq_spark.queues.stats import GroupStats, QueueStats
from cassieq_spark.repair.runs import REPAIR
from cassieq_spark.spark.progress import Progress, progress
from cassieq_spark.store.memory import MemoryStore

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
#: What a terminal or a browser would act on.
EVIL = "\x1b[2J\x07\r\n\u202e<script>alert(1)</script>&amp;'\"$x$"
TAGS = {"table", "caption", "thead", "tbody", "tr", "th", "td", "code", "p"}
ATTRIBUTES = {("class", "tex2jax_ignore mathjax_ignore")} | {
    ("style", f"text-align:{align};white-space:pre-wrap") for align in ("left", "right")
}


@dataclass(frozen=True, slots=True, repr=False)
class Thing(Displayed):
    """Shows a value, and things below it."""

    value: object
    of: str = ""
    parts: tuple[Thing, ...] = ()

    def _view(self) -> ObjectView:
        return ObjectView("things", self.of, {"value": self.value}, parts=self.parts)


class Page(HTMLParser):
    """What a browser would make of some HTML."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[tuple[str, str | None]] = set()
        self.codes: list[str] = []
        self._is_code = False
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= set(attrs)
        if tag == "code":
            self.codes.append("")
            self._is_code = True

    def handle_endtag(self, tag: str) -> None:
        self._is_code = self._is_code and tag != "code"

    def handle_data(self, data: str) -> None:
        assert self._is_code or data.startswith("… and")
        if self._is_code:
            self.codes[-1] += data


def message(**given: Any) -> Message:
    it: dict[str, Any] = {
        "queue": "orders",
        "monoton": 12345,
        "key": None,
        "value": b"hello",
        "headers": {},
        "published_at": NOON,
        "group": "etl",
        "delivery_count": 1,
        "receipt": "orders@1/etl/00000000-0000-0000-0000-000000000000/12345",
        "lease_until": NOON + timedelta(minutes=1),
    }
    return Message(**(it | given))


def everything(evil: str) -> Iterator[Displayed]:
    """One of each kind of object that shows itself, with a text of a stranger in it."""
    headers = {evil: evil}
    data = evil.encode(errors="surrogatepass")
    letters = DeadLetterGroup(evil, evil, evil, Ranges.parse("0-3"), NOON, None)
    group = GroupStats(evil, 1, 1, 0, 0, 0, timedelta(seconds=61), 1, 0)
    queue = QueueDefinition(evil, 1, schemas=(evil,), dead_letter_queue=evil)
    yield message(key=data, value=data, headers=headers, queue=evil, receipt=evil)
    yield message(value={evil: [evil, {evil: data}]})
    yield StoredMessage(evil, 0, data, data, headers, NOON)
    yield NewMessage(evil, evil, headers)
    yield DeadLetterMessage(evil, 0, NOON, [(evil, evil)], data, data)
    yield DeadLetter(0, evil, evil, evil, NOON)
    yield letters
    yield Survey(queue, (letters,))
    yield HttpSurvey(evil, (letters,))
    yield queue
    yield group
    yield QueueStats(QueueId(evil), 0, 1, (group,))
    yield Progress(queue=evil, group=evil)
    yield Receipt(QueueId(evil), evil, UUID(int=0), 0)


@given(st.text(st.characters()))
def test_no_text_of_a_stranger_has_a_meaning_in_text(text: str):
    for each in everything(text):
        lines = repr(each).split("\n")

        assert all(map(str.isprintable, lines))
        assert len(lines) == (3 if isinstance(each, QueueStats | Survey | HttpSurvey) else 1)
        assert all(map(str.isprintable, repr(Listing([each])).split("\n")))


@given(st.text(st.characters()))
def test_no_text_of_a_stranger_has_a_meaning_in_html(text: str):
    for each in everything(text + EVIL):
        for page in (Page(each._repr_html_()), Page(Listing([each])._repr_html_() or "")):
            assert page.tags <= TAGS
            assert page.attributes <= ATTRIBUTES
            assert all(map(str.isprintable, page.codes))


def test_html_shows_the_text_itself():
    page = Page(Thing(EVIL)._repr_html_())

    assert page.codes == ["Thing", "value", shown_value(EVIL, 300)]
    assert "<script>alert(1)</script>&amp;'\"$x$" in page.codes[-1]


@given(st.binary())
def test_bytes_that_are_no_text_are_spelled_out(data: bytes):
    assert shown_value(data, 10_000).isprintable()


def test_text_in_bytes_is_shown_as_text_wherever_it_is_cut_for_decoding():
    text = "x" * 255 + "ä日" * 100

    assert shown_value(text.encode(), 10_000) == text


@pytest.mark.parametrize("value", [b"x" * (1 << 24), "x" * (1 << 24)])
def test_a_long_value_is_cut_and_says_how_long_it_is(value: bytes | str):
    assert "16,777,216" in repr(message(value=value))
    assert len(repr(message(value=value))) < 500
    assert "16,777,216" in message(value=value)._repr_html_()
    assert len(message(value=value)._repr_html_()) < 3000


def test_a_code_is_not_cut_in_its_middle():
    assert shown_value("abc\x1bd", 5) == "abc… (5 characters)"


def test_columns_of_a_value_leave_each_other_room():
    value = {"vendor": "x" * 100, "fare": 12.5, "tags": ["a", None]}

    assert shown_value(value, 300) == "vendor=xxxxxxxxxxxxxxxxxxxx…, fare=12.5, tags=[a, -]"


def test_a_message_is_one_line_in_which_what_it_lacks_is_not_said():
    assert repr(message()) == (
        "<Message of orders, group etl: monoton 12345, value hello, published_at 2026-11-20 "
        "12:00:00Z, delivery_count 1, lease_until 2026-11-20 12:01:00Z, receipt "
        "orders@1/etl/00000000-0000-0000-0000-000000000000/12345>"
    )


def test_messages_are_a_table():
    found = Listing([message(), message(monoton=7, key=b"a", value=b"{}", headers={"l": "en"})])

    assert [line[:60] for line in repr(found).splitlines()] == [
        "2 messages of orders, group etl",
        "  monoton  key  value  headers  published_at          delive",
        "    12345  -    hello  -        2026-11-20 12:00:00Z        ",
        "        7  a    {}     l=en     2026-11-20 12:00:00Z        ",
    ]


def test_a_table_is_aligned_with_wide_and_combining_characters():
    shown = repr(Listing([Thing("日本"), Thing("e\u0301"), Thing("x")]))

    assert shown.splitlines()[1:] == ["  value", "  日本", "  e\u0301", "  x"]
    wide = Listing([message(key="日本".encode()), message(key="e\u0301".encode())])
    assert "  日本  hello" in repr(wide)
    assert "  e\u0301     hello" in repr(wide)


def test_columns_that_say_nothing_are_left_out():
    head = repr(Listing([message()])).splitlines()[1]

    assert head.split() == [
        "monoton",
        "value",
        "published_at",
        "delivery_count",
        "lease_until",
    ]
    with_partition = Listing([message(), message(partition=3)])
    assert repr(with_partition).splitlines()[1].split()[0] == "partition"


def test_a_long_table_says_how_many_rows_it_leaves_out():
    many = Listing(Thing(number) for number in range(1000))

    assert len(repr(many).splitlines()) == 23
    assert repr(many).endswith("  … and 980 more")
    assert "… and 950 more" in (many._repr_html_() or "")


def test_objects_of_several_queues_say_which():
    several = Listing([Thing(1, of="orders"), Thing(2, of="trips")])

    assert repr(several).splitlines() == [
        "2 things",
        "  of      value",
        "  orders      1",
        "  trips       2",
    ]


def test_what_an_object_has_is_a_table_below_it():
    shown = repr(Thing(1, "orders", (Thing(2), Thing(3))))

    assert shown.splitlines() == ["<Thing of orders: value 1>", "  value", "      2", "      3"]


@pytest.mark.parametrize("elements", [[], [1, 2], [Thing(1), 2], ["a"]])
def test_a_list_of_other_things_looks_like_a_list(elements: list[Any]):
    assert repr(Listing(elements)) == repr(elements)
    assert Listing(elements)._repr_html_() is None


def test_a_listing_is_a_list():
    assert Listing([1, 2]) == [1, 2]
    assert Listing([1, 2])[:1] == [1]
    assert isinstance(Listing(), list)


def test_what_a_client_returns_shows_itself():
    with Client.from_store(MemoryStore()) as client:
        client.create_queue("orders", drop_dead=True)
        client.put_many("orders", ["a", "b"])

        shown = [
            repr(client.peek("orders")),
            repr(client.receive("orders", "etl", max=2)),
            repr(client.stats("orders")),
            repr(client.queues()),
        ]

    assert shown[0].startswith("2 messages of orders\n")
    assert shown[1].startswith("2 messages of orders, group etl\n")
    assert shown[2].startswith("<QueueStats of orders@1: next 2, finalised 0, settled 0>\n  group")
    assert shown[3].startswith("1 queue\n")


def test_sources_of_a_query_show_themselves():
    end = '{"v": 1, "queue": "orders", "group": "etl"}'
    source = {"endOffset": end, "startOffset": end, "latestOffset": '{"backlog": 12345}'}

    shown = repr(progress({"sources": [source]}))

    assert shown.splitlines() == [
        "1 source",
        "  queue   group  messages  backlog",
        "  orders  etl           0   12,345",
    ]


def test_a_lease_tells_what_it_holds():
    request = LeaseRequest(token=UUID(int=0))
    leased = (LeasedSlot(0, Ranges.of(Range(0, 1000)), 1),)

    shown = repr(Lease(request, GroupState.__new__(GroupState), (), leased, 0, acked=3))

    assert shown == (
        "<Lease: token 00000000-0000-0000-0000-000000000000, messages 1,000, acked 3>"
    )


def test_a_lock_tells_whether_it_is_held():
    held = Bakery(MemoryStore(), REPAIR, owner="me").enter(timedelta(0))

    assert repr(held).startswith("<HeldLock: epoch 1, is_held yes, entered_at 20")
