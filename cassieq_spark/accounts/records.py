"""Accounts in the store: made, listed, looked up and deleted."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from cassieq_spark.accounts.account import Account, AccountKey, check_account
from cassieq_spark.accounts.levels import ALL_LEVELS, Level, letters_of, parse_letters
from cassieq_spark.accounts.secret import Secrets, new_salt
from cassieq_spark.errors import (
    ContentionError,
    ExistsError,
    NotFoundError,
    OptionError,
    OutcomeUnknownError,
)
from cassieq_spark.store.protocol import (
    Delete,
    Insert,
    Op,
    Row,
    ServerNow,
    Store,
    Update,
    Values,
    When,
    partition_of_account,
)
from cassieq_spark.store.race import pauses
from cassieq_spark.store.tables import Table

_ACCOUNT = ("account", "")
_ACTIVE, _DELETING = "active", "deleting"
#: The keys that an account is made with: while one is replaced, the other one serves.
FIRST_KEYS = ("primary", "secondary")


class Accounts:
    """The accounts of a keyspace. Safe to use from many threads.

    Args:
        store: Where they are kept.
        secrets: What keys are derived from.
    """

    def __init__(self, store: Store, secrets: Secrets) -> None:
        self._store = store
        self._secrets = secrets

    @property
    def admin_keys(self) -> tuple[str, ...]:
        """The keys that may do what this class does, by HTTP."""
        return self._secrets.admin_keys

    def create(self, name: str) -> Account:
        """Make an account with two keys. One LWT.

        Raises:
            OptionError: It can't be called so.
            ExistsError: There is one, or one is being deleted.
            ContentionError: No answer, again and again.
        """
        check_account(name)
        begun: Values = {"status": _ACTIVE, "created_at": ServerNow()}
        keys = {each: self._key_values(ALL_LEVELS, None, None) for each in FIRST_KEYS}
        ops: list[Op] = [Insert(_ACCOUNT, begun, if_absent=True)]
        ops += [Insert(("key", each), values, if_absent=True) for each, values in keys.items()]
        salts = {str(values["salt"]) for values in keys.values()}
        for _ in pauses():
            went_in = self._attempt(name, ops)
            if went_in is True or salts & self._salts(name):
                return self.read(name)
            if went_in is False:
                raise ExistsError(
                    f"account {name!r} exists already, or is being deleted; see: "
                    "GET /admin/api/v1/accounts"
                )
        raise ContentionError(f"could not create account {name!r}: no answer; try again")

    def read(self, name: str) -> Account:
        """An account with its keys. One read.

        Raises:
            NotFoundError: There is none.
        """
        found = self.find(name)
        if found is None:
            raise NotFoundError(f"there is no account {name!r}")
        return found

    def find(self, name: str, *, serial: bool = False) -> Account | None:
        """An account with its keys; None if there is none. One read."""
        rows = self._store.read_rows(partition_of_account(name), serial=serial).rows
        return self._account_of(name, rows)

    def list(self) -> list[Account]:
        """All accounts by name. Reads their whole table."""
        rows: defaultdict[str, list[Row]] = defaultdict(list)
        for row in self._store.scan(Table.ACCOUNT):
            rows[str(row["name"])].append(row)
        found = (self._account_of(name, rows[name]) for name in sorted(rows))
        return [account for account in found if account is not None]

    def add_key(
        self,
        name: str,
        key_name: str,
        *,
        levels: Iterable[Level] = ALL_LEVELS,
        queue: str | None = None,
        expires_at: datetime | None = None,
    ) -> AccountKey:
        """Give an account another key. One LWT.

        Args:
            name: Which account.
            key_name: By which it is deleted.
            levels: What it allows at the most.
            queue: With this queue only; None: with every one.
            expires_at: Refused from then on; aware. None: never.

        Raises:
            OptionError: It can't be called so, or allows nothing.
            NotFoundError: There is no such account.
            ExistsError: It has a key of that name.
            ContentionError: No answer, again and again.
        """
        check_account(key_name)
        allowed = frozenset(levels)
        if not allowed:
            raise OptionError("a key that allows nothing is of no use: give it a level")
        values = self._key_values(allowed, queue, expires_at)
        ops: list[Op] = [
            Update(_ACCOUNT, {"status": _ACTIVE}, when=(When("status", "=", _ACTIVE),)),
            Insert(("key", key_name), values, if_absent=True),
        ]
        for _ in pauses():
            went_in = self._attempt(name, ops)
            found = self.find(name, serial=True)
            if found is None or not found.is_active:
                raise NotFoundError(f"there is no account {name!r}")
            if went_in is True or values["salt"] in self._salts(name):
                (made,) = (each for each in found.keys if each.name == key_name)
                return made
            if went_in is False:
                raise ExistsError(f"account {name!r} has a key {key_name!r} already")
        raise ContentionError(f"could not make key {key_name!r} of {name!r}: no answer; try again")

    def delete_key(self, name: str, key_name: str) -> None:
        """Delete a key; nothing, if there is none of that name. One LWT.

        Raises:
            NotFoundError: There is no such account.
            ContentionError: No answer, again and again.
        """
        self.read(name)
        for _ in pauses():
            if self._attempt(name, [Delete(("key", key_name))]) is not None:
                return
        raise ContentionError(f"could not delete key {key_name!r} of {name!r}: no answer")

    def begin_deletion(self, name: str) -> None:
        """Let nobody use an account any more; its queues are deleted next. One LWT.

        Raises:
            NotFoundError: There is no such account.
            ContentionError: No answer, again and again.
        """
        self.read(name)
        there = (When("status", ">=", ""),)
        for _ in pauses():
            if self._attempt(name, [Update(_ACCOUNT, {"status": _DELETING}, there)]) is not None:
                return
        raise ContentionError(f"could not delete account {name!r}: no answer; try again")

    def end_deletion(self, name: str) -> None:
        """Forget an account whose queues are deleted. One LWT.

        Raises:
            ContentionError: No answer, again and again.
        """
        for _ in pauses():
            found = self.find(name, serial=True)
            if found is None or found.is_active:
                return
            keys = [Delete(("key", each.name)) for each in found.keys]
            if self._attempt(name, [Delete(_ACCOUNT), *keys]) is True:
                return
        raise ContentionError(f"could not forget account {name!r}: no answer; try again")

    def _key_values(
        self, levels: frozenset[Level], queue: str | None, expires_at: datetime | None
    ) -> Values:
        return {
            "salt": new_salt(),
            "secret": self._secrets.newest,
            "levels": letters_of(levels),
            "queue": queue,
            "expires_at": expires_at,
            "created_at": ServerNow(),
        }

    def _salts(self, name: str) -> set[str]:
        rows = self._store.read_rows(partition_of_account(name), serial=True).rows
        return {str(row["salt"]) for row in rows if row["kind"] == "key"}

    def _attempt(self, name: str, ops: Sequence[Op]) -> bool | None:
        try:
            return self._store.cas(partition_of_account(name), ops)
        except OutcomeUnknownError:
            return None

    def _account_of(self, name: str, rows: Sequence[Row]) -> Account | None:
        found = [row for row in rows if row["kind"] == "account"]
        if not found:
            return None
        keys = tuple(self._key_of(name, row) for row in rows if row["kind"] == "key")
        return Account(name, keys, is_active=found[0]["status"] == _ACTIVE)

    def _key_of(self, account: str, row: Any) -> AccountKey:
        name = row["key_name"]
        return AccountKey(
            name,
            self._secrets.key(row["secret"], account, name, row["salt"]),
            parse_letters(row["levels"]),
            row["queue"],
            row["expires_at"],
            row["created_at"],
        )
