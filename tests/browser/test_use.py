"""What somebody does in a browser: by keyboard alone, while pages renew, and without scripts."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest
from playwright.sync_api import Page, expect

from cassieq_spark.console import Console
from cassieq_spark.queues import is_paused, read_queue
from cassieq_spark.queues.stats import read_stats
from cassieq_spark.store.memory import MemoryStore
from tests.browser.conftest import WIDE, NewPage
from tests.browser.console_server import serving
from tests.browser.test_every_page import wrong_with
from tests.support.filled_console import Filled
from tests.support.many_queues import many_queues

Operated = tuple[str, Filled]


def tab_to(page: Page, name: str, *, most: int = 120) -> None:
    """Press Tab until the element has the focus whose text, label or name is this."""
    for _ in range(most):
        page.keyboard.press("Tab")
        found = page.evaluate(
            """() => {
              const at = document.activeElement;
              const label = at.labels && at.labels.length ? at.labels[0].innerText : "";
              return [at.innerText, at.getAttribute("aria-label"), label].join(" | ");
            }"""
        )
        if name in found:
            assert page.evaluate("document.activeElement.matches(':focus-visible')")
            return
    raise AssertionError(f"no Tab leads to {name!r}")


def typed(page: Page, name: str, text: str) -> None:
    tab_to(page, name)
    page.keyboard.press("ControlOrMeta+a")
    page.keyboard.type(text)


def pressed(page: Page, name: str) -> None:
    tab_to(page, name)
    with page.expect_navigation():
        page.keyboard.press("Enter")


def done(page: Page, text: str) -> None:
    expect(page.get_by_role("status").first).to_contain_text(text)


def renew_until(page: Page, it: Filled, text: str) -> None:
    """Renew the page until it shows a text in its table."""
    for _ in range(60):
        if any(text in each for each in page.locator("tbody").all_inner_texts()):
            return
        it.console.watcher.forget("renewed")
        page.keyboard.press("r")
        page.wait_for_timeout(250)
    raise AssertionError(f"the page does not show {text!r}")


def test_a_queue_is_found_opened_paused_and_resumed_by_keyboard(page: Page, operated: Operated):
    url, it = operated
    page.goto(url)
    page.keyboard.press("/")
    page.keyboard.type("audit")
    with page.expect_navigation():
        page.keyboard.press("Enter")
    pressed(page, "audit-log")
    assert page.url.endswith("/queues/audit-log")

    pressed(page, "Pause…")
    pressed(page, "Pause the queue")
    done(page, "Queue audit-log is paused.")
    assert is_paused(it.store, "audit-log")
    pressed(page, "Resume…")
    pressed(page, "Resume the queue")
    done(page, "Queue audit-log goes on.")
    assert not is_paused(it.store, "audit-log")


def test_a_queue_is_created_altered_given_a_group_and_deleted_by_keyboard(
    page: Page, operated: Operated
):
    url, it = operated
    page.goto(url + "/create")
    typed(page, "Name", "parcels")
    typed(page, "Partitions", "2")
    pressed(page, "Show what it does…")
    pressed(page, "Create the queue")
    done(page, "Queue parcels is ready")

    page.goto(url + "/queues/parcels/settings")
    typed(page, "Lease", "3m")
    pressed(page, "Show what it does…")
    pressed(page, "Alter the queue")
    done(page, "Queue parcels is altered.")
    assert read_queue(it.store, "parcels").lease == timedelta(minutes=3)

    page.goto(url + "/queues/parcels/settings")
    typed(page, "Name", "couriers")
    pressed(page, "Create the group…")
    pressed(page, "Create the group")
    done(page, "Group couriers is created.")

    page.goto(url + "/queues/parcels/groups/couriers")
    pressed(page, "Delete the group…")
    typed(page, "to confirm", "couriers")
    pressed(page, "Delete the group")
    done(page, "Group couriers is deleted.")

    page.goto(url + "/queues/parcels/settings")
    pressed(page, "Purge the queue…")
    typed(page, "to confirm", "parcels")
    pressed(page, "Purge the queue")
    done(page, "goes on as parcels@2")

    page.goto(url + "/queues/parcels/settings")
    pressed(page, "Delete the queue…")
    typed(page, "to confirm", "parcels")
    pressed(page, "Delete the queue")
    done(page, "Queue parcels is deleted.")


def test_a_group_is_moved_by_keyboard_after_its_readers_were_thought_of(
    page: Page, operated: Operated
):
    url, it = operated
    page.goto(url + "/queues/orders/groups/billing")
    typed(page, "Position", "earliest")
    pressed(page, "Show what it does…")
    expect(page.get_by_role("alert")).to_contain_text("readers hold")
    tab_to(page, "Force it")
    page.keyboard.press("Space")
    pressed(page, "Look again…")
    expect(page.locator(".figures")).to_contain_text("delivered again, though settled")
    pressed(page, "Move the group")

    done(page, "Group billing continues from earliest.")
    stats = read_stats(it.store, read_queue(it.store, "orders"))
    assert {each.group: each.depth for each in stats.groups}["billing"] == stats.next


def test_dead_letters_are_redriven_and_purged_by_keyboard(page: Page, operated: Operated):
    url, _ = operated
    page.goto(url + "/queues/trips/dead")
    pressed(page, "Redrive…")
    pressed(page, "Redrive them")
    done(page, "Redrove")

    page.goto(url + "/queues/orders/dead?group=shipping")
    pressed(page, "Purge…")
    typed(page, "to confirm", "orders.dead")
    pressed(page, "Purge them")
    done(page, "Purged")


def test_a_schema_is_altered_by_keyboard(page: Page, operated: Operated):
    url, it = operated
    page.goto(url + "/queues/trips/settings")
    before = str(read_queue(it.store, "trips").schema)
    typed(page, "Schema", before + ", tolls double")
    pressed(page, "Show what it does…")
    expect(page.locator("main")).to_contain_text("added 'tolls' double")
    pressed(page, "Alter the queue")

    done(page, "Queue trips is altered.")
    assert read_queue(it.store, "trips").schema == before + ", tolls double"


def test_a_group_that_has_stopped_is_resumed_by_keyboard(page: Page, operated: Operated):
    url, it = operated
    it.client.create_queue("bookings", order="strict", on_dead="stop")
    it.client.put_many("bookings", [b"first", b"second"])
    it.client.reject(*it.client.receive("bookings", "ledger"), reason="no such account")
    it.console.watcher.forget("bookings")
    page.goto(url + "/queues/bookings/groups/ledger")
    tab_to(page, "Dead messages")
    page.keyboard.press("d")
    pressed(page, "Resume the group…")
    expect(page.locator("main")).to_contain_text("are discarded, without a copy")
    pressed(page, "Resume the group")

    done(page, "Group ledger continues: 1 dead message(s)")
    (left,) = read_stats(it.store, read_queue(it.store, "bookings")).groups
    assert left.stopped == 0


def test_a_queue_is_found_among_ten_thousand_by_keyboard(page: Page):
    store = MemoryStore()
    many_queues(store, 10_000)
    console = Console(store, reads_per_second=1e9)
    console.watcher.round(seconds=300)
    with serving(console) as url:
        page.goto(url)
        expect(page.locator("main")).to_contain_text("50 of 10,000")
        assert wrong_with(page, WIDE) == []

        pressed(page, "Queue ↑")
        expect(page.locator("tbody").first).to_contain_text("queue-09999")
        page.get_by_role("link", name="Last", exact=True).press("Enter")
        expect(page.locator("main")).to_contain_text("10,000 of 10,000")
        page.keyboard.press("/")
        page.keyboard.type("queue-00777")
        with page.expect_navigation():
            page.keyboard.press("Enter")
        expect(page.locator("main")).to_contain_text("1 of 1")
        pressed(page, "queue-00777")

        expect(page.locator("h1")).to_contain_text("queue-00777")
        # The page would renew itself without a server.
        page.close()


def test_the_first_tab_leads_past_the_head(page: Page, operated: Operated):
    page.goto(operated[0])
    page.keyboard.press("Tab")
    expect(page.locator(".skip")).to_be_focused()
    page.keyboard.press("Enter")

    expect(page.locator("main")).to_be_focused()


def test_a_page_renews_itself_and_what_is_there_stays(page: Page, operated: Operated):
    url, it = operated
    it.client.create_queue("renewed")
    it.console.watcher.forget("renewed")
    page.goto(url + "/?q=renewed")
    renew_until(page, it, "renewed")
    page.evaluate("window.before = document.querySelector('#q-renewed a')")
    it.client.put_many("renewed", [b"x"] * 7)
    it.client.create_group("renewed", "readers")

    renew_until(page, it, "readers")

    row = page.locator("#q-renewed")
    expect(row).to_contain_text("7")
    # The same element as before, and not one like it.
    assert page.evaluate("window.before === document.querySelector('#q-renewed a')")


def test_a_page_stands_still_while_it_is_paused_and_says_so(page: Page, operated: Operated):
    page.goto(operated[0])
    page.keyboard.press("p")

    expect(page.locator("#foot")).to_contain_text("paused")
    expect(page.get_by_role("button", name="Go on")).to_be_visible()
    page.keyboard.press("p")
    expect(page.get_by_role("button", name="Pause", exact=True)).to_be_visible()


def test_a_page_that_gets_no_answer_says_so_and_goes_on(page: Page, operated: Operated):
    page.goto(operated[0])
    page.route("**/*", lambda route: route.fulfill(status=503, body="<main id=main></main>"))
    page.keyboard.press("r")
    expect(page.locator("#foot")).to_contain_text("no answer")
    expect(page.locator("#q-orders")).to_be_visible()

    page.unroute("**/*")
    page.keyboard.press("r")
    expect(page.locator("#foot")).not_to_contain_text("no answer")


def test_what_is_unfolded_typed_or_chosen_stays_when_a_page_renews(page: Page, operated: Operated):
    page.goto(operated[0])
    page.locator("#search").fill("half a wo")
    page.evaluate("document.querySelector('main').dataset.seen = 'yes'")
    page.locator("h1").first.evaluate("it => it.closest('main').focus()")
    page.keyboard.press("r")
    expect(page.locator("main[data-seen]")).to_have_count(0)

    expect(page.locator("#search")).to_have_value("half a wo")


def test_times_are_shown_in_utc_or_as_here(new_page: NewPage, operated: Operated):
    page = new_page(timezone_id="Asia/Kolkata")
    page.goto(operated[0] + "/repair")
    cell = page.locator("tbody time").first
    utc = cell.inner_text()

    page.get_by_role("button", name="show local").click()

    here = cell.inner_text()
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", here)
    assert here != utc
    expect(page.locator(".zone")).to_have_text(re.compile("GMT"))
    page.goto(operated[0] + "/repair")
    assert page.locator("tbody time").first.inner_text() == here


def test_a_text_is_copied(new_page: NewPage, operated: Operated):
    page = new_page(permissions=["clipboard-read", "clipboard-write"])
    page.goto(operated[0] + "/queues/orders")

    page.get_by_role("button", name="Copy the name of the queue").click()

    expect(page.get_by_role("button", name="Copy the name of the queue")).to_have_text("Copied")
    assert page.evaluate("navigator.clipboard.readText()") == "orders"


@pytest.mark.parametrize("path", ["/", "/queues/orders", "/queues/orders/messages"])
def test_pages_work_without_scripts(new_page: NewPage, operated: Operated, path: str):
    page = new_page(java_script_enabled=False)

    page.goto(operated[0] + path)

    expect(page.locator("main")).to_be_visible()
    expect(page.locator(".copy, .pause, .zone-switch").locator("visible=true")).to_have_count(0)


def test_a_change_works_without_scripts(new_page: NewPage, operated: Operated):
    url, it = operated
    page = new_page(java_script_enabled=False)
    page.goto(url + "/queues/acme:invoices")

    page.get_by_role("button", name="Pause…").click()
    page.get_by_role("button", name="Pause the queue").click()

    expect(page.get_by_role("status").first).to_contain_text("Queue acme:invoices is paused.")
    assert is_paused(it.store, "acme:invoices")
    page.get_by_label("Per page")
    page.goto(url + "/?q=orders")
    expect(page.locator("#q-orders")).to_be_visible()
