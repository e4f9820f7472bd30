"""The secret of the gateways, and the keys that are derived from it. Pure."""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from base64 import urlsafe_b64decode, urlsafe_b64encode
from dataclasses import dataclass, field

from cassieq_spark.errors import OptionError

_LEAST_CHARACTERS = 32
#: Fewer are a line that somebody has drawn below another one.
_LEAST_DIFFERENT = 8
_SECRET = re.compile(r"[A-Za-z0-9_-]+")
_COMMENT = "#"
_KEY = re.compile(r"[A-Za-z0-9_-]+")
_ADMIN = ("admin",)


@dataclass(frozen=True, slots=True)
class Secrets:
    """The secrets that keys may have been derived from; new ones are from the first.

    Attributes:
        values: At least one; each at least 32 letters, digits, ``_`` or ``-``.
    """

    values: tuple[str, ...] = field(repr=False)

    def __post_init__(self) -> None:
        if not self.values or any(len(each) < _LEAST_CHARACTERS for each in self.values):
            raise OptionError(
                "the secret of the gateway must have at least 32 characters in each line; make "
                "one with: cassieq gateway secret"
            )
        for number, value in enumerate(self.values, 1):
            if not _SECRET.fullmatch(value) or len(set(value)) < _LEAST_DIFFERENT:
                raise OptionError(
                    f"secret {number} of the gateway is none: expected a line of at least 32 "
                    "letters, digits, '_' or '-', as 'cassieq gateway secret' makes it; a comment "
                    "begins with '#'"
                )

    @classmethod
    def parse(cls, text: str) -> Secrets:
        """Read secrets, one in each line; what begins with ``#`` is a comment.

        Raises:
            OptionError: There is none, one is too short, or a line is something else.
        """
        lines = (line.strip() for line in text.splitlines())
        return cls(tuple(line for line in lines if line and not line.startswith(_COMMENT)))

    @property
    def newest(self) -> str:
        """Fingerprint of the one that new keys are derived from."""
        return _fingerprint(self.values[0])

    def key(self, fingerprint: str, account: str, name: str, salt: str) -> str | None:
        """The key of an account; None if it was derived from a secret that is not here."""
        for value in self.values:
            if _fingerprint(value) == fingerprint:
                return _derive(value, ("key", account, name, salt))
        return None

    def seal(self, fingerprint: str, parts: tuple[str, ...]) -> str | None:
        """What nobody can make without the secret; None if that is not here.

        Args:
            fingerprint: Of the secret.
            parts: What is sealed; none with a line feed, which would make two texts one.
        """
        for value in self.values:
            if _fingerprint(value) == fingerprint and not any("\n" in each for each in parts):
                return _derive(value, ("seal", *parts))
        return None

    @property
    def admin_key(self) -> str:
        """The key that may make accounts: that of the newest secret alone.

        So who knows one that was replaced can make none, while keys of accounts that were derived
        from it still serve.
        """
        return _derive(self.values[0], _ADMIN)


def new_secret() -> str:
    """A secret that nobody can guess."""
    return secrets.token_urlsafe(48)


def new_salt() -> str:
    """What makes a key another one than any that its account ever had under that name."""
    return secrets.token_urlsafe(24)


def key_bytes(key: str) -> bytes | None:
    """What a key signs with; None if it can't be one."""
    if not _KEY.fullmatch(key):
        return None
    try:
        return urlsafe_b64decode(key + "=" * (-len(key) % 4))
    except ValueError:
        return None


def encoded(digest: bytes) -> str:
    """URL-safe Base64 without padding, as keys and signatures are written."""
    return urlsafe_b64encode(digest).rstrip(b"=").decode()


def same(one: str, other: str) -> bool:
    """Whether two secrets are equal; takes as long whatever they share."""
    return hmac.compare_digest(one.encode(), other.encode())


def _derive(secret: str, parts: tuple[str, ...]) -> str:
    # No part can hold a line feed: names can't, and salts are Base64.
    told = "\n".join(("cassieq-gateway", *parts)).encode()
    return encoded(hmac.digest(secret.encode(), told, hashlib.sha512))


def _fingerprint(secret: str) -> str:
    return _derive(secret, ("fingerprint",))[:12]
