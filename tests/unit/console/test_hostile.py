"""Names, keys, headers, values, reasons and schemas of somebody who wants to be markup."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import cassieq_spark.console
from cassieq_spark.client import Client
from cassieq_spark.ledger.state import group_key, group_values
from cassieq_spark.producer.new_message import NewMessage
from cassieq_spark.repair.report import QueueReport, Report
from cassieq_spark.repair.runs import Recorder
from cassieq_spark.store.memory import MemoryStore
from cassieq_spark.store.protocol import Insert, partition_of_ledger
from tests.unit.console.visitor import Visitor, visiting

MARK = "hostile-mark"
EVIL = (
    f'"><script src=//evil.example>{MARK}</script>',
    f"'><img src=x onerror=alert('{MARK}')>",
    f"{{{{ 7777*7777 }}}}{{% raw %}}{MARK}",
    f"javascript:alert('{MARK}')",
    f"\x1b[31m{MARK}\x07\u202e\u2028\ufeff",
    f"]]>--><!--{MARK}</textarea></title></style><b>",
    f"&lt;b&gt;{MARK}&#x27;&amp;",
)
CONSOLE = Path(cassieq_spark.console.__file__).parent
TAGS = {
    *("a", "abbr", "article", "b", "body", "button", "caption", "circle", "code", "dd", "defs"),
    *("details", "div", "dl", "dt", "figcaption", "figure", "footer", "form", "g", "h1", "h2"),
    *("h3", "h4", "head", "header", "html", "input", "kbd", "label", "li", "line", "link", "main"),
    *("meta", "nav", "noscript", "ol", "option", "p", "path", "pattern", "polygon", "polyline"),
    *("pre", "rect", "script", "section", "select", "span", "summary", "svg", "table", "tbody"),
    *("td", "text", "textarea", "th", "thead", "time", "title", "tr", "ul"),
}
PAGES = [
    "/",
    "/?q={}",
    "/?sort={}&state={}",
    "/queues/{}",
    "/queues/plain",
    "/queues/plain?span={}",
    "/queues/plain/groups/{}",
    "/queues/plain/messages",
    "/queues/plain/messages?from={}",
    "/queues/plain/messages?key={}",
    "/queues/plain/messages/0/{}",
    "/queues/plain/dead",
    "/queues/plain/dead?reason={}",
    "/queues/plain/dead?since={}",
    "/queues/plain/schedules",
    "/queues/{}/schedules",
    "/queues/plain/settings",
    "/queues/typed/messages",
    "/queues/typed/messages/0/0",
    "/queues/typed/settings",
    "/repair",
    "/repair/1",
    "/repair/{}",
    "/login?to={}",
    "/{}",
    *(f"/queues/plain/messages/0/{number}" for number in range(len(EVIL))),
    *(f"/queues/plain/messages/0/{number}?as=hex" for number in range(2)),
]


class Looker(HTMLParser):
    """Looks at a page as a browser does: which elements it has, and what they may run or load."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        if tag not in TAGS:
            self.found.append(f"element {tag}")
        for name, value in attributes:
            text = value or ""
            if name.startswith("on") or name in {"style", "srcdoc", "formaction"}:
                self.found.append(f"{tag} {name}={text}")
            loads = name in {"src", "href", "action", "xlink:href"} and tag != "use"
            if loads and not text.startswith(("/", "?", "#")) and text:
                self.found.append(f"{tag} {name}={text}")
            if loads and text.startswith("//"):
                self.found.append(f"{tag} {name}={text}")
            if tag == "script" and (name == "src") and not text.startswith("/static/"):
                self.found.append(f"script {text}")

    def handle_comment(self, data: str) -> None:
        self.found.append(f"comment {data}")


def harm_in(text: str) -> list[str]:
    looker = Looker()
    looker.feed(text)
    looker.close()
    inline = re.findall(r"<script(?![^>]*\bsrc=)", text)
    return looker.found + inline


@pytest.fixture(scope="module")
def hostile() -> Iterator[Visitor]:
    """A console of a store in which everything is hostile that can be."""
    store = MemoryStore()
    client = Client.from_store(store)
    client.create_queue("plain")
    client.put_many("plain", [NewMessage(evil, evil, {evil: evil, "b": EVIL[0]}) for evil in EVIL])
    for evil in EVIL:
        (message,) = client.receive("plain", "workers")
        client.reject(message, reason=evil)
        # No reader makes such a group; somebody who may write to the tables does.
        spoilt = client.create_queue(f"spoilt-{EVIL.index(evil)}")
        row = Insert(group_key(evil), group_values(0, 1), if_absent=True)
        assert store.cas(partition_of_ledger(spoilt.queue_id), [row])
    for number, evil in enumerate(EVIL):
        every = timedelta(minutes=5)
        client.create_schedule("plain", f"s{number}", evil, every=every, key=evil)
    client.set_attributes("plain", {evil: evil for evil in EVIL} | {f"sqs.tag.{EVIL[0]}": "x"})
    names = ["`" + evil.replace("`", "``") + "`" for evil in EVIL]
    columns = ", ".join(f"{name} string" for name in names)
    client.create_queue("typed", schema=columns)
    client.put("typed", {evil: evil for evil in EVIL})
    held: Any = SimpleNamespace(epoch=1, entered_at=datetime.now(UTC))
    recorder = Recorder(
        store, held, runner=EVIL[0], steps=("fence", EVIL[1]), kept=timedelta(days=1)
    )
    recorder.begin()
    report = QueueReport("plain@1", error=EVIL[0])  # type: ignore[arg-type]
    recorder.end(Report(("fence",), False, {"plain": report}))
    with visiting(store, title=EVIL[0], allow_changes=True) as visitor:
        visitor.look()
        yield visitor


@pytest.mark.parametrize("page", PAGES)
def test_nothing_of_a_stranger_becomes_markup_a_script_or_a_link(hostile: Visitor, page: str):
    for evil in EVIL:
        answer = hostile.get(page.replace("{}", quote(evil, safe="")))

        assert answer.status_code in {200, 303, 400, 404, 409}, answer.text
        assert harm_in(answer.text) == []


@pytest.mark.parametrize(
    "page", [f"/queues/plain{it}" for it in ("/messages", "/dead", "/schedules", "")]
)
def test_hostile_texts_are_shown_all_the_same(hostile: Visitor, page: str):
    text = hostile.page(page)

    assert MARK in text
    assert "&lt;script" in text
    assert str(7777 * 7777) not in text


def test_what_reorders_text_or_hides_is_spelled_out(hostile: Visitor):
    text = hostile.page("/queues/plain/messages")

    assert "\\x1b[31m" in text
    assert "\\u202e" in text
    assert not set(text) & {"\x1b", "\x07", "\u202e", "\u2028", "\ufeff"}


@settings(
    max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None
)
@given(
    data=st.binary(max_size=300),
    text=st.text(max_size=60),
    key=st.one_of(st.none(), st.binary(max_size=60)),
)
def test_any_message_can_be_looked_at(data: bytes, text: str, key: bytes | None):
    store = MemoryStore()
    client = Client.from_store(store)
    client.create_queue("q", max_deliveries=0)
    name = text.encode(errors="replace").decode()
    client.put("q", data, key=key, headers={name or "-": name})
    client.put("q", name.encode() or b"-", key=name)
    with visiting(store) as visitor:
        for path in (
            "/queues/q/messages",
            "/queues/q/messages/0/0",
            "/queues/q/messages/0/1",
            "/queues/q/messages/0/0?as=hex",
            "/queues/q/messages/0/0?as=base64",
        ):
            assert harm_in(visitor.page(path)) == []
        assert visitor.get("/queues/q/messages/0/0/value").content == data


def test_no_template_and_no_code_marks_a_text_as_safe():
    for path in [*CONSOLE.glob("templates/*.html"), *CONSOLE.glob("*.py")]:
        text = path.read_text()

        for word in ("|safe", "| safe", "Markup(", "autoescape false", "xmlattr", "tojson"):
            assert word not in text, (path.name, word)


def test_no_page_loads_anything_from_another_host():
    for path in [*CONSOLE.glob("templates/*.html"), *CONSOLE.glob("static/console.*")]:
        text = path.read_text()

        assert "http:" not in text.replace("http://www.w3.org", ""), path.name
        assert "https:" not in text, path.name
        assert "@import" not in text, path.name
        assert " style=" not in text, path.name
