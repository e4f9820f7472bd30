"""Accounts of the HTTP gateway, with their keys, rights and signatures.

An account owns the queues whose names begin with its name and a colon: ``acme:orders``. Its keys
are derived from the secret of the gateways and a salt, and are not stored: somebody who reads the
table can neither log in nor sign. Gateways that share the secret need not talk to each other.

    secret + account + name + salt -> key -> signature of a request, or of a URL

| event | result |
|---|---|
| a key is deleted, or expires | every gateway refuses the key within some seconds |
| somebody reads the table | they get salts, which are useless without the secret |
| the secret leaks | put a new secret before it, create new keys, remove the old secret |
| the deletion of an account breaks off | nobody can use the account; repeat the deletion |
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
