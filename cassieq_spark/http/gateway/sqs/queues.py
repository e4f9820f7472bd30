"""Operations on queues: their life, attributes, tags and permissions."""

from __future__ import annotations

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any

from cassieq_spark.errors import ExistsError, NotFoundError
from cassieq_spark.http import DEFAULT_GROUP
from cassieq_spark.http.accounts import Right, own_name
from cassieq_spark.http.gateway.sqs.calls import SqsCall, group_in, serves
from cassieq_spark.http.gateway.sqs.settings import (
    PREFIX,
    PURGED,
    TAG,
    KnownQueue,
    attributes_held,
    attributes_of,
    check_target,
    held_time,
    milliseconds,
    settings_of,
    settings_of_new,
    stored_as,
    tags_of,
)
from cassieq_spark.http.sqs import inputs
from cassieq_spark.http.sqs.addresses import QueueAddress
from cassieq_spark.http.sqs.errors import (
    AccessDenied,
    InvalidParameterValue,
    OverLimit,
    PurgeQueueInProgress,
    QueueDoesNotExist,
    QueueNameExists,
)
from cassieq_spark.http.sqs.outputs import Output
from cassieq_spark.http.sqs.queue_attributes import (
    COMPUTED,
    LONGEST_JSON,
    POLICY,
    REDRIVE,
    REDRIVE_ALLOW,
    RedriveAllowPolicy,
    asked_for,
    changed_attributes,
    first_difference,
    new_attributes,
)

_ALL = "All"
#: The attribute that counts the messages that a reader could get.
VISIBLE = "ApproximateNumberOfMessages"
_COUNTS = {name for name in COMPUTED if name.startswith("Approximate")}
_MOST_NAMES = 1_000
_POLICY_VERSION = "2008-10-17"


@serves("CreateQueue")
async def create_queue(call: SqsCall) -> Output:
    """Create a queue; if a queue with the same attributes exists, succeed."""
    given: inputs.CreateQueue = call.input
    address = QueueAddress(call.account, given.QueueName)
    name, attributes = call.full_name(address), new_attributes(given.Attributes or {})
    await _check_redrive(call, attributes.get(REDRIVE), address)
    client = call.gateway.client
    await call.gateway.storage.check_queues(call.account, [name])
    kept = stored_as(attributes, call.now)
    kept |= {TAG + key: value for key, value in (given.tags or {}).items()}
    try:
        await client.create_queue(name, **settings_of_new(attributes))
    except ExistsError:
        found = await call.known.read(name)
        arn = address.arn(call.region)
        if (other := first_difference(attributes, attributes_of(found, arn))) is not None:
            raise QueueNameExists.of(other) from None
        if any(each.startswith(PREFIX) for each in found.attributes):
            return {"QueueUrl": address.url(call.base)}
        # Another interface has made the queue; or a call broke off here, and is completed now.
    with suppress(ExistsError):
        await client.create_group(name, DEFAULT_GROUP)
    await client.set_attributes(name, kept)
    call.known.forget(name)
    return {"QueueUrl": address.url(call.base)}


@serves("GetQueueUrl")
async def get_queue_url(call: SqsCall) -> Output:
    """Get the URL of a queue."""
    given: inputs.GetQueueUrl = call.input
    owner = given.QueueOwnerAWSAccountId or call.account
    if owner != call.account:
        raise QueueDoesNotExist(
            "The specified queue does not exist or you do not have access to it."
        )
    address = QueueAddress(owner, given.QueueName)
    name = call.full_name(address)
    await call.known.find(name)
    if (group := group_in(address)) != DEFAULT_GROUP:
        await counts(call, name, group)
    return {"QueueUrl": address.url(call.base)}


@serves("ListQueues")
async def list_queues(call: SqsCall) -> Output:
    """List the URLs of the queues of the account, by name."""
    given: inputs.ListQueues = call.input
    found = await call.gateway.client.queue_names(f"{call.account}:")
    prefix = given.QueueNamePrefix or ""
    names = [name for name in map(own_name, found.used) if name.startswith(prefix)]
    return _page(call, names, given, "QueueUrls")


@serves("ListDeadLetterSourceQueues")
async def list_dead_letter_source_queues(call: SqsCall) -> Output:
    """List the URLs of the queues whose dead letters a queue gets."""
    target = (await call.known.find(call.whole_queue)).definition.name
    queues = await call.gateway.client.queues(f"{call.account}:")
    names = [own_name(each.name) for each in queues if each.dead_letter_queue == target]
    return {"queueUrls": []} | _page(call, names, call.input, "queueUrls")


def _page(
    call: SqsCall,
    names: Iterable[str],
    given: inputs.ListQueues | inputs.ListDeadLetterSourceQueues,
    key: str,
) -> dict[str, Any]:
    """A page of names, as URLs; the token of the next page is the last name of this page."""
    after = _name_of(given.NextToken) if given.NextToken else ""
    most = given.MaxResults or _MOST_NAMES
    seen = sorted(name for name in names if name > after and call.grant.covers(name))
    page: dict[str, Any] = {}
    if seen:
        page[key] = [call.url_of(name) for name in seen[:most]]
    if len(seen) > most and given.MaxResults is not None:
        page["NextToken"] = urlsafe_b64encode(seen[most - 1].encode()).decode()
    return page


def _name_of(token: str) -> str:
    try:
        return urlsafe_b64decode(token).decode()
    except ValueError:
        raise InvalidParameterValue.of(token, "NextToken", "It is no such token.") from None


@serves("GetQueueAttributes")
async def get_queue_attributes(call: SqsCall) -> Output:
    """Get attributes of a queue; the counts are the exact counts of its group."""
    given: inputs.GetQueueAttributes = call.input
    names = given.AttributeNames or ()
    known = await call.known.find(call.queue)
    address = call.address or QueueAddress(call.account, own_name(known.definition.name))
    found = attributes_of(known, address.arn(call.region))
    if _ALL in names or not _COUNTS.isdisjoint(names) or call.group != DEFAULT_GROUP:
        found |= await counts(call, call.queue, call.group)
    chosen = asked_for(names, found)
    return {"Attributes": chosen} if chosen else {}


async def counts(call: SqsCall, queue: str, group_name: str = DEFAULT_GROUP) -> dict[str, str]:
    """The messages of a queue that are visible to a group, held or delayed. Exact; some reads.

    Raises:
        QueueDoesNotExist: There is no such group, which no receive makes, except the default one.
    """
    stats = await call.gateway.client.stats(queue)
    group = next((each for each in stats.groups if each.group == group_name), None)
    if group is None and group_name != DEFAULT_GROUP:
        raise QueueDoesNotExist
    visible, held, delayed = stats.next - stats.finalised, 0, 0
    if group is not None:
        held, delayed = group.leased, group.waiting
        visible = group.depth - held - delayed - group.dead
    return {
        VISIBLE: str(max(0, visible)),
        "ApproximateNumberOfMessagesNotVisible": str(held),
        "ApproximateNumberOfMessagesDelayed": str(delayed),
    }


@serves("SetQueueAttributes")
async def set_queue_attributes(call: SqsCall) -> Output:
    """Set attributes of a queue; attributes that are not named stay."""
    given: inputs.SetQueueAttributes = call.input
    name = call.whole_queue
    known = await call.known.read(name)
    changes = changed_attributes(given.Attributes, attributes_held(known))
    if changes.get(REDRIVE) is not None and Right.CREATE_QUEUE not in call.grant.rights:
        # As in the HTTP API: dead messages are put into that queue.
        raise AccessDenied("A redrive policy needs the right CreateQueue, too.")
    await _check_redrive(call, changes.get(REDRIVE), call.address)
    await _alter(call, name, changes)
    return {}


async def _alter(call: SqsCall, name: str, changes: dict[str, str | None]) -> None:
    client = call.gateway.client
    settings = settings_of(changes)
    if settings:
        await client.alter_queue(name, **settings)
    await client.set_attributes(name, stored_as(changes, call.now))
    call.known.forget(name)


async def _check_redrive(call: SqsCall, policy: str | None, source: QueueAddress | None) -> None:
    """Refuse a redrive policy to a queue that does not exist, or that does not allow it."""
    if policy is None or source is None:
        return
    target = check_target(policy, source).target
    try:
        known = await call.known.find(call.full_name(target))
    except NotFoundError:
        reason = "Dead letter target does not exist."
        raise InvalidParameterValue.of(policy, REDRIVE, reason) from None
    allows = attributes_held(known).get(REDRIVE_ALLOW)
    if allows is not None and not RedriveAllowPolicy.parse(allows).allows(source):
        raise InvalidParameterValue.of(
            policy, REDRIVE, "The dead-letter queue does not allow this source queue."
        )


@serves("DeleteQueue")
async def delete_queue(call: SqsCall) -> Output:
    """Delete a queue with its messages. It is no error if another call deletes the queue first."""
    name = call.whole_queue
    await call.gateway.client.delete_queue(name, force=True)
    call.known.forget(name)
    return {}


@serves("PurgeQueue")
async def purge_queue(call: SqsCall) -> Output:
    """Delete all messages of a queue, including held ones."""
    name = call.whole_queue
    known = await call.known.read(name)
    purged, now = held_time(known, PURGED), milliseconds(call.now)
    pause = call.gateway.limits.purge_pause
    if purged is not None and int(now) - purged < pause / timedelta(milliseconds=1):
        raise PurgeQueueInProgress.of(own_name(name), pause)
    await call.gateway.client.purge_queue(name, force=True)
    await call.gateway.client.set_attributes(name, {PURGED: now})
    call.known.forget(name)
    return {}


@serves("TagQueue")
async def tag_queue(call: SqsCall) -> Output:
    """Add tags to a queue, or replace tags of the same keys."""
    name, given = call.whole_queue, call.input.Tags
    inputs.check_tags(tags_of(await call.known.read(name)) | given)
    await _set(call, name, {TAG + key: value for key, value in given.items()})
    return {}


@serves("UntagQueue")
async def untag_queue(call: SqsCall) -> Output:
    """Remove tags from a queue."""
    await _set(call, call.whole_queue, {TAG + key: None for key in call.input.TagKeys})
    return {}


@serves("ListQueueTags")
async def list_queue_tags(call: SqsCall) -> Output:
    """List the tags of a queue."""
    tags = tags_of(await call.known.find(call.whole_queue))
    return {"Tags": tags} if tags else {}


async def _set(call: SqsCall, name: str, changes: dict[str, str | None]) -> None:
    await call.gateway.client.set_attributes(name, changes)
    call.known.forget(name)


@serves("AddPermission")
async def add_permission(call: SqsCall) -> Output:
    """Add a statement to the policy of a queue, which is stored but not enforced."""
    given: inputs.AddPermission = call.input
    known, statements = await _statements(call)
    if any(each.get("Sid") == given.Label for each in statements):
        raise InvalidParameterValue.of(given.Label, "Label", "Already exists.")
    statement = {
        "Sid": given.Label,
        "Effect": "Allow",
        "Principal": {
            "AWS": _one_or_more(f"arn:aws:iam::{it}:root" for it in given.AWSAccountIds)
        },
        "Action": _one_or_more(f"SQS:{each}" for each in given.Actions),
        "Resource": call.arn_of(own_name(known.definition.name)),
    }
    return await _set_policy(call, known, [*statements, statement])


def _one_or_more(texts: Iterable[str]) -> str | list[str]:
    """A single text, or a list of several, as AWS writes policies."""
    first, *others = texts
    return [first, *others] if others else first


@serves("RemovePermission")
async def remove_permission(call: SqsCall) -> Output:
    """Remove a statement from the policy of a queue."""
    given: inputs.RemovePermission = call.input
    known, statements = await _statements(call)
    left = [each for each in statements if each.get("Sid") != given.Label]
    if len(left) == len(statements):
        reason = "can't find label."
        raise InvalidParameterValue.of(given.Label, "Label", reason)
    return await _set_policy(call, known, left)


async def _statements(call: SqsCall) -> tuple[KnownQueue, Sequence[dict[str, Any]]]:
    known = await call.known.read(call.whole_queue)
    policy = json.loads(attributes_held(known).get(POLICY) or "{}")
    found = policy.get("Statement", [])
    found = found if isinstance(found, list) else [found]
    return known, [each for each in found if isinstance(each, dict)]


async def _set_policy(
    call: SqsCall, known: KnownQueue, statements: Sequence[dict[str, Any]]
) -> Output:
    name = known.definition.name
    arn = call.arn_of(own_name(name))
    policy = {
        "Version": _POLICY_VERSION,
        "Id": f"{arn}/SQSDefaultPolicy",
        "Statement": list(statements),
    }
    text = json.dumps(policy, separators=(",", ":")) if statements else None
    if text is not None and len(text) > LONGEST_JSON:
        raise OverLimit(f"The policy would be longer than {LONGEST_JSON} characters.")
    await _alter(call, name, {POLICY: text})
    return {}
