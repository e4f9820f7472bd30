"""The Query protocol: parameters in a form or in the query of a URL, and answers in XML.

Lists and maps are numbered, such as ``AttributeName.1`` and ``Attribute.1.Name``.
"""

from __future__ import annotations

import re
from base64 import b64encode
from binascii import a2b_qp
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple
from xml.sax.saxutils import escape

from pydantic import ValidationError

from cassieq_spark.http.sqs.errors import (
    InvalidParameterValue,
    MalformedQueryString,
    MissingAction,
    RequestTooLarge,
    SqsError,
    shown,
)
from cassieq_spark.http.sqs.inputs import error_of
from cassieq_spark.http.sqs.json_protocol import JSON, is_json
from cassieq_spark.http.sqs.operations import Call, Operation, operation_named
from cassieq_spark.http.sqs.outputs import Output
from cassieq_spark.http.sqs.texts import with_xml_characters
from cassieq_spark.http.sqs.wire import (
    MOST_PARAMETERS,
    Answer,
    Protocol,
    Received,
    Stamp,
    call_of,
)

CONTENT_TYPE = "text/xml"
NAMESPACE = "http://queue.amazonaws.com/doc/2012-11-05/"
_DECLARATION = '<?xml version="1.0"?>'
#: Most parts of a name: SendMessageBatchRequestEntry.1.MessageAttribute.1.Value.StringValue.
_MOST_PARTS = 6
_NUMBER = re.compile(r"[0-9]{1,6}")
#: A percent sign that escapes nothing.
_NO_ESCAPE = re.compile(rb"%(?![0-9A-Fa-f]{2})")
_INTEGER = re.compile(r"[+-]?[0-9]{1,18}")
_INTEGERS = frozenset(
    {
        "DelaySeconds",
        "MaxNumberOfMessages",
        "MaxNumberOfMessagesPerSecond",
        "MaxResults",
        "VisibilityTimeout",
        "WaitTimeSeconds",
    }
)


class _Many(NamedTuple):
    """The names of the items of a list or map, and of key and value if it is a map."""

    name: str
    key: str = ""
    value: str = ""


#: Lists and maps of inputs and outputs, except the entries of batches.
_MANY = {
    "AWSAccountIds": _Many("AWSAccountId"),
    "Actions": _Many("ActionName"),
    "AttributeNames": _Many("AttributeName"),
    "Attributes": _Many("Attribute", "Name", "Value"),
    "BinaryListValues": _Many("BinaryListValue"),
    "Failed": _Many("BatchResultErrorEntry"),
    "MessageAttributeNames": _Many("MessageAttributeName"),
    "MessageAttributes": _Many("MessageAttribute", "Name", "Value"),
    "MessageSystemAttributeNames": _Many("MessageSystemAttributeName"),
    "MessageSystemAttributes": _Many("MessageSystemAttribute", "Name", "Value"),
    "Messages": _Many("Message"),
    "QueueUrls": _Many("QueueUrl"),
    "Results": _Many("ListMessageMoveTasksResultEntry"),
    "StringListValues": _Many("StringListValue"),
    "TagKeys": _Many("TagKey"),
    "Tags": _Many("Tag", "Key", "Value"),
    "queueUrls": _Many("QueueUrl"),
}
#: Members of inputs by the name of their items; for the tags of TagQueue, SDKs send the name of
#: the member.
_MEMBERS = {
    **{
        many.name: (member, many)
        for member, many in _MANY.items()
        if member not in {"Failed", "Messages", "QueueUrls", "Results", "queueUrls"}
    },
    "Tags": ("Tags", _MANY["Tags"]),
}
#: Makes the values of empty lists and maps, which botocore sends as the member with empty text.
_EMPTY: Mapping[str, Callable[[], Any]] = {
    "Entries": list,
    **{member: dict if many.key else list for member, many in _MANY.items()},
}
_ESCAPED = {"\r": "&#xD;"}
#: The prefix of parameters of a query that are parts of its signature, not of an operation.
_OF_SIGNATURE = "X-Amz-"

#: A node of the tree of parameters: its children by the parts of names between dots.
_Node = dict[str, Any]


def decode(received: Received, body: bytes) -> Call:
    """Decode a request into a call.

    Raises:
        SqsError: The request is malformed, or names no operation or queue.
    """
    tree = _tree_of(_pairs(received.query) + _pairs(body))
    action = tree.pop("Action", None)
    if not isinstance(action, str) or not action:
        raise MissingAction
    operation = operation_named(action)
    members = {**_MEMBERS, f"{action}RequestEntry": ("Entries", _Many(f"{action}RequestEntry"))}
    values = _structure(tree, members)
    if "tags" in operation.input.model_fields:
        # The only member whose name is not the same in all operations.
        values["tags"] = values.pop("Tags", None)
    try:
        given = operation.input.model_validate(values)
    except ValidationError as error:
        raise error_of(error, MalformedQueryString) from None
    return call_of(operation, given, received.path)


def encode(operation: Operation, output: Output, stamp: Stamp) -> Answer:
    """Encode the output of an operation."""
    name = operation.name
    parts = [f'{_DECLARATION}<{name}Response xmlns="{NAMESPACE}">'.encode()]
    if operation.has_output:
        inner: list[bytes] = []
        _write_members(inner, output, f"{name}ResultEntry")
        # Empty results have one tag: some parsers take space between two tags for text.
        begin, end, empty = f"<{name}Result>", f"</{name}Result>", f"<{name}Result/>"
        parts += (begin.encode(), *inner, end.encode()) if inner else (empty.encode(),)
    end = f"<ResponseMetadata><RequestId>{stamp.request_id}</RequestId></ResponseMetadata>"
    parts.append(f"{end}</{name}Response>".encode())
    return Answer(200, stamp.headers(CONTENT_TYPE), b"".join(parts))


def refuse(error: SqsError, stamp: Stamp) -> Answer:
    """Encode an error as the answer to a request."""
    side = "Sender" if error.is_of_sender else "Receiver"
    text = (
        f'{_DECLARATION}<ErrorResponse xmlns="{NAMESPACE}"><Error><Type>{side}</Type>'
        f"<Code>{error.code}</Code><Message>{_text(error.query_message)}</Message><Detail/>"
        f"</Error><RequestId>{stamp.request_id}</RequestId></ErrorResponse>"
    )
    return Answer(error.status, stamp.headers(CONTENT_TYPE), text.encode())


QUERY = Protocol(decode, encode, refuse)


def protocol_of(received: Received) -> Protocol:
    """Choose the protocol of a request by its headers; errors are sent by the same protocol."""
    return JSON if is_json(received) else QUERY


def _pairs(form: bytes) -> list[tuple[str, str]]:
    if form.count(b"&") >= MOST_PARAMETERS:
        raise RequestTooLarge
    if _NO_ESCAPE.search(form):
        raise MalformedQueryString("A percent sign is followed by two hexadecimal digits.")
    parts = [each.partition(b"=") for each in form.split(b"&") if each]
    try:
        pairs = [(_unquoted(name), _unquoted(value)) for name, _, value in parts]
    except UnicodeDecodeError:
        raise MalformedQueryString("The parameters are not UTF-8.") from None
    return [(name, value) for name, value in pairs if not name.startswith(_OF_SIGNATURE)]


def _unquoted(text: bytes) -> str:
    """Decode a name or a value of a form.

    The text is decoded as quoted-printable, which has another sign for the same escapes:
    `parse_qsl` takes a second for a large batch, and holds up all other requests.
    """
    if b"%" not in text and b"+" not in text:
        return text.decode()
    return a2b_qp(text.replace(b"+", b" ").replace(b"=", b"=3D").replace(b"%", b"=")).decode()


def _tree_of(pairs: list[tuple[str, str]]) -> _Node:
    """Arrange parameters in a tree by the parts of their names."""
    tree: _Node = {}
    for name, value in pairs:
        *parts, last = name.split(".", _MOST_PARTS)
        node = tree
        for part in parts:
            node = node.setdefault(part, {})
            if not isinstance(node, dict):
                raise MalformedQueryString(f"{shown(name)} contradicts another parameter.")
        if last in node:
            raise MalformedQueryString(f"The parameter {shown(name)} is given twice.")
        node[last] = value
    return tree


def _structure(tree: _Node, members: Mapping[str, tuple[str, _Many]]) -> dict[str, Any]:
    """Convert a tree to values by the names of members, for the model of an input."""
    values: dict[str, Any] = {}
    for name, node in tree.items():
        found = members.get(name)
        if not node and name in _EMPTY:
            values[name] = _EMPTY[name]()
        elif found is None:
            values[name] = _integer(name, node) if name in _INTEGERS else node
        elif found[1].key:
            values[found[0]] = dict(_entry(it, found[1], members) for it in _ordered(name, node))
        else:
            values[found[0]] = [_value(each, members) for each in _ordered(name, node)]
    return values


def _value(node: str | _Node, members: Mapping[str, tuple[str, _Many]]) -> Any:
    return node if isinstance(node, str) else _structure(node, members)


def _entry(
    node: str | _Node, many: _Many, members: Mapping[str, tuple[str, _Many]]
) -> tuple[str, Any]:
    key = node.get(many.key) if isinstance(node, dict) else None
    if isinstance(node, str) or not isinstance(key, str):
        raise MalformedQueryString(f"An item of {many.name} has no {many.key}.")
    value = node.get(many.value)
    return key, None if value is None else _value(value, members)


def _ordered(name: str, node: str | _Node) -> Iterator[str | _Node]:
    """The items of a list by their numbers; a text without a number is a list of one item."""
    if isinstance(node, str):
        yield node
        return
    if not all(map(_NUMBER.fullmatch, node)):
        raise MalformedQueryString(
            f"Items of {shown(name)} are numbered, such as {shown(name)}.1."
        )
    for number in sorted(node, key=int):
        yield node[number]


def _integer(name: str, node: str | _Node) -> int:
    if not isinstance(node, str) or not _INTEGER.fullmatch(node):
        value = node if isinstance(node, str) else ""
        raise InvalidParameterValue.of(value, name, "Must be an integer.")
    return int(node)


def _write_members(parts: list[bytes], members: Output, successful: str) -> None:
    """Write a structure; ``successful`` is the name of the entries of a batch that succeeded.

    Each part is encoded immediately; otherwise memory would hold a large answer twice.
    """
    for member, value in members.items():
        if member == "Successful":
            many: _Many | None = _Many(successful)
        else:
            many = _MANY.get(member)
        if many is None:
            _write(parts, member, value, successful)
        elif many.key:
            for key, each in value.items():
                parts.append(f"<{many.name}><{many.key}>{_text(key)}</{many.key}>".encode())
                _write(parts, many.value, each, successful)
                parts.append(f"</{many.name}>".encode())
        else:
            for each in value:
                _write(parts, many.name, each, successful)


def _write(parts: list[bytes], tag: str, value: Any, successful: str) -> None:
    if isinstance(value, dict):
        parts.append(f"<{tag}>".encode())
        _write_members(parts, value, successful)
        parts.append(f"</{tag}>".encode())
    else:
        parts += (f"<{tag}>".encode(), _scalar(value).encode(), f"</{tag}>".encode())


def _scalar(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, bytes):
        return b64encode(value).decode()
    return _text(value) if isinstance(value, str) else str(value)


def _text(text: str) -> str:
    return escape(with_xml_characters(text), _ESCAPED)
