"""What requests and answers look like, for the description. Pure."""

from __future__ import annotations

from typing import Any

_RECEIPT = "c2hvcDpvcmRlcnNAMS9kZWZhdWx0LzEyNjdhZGUxLWQ2ODQtNGJkOS04MDlhLWI1NjFlN2JmNWY5OC8w"
_MESSAGE = {
    "message": "hello",
    "encoding": "text",
    "monoton": 0,
    "key": None,
    "keyEncoding": "text",
    "headers": {},
    "publishedAt": "2026-11-20T12:00:00Z",
}
_HELD = {
    "popReceipt": _RECEIPT,
    "deliveryCount": 1,
    "messageTag": "0",
    "leaseUntil": "2026-11-20T12:00:30Z",
    **_MESSAGE,
}
_QUEUE = {
    "accountName": "acme",
    "queueName": "orders",
    "bucketSize": 8192,
    "maxDeliveryCount": 5,
    "status": "Active",
    "version": 1,
    "deleteBucketsAfterFinalization": True,
    "queueStatsId": "acme:orders@1",
    "dlqName": "orders.dead",
    "strictFifo": False,
    "id": "acme:orders@1",
    "leaseSeconds": 30,
    "expireAfterSeconds": None,
    "keepSettledSeconds": None,
    "createdAt": "2026-11-20T12:00:00Z",
}
_GROUP = {
    "group": "default",
    "size": 3,
    "leased": 1,
    "due": 0,
    "waiting": 0,
    "dead": 0,
    "oldestAgeSeconds": 1.5,
    "next": 1,
    "floor": 0,
}

#: Bodies of requests that are JSON, by operation.
REQUESTS: dict[str, Any] = {
    "createQueue": {"queueName": "orders", "maxDeliveryCount": 5, "dlqName": "orders.dead"},
    "updateMessage": {"newInvisibilitySeconds": 300},
    "ackMessages": {"popReceipts": [_RECEIPT]},
    "nackMessages": {"popReceipts": [_RECEIPT], "delaySeconds": 60},
    "extendMessages": {"popReceipts": [_RECEIPT], "seconds": 300},
    "rejectMessages": {"popReceipts": [_RECEIPT], "reason": "no such customer"},
    "createGroup": {"start": "earliest"},
    "moveGroup": {"to": "2026-11-20T12:00:00Z", "force": False},
    "createKey": {"keyName": "third", "levels": ["PutMessage"], "queueName": "orders"},
    "signUrl": {
        "accountName": "acme",
        "keyName": "primary",
        "levels": ["PutMessage", "ReadMessage"],
        "endTime": "2027-01-01T00:00:00Z",
        "queueName": "orders",
    },
}

#: Bodies of answers that are JSON, by operation and status code.
ANSWERS: dict[tuple[str, int], Any] = {
    ("putMessage", 201): {"monoton": 0},
    ("putMessage", 200): {"monoton": None},
    ("getMessage", 200): _HELD,
    ("updateMessage", 200): {"popReceipt": _RECEIPT, "messageTag": "0"},
    ("putMessages", 201): {"start": 0, "stop": 2},
    ("putMessages", 200): {"start": None, "stop": None},
    ("ackMessages", 200): {"stale": []},
    ("nackMessages", 200): {"stale": []},
    ("extendMessages", 200): {"stale": []},
    ("rejectMessages", 200): {"stale": []},
    ("peekMessages", 200): [_MESSAGE],
    ("listQueues", 200): [_QUEUE],
    ("getQueue", 200): _QUEUE,
    ("purgeQueue", 200): {**_QUEUE, "version": 2, "id": "acme:orders@2"},
    ("getStatistics", 200): {"size": 3, "stored": 3, "settled": 0, "groups": [_GROUP]},
    ("listGroups", 200): [_GROUP],
    ("moveGroup", 200): {"next": 0},
    ("redriveDeadLetters", 200): {"redriven": 1, "missed": 0},
    ("purgeDeadLetters", 200): {"purged": 1, "missed": 0},
    ("createAccount", 201): {
        "accountName": "acme",
        "keys": {"primary": "...", "secondary": "..."},
    },
    ("signUrl", 201): {"queryParam": "auth=rp&q=orders&et=2027-01-01T00%3A00%3A00Z&sig=..."},
}
