"""Accounts, keys and rights as values, and the names of accounts and queues."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from enum import Enum

from cassieq_spark.arguments import check_text
from cassieq_spark.errors import OptionError

#: Names of accounts and keys.
NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,49}$"
_NAME = re.compile(NAME_PATTERN)
#: Names of queues within an account. Dots alone are refused: clients remove "." and ".." from the
#: path of a URL.
QUEUE_PATTERN = r"^\.*[A-Za-z0-9_-][A-Za-z0-9._-]*$"
_QUEUE = re.compile(QUEUE_PATTERN)
_LONGEST_QUEUE = 140


class Right(Enum):
    """A right, with the letter that stands for it; letters are signed in this order."""

    READ_MESSAGE = "r"
    PUT_MESSAGE = "p"
    UPDATE_MESSAGE = "u"
    ACK_MESSAGE = "a"
    GET_QUEUE_INFORMATION = "g"
    CREATE_QUEUE = "c"
    DELETE_QUEUE = "d"
    REDRIVE_MESSAGE = "m"

    # Each right is one object. The hash of `Enum` is computed in Python, for each look-up.
    __hash__ = object.__hash__

    @property
    def title(self) -> str:
        """The name of the right in JSON.

        >>> Right.GET_QUEUE_INFORMATION.title
        'GetQueueInformation'
        """
        return self.name.title().replace("_", "")


ALL_RIGHTS = frozenset(Right)


def letters_of(rights: Iterable[Right]) -> str:
    """The letters of rights, in order.

    >>> letters_of({Right.PUT_MESSAGE, Right.READ_MESSAGE})
    'rp'
    """
    wanted = set(rights)
    return "".join(right.value for right in Right if right in wanted)


def parse_letters(letters: str) -> frozenset[Right]:
    """The rights that letters stand for; empty if a letter is unknown.

    >>> sorted(right.title for right in parse_letters("ap")), parse_letters("rx")
    (['AckMessage', 'PutMessage'], frozenset())
    """
    known = {right.value: right for right in Right}
    if not set(letters) <= set(known):
        return frozenset()
    return frozenset(known[letter] for letter in letters)


@dataclass(frozen=True, slots=True)
class AccountKey:
    """A key of an account.

    Attributes:
        name: The name, unique in the account.
        key: The key itself; None if the secret that it was derived from is not known here.
        rights: The rights that the key grants.
        queue: The queue that the key is limited to; None: all queues of the account.
        expires_at: When the key expires; None: never.
        created_at: When the key was created.
    """

    name: str
    key: str | None = field(repr=False)
    rights: frozenset[Right] = ALL_RIGHTS
    queue: str | None = None
    expires_at: datetime | None = None
    created_at: datetime | None = None

    def runs(self, now: datetime) -> bool:
        """True if the key has not expired."""
        return self.expires_at is None or now < self.expires_at


@dataclass(frozen=True, slots=True)
class Account:
    """The owner of the queues whose names begin with the account's name and a colon.

    Attributes:
        name: The name; see `check_account`.
        keys: The keys, by name.
        is_active: False while the account is being deleted.
    """

    name: str
    keys: tuple[AccountKey, ...]
    is_active: bool = True


def check_account(name: str) -> str:
    """Return ``name`` if it is a valid name of an account or key.

    Raises:
        OptionError: The name is empty, too long, or has a character that is not allowed.
    """
    if not is_account(check_text("account or key name", name)):
        raise OptionError(
            f"account or key name {name[:60]!r} is not valid: expected 1 to 50 letters, digits, "
            "'.', '_' or '-', beginning with a letter or digit"
        )
    return name


def is_account(name: str) -> bool:
    """True if ``name`` is a valid name of an account."""
    return _NAME.fullmatch(name) is not None


def full_name(account: str, queue: str) -> str:
    """The full name of an account's queue, under which Spark and the client know it.

    >>> full_name("acme", "orders")
    'acme:orders'

    Raises:
        OptionError: The name of the queue is not valid.
    """
    check_text("queue name", queue)
    if len(queue) > _LONGEST_QUEUE or not _QUEUE.fullmatch(queue):
        raise OptionError(
            f"queue name {queue[:150]!r} is not valid: expected 1 to {_LONGEST_QUEUE} letters, "
            "digits, '.', '_' or '-', and not dots alone"
        )
    return f"{account}:{queue}"


def own_name(full: str) -> str:
    """The name of a queue within its account.

    >>> own_name("acme:orders")
    'orders'
    """
    return full.partition(":")[2]
