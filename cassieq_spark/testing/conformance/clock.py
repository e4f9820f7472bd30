"""Instants: the server's clock in values and conditions, and milliseconds."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

from cassieq_spark.store.protocol import Partition, RowKey, ServerNow, Store, Update, When
from cassieq_spark.testing.conformance.rows import (
    HEAD,
    fresh_group_state,
    fresh_ledger,
    head_of,
    instant_of,
    put,
)

SLOT: RowKey = ("slot", 0, 0)
HOUR = timedelta(hours=1)
SOON = timedelta(minutes=5)


class ClockContract:
    """`ServerNow`, `Rows.now`, precision and time zones."""

    def test_a_read_tells_the_servers_time_as_an_aware_instant_in_whole_milliseconds(
        self, store: Store
    ) -> None:
        ledger = fresh_ledger()
        put(store, ledger, HEAD, fence=ServerNow())

        rows = store.read_rows(ledger)

        assert rows.now is not None
        assert rows.now.tzinfo is UTC
        assert rows.now.microsecond % 1000 == 0
        assert timedelta(0) <= rows.now - instant_of(rows.rows[0], "fence") < SOON

    def test_the_servers_time_goes_on(self, store: Store) -> None:
        ledger = fresh_ledger()
        put(store, ledger, HEAD, next=0)

        first, second = (store.read_rows(ledger).now for _ in range(2))

        assert first is not None
        assert second is not None
        assert first <= second

    def test_a_due_time_is_the_servers_time_and_a_duration(self, store: Store) -> None:
        group_state = fresh_group_state()
        put(store, group_state, SLOT, due_at=ServerNow(HOUR))

        rows = store.read_rows(group_state)

        assert rows.now is not None
        assert HOUR - SOON < instant_of(rows.rows[0], "due_at") - rows.now <= HOUR

    def test_a_duration_may_be_negative_and_below_a_millisecond(self, store: Store) -> None:
        ledger = fresh_ledger()
        put(store, ledger, HEAD, fence=ServerNow(-HOUR + timedelta(microseconds=1500)))

        rows = store.read_rows(ledger)

        assert rows.now is not None
        age = rows.now - instant_of(rows.rows[0], "fence")
        assert timedelta(0) <= age - HOUR + timedelta(milliseconds=2) < SOON

    def test_what_was_due_in_the_past_may_be_taken(self, store: Store) -> None:
        group_state = fresh_group_state()
        put(store, group_state, SLOT, due_at=ServerNow(-timedelta(milliseconds=50)))

        assert _take(store, group_state)

    def test_what_is_due_in_the_future_may_not_be_taken(self, store: Store) -> None:
        group_state = fresh_group_state()
        put(store, group_state, SLOT, due_at=ServerNow(HOUR))

        assert not _take(store, group_state)

    def test_what_has_no_due_time_may_not_be_taken(self, store: Store) -> None:
        group_state = fresh_group_state()
        put(store, group_state, SLOT, ranges="")

        assert not _take(store, group_state)

    def test_a_condition_may_add_to_the_servers_time(self, store: Store) -> None:
        ledger = fresh_ledger()
        put(store, ledger, HEAD, fence=ServerNow(HOUR))
        long_ahead = When("fence", ">", ServerNow(2 * HOUR))
        not_that_long = When("fence", "<", ServerNow(2 * HOUR))

        assert not store.cas(ledger, [Update(HEAD, {"next": 1}, (long_ahead,))])
        assert store.cas(ledger, [Update(HEAD, {"next": 1}, (not_that_long,))])

    def test_a_condition_may_go_by_the_clock_by_which_rows_expire(self, store: Store) -> None:
        ledger = fresh_ledger()
        put(store, ledger, HEAD, fence=ServerNow(HOUR, wall=True))
        later = When("fence", "<", ServerNow(2 * HOUR, wall=True))
        now = When("fence", "<", ServerNow(wall=True))

        assert not store.cas(ledger, [Update(HEAD, {"next": 1}, (now,))])
        assert store.cas(ledger, [Update(HEAD, {"next": 1}, (later,))])

    def test_a_column_may_have_two_conditions(self, store: Store) -> None:
        ledger = fresh_ledger()
        long_ago = datetime(1970, 1, 1, tzinfo=UTC)
        put(store, ledger, HEAD, fence=long_ago)
        since = datetime.now(UTC) - long_ago
        below = When("fence", "<", datetime(2000, 1, 1, tzinfo=UTC))
        clock_is_ahead = When("fence", "<", ServerNow(-since - HOUR))
        clock_is_right = When("fence", "<", ServerNow(-since + HOUR))

        assert not store.cas(ledger, [Update(HEAD, {"next": 1}, (below, clock_is_ahead))])
        assert store.cas(ledger, [Update(HEAD, {"next": 1}, (below, clock_is_right))])

    def test_an_update_may_write_the_servers_time(self, store: Store) -> None:
        ledger = fresh_ledger()
        put(store, ledger, HEAD, fence=ServerNow(-HOUR))
        still_old = (When("fence", "<", ServerNow(-SOON)),)

        assert store.cas(ledger, [Update(HEAD, {"fence": ServerNow()}, still_old)])
        assert not store.cas(ledger, [Update(HEAD, {"fence": ServerNow()}, still_old)])

    def test_an_instant_is_kept_in_whole_milliseconds(self, store: Store) -> None:
        ledger = fresh_ledger()
        put(store, ledger, HEAD, fence=datetime(2026, 11, 20, 1, 2, 3, 456_999, tzinfo=UTC))

        fence = head_of(store, ledger)["fence"]

        assert fence == datetime(2026, 11, 20, 1, 2, 3, 456_000, tzinfo=UTC)

    def test_a_condition_compares_whole_milliseconds(self, store: Store) -> None:
        ledger, instant = fresh_ledger(), datetime(2026, 11, 20, 1, 2, 3, 456_999, tzinfo=UTC)
        put(store, ledger, HEAD, fence=instant)

        assert store.cas(ledger, [Update(HEAD, {"next": 1}, (When("fence", "=", instant),))])

    def test_an_instant_of_another_time_zone_is_the_same_instant(self, store: Store) -> None:
        ledger = fresh_ledger()
        there = timezone(timedelta(hours=-7))
        put(store, ledger, HEAD, fence=datetime(2026, 11, 20, 5, tzinfo=there))

        fence = instant_of(head_of(store, ledger), "fence")

        assert fence == datetime(2026, 11, 20, 12, tzinfo=UTC)


def _take(store: Store, group_state: Partition) -> bool:
    update = Update(SLOT, {"deliveries": 2}, (When("due_at", "<", ServerNow()),))
    return store.cas(group_state, [update])
