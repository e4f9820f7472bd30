"""What all requests share, and how much of it one account or one key may have at a time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple, TypeVar

from cassieq_spark.http.gateway.refusals import Budget, RefusedError, over_budget

K = TypeVar("K")


class Sender(NamedTuple):
    """Who sends a request: an account, and the name of its key. The administrator has neither."""

    account: str
    key: str


ADMIN = Sender("", "")


class Pool:
    """Something that all requests share, such as bytes of memory. For one loop.

    A key gets no more than its budget, an account no more than its own, and all together no more
    than there is. An account that holds more than would be left gets no more either: so one alone
    has half of the pool at most, and something is always left for others.

    Args:
        what: What it is called in answers and metrics.
        unit: What it is called in sentences.
        in_all: How much there is.
        of_account: The budget of an account.
        of_key: The budget of a key.
    """

    def __init__(self, what: str, unit: str, in_all: int, of_account: int, of_key: int) -> None:
        self._what = what
        self._unit = unit
        self._in_all = in_all
        self._of_account = of_account
        self._of_key = of_key
        self._accounts: dict[str, int] = {}
        self._keys: dict[Sender, int] = {}
        #: How much is taken.
        self.taken = 0

    def take(self, sender: Sender, count: int = 1) -> None:
        """Take some for a sender; see `give`.

        Raises:
            RefusedError: 429; it says which budget does not allow it.
        """
        account, left = sender.account, self._in_all - self.taken - count
        of_account, of_key = self._accounts.get(account, 0), self._keys.get(sender, 0)
        if account and of_key + count > self._of_key:
            whose = f"key {sender.key!r} of account {account!r} has"
            raise self._refusal("key", self._of_key, whose, of_key)
        if account and of_account + count > self._of_account:
            whose = f"account {account!r} has"
            raise self._refusal("account", self._of_account, whose, of_account)
        if left < 0:
            raise self._refusal("all", self._in_all, "all accounts together have", self.taken)
        if account and of_account > left:
            whose = f"no account gets more than is left for the others: account {account!r} has"
            raise self._refusal("share", self._in_all, whose, of_account)
        self.add(sender, count)

    def add(self, sender: Sender, count: int) -> None:
        """Count what a sender has already, whatever it may have."""
        self.taken += count
        self._accounts[sender.account] = self._accounts.get(sender.account, 0) + count
        self._keys[sender] = self._keys.get(sender, 0) + count

    def give(self, sender: Sender, count: int = 1) -> None:
        """Give back what was taken."""
        self.taken -= count
        _take_away(self._keys, sender, count)
        _take_away(self._accounts, sender.account, count)

    @contextmanager
    def one(self, sender: Sender) -> Iterator[None]:
        """Take one for as long as the context lasts.

        Raises:
            RefusedError: See `take`.
        """
        self.take(sender)
        try:
            yield
        finally:
            self.give(sender)

    def _refusal(self, of: str, limit: int, whose: str, held: int) -> RefusedError:
        budget = Budget(self._what, of, limit)
        return over_budget(budget, f"{whose} {held} {self._unit}; the limit is {limit}")


def _take_away(held: dict[K, int], key: K, count: int) -> None:
    held[key] -= count
    if not held[key]:
        # Those who hold nothing any more take no memory.
        del held[key]
