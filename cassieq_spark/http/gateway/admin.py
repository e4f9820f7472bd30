"""Accounts, their keys and signed URLs; every request needs the admin key."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

from starlette.responses import JSONResponse, Response

from cassieq_spark.errors import NotFoundError
from cassieq_spark.http.accounts import (
    ALL_RIGHTS,
    Account,
    AccountKey,
    Permission,
    Right,
    letters_of,
    sign_url,
)
from cassieq_spark.http.accounts.account import check_account
from cassieq_spark.http.gateway.authorization import KEPT_SECONDS
from cassieq_spark.http.gateway.requests import ADMIN, Call, Endpoint
from cassieq_spark.http.gateway.schemas import KeyOptions, PermissionOptions
from cassieq_spark.http.serving.errors import RefusedError
from cassieq_spark.settings.declaration import explain_unknown

_KEY = {
    "keyName": "third",
    "levels": "p",
    "queueName": "orders",
    "expiresAt": None,
    "createdAt": "2026-11-20T12:00:00+00:00",
    "isUsable": True,
}
_ACCOUNT = {"accountName": "acme", "status": "Active", "keys": [_KEY]}
_RIGHTS = {name: right for right in Right for name in (right.title, right.value)}


@Endpoint(
    "POST",
    ADMIN + "/accounts",
    None,
    body=("application/json",),
    answers={201: "The account, with its keys", 409: "The account exists"},
    examples={201: {"accountName": "acme", "keys": {"primary": "...", "secondary": "..."}}},
    example="acme",
)
async def create_account(call: Call) -> Response:
    """Create an account; only this answer shows its keys."""
    name = _name_of(call.body)
    made = await asyncio.to_thread(call.gateway.accounts.create, name)
    call.gateway.authorizer.forget(name)
    keys = {key.name: key.key for key in made.keys}
    return JSONResponse({"accountName": name, "keys": keys}, 201)


@Endpoint(
    "GET",
    ADMIN + "/accounts",
    None,
    answers={200: "Accounts, without their keys"},
    examples={200: [_ACCOUNT]},
)
async def list_accounts(call: Call) -> Response:
    """List the accounts."""
    found = await asyncio.to_thread(call.gateway.accounts.list)
    return JSONResponse([_account_json(each) for each in found])


@Endpoint(
    "GET",
    ADMIN + "/accounts/{account}",
    None,
    answers={200: "The account, without its keys"},
    examples={200: _ACCOUNT},
)
async def get_account(call: Call) -> Response:
    """Show an account."""
    return JSONResponse(_account_json(await _read(call, call.account)))


@Endpoint("DELETE", ADMIN + "/accounts/{account}", None, answers={204: "The account is deleted"})
async def delete_account(call: Call) -> Response:
    """Delete an account and its queues.

    The keys of the account are refused from the start, so nobody creates a queue in between.
    """
    accounts, client, name = call.gateway.accounts, call.gateway.client, call.account
    await _read(call, name)
    await asyncio.to_thread(accounts.begin_deletion, name)
    call.gateway.authorizer.forget(name)
    # Until then, another gateway may accept its keys, and create a queue that would stay.
    await asyncio.sleep(KEPT_SECONDS)
    for queue in await client.queues(f"{name}:"):
        await client.delete_queue(queue.name, force=True)
    await asyncio.to_thread(accounts.end_deletion, name)
    return Response(status_code=204)


@Endpoint(
    "POST",
    ADMIN + "/accounts/{account}/keys",
    None,
    body=KeyOptions,
    answers={201: "The key", 409: "A key of that name exists"},
    examples={201: {**_KEY, "key": "..."}},
    example={"keyName": "third", "levels": ["PutMessage"], "queueName": "orders"},
)
async def create_key(call: Call) -> Response:
    """Create a key; only this answer shows it."""
    given, name = call.json(KeyOptions), call.account
    key = await asyncio.to_thread(
        call.gateway.accounts.add_key,
        name,
        given.key_name,
        rights=ALL_RIGHTS if given.levels is None else _rights_of(given.levels),
        queue=given.queue_name,
        expires_at=given.expires_at,
    )
    call.gateway.authorizer.forget(name)
    return JSONResponse({**_key_json(key), "key": key.key}, 201)


@Endpoint(
    "DELETE",
    ADMIN + "/accounts/{account}/keys/{key}",
    None,
    answers={204: "The key is deleted, or did not exist"},
)
async def delete_key(call: Call) -> Response:
    """Delete a key; every URL that the key signed becomes invalid, too."""
    name = call.account
    await asyncio.to_thread(call.gateway.accounts.delete_key, name, call.names["key"])
    call.gateway.authorizer.forget(name)
    return Response(status_code=204)


@Endpoint(
    "POST",
    ADMIN + "/permissions",
    None,
    body=PermissionOptions,
    answers={201: "The query to append to URLs", 404: "There is no such account or key"},
    examples={201: {"queryParam": "auth=rp&q=orders&et=2027-01-01T00%3A00%3A00Z&sig=..."}},
    example={
        "accountName": "acme",
        "keyName": "primary",
        "levels": ["PutMessage", "ReadMessage"],
        "endTime": "2027-01-01T00:00:00Z",
        "queueName": "orders",
    },
)
async def create_signed_url(call: Call) -> Response:
    """Sign a URL for a client that has no key."""
    given = call.json(PermissionOptions)
    account = await _read(call, given.account_name)
    found = next((each for each in account.keys if each.name == given.key_name), None)
    if found is None or found.key is None:
        raise NotFoundError(f"account {account.name!r} has no key of that name that is usable")
    permission = Permission(
        account.name, _rights_of(given.levels), given.queue_name, given.start_time, given.end_time
    )
    signed = sign_url(found.key, permission)
    if not found.rights & permission.rights:
        raise RefusedError(f"levels: key {found.name!r} has none of these rights", 422)
    if found.queue is not None and permission.queue not in {None, found.queue}:
        raise RefusedError(f"queueName: key {found.name!r} is for queue {found.queue!r} only", 422)
    return JSONResponse({"queryParam": signed}, 201)


@Endpoint(
    "GET",
    ADMIN + "/permissions/supportedAuthorizationLevels",
    None,
    answers={200: "Rights"},
    examples={200: [{"level": "ReadMessage", "shortForm": "r"}]},
)
async def list_rights(_: Call) -> Response:
    """List the rights."""
    return JSONResponse([{"level": right.title, "shortForm": right.value} for right in Right])


async def _read(call: Call, name: str) -> Account:
    return await asyncio.to_thread(call.gateway.accounts.read, name)


def _name_of(body: bytes) -> str:
    try:
        text = body.decode().strip()
    except UnicodeDecodeError as error:
        raise RefusedError("the body is the name of the account, as a JSON string") from error
    return check_account(text[1:-1] if len(text) > 1 and text[0] == text[-1] == '"' else text)


def _rights_of(names: Iterable[str]) -> frozenset[Right]:
    for name in names:
        if name not in _RIGHTS:
            titles = [right.title for right in Right]
            raise RefusedError(explain_unknown("right", name[:40], titles), 422)
    return frozenset(_RIGHTS[name] for name in names)


def _account_json(account: Account) -> dict[str, Any]:
    return {
        "accountName": account.name,
        "status": "Active" if account.is_active else "Deleting",
        "keys": [_key_json(key) for key in account.keys],
    }


def _key_json(key: AccountKey) -> dict[str, Any]:
    return {
        "keyName": key.name,
        "levels": letters_of(key.rights),
        "queueName": key.queue,
        "expiresAt": key.expires_at.isoformat() if key.expires_at else None,
        "createdAt": key.created_at.isoformat() if key.created_at else None,
        "isUsable": key.key is not None,
    }
