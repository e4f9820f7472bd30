"""Creates, lists, reads, changes and deletes accounts in the store.

An account is one row: its keys as text, a version that only grows, and a seal over both, made
with the secret of the gateways. So somebody who writes to the table without the secret cannot
create, change or restore a key: an account that does not match its seal is refused. Rows are
never deleted, so no row comes back from a replica that missed a deletion.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from cassieq_spark.arguments import check_instant
from cassieq_spark.backoff import attempts
from cassieq_spark.errors import (
    ContentionError,
    ExistsError,
    NotFoundError,
    OptionError,
    OutcomeUnknownError,
    QueueStateError,
    in_doubt,
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
from cassieq_spark.store.tables import Table

logger = logging.getLogger(__name__)

#: The row of an account does not match its seal, or is an older row: the account is refused.
NOT_SEALED = "account.not_sealed"

_ACTIVE, _DELETING, _DELETED = "active", "deleting", "deleted"
#: The first keys of an account: clients use one while the other is replaced.
FIRST_KEYS = ("primary", "secondary")


@dataclass(frozen=True, slots=True)
class _Key:
    """A key as it is stored, without the key itself.

    Attributes:
        name, rights, queue, expires_at, created_at: See `AccountKey`.
        salt: The salt from which the key is derived.
        secret: The fingerprint of the secret from which the key is derived.
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
        status: Active, being deleted, or deleted.
        version: Grows with each change.
        keys: The keys; empty if their text is unreadable.
        seal: The seal over the other columns.
        is_sealed: True if the seal matches, and no newer version was seen.
    """

    status: str
    version: int
    keys: tuple[_Key, ...]
    seal: str | None = None
    is_sealed: bool = True


#: Makes the new row from the old one; returns None if nothing is to be done.
_Plan = Callable[[_Stored | None], _Stored | None]


class Accounts:
    """The accounts of a keyspace. Safe to use from many threads.

    The newest version of each account that this process has seen is remembered while the process
    lives, and older rows are refused.
    """

    def __init__(self, store: Store, secrets: Secrets) -> None:
        self._store = store
        self._secrets = secrets
        self._newest: dict[str, int] = {}
        self._guard = threading.Lock()

    @property
    def secrets(self) -> Secrets:
        """The secrets of the gateways."""
        return self._secrets

    @property
    def admin_key(self) -> str:
        """The key for administration over HTTP."""
        return self._secrets.admin_key

    def create(self, name: str) -> Account:
        """Create an account with two keys. One LWT and one read.

        Raises:
            OptionError: The name is not valid.
            ExistsError: The account exists, or is being deleted.
            ContentionError: Lost to others again and again.
            OutcomeUnknownError: An answer was lost, and no read showed the outcome.
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
        """Read an account with its keys. One read.

        Raises:
            NotFoundError: The account does not exist.
        """
        found = self.find(name)
        if found is None:
            raise _missing(name)
        return found

    def find(self, name: str) -> Account | None:
        """Read an account with its keys; None if it does not exist. One read."""
        stored = self._read(name)
        if stored is None or stored.status == _DELETED:
            return None
        return self._account_of(name, stored)

    def list(self) -> list[Account]:
        """List all accounts, by name. Reads the whole table of accounts."""
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
        """Add a key to an account. One LWT and one read.

        The key grants ``rights`` for ``queue`` or, if None, for all queues of the account. The key
        expires at ``expires_at``, an aware instant before the year 9999, or if None, never. If the
        seal of the row does not match, the new key replaces all others.

        Raises:
            OptionError: The name is not valid, no rights are given, or the instant is out of
                range.
            NotFoundError: The account does not exist.
            ExistsError: The account has a key of this name.
            ContentionError: Lost to others again and again.
            OutcomeUnknownError: An answer was lost, and no read showed the outcome.
        """
        check_account(key_name)
        allowed = frozenset(rights)
        if not allowed:
            raise OptionError("a key needs at least one right")
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
        """Delete a key, if it exists. One LWT and one read.

        Raises:
            NotFoundError: The account does not exist.
            QueueStateError: The account does not match its seal.
            ContentionError: Lost to others again and again.
            OutcomeUnknownError: An answer was lost, and no read showed the outcome.
        """

        def plan(before: _Stored | None) -> _Stored | None:
            if before is None or before.status == _DELETED:
                raise _missing(name)
            if not before.is_sealed:
                raise QueueStateError(
                    f"account {name!r} is sealed with a secret that this gateway does not "
                    "know, so all its keys are refused: put the line of that secret back, "
                    "or add a key, which replaces them"
                )
            left = tuple(each for each in before.keys if each.name != key_name)
            return None if left == before.keys else replace(before, keys=left)

        self._change(name, plan)

    def begin_deletion(self, name: str) -> None:
        """Refuse an account from now on, before its queues are deleted. One LWT and one read.

        Raises:
            NotFoundError: The account does not exist.
            ContentionError: Lost to others again and again.
            OutcomeUnknownError: An answer was lost, and no read showed the outcome.
        """

        def plan(before: _Stored | None) -> _Stored | None:
            if before is None or before.status == _DELETED:
                raise _missing(name)
            return None if before.status == _DELETING else _Stored(_DELETING, 0, ())

        self._change(name, plan)

    def end_deletion(self, name: str) -> None:
        """Mark an account as deleted after its queues were deleted. One LWT and one read.

        Raises:
            ContentionError: Lost to others again and again.
            OutcomeUnknownError: An answer was lost, and no read showed the outcome.
        """

        def plan(before: _Stored | None) -> _Stored | None:
            is_over = before is None or before.status != _DELETING
            return None if is_over else _Stored(_DELETED, 0, ())

        self._change(name, plan)

    def _change(self, name: str, plan: _Plan) -> _Stored:
        """Replace the row of an account; try again if the row changed, or if the answer was lost.

        A plan returns None once its change is made, so a retry recognises an attempt whose answer
        was lost.
        """
        doubtful: list[OutcomeUnknownError] = []
        with in_doubt(f"account {name!r}", doubtful):
            for _ in attempts():
                before = self._read(name, serial=True)
                after = plan(before)
                if after is None:
                    return before or _Stored(_DELETED, 0, ())
                version = self._next_version(name, before)
                after = self._sealed(name, replace(after, version=version))
                op = _op(before, after, self._secrets.newest)
                try:
                    if self._store.cas(partition_of_account(name), [op]):
                        self._see(name, version)
                        return after
                except OutcomeUnknownError as error:
                    doubtful.append(error)
            raise ContentionError(
                f"could not change account {name!r}: other programs changed it again and again; "
                "try again"
            )

    def _next_version(self, name: str, before: _Stored | None) -> int:
        """A version above all versions seen, even if somebody restored an older row."""
        with self._guard:
            return max(before.version if before else 0, self._newest.get(name, 0)) + 1

    def _read(self, name: str, *, serial: bool = False) -> _Stored | None:
        found = self._store.read_rows(partition_of_account(name), serial=serial).rows
        if not found:
            return None
        stored = self._opened(name, found[0])
        if not stored.is_sealed and not serial:
            # A plain read may miss a version that an earlier read has shown.
            return self._read(name, serial=True)
        if not stored.is_sealed:
            logger.error(
                "account %r does not match its seal, or is an older version: it is refused",
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
                "it there, and create the account again"
            )
        made = self._secrets.seal(str(row["secret"]), (name, status, str(version), keys))
        is_sealed = made is not None and seal == made and self._see(name, version)
        try:
            read = tuple(_Key(**each) for each in json.loads(keys))
        except (ValueError, TypeError):
            read = ()
        return _Stored(status, version, read, seal, is_sealed)

    def _see(self, name: str, version: int) -> bool:
        """Remember a sealed version; return True if no newer version was seen."""
        with self._guard:
            newest = self._newest[name] = max(version, self._newest.get(name, version))
        return version == newest

    def _sealed(self, name: str, stored: _Stored) -> _Stored:
        parts = (name, stored.status, str(stored.version), _text_of(stored.keys))
        return replace(stored, seal=self._secrets.seal(self._secrets.newest, parts))

    def _new_key(
        self, name: str, rights: frozenset[Right], queue: str | None, expires_at: datetime | None
    ) -> _Key:
        end = None if expires_at is None else expires_at.astimezone(UTC).isoformat()
        now = datetime.now(UTC).isoformat()
        newest = self._secrets.newest
        return _Key(name, new_salt(), newest, letters_of(rights), queue, end, now)

    def _account_of(self, name: str, stored: _Stored) -> Account:
        keys = tuple(
            self._key_of(name, each)
            if stored.is_sealed
            # Only names are kept.
            else AccountKey(str(each.name), None, frozenset())
            for each in stored.keys
        )
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
