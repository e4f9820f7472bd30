"""Attacks on rights: with keys, signatures, receipts and paths."""

from __future__ import annotations

import json
import time
from base64 import urlsafe_b64decode, urlsafe_b64encode
from datetime import UTC, datetime, timedelta
from urllib.parse import urlsplit

import httpx

from cassieq_spark.http.accounts import Permission, Right, sign_request, sign_url
from tests.support.gateway import ADMIN, Account
from trials.attack.target import Target, attack
from trials.attack.verdicts import Seen, contained_if, refused_if

_OK, _DONE = 200, 204
_REFUSED = {401, 403}
_MOST_HELD = timedelta(days=1)


def _url(target: Target, queue: str, *levels: Right) -> str:
    permission = Permission(target.victim.name, frozenset(levels), queue=queue)
    return sign_url(target.victim.key, permission)


@attack
def rights_that_a_putter_lacks(target: Target) -> Seen:
    """A key that may only put messages tries everything else."""
    queue = target.queue()
    putter = target.key_with("PutMessage", queue=queue)
    tried = [
        putter.ask(method, path).status_code
        for method, path in (
            ("GET", f"/{queue}/messages/next"),
            ("GET", f"/{queue}/messages"),
            ("POST", f"/{queue}/messages/receive"),
            ("DELETE", f"/{queue}"),
            ("POST", f"/{queue}/purge"),
            ("GET", f"/{queue}/dead"),
            ("POST", f"/{queue}/dead/redrive"),
            ("POST", f"/{queue}/dead/purge"),
            ("GET", ""),
        )
    ]
    return refused_if(set(tried) <= _REFUSED and target.serves(queue), tried)


@attack
def keys_of_others(target: Target) -> Seen:
    """A stranger's key, used on the victim's queues."""
    queue = target.queue()
    stranger = Account(target.url, target.victim.name, target.stranger.key)
    told = [stranger.ask("GET", f"/{queue}/messages/next"), stranger.ask("DELETE", f"/{queue}")]
    statuses = {each.status_code for each in told}
    return refused_if(statuses <= _REFUSED and target.serves(queue), statuses)


@attack
def administration_without_its_key(target: Target) -> Seen:
    """Administration without a key, and with the key of an account."""
    accounts = f"{target.url}/admin/api/v1/accounts"
    mine = {"Authorization": f"Key {target.stranger.key}"}
    told = [
        httpx.request(method, url, headers=headers).status_code
        for headers in ({}, mine)
        for method, url in (
            ("GET", accounts),
            ("POST", accounts),
            ("POST", f"{accounts}/{target.victim.name}/keys"),
            ("DELETE", f"{accounts}/{target.victim.name}"),
        )
    ]
    return refused_if(set(told) <= _REFUSED, told)


@attack
def signed_urls_that_were_changed(target: Target) -> Seen:
    """Parameters of a signed URL altered, doubled and left out."""
    queue, other = target.queue(), target.queue()
    signed = _url(target, queue, Right.GET_QUEUE_INFORMATION)
    where = f"{target.victim.queues}/{queue}"
    tried = [
        f"{where}?{signed.replace('auth=g', 'auth=gd')}",
        f"{where}?{signed}&auth=gd",
        f"{where}?{signed.replace(f'q={queue}', '')}",
        f"{target.victim.queues}/{other}?{signed}",
        f"{target.victim.queues}/{other}?{signed.replace(f'q={queue}', f'q={other}')}",
        f"{where}?{signed}&et=2999-01-01T00:00:00Z",
    ]
    told = [httpx.get(each).status_code for each in tried]
    good = httpx.get(f"{where}?{signed}").status_code
    return refused_if(good == _OK and _OK not in told, told)


@attack
def paths_that_are_not_what_they_seem(target: Target) -> Seen:
    """A signed URL of one queue, with dots, encodings, case and NUL in the path."""
    queue, other = target.queue(), target.queue()
    signed = _url(target, queue, Right.DELETE_QUEUE)
    base = urlsplit(target.victim.queues).path
    told = [
        target.speak(
            f"DELETE {path}?{signed} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode()
        )[9:12]
        for path in (
            f"{base}/{queue}/../{other}",
            f"{base}/{queue}/..%2f{other}",
            f"{base}/{queue}%2f..%2f{other}",
            f"{base}//{other}",
            f"{base}/{other}%00",
            f"{base}/{other.upper()}",
            f"{base}/./{other}",
        )
    ]
    return refused_if(target.serves(other) and b"200" not in told, told)


@attack
def hosts_that_are_paths(target: Target) -> Seen:
    """A captured signature, sent with another path and with a Host that is to hide it."""
    queue, other = target.queue(), target.queue()
    now = datetime.now(UTC)
    path = urlsplit(f"{target.victim.queues}/{queue}").path
    headers = sign_request(target.victim.key, target.victim.name, "DELETE", path, now)
    told = ""
    for host in (f"x{path}?", f"x/{path}?", f"x{path}#", f"x{path}%23"):
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        asked = urlsplit(f"{target.victim.queues}/{other}").path
        head = f"DELETE {asked} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n"
        told = target.speak(f"{head}{lines}\r\n".encode()).decode(errors="replace")
    return refused_if(target.serves(other), told[:60])


@attack
def receipts_of_others(target: Target) -> Seen:
    """A receipt of the victim, settled by a stranger in a queue of the same name."""
    queue = target.queue()
    target.stranger.ask("POST", json={"queueName": queue})
    target.victim.ask("POST", f"/{queue}/messages", content="mine")
    receipt = target.victim.ask("GET", f"/{queue}/messages/next").json()["popReceipt"]
    many = {"popReceipts": [receipt]}
    messages, params = f"/{queue}/messages", {"popReceipt": receipt}
    told = [
        target.stranger.ask("DELETE", messages, params=params),
        target.stranger.ask("PUT", messages, params=params, json={}),
        target.stranger.ask("PUT", messages, params=params, json={"message": "x"}),
        target.stranger.ask("POST", f"{messages}/ack", json=many),
        target.stranger.ask("POST", f"{messages}/release", json=many),
        target.stranger.ask("POST", f"{messages}/extend", json=many | {"seconds": 9}),
        target.stranger.ask("POST", f"{messages}/reject", json=many | {"reason": "x"}),
    ]
    still = target.victim.ask("DELETE", f"/{queue}/messages", params=params).status_code
    statuses = [each.status_code for each in told]
    return refused_if(still == _DONE and _OK not in statuses and _DONE not in statuses, statuses)


@attack
def receipts_of_the_same_lease(target: Target) -> Seen:
    """A receipt of one client, made into that of a message that another client has."""
    queue = target.queue()
    for text in ("mine", "yours"):
        target.victim.ask("POST", f"/{queue}/messages", content=text)
    told = target.victim.ask("POST", f"/{queue}/messages/receive?max=2").text.splitlines()
    mine, yours = (json.loads(line)["popReceipt"] for line in told)
    sealed = urlsafe_b64decode(mine + "=" * (-len(mine) % 4))
    # Both end in the same way; without a signature, the last digit is that of the message.
    altered = [
        sealed.replace(b"/0", b"/1"),
        sealed[: sealed.rindex(b"/0")] + b"/1",
        urlsafe_b64decode(yours + "=" * (-len(yours) % 4))[:-16] + sealed[-16:],
    ]
    forged = [urlsafe_b64encode(each).decode().rstrip("=") for each in altered]
    acker = target.key_with("AckMessage", queue=queue)
    tried = [
        acker.ask("DELETE", f"/{queue}/messages", params={"popReceipt": each}).status_code
        for each in forged
    ]
    params = {"popReceipt": yours}
    still = target.victim.ask("DELETE", f"/{queue}/messages", params=params).status_code
    return refused_if(still == _DONE and _DONE not in tried, tried)


@attack
def names_with_an_account_in_them(target: Target) -> Seen:
    """A queue's name that begins with another account and a colon."""
    queue = target.queue()
    name = f"{target.victim.name}:{queue}"
    told = [
        target.stranger.ask("POST", json={"queueName": name}).status_code,
        target.stranger.ask("GET", f"/{name}/messages/next").status_code,
        target.stranger.ask("GET", f"/{name.replace(':', '%3A')}").status_code,
        target.stranger.ask("POST", json={"queueName": "x", "dlqName": name}).status_code,
    ]
    return refused_if(all(400 <= each < 500 for each in told), told)


@attack
def keys_that_were_deleted(target: Target) -> Seen:
    """A key, a few seconds after it was deleted."""
    queue = target.queue()
    url = f"{target.url}/admin/api/v1/accounts/{target.victim.name}/keys"
    made = httpx.post(url, headers=ADMIN, json={"keyName": "gone", "levels": None})
    key = Account(target.url, target.victim.name, made.raise_for_status().json()["key"])
    before = key.ask("GET", f"/{queue}").status_code
    httpx.delete(f"{url}/gone", headers=ADMIN).raise_for_status()
    time.sleep(5.5)
    after = key.ask("GET", f"/{queue}").status_code
    return refused_if((before, after) == (_OK, 401), (before, after))


@attack
def holding_for_a_year(target: Target) -> Seen:
    """A key that may only read takes a message, and holds it for a year."""
    queue = target.queue()
    target.victim.ask("POST", f"/{queue}/messages", content="mine")
    reader = target.key_with("ReadMessage", queue=queue)
    params = {"invisibilityTimeSeconds": 365 * 86_400}
    told = reader.ask("GET", f"/{queue}/messages/next", params=params)
    if told.status_code != _OK:
        return refused_if(target.serves(queue), told.text)
    until = datetime.fromisoformat(told.json()["leaseUntil"])
    return contained_if(until - datetime.now(UTC) <= _MOST_HELD, f"held until {until}")


@attack
def moving_a_group_with_little(target: Target) -> Seen:
    """A key that may only extend and release messages moves a group to the end."""
    queue = target.queue()
    target.victim.ask("POST", f"/{queue}/messages", content="mine")
    target.victim.ask("GET", f"/{queue}/messages/next", params={"invisibilityTimeSeconds": 0})
    updater = target.key_with("UpdateMessage", queue=queue)
    body = {"to": "latest", "force": True}
    told = updater.ask("POST", f"/{queue}/groups/default/seek", json=body)
    return refused_if(told.status_code in _REFUSED, told.text)


@attack
def idempotency_keys_of_others(target: Target) -> Seen:
    """A key that may only put uses an idempotency key that the owner will use."""
    queue = target.queue()
    putter = target.key_with("PutMessage", queue=queue)
    named = {"Idempotency-Key": "order-17"}
    first = putter.ask("POST", f"/{queue}/messages", content="forged", headers=named)
    second = target.victim.ask("POST", f"/{queue}/messages", content="mine", headers=named)
    found = target.victim.ask("GET", f"/{queue}/messages").json()
    values = [each["message"] for each in found]
    return refused_if("mine" in values, (first.status_code, second.status_code, values))


@attack
def redrives_into_other_accounts(target: Target) -> Seen:
    """A forged origin, and a destination in another account."""
    mine, theirs = target.queue(target.stranger), target.queue()
    elsewhere = f"{target.victim.name}:{theirs}"
    target.stranger.ask("POST", f"/{mine}.dead/messages", content="a")
    forged = {"X-Cassieq-Headers": f'{{"cassieq.origin-queue": "{elsewhere}"}}'}
    told = [
        target.stranger.ask("POST", f"/{mine}.dead/messages", content="b", headers=forged),
        target.stranger.ask("POST", f"/{mine}/dead/redrive"),
        target.stranger.ask("POST", f"/{mine}/dead/redrive", params={"to": elsewhere}),
        target.stranger.ask("POST", f"/{mine}.dead/dead/redrive"),
    ]
    stored = target.victim.ask("GET", f"/{theirs}/statistics").json()["stored"]
    return refused_if(not stored, [each.status_code for each in told])


@attack
def requests_sent_again(target: Target) -> Seen:
    """A signed request, captured and sent again with another body and another query."""
    queue = target.queue()
    path = urlsplit(f"{target.victim.queues}/{queue}/messages").path
    headers = sign_request(target.victim.key, target.victim.name, "POST", path, datetime.now(UTC))
    told = [
        httpx.post(target.url + path, content="forged", headers=headers),
        httpx.post(f"{target.url}{path}?key=forged", content="", headers=headers),
    ]
    stored = target.victim.ask("GET", f"/{queue}/statistics").json()["stored"]
    return refused_if(not stored, [each.status_code for each in told])


@attack
def secrets_in_the_log(target: Target) -> Seen:
    """Keys, signatures and receipts in the log of the gateway."""
    queue = target.queue()
    signed = _url(target, queue, Right.PUT_MESSAGE)
    httpx.post(f"{target.victim.queues}/{queue}/messages?{signed}", content="a-body-of-17")
    httpx.get(f"{target.victim.queues}?auth=g&sig=a-wrong-signature")
    log = target.gateway.log.read_text(errors="replace")
    words = (target.victim.key, signed.rpartition("sig=")[2], "a-body-of-17", "a-wrong-signature")
    return refused_if(not any(word in log for word in words), f"{len(log)} characters of log")
