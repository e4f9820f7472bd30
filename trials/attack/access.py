"""Rights: what a key, a signature, a receipt or a path may be bent to."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from urllib.parse import urlsplit

import httpx

from cassieq_spark.http.accounts import Permission, Right, sign_request, sign_url
from trials.attack.stage import Account, Stage, attack
from trials.attack.verdicts import Seen, contained_if, refused_if

_OK, _DONE, _CREATED = 200, 204, 201
_REFUSED = {401, 403}
_MOST_HELD = timedelta(days=1)


def _url(stage: Stage, queue: str, *levels: Right) -> str:
    permission = Permission(stage.victim.name, frozenset(levels), queue=queue)
    return sign_url(stage.victim.key, permission)


@attack
def rights_that_a_putter_lacks(stage: Stage) -> Seen:
    """A key that may only put tries everything else."""
    queue = stage.queue()
    putter = stage.key_with("PutMessage", queue=queue)
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
    return refused_if(set(tried) <= _REFUSED and stage.serves(queue), tried)


@attack
def keys_of_others(stage: Stage) -> Seen:
    """A stranger's key, for the victim's queues."""
    queue = stage.queue()
    stranger = Account(stage.url, stage.victim.name, stage.stranger.key)
    told = [stranger.ask("GET", f"/{queue}/messages/next"), stranger.ask("DELETE", f"/{queue}")]
    return refused_if(
        {each.status_code for each in told} <= _REFUSED and stage.serves(queue),
        [each.status_code for each in told],
    )


@attack
def administration_without_its_key(stage: Stage) -> Seen:
    """Accounts and keys, asked for without a key, and with one of an account."""
    accounts = f"{stage.url}/admin/api/v1/accounts"
    mine = {"Authorization": f"Key {stage.stranger.key}"}
    told = [
        httpx.request(method, url, headers=headers).status_code
        for headers in ({}, mine)
        for method, url in (
            ("GET", accounts),
            ("POST", accounts),
            ("POST", f"{accounts}/{stage.victim.name}/keys"),
            ("DELETE", f"{accounts}/{stage.victim.name}"),
        )
    ]
    return refused_if(set(told) <= _REFUSED, told)


@attack
def signed_urls_that_were_changed(stage: Stage) -> Seen:
    """Parameters of a signed URL altered, doubled and left out."""
    queue, other = stage.queue(), stage.queue()
    signed = _url(stage, queue, Right.GET_QUEUE_INFORMATION)
    where = f"{stage.victim.queues}/{queue}"
    tried = [
        f"{where}?{signed.replace('auth=g', 'auth=gd')}",
        f"{where}?{signed}&auth=gd",
        f"{where}?{signed.replace(f'q={queue}', '')}",
        f"{stage.victim.queues}/{other}?{signed}",
        f"{stage.victim.queues}/{other}?{signed.replace(f'q={queue}', f'q={other}')}",
        f"{where}?{signed}&et=2999-01-01T00:00:00Z",
    ]
    told = [httpx.get(each).status_code for each in tried]
    good = httpx.get(f"{where}?{signed}").status_code
    return refused_if(good == _OK and _OK not in told, told)


@attack
def paths_that_are_not_what_they_seem(stage: Stage) -> Seen:
    """A signed URL of one queue, with dots, encodings, case and NUL in the path."""
    queue, other = stage.queue(), stage.queue()
    signed = _url(stage, queue, Right.DELETE_QUEUE)
    base = urlsplit(stage.victim.queues).path
    told = [
        stage.speak(
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
    return refused_if(stage.serves(other) and b"200" not in told, told)


@attack
def hosts_that_are_paths(stage: Stage) -> Seen:
    """A captured signature of one request, sent with another path and a Host that hides it."""
    queue, other = stage.queue(), stage.queue()
    now = datetime.now(UTC)
    path = urlsplit(f"{stage.victim.queues}/{queue}").path
    headers = sign_request(stage.victim.key, stage.victim.name, "DELETE", path, now)
    told = ""
    for host in (f"x{path}?", f"x/{path}?", f"x{path}#", f"x{path}%23"):
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        target = urlsplit(f"{stage.victim.queues}/{other}").path
        head = f"DELETE {target} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n"
        told = stage.speak(f"{head}{lines}\r\n".encode()).decode(errors="replace")
    return refused_if(stage.serves(other), told[:60])


@attack
def receipts_of_others(stage: Stage) -> Seen:
    """A receipt of the victim's, settled by a stranger in a queue of the same name."""
    queue = stage.queue()
    stage.stranger.ask("POST", json={"queueName": queue})
    stage.victim.ask("POST", f"/{queue}/messages", content="mine")
    receipt = stage.victim.ask("GET", f"/{queue}/messages/next").json()["popReceipt"]
    many = {"popReceipts": [receipt]}
    params = {"popReceipt": receipt}
    told = [
        stage.stranger.ask("DELETE", f"/{queue}/messages", params=params),
        stage.stranger.ask("PUT", f"/{queue}/messages", params=params, json={}),
        stage.stranger.ask("PUT", f"/{queue}/messages", params=params, json={"message": "x"}),
        stage.stranger.ask("POST", f"/{queue}/messages/ack", json=many),
        stage.stranger.ask("POST", f"/{queue}/messages/release", json=many),
        stage.stranger.ask("POST", f"/{queue}/messages/extend", json=many | {"seconds": 9}),
        stage.stranger.ask("POST", f"/{queue}/messages/reject", json=many | {"reason": "x"}),
    ]
    still = stage.victim.ask("DELETE", f"/{queue}/messages", params=params).status_code
    statuses = [each.status_code for each in told]
    return refused_if(still == _DONE and _OK not in statuses and _DONE not in statuses, statuses)


@attack
def names_with_an_account_in_them(stage: Stage) -> Seen:
    """A queue's name that begins with another account and a colon."""
    queue = stage.queue()
    name = f"{stage.victim.name}:{queue}"
    told = [
        stage.stranger.ask("POST", json={"queueName": name}).status_code,
        stage.stranger.ask("GET", f"/{name}/messages/next").status_code,
        stage.stranger.ask("GET", f"/{name.replace(':', '%3A')}").status_code,
        stage.stranger.ask("POST", json={"queueName": "x", "dlqName": name}).status_code,
    ]
    return refused_if(all(400 <= each < 500 for each in told), told)


@attack
def keys_that_were_deleted(stage: Stage) -> Seen:
    """A key, a few seconds after it was deleted."""
    queue = stage.queue()
    url = f"{stage.url}/admin/api/v1/accounts/{stage.victim.name}/keys"
    made = httpx.post(
        url, headers=stage.admin, json={"keyName": "gone", "levels": None}
    ).raise_for_status()
    key = Account(stage.url, stage.victim.name, made.json()["key"])
    before = key.ask("GET", f"/{queue}").status_code
    httpx.delete(f"{url}/gone", headers=stage.admin).raise_for_status()
    time.sleep(5.5)
    after = key.ask("GET", f"/{queue}").status_code
    return refused_if((before, after) == (_OK, 401), (before, after))


@attack
def holding_for_a_year(stage: Stage) -> Seen:
    """A key that may only read takes a message, and holds it for a year."""
    queue = stage.queue()
    stage.victim.ask("POST", f"/{queue}/messages", content="mine")
    reader = stage.key_with("ReadMessage", queue=queue)
    params = {"invisibilityTimeSeconds": 365 * 86_400}
    told = reader.ask("GET", f"/{queue}/messages/next", params=params)
    if told.status_code != _OK:
        return refused_if(stage.serves(queue), told.text)
    until = datetime.fromisoformat(told.json()["leaseUntil"])
    return contained_if(until - datetime.now(UTC) <= _MOST_HELD, f"held until {until}")


@attack
def moving_a_group_with_little(stage: Stage) -> Seen:
    """A key that may only hold and give back moves a group to the end."""
    queue = stage.queue()
    stage.victim.ask("POST", f"/{queue}/messages", content="mine")
    stage.victim.ask("GET", f"/{queue}/messages/next", params={"invisibilityTimeSeconds": 0})
    updater = stage.key_with("UpdateMessage", queue=queue)
    body = {"to": "latest", "force": True}
    told = updater.ask("POST", f"/{queue}/groups/default/seek", json=body)
    return refused_if(told.status_code in _REFUSED, told.text)


@attack
def idempotency_keys_of_others(stage: Stage) -> Seen:
    """A stranger with a key to put uses the name under which the owner is about to put."""
    queue = stage.queue()
    putter = stage.key_with("PutMessage", queue=queue)
    named = {"Idempotency-Key": "order-17"}
    first = putter.ask("POST", f"/{queue}/messages", content="forged", headers=named)
    second = stage.victim.ask("POST", f"/{queue}/messages", content="mine", headers=named)
    found = stage.victim.ask("GET", f"/{queue}/messages").json()
    values = [each["message"] for each in found]
    return refused_if("mine" in values, (first.status_code, second.status_code, values))


@attack
def redrives_into_other_accounts(stage: Stage) -> Seen:
    """A forged origin, and a target of another account."""
    mine, theirs = stage.queue(stage.stranger), stage.queue()
    target = f"{stage.victim.name}:{theirs}"
    stage.stranger.ask("POST", f"/{mine}.dead/messages", content="a")
    forged = {"X-Cassieq-Headers": f'{{"cassieq.origin-queue": "{target}"}}'}
    told = [
        stage.stranger.ask("POST", f"/{mine}.dead/messages", content="b", headers=forged),
        stage.stranger.ask("POST", f"/{mine}/dead/redrive"),
        stage.stranger.ask("POST", f"/{mine}/dead/redrive", params={"to": target}),
        stage.stranger.ask("POST", f"/{mine}.dead/dead/redrive"),
    ]
    stored = stage.victim.ask("GET", f"/{theirs}/statistics").json()["stored"]
    return refused_if(not stored, [each.status_code for each in told])


@attack
def requests_sent_again(stage: Stage) -> Seen:
    """A signed request, captured and sent again with another body and another query."""
    queue = stage.queue()
    path = urlsplit(f"{stage.victim.queues}/{queue}/messages").path
    headers = sign_request(stage.victim.key, stage.victim.name, "POST", path, datetime.now(UTC))
    told = [
        httpx.post(stage.url + path, content="forged", headers=headers),
        httpx.post(f"{stage.url}{path}?key=forged", content="", headers=headers),
    ]
    stored = stage.victim.ask("GET", f"/{queue}/statistics").json()["stored"]
    return refused_if(not stored, [each.status_code for each in told])


@attack
def secrets_in_the_log(stage: Stage) -> Seen:
    """Keys, signatures and receipts, looked for in what the gateway has logged."""
    queue = stage.queue()
    signed = _url(stage, queue, Right.PUT_MESSAGE)
    httpx.post(f"{stage.victim.queues}/{queue}/messages?{signed}", content="a-body-of-17")
    httpx.get(f"{stage.victim.queues}?auth=g&sig=a-wrong-signature")
    log = stage.log.read_text(errors="replace")
    words = (stage.victim.key, signed.rpartition("sig=")[2], "a-body-of-17", "a-wrong-signature")
    return refused_if(not any(word in log for word in words), f"{len(log)} characters of log")
