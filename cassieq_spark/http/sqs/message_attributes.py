"""Attributes of messages: checks, digests, filters, and the headers that hold them.

Each attribute of a message is a header of the same name: its value is text or, if the type is
Binary, Base64. So Spark and the gateway's other interfaces read attributes, and headers that they
write are attributes of type String. One reserved header, `RESERVED`, holds the rest as JSON: types
other than String, the sender, the trace header and the deduplication id.
"""

from __future__ import annotations

import hashlib
import json
import re
from base64 import b64decode, b64encode
from collections.abc import Collection, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from cassieq_spark.http.sqs.errors import InvalidParameterValue
from cassieq_spark.http.sqs.outputs import ValueOutput
from cassieq_spark.http.sqs.texts import is_xml, remembered, with_xml_characters

#: The header with what other headers cannot hold. No attribute can have this name.
RESERVED = "aws.sqs"
#: The prefix of headers that are not attributes.
OURS = "cassieq."
MOST = 10

_STRING, _NUMBER, _BINARY = "String", "Number", "Binary"
_TYPE = re.compile(r"(String|Number|Binary)(\..*)?", re.DOTALL)
_LONGEST = 256
_NAME = re.compile(r"[A-Za-z0-9_.-]+")
_AMAZON = ("aws.", "amazon.")
_DECIMAL = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,4})?")
_ALL = {"All", ".*", "*"}
_PREFIX = ".*"
_ENCODER = json.JSONEncoder(separators=(",", ":"))


class Attribute(NamedTuple):
    """An attribute of a message: its full type, such as ``Number.int``, and its value."""

    type: str
    value: str | bytes

    @property
    def is_binary(self) -> bool:
        """True if the value is bytes."""
        return isinstance(self.value, bytes)

    @property
    def data(self) -> bytes:
        """The value as bytes."""
        return self.value if isinstance(self.value, bytes) else self.value.encode()


Attributes = Mapping[str, Attribute]


class Extras(NamedTuple):
    """The facts of a message beside its attributes; each is None if the message lacks it.

    Attributes:
        sender: Access key id of the sender.
        trace: The trace header, ``AWSTraceHeader``.
        deduplication_id: The deduplication id.
    """

    sender: str | None = None
    trace: str | None = None
    deduplication_id: str | None = None


def attribute_of(
    name: str, data_type: str, text: str | None, binary: bytes | None, *, is_system: bool = False
) -> Attribute:
    """Check the type and the value of an attribute, and return the attribute.

    Raises:
        InvalidParameterValue: The type or the value is not valid.
    """
    what = f"Message ({'system' if is_system else 'user'}) attribute '{name[:_LONGEST]}'"
    kind = _TYPE.fullmatch(data_type)
    if kind is None or not is_xml(data_type):
        raise InvalidParameterValue(
            f"{what} has an invalid message attribute type, the set of supported type prefixes is "
            "Binary, Number, and String."
        )
    if len(data_type) > _LONGEST:
        raise InvalidParameterValue(f"{what} must have a type shorter than {_LONGEST} bytes.")
    value = binary if kind[1] == _BINARY else text
    if not value:
        raise InvalidParameterValue(f"{what} must contain a non-empty value of type '{kind[1]}'.")
    if isinstance(value, str) and not is_xml(value):
        raise InvalidParameterValue(f"{what} contains invalid characters.")
    if kind[1] == _NUMBER and (len(value) > _LONGEST or not _DECIMAL.fullmatch(str(value))):
        raise InvalidParameterValue(f"Can't cast the value of {what} to a number.")
    return Attribute(data_type, value)


def check_names(names: Collection[str]) -> None:
    """Check the names of attributes that a message is sent with.

    Raises:
        InvalidParameterValue: There are more than ten names, or a name is not valid.
    """
    if len(names) > MOST:
        raise InvalidParameterValue(
            f"Number of message attributes [{len(names)}] exceeds the allowed maximum [{MOST}]."
        )
    for name in names:
        lower = name.lower()
        if not name or len(name) > _LONGEST:
            raise InvalidParameterValue(
                "Message (user) attribute names must have 1 to 256 characters."
            )
        if not _NAME.fullmatch(name):
            raise InvalidParameterValue(
                "Message (user) attributes name can only contain upper and lower score "
                "characters, digits, periods, hyphens and underscores."
            )
        if lower.startswith(_AMAZON) or name[0] == "." or name[-1] == "." or ".." in name:
            raise InvalidParameterValue(
                "You can't use message attribute names beginning with 'AWS.' or 'Amazon.'. These "
                "strings are reserved for internal use. Additionally, they cannot start or end "
                "with '.', and have no '..'."
            )
        if name.startswith(OURS):
            raise InvalidParameterValue(
                f"You can't use message attribute names beginning with '{OURS}', which are "
                "reserved for the queue."
            )


def size_of(attributes: Attributes) -> int:
    """Bytes of names, types and values, which count against the limit of a message."""
    if not attributes:
        return 0
    return sum(
        len(name.encode()) + len(each.type.encode()) + len(each.data)
        for name, each in attributes.items()
    )


def digest_of(attributes: Attributes) -> str | None:
    """MD5 of attributes as SDKs compute it; None without attributes.

    Attributes are sorted by name. Each contributes the length and the bytes of its name, the same
    of its type, one byte (1 for text, 2 for bytes), and the length and the bytes of its value.
    """
    if not attributes:
        return None
    parts: list[bytes] = []
    for name in sorted(attributes):
        each = attributes[name]
        parts += (
            _with_length(name.encode()),
            _with_length(each.type.encode()),
            b"\x02" if each.is_binary else b"\x01",
            _with_length(each.data),
        )
    return md5_of(b"".join(parts))


def md5_of(data: bytes) -> str:
    """MD5 in hexadecimal digits; SDKs use it to check what they have sent and received."""
    return hashlib.md5(data, usedforsecurity=False).hexdigest()


def selected(attributes: Attributes, names: Collection[str]) -> dict[str, Attribute]:
    """The attributes that a request asks for.

    ``All``, ``*`` and ``.*`` select all attributes; a name that ends with ``.*`` is a prefix.
    """
    if not names or not attributes:
        return {}
    if not _ALL.isdisjoint(names):
        return dict(attributes)
    exact = set(names)
    prefixes = tuple(each.removesuffix(_PREFIX) for each in exact if each.endswith(_PREFIX))
    return {
        name: each
        for name, each in attributes.items()
        if name in exact or name.startswith(prefixes)
    }


def outputs_of(attributes: Attributes) -> dict[str, ValueOutput]:
    """Convert attributes to their form in an answer."""
    return {name: _output(each) for name, each in attributes.items()}


def to_headers(attributes: Attributes, extras: Extras) -> dict[str, str]:
    """The headers of a message that is sent."""
    headers: dict[str, str] = {}
    types: dict[str, str] = {}
    for name, each in attributes.items():
        value = each.value
        headers[name] = value if isinstance(value, str) else b64encode(value).decode()
        if each.type != _STRING:
            types[name] = each.type
    sender, trace, deduplication_id = extras
    if sender is not None and not types and trace is None and deduplication_id is None:
        headers[RESERVED] = _of_sender(sender)
        return headers
    held = {
        "types": types or None,
        "sender": sender,
        "trace": trace,
        "dedup": deduplication_id,
    }
    given = {name: value for name, value in held.items() if value is not None}
    if given:
        headers[RESERVED] = _ENCODER.encode(given)
    return headers


@lru_cache(maxsize=1_024)
def _of_sender(sender: str) -> str:
    """The reserved header of a message with nothing but a sender, as most messages are."""
    return _ENCODER.encode({"sender": sender})


def from_headers(headers: Mapping[str, str | None]) -> tuple[dict[str, Attribute], Extras]:
    """Attributes and extras of a stored message, by whatever interface it was put.

    Headers without a value and headers of the queue itself are not attributes. Characters that XML
    does not allow become U+FFFD here, because SDKs compute digests of the text that they receive.
    """
    reserved = headers.get(RESERVED)
    held = {} if reserved is None else _read(reserved)
    types = held.get("types")
    known: Mapping[str, Any] = types if isinstance(types, dict) else {}
    attributes = {
        with_xml_characters(name): _from_header(value, known.get(name, _STRING))
        for name, value in headers.items()
        if value is not None and not name.startswith(OURS) and name != RESERVED
    }
    return attributes, Extras(
        sender=_text(held.get("sender")),
        trace=_text(held.get("trace")),
        deduplication_id=_text(held.get("dedup")),
    )


def _from_header(value: str, data_type: Any) -> Attribute:
    text = with_xml_characters(value)
    kind = _TYPE.fullmatch(data_type) if isinstance(data_type, str) else None
    if kind is None or not is_xml(data_type):
        return Attribute(_STRING, text)
    if kind[1] != _BINARY:
        return Attribute(data_type, text)
    try:
        return Attribute(data_type, b64decode(value, validate=True))
    except ValueError:
        # Another program has changed the header.
        return Attribute(_STRING, text)


@remembered
def _read(reserved: str) -> Mapping[str, Any]:
    """Parse the reserved header; empty if another program has changed it."""
    try:
        held = json.loads(reserved)
    except (ValueError, RecursionError):
        return {}
    return held if isinstance(held, dict) else {}


def _text(value: Any) -> str | None:
    return with_xml_characters(value) if isinstance(value, str) else None


def _output(attribute: Attribute) -> ValueOutput:
    if isinstance(attribute.value, bytes):
        return {"DataType": attribute.type, "BinaryValue": attribute.value}
    return {"DataType": attribute.type, "StringValue": attribute.value}


def _with_length(data: bytes) -> bytes:
    return len(data).to_bytes(4, "big") + data
