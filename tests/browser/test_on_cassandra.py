"""The same on a real Cassandra: from an empty keyspace to a message that is seen."""

from __future__ import annotations

from datetime import timedelta
from uuid import uuid4

from playwright.sync_api import Page, expect

from cassieq_spark.client import Client
from cassieq_spark.console import Console
from cassieq_spark.store.protocol import Store
from tests.browser.console_server import serving


def test_a_queue_is_created_seen_filling_and_paused(page: Page, cassandra_store: Store):
    name = f"parcels-{uuid4().hex[:8]}"
    client = Client.from_store(cassandra_store)
    with serving(Console(cassandra_store, allow_changes=True)) as url:
        page.goto(url + "/create")
        page.locator("input[name=name]").fill(name)
        page.get_by_role("button", name="Show what it does…").click()
        page.get_by_role("button", name="Create the queue").click()
        expect(page.get_by_role("status").first).to_contain_text(f"Queue {name} is ready")

        client.put_many(name, [f'{{"parcel": {number}}}' for number in range(5)])
        client.receive(name, "couriers", max=2, lease=timedelta(minutes=5))
        # The page renews itself.
        expect(page.locator(".legend").last).to_contain_text("leased 2", timeout=30_000)
        expect(page.locator(".legend").last).to_contain_text("not offered yet 3")

        page.get_by_role("link", name="Messages").click()
        page.get_by_role("link", name="4", exact=True).click()
        expect(page.locator("pre")).to_contain_text('"parcel": 4')

        page.get_by_role("button", name="Pause…").click()
        page.get_by_role("button", name="Pause the queue").click()
        expect(page.get_by_role("status").first).to_contain_text(f"Queue {name} is paused.")
