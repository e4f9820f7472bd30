"""What somebody may do, and the letters that say so. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum


class Level(Enum):
    """A right; its value is the letter that stands for it. Signed in this order."""

    READ_MESSAGE = "r"
    PUT_MESSAGE = "p"
    UPDATE_MESSAGE = "u"
    ACK_MESSAGE = "a"
    GET_QUEUE_INFORMATION = "g"
    CREATE_QUEUE = "c"
    DELETE_QUEUE = "d"
    REDRIVE_MESSAGE = "m"

    @property
    def title(self) -> str:
        """Its name in JSON.

        >>> Level.GET_QUEUE_INFORMATION.title
        'GetQueueInformation'
        """
        return self.name.title().replace("_", "")


ALL_LEVELS = frozenset(Level)


def letters_of(levels: Iterable[Level]) -> str:
    """The letters of some rights, in order.

    >>> letters_of({Level.PUT_MESSAGE, Level.READ_MESSAGE})
    'rp'
    """
    wanted = set(levels)
    return "".join(level.value for level in Level if level in wanted)


def parse_letters(letters: str) -> frozenset[Level]:
    """The rights that letters stand for; none at all if one of them is unknown.

    >>> sorted(level.title for level in parse_letters("ap")), parse_letters("rx")
    (['AckMessage', 'PutMessage'], frozenset())
    """
    known = {level.value: level for level in Level}
    if not set(letters) <= set(known):
        return frozenset()
    return frozenset(known[letter] for letter in letters)
