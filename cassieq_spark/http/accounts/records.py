"""Accounts in the store: made, listed, looked up and deleted.

An account is one row: its keys as text, a version that only grows, and a seal over all of it, made
with the secret of the gateways. So who writes to the table, and does not have the secret, makes no
key, widens none and brings none back: what does not fit its seal lets nobody in. A row is never
deleted, so none comes back from a replica that has missed its deletion.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial

from cassieq_spark.arguments import check_instant
from cassieq_spark.errors import (
    ContentionError,
    ExistsError,
    NotFoundError,
    OptionError,
    OutcomeUnknownError,
    QueueStateError,
)
from cassieq_spark.http.accounts.account import (
    ALL_RIGHTS,
    Account,
    AccountKey,
    Right,
    check_account,
    letters_of,
    parse_letters,
)
from cassieq_spark.http.accounts.signing import Secrets, new_salt
from cassieq_spark.store.protocol import (
    Insert,
    Op,
    Row,
    Store,
    Update,
    Values,
    When,
    partition_of_account,
)
from cassieq_spark.store.race import pauses
from cassieq_spark.store.tables import Table

logger = logging.getLogger(__name__)

#: The row of an account is not as it was sealed, or is an older one: it lets nobody in.
NOT_SEALED = "account.not_sealed"

_ACTIVE, _DELETING, _DELETED = "active", "deleting", "deleted"
#: The keys that an account is made with: while one is replaced, the other one serves.
FIRST_KEYS = ("primary", "secondary")


@dataclass(frozen=True, slots=True)
class _Key:
    """A key as it is stored: all but the key itself.

    Attributes:
        name, rights, queue, expires_at, created_at: See `AccountKey`.
        salt: What it is derived from, besides the secret of this fingerprint.
        secret: The fingerprint.
    """

    name: str
    salt: str
    secret: str
    rights: str
    queue: str | None
    expires_at: str | None
    created_at: str


@dataclass(frozen=True, slots=True)
class _Stored:
    """The row of an account.

    Attributes:
        status: Whether it is active, being deleted, or deleted.
        version: Grows with each change.
        keys: None at all if it is not sealed by a secret that is here, and cannot be read.
        seal: Over all the others.
        is_sealed: Whether it fits, and no newer one was seen.
    """

    status: str
    version: int
    keys: tuple[_Key, ...]
    seal: str | None = None
    is_sealed: bool = True


#: What an account is to become; None: nothing need be done.
_Plan = Callable[[_Stored | None], _Stored | None]


class Accounts:
    """The accounts of a keyspace. Safe to use from many threads.

    It remembers the newest version that it has seen of each account, so that no older row is taken
    for the account, as long as this process lives.

    Args:
        store: Where they are kept.
        secrets: What keys are derived from, and accounts sealed with.
    """

    def __init__(self, store: Store, secrets: Secrets) -> None:
        self._store = store
        self._secrets = secrets
        self._newest: dict[str, int] = {}
        self._guard = threading.Lock()

    @property
    def admin_key(self) -> str:
        """The key that may do what this class does, by HTTP."""
        return self._secrets.admin_key

    def create(self, name: str) -> Account:
        """Make an account with two keys. One LWT and a read.

        Raises:
            OptionError: It can't be called so.
            ExistsError: There is one, or one is being deleted.
            ContentionError: Lost to others, or without an answer, again and again.
        """
        check_account(name)
        keys = tuple(self._new_key(each, ALL_RIGHTS, None, None) for each in FIRST_KEYS)

        def plan(before: _Stored | None) -> _Stored | None:
            if before is not None and before.status != _DELETED:
                if before.keys == keys:
                    return None
                raise ExistsError(
                    f"account {name!r} exists already, or is being deleted; see: "
                    "GET /admin/api/v1/accounts"
                )
            return _Stored(_ACTIVE, 0, keys)

        return self._account_of(name, self._change(name, plan))

    def read(self, name: str) -> Account:
        """An account with its keys. One read.

        Raises:
            NotFoundError: There is none.
        """
        found = self.find(name)
        if found is None:
            raise _missing(name)
        return found

    def find(self, name: str) -> Account | None:
        """An account with its keys; None if there is none. One read."""
        stored = self._read(name)
        if stored is None or stored.status == _DELETED:
            return None
        return self._account_of(name, stored)

    def list(self) -> list[Account]:
        """All accounts by name. Reads their whole table."""
        rows = {str(row["name"]): row for row in self._store.scan(Table.ACCOUNT)}
        found = ((name, self._opened(name, rows[name])) for name in sorted(rows))
        return [self._account_of(*each) for each in found if each[1].status != _DELETED]

    def add_key(
        self,
        name: str,
        key_name: str,
        *,
        rights: Iterable[Right] = ALL_RIGHTS,
        queue: str | None = None,
        expires_at: datetime | None = None,
    ) -> AccountKey:
        """Give an account another key. One LWT and a read.

        If its row is not sealed by a secret that is here, the new key is the only one afterwards.

        Args:
            name: Which account.
            key_name: By which it is deleted.
            rights: What it allows at the most.
            queue: With this queue only; None: with every one.
            expires_at: Refused from then on; aware, before the year 9999. None: never.

        Raises:
            OptionError: It can't be called so, or allows nothing; or the instant is out of range.
            NotFoundError: There is no such account.
            ExistsError: It has a key of that name.
            ContentionError: Lost to others, or without an answer, again and again.
        """
        check_account(key_name)
        allowed = frozenset(rights)
        if not allowed:
            raise OptionError("a key that allows nothing is of no use: give it a right")
        if expires_at is not None:
            expires_at = check_instant("expires_at", expires_at)
        key = self._new_key(key_name, allowed, queue, expires_at)

        def plan(before: _Stored | None) -> _Stored | None:
            if before is None or before.status != _ACTIVE:
                raise _missing(name)
            known = before.keys if before.is_sealed else ()
            if key in known:
                return None
            if any(each.name == key_name for each in known):
                raise ExistsError(f"account {name!r} has a key {key_name!r} already")
            keys = tuple(sorted((*known, key), key=lambda each: each.name))
            return replace(before, keys=keys)

        self._change(name, plan)
        return self._key_of(name, key)

    def delete_key(self, name: str, key_name: str) -> None:
        """Delete a key; nothing, if there is none of that name. One LWT and a read.

        Raises:
            NotFoundError: There is no such account.
            QueueStateError: It is not sealed by a secret that is here.
            ContentionError: Lost to others, or without an answer, again and again.
        """

        def plan(before: _Stored | None) -> _Stored | None:
            if before is None or before.status == _DELETED:
                raise _missing(name)
            if not before.is_sealed:
                raise QueueStateError(
                    f"account {name!r} is not sealed by a secret that is here, so none of its "
                    "keys lets anybody in: put the line of its secret back, or add a key, which "
                    "replaces all of them"
                )
            left = tuple(each for each in before.keys if each.name != key_name)
            return None if left == before.keys else replace(before, keys=left)

        self._change(name, plan)

    def begin_deletion(self, name: str) -> None:
        """Let nobody use an account any more; its queues are deleted next. One LWT and a read.

        Raises:
            NotFoundError: There is no such account.
            ContentionError: Lost to others, or without an answer, again and again.
        """

        def plan(before: _Stored | None) -> _Stored | None:
            if before is None or before.status == _DELETED:
                raise _missing(name)
            return None if before.status == _DELETING else _Stored(_DELETING, 0, ())

        self._change(name, plan)

    def end_deletion(self, name: str) -> None:
        """Forget an account whose queues are deleted. One LWT and a read.

        Raises:
            ContentionError: Lost to others, or without an answer, again and again.
        """

        def plan(before: _Stored | None) -> _Stored | None:
            is_over = before is None or before.status != _DELETING
            return None if is_over else _Stored(_DELETED, 0, ())

        self._change(name, plan)

    def _change(self, name: str, plan: _Plan) -> _Stored:
        """Replace the row of an account, unless another one does meanwhile; then plan again.

        What a plan has brought about needs nothing more, so an answer that was lost is found.
        """
        for _ in pauses():
            before = self._read(name, serial=True)
            after = plan(before)
            if after is None:
                return before or _Stored(_DELETED, 0, ())
            version = self._next_version(name, before)
            after = self._sealed(name, replace(after, version=version))
            if self._attempt(name, _op(before, after, self._secrets.newest)):
                self._see(name, version)
                return after
        raise ContentionError(
            f"could not change account {name!r}: no answer, or others; try again"
        )

    def _next_version(self, name: str, before: _Stored | None) -> int:
        """Above all that were seen, also if somebody has put an older row back."""
        with self._guard:
            return max(before.version if before else 0, self._newest.get(name, 0)) + 1

    def _read(self, name: str, *, serial: bool = False) -> _Stored | None:
        found = self._store.read_rows(partition_of_account(name), serial=serial).rows
        if not found:
            return None
        stored = self._opened(name, found[0])
        if not stored.is_sealed and not serial:
            # A plain read may miss what another one has shown.
            return self._read(name, serial=True)
        if not stored.is_sealed:
            logger.error(
                "account %r is not as it was sealed, or an older one: it lets nobody in",
                name,
                extra={"action": NOT_SEALED, "account": name},
            )
        return stored

    def _opened(self, name: str, row: Row) -> _Stored:
        status, keys, seal = (str(row[column]) for column in ("status", "keys", "seal"))
        version = row["version"]
        if not isinstance(version, int):
            raise QueueStateError(
                f"the row of account {name!r} in the table 'account' was changed by hand: delete "
                "it there, and make the account anew"
            )
        made = self._secrets.seal(str(row["secret"]), (name, status, str(version), keys))
        is_sealed = made is not None and seal == made and self._see(name, version)
        try:
            read = tuple(_Key(**each) for each in json.loads(keys))
        except (ValueError, TypeError):
            read = ()
        return _Stored(status, version, read, seal, is_sealed)

    def _see(self, name: str, version: int) -> bool:
        """Whether no newer version was seen; a sealed one."""
        with self._guard:
            newest = self._newest[name] = max(version, self._newest.get(name, version))
        return version == newest

    def _sealed(self, name: str, stored: _Stored) -> _Stored:
        parts = (name, stored.status, str(stored.version), _text_of(stored.keys))
        return replace(stored, seal=self._secrets.seal(self._secrets.newest, parts))

    def _attempt(self, name: str, op: Op) -> bool:
        try:
            return self._store.cas(partition_of_account(name), [op])
        except OutcomeUnknownError:
            return False

    def _new_key(
        self,
        name: str,
        rights: frozenset[Right],
        queue: str | None,
        expires_at: datetime | None,
    ) -> _Key:
        end = None if expires_at is None else expires_at.astimezone(UTC).isoformat()
        now = datetime.now(UTC).isoformat()
        newest = self._secrets.newest
        return _Key(name, new_salt(), newest, letters_of(rights), queue, end, now)

    def _account_of(self, name: str, stored: _Stored) -> Account:
        key_of = partial(self._key_of, name)
        keys = tuple(map(key_of, stored.keys)) if stored.is_sealed else _shown(stored.keys)
        return Account(name, keys, is_active=stored.status == _ACTIVE)

    def _key_of(self, account: str, key: _Key) -> AccountKey:
        return AccountKey(
            key.name,
            self._secrets.key(key.secret, account, key.name, key.salt),
            parse_letters(key.rights),
            key.queue,
            None if key.expires_at is None else datetime.fromisoformat(key.expires_at),
            datetime.fromisoformat(key.created_at),
        )


def _shown(keys: Sequence[_Key]) -> tuple[AccountKey, ...]:
    """Keys that nobody vouches for: by their names only, and of no use."""
    return tuple(AccountKey(str(each.name), None, frozenset()) for each in keys)


def _op(before: _Stored | None, after: _Stored, secret: str) -> Op:
    values: Values = {
        "status": after.status,
        "version": after.version,
        "keys": _text_of(after.keys),
        "secret": secret,
        "seal": after.seal,
    }
    if before is None:
        return Insert((), values, if_absent=True)
    return Update((), values, (When("version", "=", before.version),))


def _text_of(keys: Iterable[_Key]) -> str:
    named = [{each: getattr(key, each) for each in _Key.__slots__} for key in keys]
    return json.dumps(named, separators=(",", ":"))


def _missing(name: str) -> NotFoundError:
    return NotFoundError(f"there is no account {name!r}")
