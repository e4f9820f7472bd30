"""AWS's client in front of our wire of SQS, with nothing between them."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

from botocore.awsrequest import AWSPreparedRequest, AWSResponse
from botocore.config import Config
from botocore.loaders import Loader
from botocore.session import Session

from cassieq_spark.http.sqs.errors import SqsError
from cassieq_spark.http.sqs.operations import Call
from cassieq_spark.http.sqs.query_protocol import protocol_of
from cassieq_spark.http.sqs.signature import Claim, claim_of
from cassieq_spark.http.sqs.wire import Answer, Received, Stamp

KEY_ID, SECRET = "acme:owner", "c2VjcmV0LW9mLWFuLWFjY291bnQtb2Ytb3Vycw"
ENDPOINT = "http://localhost:8080"
URL = f"{ENDPOINT}/acme/orders"
PROTOCOLS = ("json", "query")
REQUEST_ID = "00000000-0000-0000-0000-000000000001"

#: What the model of the Query protocol had, and that of today has not: names of items,
_ITEMS = {
    "AWSAccountIdList": "AWSAccountId",
    "ActionNameList": "ActionName",
    "AttributeNameList": "AttributeName",
    "BatchResultErrorEntryList": "BatchResultErrorEntry",
    "BinaryList": "BinaryListValue",
    "ListMessageMoveTasksResultEntryList": "ListMessageMoveTasksResultEntry",
    "MessageAttributeNameList": "MessageAttributeName",
    "MessageList": "Message",
    "MessageSystemAttributeList": "MessageSystemAttributeName",
    "QueueUrlList": "QueueUrl",
    "StringList": "StringListValue",
    "TagKeyList": "TagKey",
    **{
        f"{operation}Batch{entry}List": f"{operation}Batch{entry}"
        for operation in ("SendMessage", "DeleteMessage", "ChangeMessageVisibility")
        for entry in ("RequestEntry", "ResultEntry")
    },
}
#: of maps,
_MAPS = {
    "Attributes": "Attribute",
    "MessageAttributes": "MessageAttribute",
    "MessageSystemAttributes": "MessageSystemAttribute",
    "Tags": "Tag",
    "tags": "Tag",
}
#: and codes of errors.
_PREFIXED = {
    "BatchEntryIdsNotDistinct",
    "BatchRequestTooLong",
    "EmptyBatchRequest",
    "InvalidBatchEntryId",
    "MessageNotInflight",
    "PurgeQueueInProgress",
    "QueueDeletedRecently",
    "TooManyEntriesInBatchRequest",
    "UnsupportedOperation",
}
_CODES = {
    "QueueDoesNotExist": "AWS.SimpleQueueService.NonExistentQueue",
    "QueueNameExists": "QueueAlreadyExists",
    **{shape: f"AWS.SimpleQueueService.{shape}" for shape in _PREFIXED},
}


def as_query(model: dict[str, Any]) -> dict[str, Any]:
    """The model of SQS as it was before November 2023: in the Query protocol."""
    model = copy.deepcopy(model)
    metadata = model["metadata"]
    for name in ("jsonVersion", "targetPrefix", "awsQueryCompatible"):
        del metadata[name]
    namespace = "http://queue.amazonaws.com/doc/2012-11-05/"
    metadata.update(protocol="query", protocols=["query"], xmlNamespace=namespace)
    for operation in model["operations"].values():
        if "output" in operation:
            operation["output"]["resultWrapper"] = operation["output"]["shape"]
    shapes = model["shapes"]
    for name, shape in shapes.items():
        if shape["type"] == "list" and name in _ITEMS:
            shape["member"]["locationName"] = _ITEMS[name]
        if shape["type"] == "map":
            is_tags = name == "TagMap"
            shape["key"]["locationName"] = "Key" if is_tags else "Name"
            shape["value"]["locationName"] = "Value"
        if name in _CODES:
            shape["error"] = {"code": _CODES[name], "senderFault": True}
        for member, target in shape.get("members", {}).items():
            is_named_so = (name, member) == ("TagQueueRequest", "Tags")
            if not is_named_so and member in _MAPS and shapes[target["shape"]]["type"] == "map":
                target["locationName"] = _MAPS[member]
    return model


class _QueryLoader(Loader):  # type: ignore[misc, unused-ignore]
    def load_service_model(self, service_name: str, type_name: str, **given: Any) -> Any:
        model = super().load_service_model(service_name, type_name, **given)
        is_model = (service_name, type_name) == ("sqs", "service-2")
        return as_query(model) if is_model else model


class _Raw:
    """The body of an answer, as botocore reads it."""

    def __init__(self, body: bytes) -> None:
        self._body = body

    def stream(self) -> Iterator[bytes]:
        yield self._body


def received(request: AWSPreparedRequest) -> tuple[Received, bytes]:
    """A request of botocore, as it arrives."""
    parts = urlsplit(request.url)
    headers = [
        (name.lower().encode(), value if isinstance(value, bytes) else str(value).encode())
        for name, value in request.headers.items()
    ]
    headers.append((b"host", parts.netloc.encode()))
    body = request.body or b""
    body = body.encode() if isinstance(body, str) else bytes(body)
    return Received(request.method, parts.path.encode(), parts.query.encode(), headers), body


def digest(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()


@dataclass
class Door:
    """Answers the requests of a client, which must be signed.

    Attributes:
        answer: What an operation answers with, or the error by which it fails.
        secrets: Secrets by access key id.
    """

    answer: Mapping[str, Any] | SqsError = field(default_factory=dict)
    secrets: Mapping[str, str] = field(default_factory=lambda: {KEY_ID: SECRET})
    calls: list[Call] = field(default_factory=list)
    claims: list[Claim] = field(default_factory=list)
    requests: list[tuple[Received, bytes]] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=list)

    def serve(self, request: Received, body: bytes) -> Answer:
        now = datetime.now(UTC)
        stamp, protocol = Stamp(REQUEST_ID, now), protocol_of(request)
        try:
            claim = claim_of(request, now)
            secret = self.secrets.get(claim.key_id)
            claim.signer([] if secret is None else [secret], digest(body))
            self.claims.append(claim)
            call = protocol.decode(request, body)
            self.calls.append(call)
            if isinstance(self.answer, SqsError):
                raise self.answer
            return protocol.encode(call.operation, self.answer, stamp)
        except SqsError as error:
            return protocol.refuse(error, stamp)

    def send(self, request: AWSPreparedRequest, **_: Any) -> AWSResponse:
        self.requests.append(received(request))
        answer = self.serve(*self.requests[-1])
        self.answers.append(answer)
        return AWSResponse(request.url, answer.status, answer.headers, _Raw(answer.body))


def clients() -> Callable[..., Any]:
    """Makes clients of a protocol, for a door or an ``endpoint_url``; the model is loaded once."""
    sessions = {}
    for protocol in PROTOCOLS:
        session = sessions[protocol] = Session()
        if protocol == "query":
            session.register_component("data_loader", _QueryLoader())

    def client_of(protocol: str, door: Door | None = None, **given: Any) -> Any:
        options = {
            "aws_access_key_id": KEY_ID,
            "aws_secret_access_key": SECRET,
            "endpoint_url": ENDPOINT,
            **given,
        }
        client = sessions[protocol].create_client(
            "sqs",
            region_name="eu-central-1",
            config=Config(retries={"total_max_attempts": 1}, parameter_validation=False),
            **options,
        )
        if door is not None:
            client.meta.events.register("before-send", door.send)
        return client

    return client_of


def close(client: Any) -> None:
    """Close a client with its connections, which botocore leaves to the garbage collector."""
    pools = client._endpoint.http_session._manager.pools
    for key in pools.keys():  # noqa: SIM118 (it is no dict)
        pools[key].close()
    client.close()
