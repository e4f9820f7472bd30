"""Secrets by reference: settings carry ``env:NAME`` or ``file:PATH``, not the secret itself.

The process that needs a secret reads it at the moment of use.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from cassieq_spark.errors import OptionError, SetupError

#: The form of a reference, for errors and docs.
REFERENCES = "env:NAME or file:PATH"

_REFERENCE = re.compile(r"(env|file):(.*)", re.DOTALL)
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def check_secret(what: str, text: str) -> None:
    """Refuse a text that begins like a reference but is not one. Errors never show the text.

    Raises:
        OptionError: The reference names no possible variable or path.
    """
    if found := _REFERENCE.fullmatch(text):
        kind, name = found.groups()
        valid = _VARIABLE.fullmatch(name) if kind == "env" else name.strip()
        if not valid:
            raise OptionError(
                f"the {what} begins like a reference, but is not one: expected {REFERENCES}; one "
                f"that really begins with '{kind}:' must be given by reference"
            )


def check_reference(what: str, text: str) -> None:
    """Refuse a text that is not a reference, where the secret itself is not allowed.

    Raises:
        OptionError: The text is not a reference. The error does not show the text, which may be
            the secret.
    """
    if not _REFERENCE.fullmatch(text):
        raise OptionError(
            f"the {what} must be given by reference: {REFERENCES}; the given text is neither"
        )
    check_secret(what, text)


def reveal(what: str, text: str) -> str:
    """Read the secret to which a text refers; a text that is not a reference is the secret.

    Args:
        what: The name of the secret in errors, such as ``password``.
        text: A reference, or the secret itself. A newline at the end of a file is dropped.

    Raises:
        SetupError: This machine does not have the variable or file, or the secret is empty.
    """
    found = _REFERENCE.fullmatch(text)
    if not found:
        return text
    kind, name = found.groups()
    secret = _of_environment(what, name) if kind == "env" else _of_file(what, Path(name))
    if not secret:
        raise SetupError(f"the {what} that {text} refers to is empty on this machine")
    return secret


def _of_environment(what: str, name: str) -> str:
    if name not in os.environ:
        raise SetupError(
            f"the {what} should be in the environment variable {name}, which this process does "
            "not have: set it for the driver and for the executors (spark.executorEnv)"
        )
    return os.environ[name]


def _of_file(what: str, path: Path) -> str:
    try:
        return path.read_text("utf-8").removesuffix("\n").removesuffix("\r")
    except (OSError, ValueError) as error:
        # A decoding error would show bytes of the secret.
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise SetupError(
            f"the {what} should be in the file {path}, which cannot be read: "
            f"{reason}; it must be there for the driver and for the executors"
        ) from None
