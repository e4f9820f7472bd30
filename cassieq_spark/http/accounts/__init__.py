"""Who may use the HTTP gateway: accounts, their keys, and what those sign.

An account owns the queues whose names begin with its own and a colon: ``acme:orders``. Its keys
are derived from the secret of the gateways and a salt, and stored nowhere: whoever reads the table
can neither log in nor sign. Gateways that share the secret need not talk to each other.

    secret + account + name + salt -> key -> signature of a request, or of a URL

| event | result |
|---|---|
| a key is deleted, or has run out | refused, by every gateway, some seconds later at the latest |
| the table is read by others | they have salts, which are of no use without the secret |
| the secret gets out | put a new one before it, make new keys, take the old one away |
| the deletion of an account breaks off | nobody can use it any more; repeat it |
"""

from __future__ import annotations

from cassieq_spark.http.accounts.account import (
    ALL_RIGHTS,
    Account,
    AccountKey,
    Right,
    full_name,
    letters_of,
    own_name,
    parse_letters,
)
from cassieq_spark.http.accounts.records import Accounts
from cassieq_spark.http.accounts.signing import Permission, Secrets, sign_request, sign_url

__all__ = [
    "ALL_RIGHTS",
    "Account",
    "AccountKey",
    "Accounts",
    "Permission",
    "Right",
    "Secrets",
    "full_name",
    "letters_of",
    "own_name",
    "parse_letters",
    "sign_request",
    "sign_url",
]
