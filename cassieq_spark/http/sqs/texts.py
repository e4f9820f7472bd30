"""The characters that texts in requests may have."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache, wraps
from typing import TypeVar

from cassieq_spark.http.sqs.errors import InvalidParameterValue

#: The characters that XML 1.0 does not allow.
_NOT_IN_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")
_REPLACEMENT = "\ufffd"
#: Maps bytes that XML 1.0 does not allow to a byte that UTF-8 does not allow.
_TO_INVALID = bytes(
    0xFF if each < 0x20 and each not in b"\t\n\r" else each  # noqa: PLR2004 (where text begins)
    for each in range(256)
)
_ID = re.compile(r"[!-~]{1,128}")
_LONGEST_KEPT, _MOST_KEPT = 400, 1_024

T = TypeVar("T", str, bytes)
R = TypeVar("R")


def remembered(function: Callable[[T], R]) -> Callable[[T], R]:
    """Cache the results of a function of one text, except for long texts.

    Strangers send such texts, too: a cache of long ones would take their bytes a thousand times.
    """
    cached = lru_cache(maxsize=_MOST_KEPT)(function)

    @wraps(function)
    def call(text: T) -> R:
        return cached(text) if len(text) <= _LONGEST_KEPT else function(text)

    return call


def is_xml(text: str) -> bool:
    r"""True if XML 1.0 allows all characters of a text.

    >>> is_xml("one\ttwo"), is_xml("bell\a")
    (True, False)
    """
    # Nothing printable is refused, and most texts are printable, which takes less time to find.
    return text.isprintable() or _NOT_IN_XML.search(text) is None


def text_of(value: bytes) -> str:
    r"""Bytes as text that both protocols can send.

    Bytes that are not UTF-8, or not allowed in XML 1.0, become U+FFFD. No message that was sent by
    SQS has such bytes; messages that were put otherwise may.

    >>> text_of(b"a\xff\x00b")
    'a��b'
    """
    text = value.translate(_TO_INVALID).decode(errors="replace")
    return text.replace("\ufffe", _REPLACEMENT).replace("\uffff", _REPLACEMENT)


def with_xml_characters(text: str) -> str:
    """Replace the characters of a text that XML 1.0 does not allow by U+FFFD."""
    # A search ends at the first such character; a substitution takes a second for some millions.
    return text if is_xml(text) else text_of(text.encode(errors="surrogatepass"))


def uuid_of(digits: str, version: int) -> str:
    """A UUID of a version whose other bits are 32 hexadecimal digits.

    It is the same as `uuid.UUID` makes of them, in a third of the time.

    >>> uuid_of("0123456789abcdef0123456789abcdef", 4)
    '01234567-89ab-4def-8123-456789abcdef'
    """
    variant = "89ab"[int(digits[16], 16) & 3]
    return (
        f"{digits[:8]}-{digits[8:12]}-{version}{digits[13:16]}-"
        f"{variant}{digits[17:20]}-{digits[20:32]}"
    )


def check_id(name: str, given: str | None) -> None:
    """Check a message group id, deduplication id or receive request attempt id.

    Raises:
        InvalidParameterValue: The id is empty, longer than 128 characters, or has characters other
            than letters, digits and punctuation of ASCII.
    """
    if given is not None and not _ID.fullmatch(given):
        raise InvalidParameterValue.of(
            given,
            name,
            f"{name} can only include alphanumeric and punctuation characters. 1 to 128 in "
            "length.",
        )
