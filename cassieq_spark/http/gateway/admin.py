"""Accounts, their keys, and URLs that are signed for others. Takes the admin's key."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

from starlette.responses import JSONResponse, Response

from cassieq_spark.errors import NotFoundError
from cassieq_spark.http.accounts import (
    ALL_LEVELS,
    Account,
    AccountKey,
    Level,
    Permission,
    letters_of,
    sign_url,
)
from cassieq_spark.http.accounts.account import check_account
from cassieq_spark.http.gateway.authorization import KEPT_SECONDS
from cassieq_spark.http.gateway.errors import RefusedError
from cassieq_spark.http.gateway.requests import ADMIN, Call, Endpoint
from cassieq_spark.http.gateway.schemas import KeyOptions, PermissionOptions

_LEVELS = {name: level for level in Level for name in (level.title, level.value)}


async def create_account(call: Call) -> Response:
    """Make an account; its keys are told this once."""
    name = _name_of(call.body)
    made = await asyncio.to_thread(call.gateway.accounts.create, name)
    call.gateway.access.forget(name)
    keys = {key.name: key.key for key in made.keys}
    return JSONResponse({"accountName": name, "keys": keys}, 201)


async def list_accounts(call: Call) -> Response:
    """All accounts."""
    found = await asyncio.to_thread(call.gateway.accounts.list)
    return JSONResponse([_account_json(each) for each in found])


async def show_account(call: Call) -> Response:
    """One account."""
    return JSONResponse(_account_json(await _read(call, call.account)))


async def delete_account(call: Call) -> Response:
    """Delete an account, and then its queues; whoever comes in between is let in no more."""
    accounts, client, name = call.gateway.accounts, call.gateway.client, call.account
    await _read(call, name)
    await asyncio.to_thread(accounts.begin_deletion, name)
    call.gateway.access.forget(name)
    # Until then, another gateway may let its keys in, and make a queue that nobody would delete.
    await asyncio.sleep(KEPT_SECONDS)
    for queue in await client.queues(f"{name}:"):
        await client.delete_queue(queue.name, force=True)
    await asyncio.to_thread(accounts.end_deletion, name)
    return Response(status_code=204)


async def create_key(call: Call) -> Response:
    """Make a key; it is told this once."""
    given = call.json(KeyOptions)
    name = call.account
    if given.queue_name is not None:
        call.queue_named(given.queue_name, 422)
    key = await asyncio.to_thread(
        _add_key, call, name, given, _levels_of(given.levels) if given.levels else ALL_LEVELS
    )
    call.gateway.access.forget(name)
    return JSONResponse({**_key_json(key), "key": key.key}, 201)


async def delete_key(call: Call) -> Response:
    """Delete a key, and with it every URL that it has signed."""
    name = call.account
    await asyncio.to_thread(call.gateway.accounts.delete_key, name, call.names["key"])
    call.gateway.access.forget(name)
    return Response(status_code=204)


async def sign(call: Call) -> Response:
    """Sign a URL for somebody who has no key."""
    given = call.json(PermissionOptions)
    account = await _read(call, given.account_name)
    found = [each.key for each in account.keys if each.name == given.key_name and each.key]
    if not found:
        raise NotFoundError(f"account {account.name!r} has no key of that name that is usable")
    permission = Permission(
        account.name,
        _levels_of(given.levels),
        given.queue_name,
        given.start_time,
        given.end_time,
    )
    return JSONResponse({"queryParam": sign_url(found[0], permission)}, 201)


async def list_levels(_: Call) -> Response:
    """The rights that there are."""
    return JSONResponse([{"level": level.title, "shortForm": level.value} for level in Level])


def _add_key(call: Call, name: str, given: KeyOptions, levels: Iterable[Level]) -> AccountKey:
    return call.gateway.accounts.add_key(
        name,
        given.key_name,
        levels=levels,
        queue=given.queue_name,
        expires_at=given.expires_at,
    )


async def _read(call: Call, name: str) -> Account:
    return await asyncio.to_thread(call.gateway.accounts.read, name)


def _name_of(body: bytes) -> str:
    try:
        text = body.decode().strip()
    except UnicodeDecodeError as error:
        raise RefusedError("the body is the name of the account, as a JSON string") from error
    return check_account(text[1:-1] if len(text) > 1 and text[0] == text[-1] == '"' else text)


def _levels_of(names: Iterable[str]) -> frozenset[Level]:
    unknown = [name for name in names if name not in _LEVELS]
    if unknown:
        raise RefusedError(
            f"{unknown[0][:40]!r} is no right; there are {', '.join(map(_title, Level))}", 422
        )
    return frozenset(_LEVELS[name] for name in names)


def _title(level: Level) -> str:
    return level.title


def _account_json(account: Account) -> dict[str, Any]:
    return {
        "accountName": account.name,
        "status": "Active" if account.is_active else "Deleting",
        "keys": [_key_json(key) for key in account.keys],
    }


def _key_json(key: AccountKey) -> dict[str, Any]:
    return {
        "keyName": key.name,
        "levels": letters_of(key.levels),
        "queueName": key.queue,
        "expiresAt": key.expires_at.isoformat() if key.expires_at else None,
        "createdAt": key.created_at.isoformat() if key.created_at else None,
        "isUsable": key.key is not None,
    }


_NONE = {404: "There is no such account"}
_INVALID = {422: "The body is not what it should be"}

ENDPOINTS = (
    Endpoint(
        method="POST",
        path=ADMIN + "/accounts",
        operation="createAccount",
        summary="Create an account; its keys are told this once.",
        level=None,
        handler=create_account,
        body=("application/json",),
        answers={201: "The account, with its keys", 409: "It exists"},
    ),
    Endpoint(
        method="GET",
        path=ADMIN + "/accounts",
        operation="listAccounts",
        summary="All accounts.",
        level=None,
        handler=list_accounts,
        answers={200: "Accounts, without their keys"},
    ),
    Endpoint(
        method="GET",
        path=ADMIN + "/accounts/{account}",
        operation="getAccount",
        summary="One account.",
        level=None,
        handler=show_account,
        answers={200: "The account, without its keys"} | _NONE,
    ),
    Endpoint(
        method="DELETE",
        path=ADMIN + "/accounts/{account}",
        operation="deleteAccount",
        summary="Delete an account and all its queues.",
        level=None,
        handler=delete_account,
        answers={204: "It is gone"} | _NONE,
    ),
    Endpoint(
        method="POST",
        path=ADMIN + "/accounts/{account}/keys",
        operation="createKey",
        summary="Create a key; it is told this once.",
        level=None,
        handler=create_key,
        body=KeyOptions,
        answers={201: "The key", 409: "There is one of that name"} | _NONE | _INVALID,
    ),
    Endpoint(
        method="DELETE",
        path=ADMIN + "/accounts/{account}/keys/{key}",
        operation="deleteKey",
        summary="Delete a key, and with it every URL that it has signed.",
        level=None,
        handler=delete_key,
        answers={204: "It is gone, or never was"} | _NONE,
    ),
    Endpoint(
        method="POST",
        path=ADMIN + "/permissions",
        operation="signUrl",
        summary="Sign a URL for somebody who has no key.",
        level=None,
        handler=sign,
        body=PermissionOptions,
        answers={201: "What to append to URLs"} | _NONE | _INVALID,
    ),
    Endpoint(
        method="GET",
        path=ADMIN + "/permissions/supportedAuthorizationLevels",
        operation="listLevels",
        summary="The rights that there are.",
        level=None,
        handler=list_levels,
        answers={200: "Rights"},
    ),
)
