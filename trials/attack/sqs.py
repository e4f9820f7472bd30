"""Attacks on the SQS door: signatures, queues and handles of others, bodies, floods, the log."""

from __future__ import annotations

import json
import time
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any
from uuid import uuid4

from cassieq_spark.http.accounts import Right
from cassieq_spark.http.sqs.move_tasks import handle_of
from cassieq_spark.http.sqs.operations import OPERATIONS, Operation
from tests.support.gateway import Account, key_with
from tests.support.raw_sqs import (
    REGION,
    Raw,
    Signer,
    Told,
    connected,
    host_of,
    long_ago,
    raw_form,
    raw_json,
    send,
)
from trials.attack.target import Target, attack
from trials.attack.verdicts import Seen, contained_if, refused_if, served_within

_MIB = 1 << 20
_AT_ONCE = 40
#: A little less than a body may be.
_LARGE = 7 * _MIB - 1_000
_PAIRS, _TOLD_APART = 100, 0.65
_SLOW = 5.0
#: Lengths of a header and of a query that the gateway's parser takes.
_HEADER = 3_900
_RAWS: tuple[Callable[[str, Any], Raw], ...] = (raw_json, raw_form)


def _url(target: Target, queue: str, account: Account | None = None) -> str:
    return f"{target.url}/{(account or target.victim).name}/{queue}"


def _arn(account: Account, queue: str) -> str:
    return f"arn:aws:sqs:{REGION}:{account.name}:{queue}"


def _signed(target: Target, account: Account, raw: Raw, **given: Any) -> Raw:
    return Signer.of(account, **given).signed(raw, host_of(target.url))


def _ask(
    target: Target, account: Account, operation: str, given: dict[str, Any], make: Any = raw_json
) -> Told:
    """Send a request as it should be, signed by an account."""
    return send(target.url, _signed(target, account, make(operation, given)))


def _example(target: Target, operation: Operation, url: str) -> dict[str, Any]:
    """A small input of an operation, which is valid but for its receipt handles."""
    known: dict[str, Any] = {
        "AWSAccountIds": ["1"],
        "Actions": ["*"],
        "Attributes": {"DelaySeconds": "0"},
        "Entries": [{"Id": "a", "MessageBody": "x", "ReceiptHandle": "x", "VisibilityTimeout": 0}],
        "Label": "a",
        "MessageBody": "x",
        "QueueName": f"n{uuid4().hex[:8]}",
        "QueueUrl": url,
        "ReceiptHandle": "x",
        "SourceArn": _arn(target.victim, "x"),
        "TagKeys": ["a"],
        "Tags": {"a": "b"},
        "TaskHandle": "x",
        "VisibilityTimeout": 0,
    }
    return {name: known[name] for name in operation.input.model_fields if name in known}


def _are_refused(told: list[Told]) -> bool:
    return all(400 <= each.status < 500 for each in told)


@attack
def sqs_signatures_that_do_not_fit(target: Target) -> Seen:
    """Requests that somebody else signed, at another time, for another service, or in part."""
    queue = target.queue()
    raw = raw_json("DeleteQueue", {"QueueUrl": _url(target, queue)})
    host, victim, stranger = host_of(target.url), target.victim, target.stranger
    good = _signed(target, victim, raw)
    in_url = Signer.of(victim).presigned(raw, host)
    tried = [
        raw,
        Signer(victim.name, "guessed").signed(raw, host),
        Signer(victim.name, stranger.key).signed(raw, host),
        Signer(f"{victim.name}:primary", stranger.key).signed(raw, host),
        Signer(stranger.name, victim.key).signed(raw, host),
        Signer.of(victim, at=long_ago(days=1)).signed(raw, host),
        Signer.of(victim, at=long_ago(minutes=16)).signed(raw, host),
        Signer.of(victim, at=long_ago(minutes=-16)).signed(raw, host),
        Signer.of(victim, service="s3").signed(raw, host),
        Signer.of(victim, leaves_out=frozenset({"host"})).signed(raw, host),
        Signer.of(victim, leaves_out=frozenset({"x-amz-target"})).signed(raw, host),
        Signer.of(victim, at=long_ago(seconds=9)).presigned(raw, host, 8),
        Signer.of(victim).presigned(raw, host, 10**6),
        replace(in_url, query=in_url.query.replace(b"Expires=60", b"Expires=600")),
        replace(in_url, query=in_url.query + b"&X-Amz-Expires=600"),
        replace(good, query=in_url.query),
        good.with_headers(x_amz_date=b"20260101T000000Z"),
        good.with_headers(x_amz_content_sha256=b"UNSIGNED-PAYLOAD"),
        good.with_headers(x_amz_security_token=b"x"),
    ]
    told = [send(target.url, each) for each in tried]
    codes = Counter(each.code for each in told)
    return refused_if(_are_refused(told) and target.serves(queue), dict(codes))


@attack
def sqs_requests_captured(target: Target) -> Seen:
    """Signed requests, sent again with another body, operation, path, query, protocol or host."""
    queue, other = target.queue(), target.queue()
    there, away = _url(target, queue), _url(target, other)
    victim, path = target.victim.name.encode(), queue.encode()
    by_path = replace(raw_form("GetQueueAttributes", {}), path=b"/%b/%b" % (victim, path))
    by_url = raw_json("ListQueueTags", {"QueueUrl": there})
    form, signed = (_signed(target, target.victim, each) for each in (by_path, by_url))
    unsigned = Signer.of(target.victim).presigned(by_path, host_of(target.url))
    tried = [
        replace(form, body=b"Action=DeleteQueue"),
        replace(form, query=b"Action=DeleteQueue"),
        replace(form, query=b"QueueUrl=" + away.encode()),
        replace(form, path=b"/%b/%b" % (victim, other.encode())),
        replace(form, path=form.path + b"/../" + other.encode()),
        replace(form, path=form.path.replace(path, b"%2e%2e/" + other.encode())),
        form.with_headers(x_amz_target=b"AmazonSQS.DeleteQueue"),
        signed.with_headers(x_amz_target=b"AmazonSQS.DeleteQueue"),
        replace(signed, headers=((b"x-amz-target", b"AmazonSQS.DeleteQueue"), *signed.headers)),
        replace(signed, body=signed.body.replace(queue.encode(), other.encode())),
        replace(unsigned, body=b"Action=DeleteQueue"),
        replace(unsigned, query=unsigned.query + b"&Action=DeleteQueue"),
    ]
    told = [send(target.url, each) for each in tried]
    codes = Counter(each.code for each in told)
    is_safe = target.serves(queue) and target.serves(other)
    return refused_if(_are_refused(told) and is_safe, dict(codes))


@attack
def sqs_accounts_that_exist(target: Target) -> Seen:
    """A stranger asks in the names of accounts, and looks at the answers and at the time."""
    queue = target.queue()
    raw = raw_json("ListQueueTags", {"QueueUrl": _url(target, queue)})

    def ask(name: str) -> tuple[float, tuple[int, bytes]]:
        signed = Signer(name, "guessed").signed(raw, host_of(target.url))
        began = time.perf_counter()
        told = send(target.url, signed)
        return time.perf_counter() - began, (told.status, told.body)

    def pair(_: int) -> tuple[bool, set[tuple[int, bytes]]]:
        known, one = ask(target.victim.name)
        unknown, other = ask(f"a{uuid4().hex[:10]}")
        return unknown > known, {one, other}

    ask(target.victim.name)
    with ThreadPoolExecutor(5) as pool:
        found = list(pool.map(pair, range(_PAIRS)))
    texts = set[tuple[int, bytes]]().union(*(each for _, each in found))
    share = sum(is_slower for is_slower, _ in found) / _PAIRS
    is_hidden = len(texts) == 1 and 1 - _TOLD_APART < share < _TOLD_APART
    return refused_if(
        is_hidden, f"{len(texts)} answers; what does not exist takes longer in {share:.0%}"
    )


@attack
def sqs_queues_of_others(target: Target) -> Seen:
    """A stranger's own signature on the queues of the victim: by URL, path, name and ARN."""
    queue, mine = target.queue(), target.queue(target.stranger)
    ask = partial(_ask, target, target.stranger)
    victim = target.victim.name
    told, texts = [], set()
    for there, operation in product((queue, f"{queue}none"), OPERATIONS.values()):
        given = _example(target, operation, _url(target, there))
        if operation.is_of_queue:
            answers = [ask(operation.name, given, make) for make in _RAWS]
            path = f"/{victim}/{there}".encode()
            raw = replace(raw_form(operation.name, given | {"QueueUrl": ""}), path=path)
            answers.append(send(target.url, _signed(target, target.stranger, raw)))
            told += answers
            texts.add((operation.name, tuple(each.code for each in answers)))
    policy = {"deadLetterTargetArn": _arn(target.victim, queue), "maxReceiveCount": 1}
    redrive = {"RedrivePolicy": json.dumps(policy)}
    names = (f"{victim}:{queue}", f"../{victim}/{queue}", f"{queue}%00", f"~{victim}")
    told += [
        ask("GetQueueUrl", {"QueueName": queue, "QueueOwnerAWSAccountId": victim}),
        ask("CreateQueue", {"QueueName": "x", "Attributes": redrive}),
        ask(
            "SetQueueAttributes",
            {"QueueUrl": _url(target, mine, target.stranger), "Attributes": redrive},
        ),
        *(ask("CreateQueue", {"QueueName": name}) for name in names),
        *(ask("ReceiveMessage", {"QueueUrl": f"http://h/{victim}/{name}"}) for name in names),
        *(
            ask("ReceiveMessage", {"QueueUrl": f"http://h/{target.stranger.name}/{name}"})
            for name in names
        ),
    ]
    listed = ask("ListQueues", {}).body
    is_same = len(texts) == len({name for name, _ in texts})
    is_safe = victim.encode() not in listed and target.serves(queue)
    codes = Counter(each.code for each in told)
    return refused_if(_are_refused(told) and is_same and is_safe, dict(codes))


@attack
def sqs_rights_that_a_key_lacks(target: Target) -> Seen:
    """Each operation, without a key, and by a key with every right but that of the operation."""
    queue = target.queue()
    told = []
    keys: dict[Right, Account] = {}
    for operation in OPERATIONS.values():
        right = operation.right
        if right not in keys:
            name = f"not-{right.title}-{queue}"
            others = [each for each in Right if each is not right]
            key = key_with(target.gateway, target.victim, name, *others)
            keys[right] = replace(key, name=f"{key.name}:{name}")
        given = _example(target, operation, _url(target, queue))
        told += [_ask(target, keys[right], operation.name, given, make) for make in _RAWS]
        told += [send(target.url, make(operation.name, given)) for make in _RAWS]
    statuses = Counter(each.status for each in told)
    return refused_if({*statuses} == {403} and target.serves(queue), dict(statuses))


@attack
def sqs_keys_of_one_queue(target: Target) -> Seen:
    """A key that is limited to a queue, with every right, on another queue of its account."""
    queue, other = target.queue(), target.queue()
    key = target.key_with(*(each.title for each in Right), queue=queue)
    told = []
    for operation in OPERATIONS.values():
        given = _example(target, operation, _url(target, other))
        if operation.is_of_queue or operation.name == "CreateQueue":
            told += [_ask(target, key, operation.name, given, make) for make in _RAWS]
    told.append(_ask(target, key, "GetQueueUrl", {"QueueName": other}))
    listed = _ask(target, key, "ListQueues", {}).json["QueueUrls"]
    policy = {"deadLetterTargetArn": _arn(target.victim, other), "maxReceiveCount": 1}
    given = {
        "QueueUrl": _url(target, queue),
        "Attributes": {"RedrivePolicy": json.dumps(policy)},
    }
    told.append(_ask(target, key, "SetQueueAttributes", given))
    is_limited = listed == [_url(target, queue)] and target.serves(other)
    codes = Counter(each.code for each in told)
    return refused_if(_are_refused(told) and is_limited, dict(codes))


@attack
def sqs_handles_of_others(target: Target) -> Seen:
    """Receipt handles of another account and queue, cut, altered, swapped and invented."""
    queue, other = target.queue(), target.queue()
    target.stranger.ask("POST", json={"queueName": queue}).raise_for_status()
    ask, url = partial(_ask, target, target.victim), _url(target, queue)
    for body in ("mine", "yours"):
        ask("SendMessage", {"QueueUrl": url, "MessageBody": body})
    handles: list[str] = []
    while len(handles) < 2:
        given = {"QueueUrl": url, "MaxNumberOfMessages": 10, "WaitTimeSeconds": 5}
        answer = ask("ReceiveMessage", given).json
        handles += [each["ReceiptHandle"] for each in answer.get("Messages", ())]
    # After the receipt comes the time of the receive.
    (one, _, received), (two, _, _) = (each.rpartition(".") for each in handles)
    first, second = (urlsafe_b64decode(each + "=" * (-len(each) % 4)) for each in (one, two))
    forged = [
        first.replace(b"/0", b"/1"),
        first[:-1],
        first[:-16] + bytes(16),
        first[:-16] + second[-16:],
        first + first,
        first[:-16],
        b"",
    ]
    receipts = (urlsafe_b64encode(each).decode().rstrip("=") for each in forged)
    texts = [f"{receipt}.{received}" for receipt in receipts]
    stranger = partial(_ask, target, target.stranger)
    theirs, away = _url(target, queue, target.stranger), _url(target, other)
    change: dict[str, Any] = {"VisibilityTimeout": 0}
    told = []
    for handle in (*handles, *texts):
        by_handle: dict[str, Any] = {"ReceiptHandle": handle}
        told += [
            stranger("DeleteMessage", {"QueueUrl": theirs, **by_handle}),
            stranger("ChangeMessageVisibility", {"QueueUrl": theirs, **by_handle, **change}),
            ask("DeleteMessage", {"QueueUrl": away, **by_handle}),
            ask("ChangeMessageVisibility", {"QueueUrl": away, **by_handle, **change}),
        ]
    for handle in texts:
        told.append(ask("DeleteMessage", {"QueueUrl": url, "ReceiptHandle": handle}))
    counts = ask("GetQueueAttributes", {"QueueUrl": url, "AttributeNames": ["All"]}).json
    held = counts["Attributes"]["ApproximateNumberOfMessagesNotVisible"]
    deleted = [ask("DeleteMessage", {"QueueUrl": url, "ReceiptHandle": each}) for each in handles]
    is_kept = held == "2" and all(each.status == 200 for each in deleted)
    return refused_if(
        _are_refused(told) and is_kept, (dict(Counter(each.code for each in told)), held)
    )


@attack
def sqs_move_tasks_of_others(target: Target) -> Seen:
    """A stranger moves the dead letters of the victim, or his own ones to the victim's queue."""
    queue, mine = target.queue(), target.queue(target.stranger)
    ask = partial(_ask, target, target.stranger)
    theirs, own = _arn(target.victim, queue), _arn(target.stranger, mine)
    handle = handle_of("0" * 32, theirs)
    told = [
        ask(operation, given, make)
        for make in _RAWS
        for operation, given in (
            ("StartMessageMoveTask", {"SourceArn": theirs}),
            ("StartMessageMoveTask", {"SourceArn": theirs, "DestinationArn": own}),
            ("StartMessageMoveTask", {"SourceArn": own, "DestinationArn": theirs}),
            ("StartMessageMoveTask", {"SourceArn": f"{theirs}.dead", "DestinationArn": own}),
            ("ListMessageMoveTasks", {"SourceArn": theirs}),
            ("ListMessageMoveTasks", {"SourceArn": f"{theirs}none"}),
            ("CancelMessageMoveTask", {"TaskHandle": handle}),
            ("CancelMessageMoveTask", {"TaskHandle": handle[:-4]}),
        )
    ]
    listed = {told[number].body.split(b"<RequestId>")[0] for number in (4, 5)}
    codes = Counter(each.code for each in told)
    return refused_if(
        _are_refused(told) and len(listed) == 1 and target.serves(queue), dict(codes)
    )


@attack
def sqs_holding_for_long(target: Target) -> Seen:
    """A key that may only receive holds a message for twelve hours."""
    queue = target.queue()
    name = f"reader-{queue}"
    reader = key_with(target.gateway, target.victim, name, Right.READ_MESSAGE)
    reader = replace(reader, name=f"{reader.name}:{name}")
    _ask(
        target, target.victim, "SendMessage", {"QueueUrl": _url(target, queue), "MessageBody": "x"}
    )
    given = {"QueueUrl": _url(target, queue), "VisibilityTimeout": 43_200, "WaitTimeSeconds": 5}
    told = _ask(target, reader, "ReceiveMessage", given)
    return refused_if(told.status == 400 and target.serves(queue), told.body)


@attack
def sqs_hosts_and_lines(target: Target) -> Seen:
    """Hosts and names with line feeds and markup, which an answer might repeat."""
    queue = target.queue()
    given = {"QueueName": queue}
    raw, odd = raw_json("GetQueueUrl", given), "x\r\nSet-Cookie: a=b<b>"
    told, urls = [], []
    for host in ("evil.example", "a b", "x/y?", 'x"><script>', "x" * 300):
        signed = Signer.of(target.victim).signed(raw, host).with_headers(host=host.encode())
        told.append(send(target.url, signed))
        with suppress(ValueError, KeyError):
            urls.append(told[-1].json["QueueUrl"])
    for make in _RAWS:
        told.append(_ask(target, target.victim, "GetQueueUrl", {"QueueName": odd}, make))
        told.append(
            _ask(target, target.victim, odd, given, make if make is raw_form else raw_form)
        )
    is_plain = all("set-cookie" not in each.headers for each in told)
    is_plain &= not any(b"<b>" in each.body or b"<script>" in each.body for each in told)
    return contained_if(
        is_plain and max(each.status for each in told) < 500, (urls, [t.status for t in told])
    )


@attack
def sqs_secrets_in_the_log(target: Target) -> Seen:
    """Keys, signatures, handles and bodies in the log; and lines of a stranger's own."""
    queue = target.queue()
    url, host = _url(target, queue), host_of(target.url)
    raw = raw_form("SendMessage", {"QueueUrl": url, "MessageBody": "a-body-of-18"})
    raw = Raw("GET", b"/", raw.body)
    signed = Signer.of(target.victim).presigned(raw, host)
    sent = send(target.url, signed)
    forged = b'/a%0A{"level":"ERROR","message":"forged-by-a-stranger"}'.replace(b'"', b"%22")
    send(target.url, replace(raw_form("ListQueues", {}), path=forged))
    send(target.url, Raw(query=b"Action=a%0Aforged-by-a-stranger", headers=signed.headers))
    log = target.gateway.log.read_text(errors="replace")
    words = (target.victim.key, signed.query.rpartition(b"=")[2].decode(), "a-body-of-18")
    is_silent = not any(word in log for word in words)
    lines = [each for each in log.splitlines() if "forged-by-a-stranger" in each]
    is_whole = all("/a" in each for each in lines)
    return refused_if(
        sent.status == 200 and is_silent and is_whole, f"{len(log)} characters of log"
    )


def _side_by_side(target: Target, raws: list[Raw]) -> Seen:
    """Requests at once: what one takes is nothing, what all of them take may be."""
    queue = target.queue()
    raws = [_signed(target, target.victim, each) for each in raws]

    def code_of(raw: Raw) -> str:
        try:
            told = send(target.url, raw)
        except ConnectionError:
            # The gateway has refused it before it was read, and the answer was lost by that.
            return "closed"
        return told.code if told.status < 500 else "failed"

    with ThreadPoolExecutor(len(raws)) as pool:
        codes = Counter(pool.map(code_of, raws))
    is_refused = not codes.keys() & {"", "failed"}
    return refused_if(is_refused and target.serves(queue), dict(codes))


@attack
def sqs_json_bombs(target: Target) -> Seen:
    """JSON that is deep, wide, of many digits, or of keys that are the same; all at once."""
    million = ",".join(f'"{number}":1' for number in range(500_000))
    bodies = (
        "[" * 6_000_000,
        '{"a":' * 1_000_000,
        f'{{"QueueName":"x",{million}}}',
        f'{{"QueueName":"x","Attributes":{{{million}}}}}',
        '{"QueueName":' + "1" * 6_000_000 + "}",
        '{"QueueName":"' + "\\ud800" * 1_000_000 + '"}',
        '{"QueueName":"x","QueueName":' * 200_000,
    )
    return _side_by_side(target, [raw_json("CreateQueue", each.encode()) for each in bodies])


@attack
def sqs_forms_and_xml_bombs(target: Target) -> Seen:
    """Forms of many parameters, parts and escapes, and XML of entities; all at once."""
    entities = "".join(f'<!ENTITY e{n + 1} "{f"&e{n};" * 10}">' for n in range(20))
    bodies = (
        "Action=CreateQueue" + "&a=1" * 1_500_000,
        "Action=CreateQueue&" + "Attribute." * 600_000 + "=1",
        "Action=CreateQueue&QueueName=" + "%41" * 2_000_000,
        "Action=CreateQueue&QueueName=" + "%" * 6_000_000,
        "Action=CreateQueue&Attribute.999999999.Name=a",
        "".join(f"&Attribute.{n}.Name=%0{n % 10}" for n in range(1_999)) + "&Action=CreateQueue",
        f'<?xml version="1.0"?><!DOCTYPE a [<!ENTITY e0 "x">{entities}]><a>&e20;</a>',
    )
    headers = raw_form("CreateQueue", {}).headers
    raws = [Raw(headers=headers, body=each.encode()) for each in bodies]
    return _side_by_side(target, raws)


@attack
def sqs_batches_at_the_limits(target: Target) -> Seen:
    """Batches of a mebibyte with all that messages may have, and those that are a bit larger."""
    queue = target.queue(target.stranger)
    url = _url(target, queue, target.stranger)
    value = {"DataType": "Number." + "x" * 240, "StringValue": "1" * 250}
    entries = [
        {
            "Id": f"{number}" + "x" * 79,
            "MessageBody": "\x7f" * 97_000,
            "MessageAttributes": {f"{n}" + "n" * 250: value for n in range(10)},
        }
        for number in range(10)
    ]
    ask = partial(_ask, target, target.stranger, "SendMessageBatch")
    larger = [
        {"QueueUrl": url, "Entries": [*entries, entries[0] | {"Id": "more"}]},
        {"QueueUrl": url, "Entries": [*entries[:9], entries[9] | {"MessageBody": "x" * 200_000}]},
        {"QueueUrl": url, "Entries": [entries[0], entries[0]]},
    ]
    told = [ask(each, make) for each in larger for make in _RAWS]
    counts: Counter[int] = Counter()

    def flood(make: Any) -> None:
        told = ask({"QueueUrl": url, "Entries": entries}, make)
        counts[told.status if told.status != 200 or b"Failed" not in told.body else 0] += 1

    slowest = target.slowest_while([partial(flood, make) for make in _RAWS * 12], 8)
    if not _are_refused(told) or not counts[200]:
        return refused_if(False, (dict(counts), [each.code for each in told]))
    return served_within(slowest, dict(counts))


@attack
def sqs_answers_of_what_was_small(target: Target) -> Seen:
    """Messages that another door has put, which either protocol makes several times as long."""
    queue = target.queue()
    for byte in (b"\xff", b"&", b"\r", b"\0"):
        body = byte * (8 * _MIB - 100)
        target.victim.ask("POST", f"/{queue}/messages", content=body).raise_for_status()
    given = {"QueueUrl": _url(target, queue), "MaxNumberOfMessages": 10, "VisibilityTimeout": 0}
    sizes = []
    end = time.monotonic() + 20
    while time.monotonic() < end:
        with ThreadPoolExecutor(4) as pool:
            asked = [
                pool.submit(_ask, target, target.victim, "ReceiveMessage", given, make)
                for make in _RAWS * 2
            ]
        sizes += [len(each.result().body) for each in asked]
    return contained_if(
        8 * _MIB < max(sizes) < 200 * _MIB, f"answers of {max(sizes)} bytes at most"
    )


@attack
def sqs_messages_that_nobody_can_read(target: Target) -> Seen:
    """Messages of another door, whose headers say what no client of SQS could have sent."""
    queue = target.queue()
    held: tuple[dict[str, object], ...] = (
        {"sender": "\ud800", "trace": "\ud800", "dedup": "\ud800"},
        {"types": {"h": "\ud800"}},
        {"types": {"h": "Binary.\ud800"}},
        {"types": {"h": "Binary"}},
        {"types": [1], "sender": {}},
    )
    for each in held:
        headers = json.dumps({"aws.sqs": json.dumps(each), "h": "\0", "\0": "\ufffe"})
        target.victim.ask(
            "POST", f"/{queue}/messages", content=b"x", headers={"X-Cassieq-Headers": headers}
        ).raise_for_status()
    given = {
        "QueueUrl": _url(target, queue),
        "MaxNumberOfMessages": 10,
        "WaitTimeSeconds": 5,
        "AttributeNames": ["All"],
        "MessageAttributeNames": ["All"],
    }
    counts = []
    for make in _RAWS:
        told = _ask(
            target, target.victim, "ReceiveMessage", {**given, "VisibilityTimeout": 0}, make
        )
        counts.append(told.body.count(b"ReceiptHandle"))
    is_fine = counts == [len(held), 2 * len(held)] and target.serves(target.queue())
    return contained_if(is_fine, f"receipts in two answers: {counts}")


@attack
def sqs_attributes_without_end(target: Target) -> Seen:
    """Policies, tags and names of attributes that are many and long."""
    queue = target.queue()
    url = {"QueueUrl": _url(target, queue)}
    ask = partial(_ask, target, target.victim)
    long = ["x" * 3_000 + str(number) for number in range(1_900)]
    told = [
        ask("AddPermission", {**url, "Label": "a", "AWSAccountIds": long, "Actions": ["*"]}),
        ask("AddPermission", {**url, "Label": "b", "AWSAccountIds": long[:8], "Actions": ["*"]}),
        ask("TagQueue", {**url, "Tags": dict.fromkeys(long, "x")}),
        ask("TagQueue", {**url, "Tags": {str(number): "x" for number in range(51)}}),
        ask("UntagQueue", {**url, "TagKeys": long}),
        ask("SetQueueAttributes", {**url, "Attributes": {"Policy": '{"a":' * 3_000}}),
        ask("SetQueueAttributes", {**url, "Attributes": {"Policy": f'"{"x" * 5 * _MIB}"'}}),
        ask("SetQueueAttributes", {**url, "Attributes": {"Policy": '{"a":"' + "x" * 70_000}}),
    ]
    names = {**url, "MessageAttributeNames": [f"{each[-200:]}.*" for each in long]}
    seen = ask("ReceiveMessage", names)
    kept = ask("GetQueueAttributes", {**url, "AttributeNames": ["Policy"]}).json
    is_fine = seen.status == 200 and kept == {} and target.serves(queue)
    return refused_if(_are_refused(told) and is_fine, [each.code or each.status for each in told])


def _flooded(
    target: Target, flood: Sequence[Callable[[], object]], at_once: int = _AT_ONCE
) -> float:
    return target.slowest_while(flood, at_once)


@attack
def sqs_every_operation_again_and_again(target: Target) -> Seen:
    """Each operation ten times in both protocols, by a stranger on queues of his own."""
    queue, answers = target.queue(target.stranger), Counter[int]()
    url = _url(target, queue, target.stranger)

    def ask(operation: Operation, make: Any) -> None:
        given = _example(target, operation, url)
        answers[_ask(target, target.stranger, operation.name, given, make).status] += 1

    each = [
        partial(ask, operation, make)
        for operation in OPERATIONS.values()
        for make in _RAWS
        if operation.name not in {"DeleteQueue", "PurgeQueue"}
    ]
    return served_within(_flooded(target, each * 10), dict(answers))


@attack
def sqs_signatures_again_and_again(target: Target) -> Seen:
    """Two thousand requests with wrong signatures, of accounts that exist and that do not."""
    raw, host = raw_json("ListQueues", {}), host_of(target.url)

    def ask(name: str) -> None:
        send(target.url, Signer(name, "guessed").signed(raw, host))

    names = [target.victim.name if number % 2 else f"x{number}" for number in range(2_000)]
    return served_within(_flooded(target, [partial(ask, name) for name in names]))


@attack
def sqs_signatures_that_take_long_to_read(target: Target) -> Seen:
    """Unsigned requests whose headers and queries can be split in many ways."""
    begin = b"AWS4-HMAC-SHA256 Credential="
    values = [
        begin + part * (_HEADER // len(part)) + b","
        for part in (b"SignedHeaders=Signature=", b"Credential=", b"Signature=", b"a;")
    ]
    raws = [raw_json("ListQueues", {}).with_headers(authorization=each) for each in values]
    query = b"X-Amz-Signature=" + b"&".join(b"X-Amz-%d=%%41" % number for number in range(1_500))
    raws.append(Raw(query=query))
    flood = [partial(send, target.url, each) for each in raws * 40]
    return served_within(_flooded(target, list(flood)))


@attack
def sqs_large_forms_again_and_again(target: Target) -> Seen:
    """Bodies of 7 MB, of escapes or of JSON, by a stranger with a key."""
    queue = target.queue(target.stranger)
    url = _url(target, queue, target.stranger)
    begin = raw_form("SendMessage", {"QueueUrl": url}).body + b"&MessageBody="
    raws = [
        Raw(headers=raw_form("x", {}).headers, body=begin + b"%41" * ((_LARGE - 300) // 3)),
        raw_json("SendMessage", {"QueueUrl": url, "MessageBody": "," * (_LARGE - 300)}),
    ]
    signed = [_signed(target, target.stranger, each) for each in raws]
    answers = Counter[str]()

    def ask(raw: Raw) -> None:
        answers[send(target.url, raw).code] += 1

    slowest = _flooded(target, [partial(ask, each) for each in signed * 16], 8)
    return served_within(slowest, dict(answers))


@attack
def sqs_bodies_of_strangers(target: Target) -> Seen:
    """From twelve addresses, bodies with wrong signatures that end a little before they are whole.

    Meanwhile the victim sends by both doors.
    """
    queue = target.queue()
    raw = raw_json("ListQueues", b"x" * _LARGE)
    raw = Signer(target.victim.name, "guessed").signed(raw, host_of(target.url))
    sent = 0
    with ExitStack() as stack:
        for number in range(12):
            for _ in range(6):
                local = f"127.0.0.{30 + number}"
                connection = stack.enter_context(connected(target.url, raw, local=local))
                connection.settimeout(2)
                with suppress(OSError):
                    connection.sendall(raw.body[:-1])
                    sent += 1
        slowest = target.puts_slowly(queue, 10)
        given = {"QueueUrl": _url(target, queue), "MessageBody": "x"}
        told = [_ask(target, target.victim, "SendMessage", given) for _ in range(5)]
        large = target.victim.ask("POST", f"/{queue}/messages", content=b"x" * 4 * _MIB)
    is_served = all(each.status == 200 for each in told) and large.is_success
    return contained_if(
        is_served and slowest < _SLOW, f"{sent} bodies were taken; puts took {slowest:.1f} s"
    )


@attack
def sqs_long_polls_of_one_account(target: Target) -> Seen:
    """Eight hundred long polls of one account, by a single address."""
    queue, theirs = target.queue(), target.queue(target.stranger)
    given = {"QueueUrl": _url(target, theirs, target.stranger), "WaitTimeSeconds": 20}
    raw = _signed(target, target.stranger, raw_json("ReceiveMessage", given))
    with ExitStack() as stack:
        for _ in range(800):
            connection = stack.enter_context(connected(target.url, raw, local="127.0.0.9"))
            with suppress(OSError):
                connection.sendall(raw.body)
        slowest = target.puts_slowly(queue, 5)
        given = {"QueueUrl": _url(target, queue), "WaitTimeSeconds": 5}
        began = time.monotonic()
        told = _ask(target, target.victim, "ReceiveMessage", given)
        took = time.monotonic() - began
    is_served = told.status == 200 and slowest < _SLOW and took < 2 * _SLOW
    return contained_if(is_served, f"the slowest of five puts took {slowest:.1f} s")
