"""What the messages of a chaos run say: who sent them, which one it is, and a checksum.

Pure; the programs on Spark make the same text by an expression of SQL.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

#: Tasks of a micro-batch of a producer: message n is of task n modulo this, in that order.
LANES = 2
#: The checksum is repeated once to so many times, so that messages differ in length.
_LENGTHS = 7


@dataclass(frozen=True, slots=True, order=True)
class Message:
    """A message by its producer and its number there, from 0."""

    producer: str
    number: int

    @property
    def lane(self) -> tuple[str, int]:
        """Messages of one lane come in the order of their numbers."""
        return self.producer, self.number % LANES

    @property
    def key(self) -> str:
        """The message's key."""
        return f"{self.producer}:{self.number}"

    @property
    def body(self) -> str:
        """The message's value: the key and, once or more often, its checksum."""
        checksum = hashlib.sha256(self.key.encode()).hexdigest()
        return f"{self.key}:{checksum * (1 + self.number % _LENGTHS)}"


def read_message(key: str | None, body: str) -> Message | None:
    """Tell which message it is; None if a byte of key or body is not as it was sent."""
    producer, _, rest = body.partition(":")
    number = rest.partition(":")[0]
    if not number.isdecimal():
        return None
    message = Message(producer, int(number))
    return message if (message.key, message.body) == (key, body) else None


def message_columns(producer: str, number: str) -> tuple[str, str]:
    """Key and value as expressions of Spark SQL, of the column ``number``."""
    key = f"concat('{producer}:', {number})"
    checksum = f"repeat(sha2({key}, 256), cast(1 + {number} % {_LENGTHS} as int))"
    return f"{key} as key", f"concat({key}, ':', {checksum}) as value"
