"""Whose the idempotency keys of a request are, so that nobody uses up those of others. Pure."""

from __future__ import annotations

import hashlib

from cassieq_spark.accounts import AccountKey, Level, Permission

#: The scope of all that may do everything with an account: a purge makes it forget any key.
ACCOUNT = "account"


def scope_of(key: AccountKey, permission: Permission | None = None) -> str:
    """The scope of a request; keys of two scopes have nothing to do with each other.

    The owner's keys share theirs, so that a put may be repeated with the other one while one is
    being replaced; and so do URLs of equal text, whichever of them has signed each. Others have
    their own: of each key by its name, of each URL by its text.
    """
    owner = key.queue is None and Level.DELETE_QUEUE in key.levels
    if permission is None:
        return ACCOUNT if owner else f"key/{key.name}"
    if owner and permission.queue is None and Level.DELETE_QUEUE in permission.levels:
        return ACCOUNT
    signer = "" if owner else f"key/{key.name}"
    text = f"{signer}\n{permission.text}".encode()
    return f"url/{hashlib.sha256(text).hexdigest()[:32]}"
