"""Secrets by reference: ``env:NAME`` or ``file:PATH`` travels, the secret itself does not.

Whoever needs the secret reads it where it is needed, at the moment that it is.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from cassieq_spark.errors import OptionError, SetupError

#: What a reference looks like, for errors and docs.
REFERENCES = "env:NAME or file:PATH"

_REFERENCE = re.compile(r"(env|file):(.*)", re.DOTALL)
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def check_secret(what: str, text: str) -> None:
    """Refuse what begins like a reference and is none. Pure; never shows the text.

    Raises:
        OptionError: No variable or no path could be called that.
    """
    if found := _REFERENCE.fullmatch(text):
        kind, name = found.groups()
        valid = _VARIABLE.fullmatch(name) if kind == "env" else name.strip()
        if not valid:
            raise OptionError(
                f"the {what} begins like a reference and is none: expected {REFERENCES}; one that "
                f"really begins with '{kind}:' must be given by reference"
            )


def check_reference(what: str, text: str) -> None:
    """Refuse what is no reference, where a secret must never be given as it is. Pure.

    Raises:
        OptionError: It does not say where the secret is. The text is not shown: it may be one.
    """
    if not _REFERENCE.fullmatch(text):
        raise OptionError(
            f"the {what} must be given by reference: {REFERENCES}; what was given says neither"
        )
    check_secret(what, text)


def reveal(what: str, text: str) -> str:
    """The secret that a text refers to, or is.

    Args:
        what: What it is, for errors: ``password``.
        text: A reference, or the secret. Of a file, the end of its last line is not part of it.

    Raises:
        SetupError: This machine does not have the variable or file, or there is nothing in it.
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
            f"the {what} is to be in the environment variable {name}, which this process does not "
            "have: set it for the driver and for the executors (spark.executorEnv)"
        )
    return os.environ[name]


def _of_file(what: str, path: Path) -> str:
    try:
        return path.read_text("utf-8").removesuffix("\n").removesuffix("\r")
    except (OSError, ValueError) as error:
        # What could not be decoded is in the error; it is part of a secret.
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise SetupError(
            f"the {what} is to be in the file {path}, which cannot be read: {reason}; it must be "
            "there for the driver and for the executors"
        ) from None
