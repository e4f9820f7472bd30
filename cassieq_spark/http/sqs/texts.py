"""The characters that texts in requests may have."""

from __future__ import annotations

import re

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


def is_xml(text: str) -> bool:
    r"""True if XML 1.0 allows all characters of a text.

    >>> is_xml("one\ttwo"), is_xml("bell\a")
    (True, False)
    """
    return _NOT_IN_XML.search(text) is None


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
