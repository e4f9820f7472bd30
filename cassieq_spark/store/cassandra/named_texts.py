"""Reads the ``.cql`` files beside it: texts under names, with places to fill in."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files
from string import Template

_NAME = re.compile(r"^-- (\w+) --$", re.MULTILINE)


@cache
def named_texts(filename: str) -> dict[str, Template]:
    """The statements of one file, in its order.

    Raises:
        ValueError: A name occurs twice, or names nothing.
    """
    return parse_named_texts(files(__package__).joinpath(filename).read_text("utf-8"))


def parse_named_texts(text: str) -> dict[str, Template]:
    r"""Split at the lines ``-- name --`` and drop what else is commented.

    >>> parse_named_texts("-- all --\n-- Every row.\nSELECT * FROM $table\n")["all"].template
    'SELECT * FROM $table'

    Raises:
        ValueError: A name occurs twice, or names nothing.
    """
    _, *parts = _NAME.split(text)
    found: dict[str, Template] = {}
    for name, body in zip(parts[::2], parts[1::2], strict=True):
        lines = (line.rstrip() for line in body.splitlines())
        statement = "\n".join(line for line in lines if line and not line.startswith("--"))
        if not statement:
            raise ValueError(f"statement {name!r} is empty")
        if name in found:
            raise ValueError(f"statement {name!r} occurs twice")
        found[name] = Template(statement)
    return found
