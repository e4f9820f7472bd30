"""Counts the members of JSON before it is parsed.

Each member becomes an object, and each unknown name an error, while nothing else runs: a parser
in Rust holds the interpreter. The contents of strings do not count.
"""

from __future__ import annotations

import re

#: One of these characters comes before each member or element.
_OF_MEMBERS = (b",", b"[", b"{")
_JSON_TEXT = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)


def may_have_members(text: bytes) -> int:
    """An upper bound of the number of members and elements in JSON."""
    return sum(map(text.count, _OF_MEMBERS))


def has_more_members(text: bytes, most: int) -> bool:
    """True if JSON has more members and elements than ``most``.

    >>> has_more_members(b'["a,b", 1, 2]', 3), has_more_members(b'["a,b", 1, 2]', 2)
    (False, True)
    """
    # Each member has a byte at least.
    if len(text) <= most or may_have_members(text) <= most:
        return False
    members = end = 0
    for texts, match in enumerate(_JSON_TEXT.finditer(text), 1):
        members += _members(text, end, match.start())
        end = match.end()
        # Each member has at most two strings.
        if texts > 2 * most or members > most:
            return True
    return members + _members(text, end, len(text)) > most


def _members(text: bytes, start: int, stop: int) -> int:
    return sum(text.count(each, start, stop) for each in _OF_MEMBERS)
