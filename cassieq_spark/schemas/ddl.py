r"""Schemas as text: Spark's DDL, and the list of versions that the queue's row stores.

The grammar is that of Spark's ``StructType.fromDDL``, and wider in two places: elements of arrays
and values of maps may be ``not null``, for which Spark has no DDL, and the whole may stand in
``struct<...>``, as Spark prints it. A schema is written as one line, always in the same way:

>>> to_ddl(parse_ddl("Vendor STRING NOT NULL COMMENT 'who', fare DEC(10, 2)"))
"Vendor string not null comment 'who', fare decimal(10,2)"
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple, NoReturn

import pyarrow as pa
from pyarrow import types as of

from cassieq_spark.arguments import shown
from cassieq_spark.errors import InvariantError, OptionError
from cassieq_spark.schemas.canonical import (
    ATOMIC,
    INSTEAD_OF_SPARK,
    SUPPORTED,
    TIME,
    array_of,
    canonical,
    check_depth,
    check_field_count,
    checked,
    comment_of,
    decimal_of,
    field_of,
    joined,
    map_of,
    refusal,
    struct_of,
    type_name,
)

#: Maximum number of characters of a schema as text, and of all versions together.
MOST_TEXT = 1 << 20
#: Maximum number of versions of a schema.
MOST_VERSIONS = 1000

_TOKEN = re.compile(
    r"""
      (?P<space> \s+ | --[^\n]* )
    | (?P<remark> /\* )
    | (?P<quoted> `(?:[^`]|``)*` )
    | (?P<raw> [rR](?:'[^']*'|"[^"]*") )
    | (?P<text> '(?:[^'\\]|\\.|'')*' | "(?:[^"\\]|\\.|"")*" )
    | (?P<word> [A-Za-z0-9_]+ )
    | (?P<sign> [<>(),:] )
    """,
    re.VERBOSE | re.DOTALL | re.ASCII,
)
_REMARK = re.compile(r"/\*|\*/")
#: Words that Spark reads as numbers, so they are no names.
_NUMBER = re.compile(r"\d+(e\d+)?(l|s|y|f|d|bd)?", re.IGNORECASE | re.ASCII)
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_ESCAPE = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|([0-1][0-7]{2})|(.))", re.DOTALL)
_ESCAPED = {"0": "\0", "b": "\b", "n": "\n", "r": "\r", "t": "\t", "Z": "\x1a"}
_ALIASES = {
    "byte": "tinyint",
    "short": "smallint",
    "integer": "int",
    "long": "bigint",
    "real": "float",
    "timestamp_ltz": "timestamp",
}
_DECIMALS = ("decimal", "dec", "numeric")
#: Types that Spark or other programs have and no queue has, and what to use instead.
_INSTEAD = {
    "char": "string",
    "character": "string",
    "varchar": "string",
    "void": "the type that the column will have",
    "text": "string",
    "bool": "boolean",
    "bytes": "binary",
    "blob": "binary",
    "datetime": "timestamp",
    "number": "decimal(38,0)",
    "int8": "tinyint (1 byte) or bigint (8 bytes)",
    "int16": "smallint",
    "int32": "int",
    "int64": "bigint",
    "float32": "float",
    "float64": "double",
    **INSTEAD_OF_SPARK,
}


class _Token(NamedTuple):
    """A word, name, text or sign, and where it begins."""

    kind: str
    text: str
    start: int


def parse_ddl(text: str) -> pa.Schema:
    """Read a schema in Spark's DDL: ``vendor string not null, fare decimal(10,2)``.

    Raises:
        OptionError: The text is no such schema, or has a name or a type that no queue can have;
            the error says where.
    """
    if not isinstance(text, str):
        raise OptionError(f"a schema must be a str in Spark's DDL, not {shown(text)}")
    check_length(text)
    return checked(_Parser(text).schema())


def check_length(text: str) -> None:
    """Refuse a schema that is too long as text."""
    if len(text) > MOST_TEXT:
        raise OptionError(f"a schema may have at most {MOST_TEXT:,} characters")


def ddl_of(schema: pa.Schema | str | None) -> str | None:
    """A schema as a program gives it, in Spark's DDL; text is left as it is.

    Raises:
        OptionError: A column has a type that no queue has.
    """
    return schema if schema is None or isinstance(schema, str) else to_ddl(canonical(schema))


def to_ddl(schema: pa.Schema) -> str:
    """Write a canonical schema as Spark's DDL; `parse_ddl` reads the same schema."""
    columns = (f"{_name(each.name)} {ddl_type(each.type)}{_rest(each)}" for each in schema)
    return ", ".join(columns)


def ddl_type(type_: pa.DataType) -> str:
    """Write a type in Spark's DDL."""
    if of.is_struct(type_):
        fields = (f"{_name(part.name)}:{ddl_type(part.type)}{_rest(part)}" for part in type_)
        return f"struct<{','.join(fields)}>"
    if of.is_list(type_):
        return f"array<{ddl_type(type_.value_type)}{_not_null(type_.value_field)}>"
    if of.is_map(type_):
        value = f"{ddl_type(type_.item_type)}{_not_null(type_.item_field)}"
        return f"map<{ddl_type(type_.key_type)},{value}>"
    return type_name(type_)


def to_stored(versions: Sequence[str]) -> str:
    """Write the versions of a queue's schema as a JSON array of DDL texts, the first one first.

    Args:
        versions: The versions, as `to_ddl` writes them.

    Raises:
        OptionError: The versions take more than a row may hold.
    """
    text = json.dumps(list(versions), ensure_ascii=False)
    if len(versions) > MOST_VERSIONS or len(text) > MOST_TEXT:
        raise OptionError(
            f"the versions of a schema may be at most {MOST_VERSIONS:,}, with {MOST_TEXT:,} "
            "characters: create another queue"
        )
    return text


@lru_cache(maxsize=256)
def parse_stored(text: str) -> tuple[str, ...]:
    """Read the versions of a queue's schema; version ``n`` has the index ``n - 1``.

    Returns:
        Each version as `to_ddl` writes it.

    Raises:
        InvariantError: No release writes such a text.
    """
    wrong = "the stored schema can't be read"
    if len(text) > MOST_TEXT:
        raise InvariantError(f"{wrong}: it has more than {MOST_TEXT:,} characters")
    try:
        listed = json.loads(text)
        is_list = isinstance(listed, list) and 0 < len(listed) <= MOST_VERSIONS
        versions = tuple(to_ddl(parse_ddl(each)) for each in listed) if is_list else ()
        again = to_stored(versions)
    except (ValueError, RecursionError) as error:
        raise InvariantError(f"{wrong}: {error}") from error
    if not versions or again != text:
        raise InvariantError(f"{wrong}: it is no list of versions as this program writes it")
    return versions


@lru_cache(maxsize=1024)
def schema_of(ddl: str) -> pa.Schema:
    """Read a text of `to_ddl`; cached."""
    return parse_ddl(ddl)


def _name(name: str) -> str:
    return name if _PLAIN.fullmatch(name) else "`" + name.replace("`", "``") + "`"


def _rest(field: pa.Field) -> str:
    comment = comment_of(field)
    text = ""
    if comment is not None:
        escaped = comment.replace("\\", "\\\\").replace("'", "\\'")
        text = " comment '" + escaped.replace("\n", "\\n").replace("\r", "\\r") + "'"
    return _not_null(field) + text


def _not_null(field: pa.Field) -> str:
    return "" if field.nullable else " not null"


class _Parser:
    """Reads tokens from left to right, one function per rule of the grammar."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = _tokens(text)
        self._at = 0
        self._fields = 0

    def schema(self) -> pa.Schema:
        """``column, column ...``, or these in ``struct<...>``."""
        if self._is_word("struct") and self._tokens[1].text == "<":
            self._at = 2
            fields = self._columns("", 0)
            self._expect(">")
        else:
            fields = self._columns("", 0)
        if self._next.kind != "end":
            self._fail("expected ',' or the end")
        return pa.schema(fields)

    def _columns(self, prefix: str, depth: int) -> list[pa.Field]:
        fields = [self._column(prefix, depth)]
        while self._skip(","):
            fields.append(self._column(prefix, depth))
        return fields

    def _column(self, prefix: str, depth: int) -> pa.Field:
        self._fields += 1
        check_field_count(self._fields)
        name = self._column_name()
        self._skip(":")
        type_ = self._type(joined(prefix, name), depth)
        nullable = self._nullable()
        comment = self._texts() if self._skip_words("comment") else None
        return field_of(name, type_, nullable=nullable, comment=comment)

    def _column_name(self) -> str:
        token = self._next
        if token.kind == "quoted":
            self._at += 1
            return token.text[1:-1].replace("``", "`")
        if token.kind != "word" or _NUMBER.fullmatch(token.text):
            self._fail("expected the name of a column; put other names into backquotes")
        self._at += 1
        return token.text

    def _nullable(self) -> bool:
        if not self._skip_words("not"):
            return True
        if not self._skip_words("null"):
            self._fail("expected null after not")
        return False

    def _texts(self) -> str:
        if self._next.kind not in {"text", "raw"}:
            self._fail("expected a text in quotes after comment")
        text = ""
        while self._next.kind in {"text", "raw"}:
            text += _unquoted(self._next)
            self._at += 1
        return text

    def _type(self, path: str, depth: int) -> pa.DataType:
        check_depth(depth, path)
        token = self._next
        if token.kind != "word":
            self._fail(f"expected the type of column {path!r}")
        self._at += 1
        word = token.text.lower()
        if word in {"array", "map", "struct"}:
            return self._nested(word, path, depth + 1)
        if word == "interval":
            return self._interval(path)
        if word == "timestamp":
            return ATOMIC[self._timestamp()]
        if word == "time":
            return self._time()
        name = _ALIASES.get(word, word)
        numbers = self._numbers()
        if word in _DECIMALS and len(numbers) <= 2:  # noqa: PLR2004 - precision and scale
            precision, scale = (*numbers, *(10, 0)[len(numbers) :])
            return decimal_of(precision, scale, path)
        if name in ATOMIC and not numbers:
            return self._plain(name, path)
        written = token.text + (f"({','.join(map(str, numbers))})" if numbers else "")
        if word in ATOMIC or word in _ALIASES:
            raise refusal(path, written, f"{name} without a length")
        if instead := _INSTEAD.get(word):
            raise refusal(path, written, instead)
        raise OptionError(
            f"column {path!r} is of type {written!r}, which is no type: supported are {SUPPORTED}"
        )

    def _plain(self, name: str, path: str) -> pa.DataType:
        if name == "string" and self._skip_words("collate"):
            collation = self._column_name()
            if collation.lower() != "utf8_binary":
                raise refusal(path, f"string collate {collation}", "string, without a collation")
        return ATOMIC[name]

    def _microseconds(self) -> None:
        """Skip a precision of six digits, the only one that timestamps and times have."""
        if self._skip("("):
            if self._next.text != "6":
                self._fail("expected 6, the only precision of timestamps and times")
            self._at += 1
            self._expect(")")

    def _time(self) -> pa.DataType:
        self._microseconds()
        self._skip_words("without", "time", "zone")
        return TIME

    def _timestamp(self) -> str:
        self._microseconds()
        if self._skip_words("without", "time", "zone"):
            return "timestamp_ntz"
        self._skip_words("with", "local", "time", "zone")
        return "timestamp"

    def _nested(self, word: str, path: str, depth: int) -> pa.DataType:
        self._expect("<")
        if word == "struct":
            fields = [] if self._next.text == ">" else self._columns(path, depth)
            self._expect(">")
            return struct_of(fields, path)
        if word == "array":
            element = self._type(joined(path, "element"), depth)
            nullable = self._nullable()
            self._expect(">")
            return array_of(element, nullable=nullable)
        key = self._type(joined(path, "key"), depth)
        self._expect(",")
        value = self._type(joined(path, "value"), depth)
        nullable = self._nullable()
        self._expect(">")
        return map_of(key, value, path=path, nullable=nullable)

    def _interval(self, path: str) -> pa.DataType:
        units = "year", "month", "day", "hour", "minute", "second"
        words = ["interval"]
        while self._next.kind == "word" and self._next.text.lower() in {*units, "to"}:
            words.append(self._next.text.lower())
            self._at += 1
        name = " ".join(words)
        if name not in ATOMIC:
            raise refusal(path, name, _INSTEAD.get(name, "interval day to second"))
        return ATOMIC[name]

    def _numbers(self) -> list[int]:
        numbers: list[int] = []
        if not self._skip("("):
            return numbers
        while True:
            text = self._next.text
            if not (text.isdecimal() and len(text) <= 9):  # noqa: PLR2004 - no length has more
                self._fail("expected a whole number")
            numbers.append(int(text))
            self._at += 1
            if not self._skip(","):
                self._expect(")")
                return numbers

    @property
    def _next(self) -> _Token:
        return self._tokens[self._at]

    def _is_word(self, word: str, *, ahead: int = 0) -> bool:
        token = self._tokens[min(self._at + ahead, len(self._tokens) - 1)]
        return token.kind == "word" and token.text.lower() == word

    def _skip_words(self, *words: str) -> bool:
        is_next = all(self._is_word(word, ahead=ahead) for ahead, word in enumerate(words))
        self._at += len(words) if is_next else 0
        return is_next

    def _skip(self, sign: str) -> bool:
        is_next = self._next.kind == "sign" and self._next.text == sign
        self._at += is_next
        return is_next

    def _expect(self, sign: str) -> None:
        if not self._skip(sign):
            self._fail(f"expected {sign!r}")

    def _fail(self, expected: str) -> NoReturn:
        token = self._next
        found = "the end" if token.kind == "end" else repr(token.text[:40])
        raise OptionError(_wrong(self._text, token.start, f"{expected}, found {found}"))


def _tokens(text: str) -> list[_Token]:
    tokens = []
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise OptionError(
                _wrong(
                    text,
                    at,
                    f"{text[at]!r} is out of place; put names that are not plain letters, digits "
                    "and _ into backquotes",
                )
            )
        kind = str(match.lastgroup)
        if kind == "remark":
            at = _remark_end(text, at)
            continue
        if kind != "space":
            tokens.append(_Token(kind, match[0], at))
        at = match.end()
    return [*tokens, _Token("end", "", len(text))]


def _remark_end(text: str, start: int) -> int:
    """The end of a comment in ``/* */``; comments may be nested."""
    depth = 0
    for match in _REMARK.finditer(text, start):
        depth += 1 if match[0] == "/*" else -1
        if not depth:
            return match.end()
    raise OptionError(_wrong(text, start, "'/*' has no end"))


def _unquoted(token: _Token) -> str:
    if token.kind == "raw":
        return token.text[2:-1]
    quote, text = token.text[0], token.text[1:-1]
    return _ESCAPE.sub(_unescaped, text.replace(quote * 2, quote))


def _unescaped(match: re.Match[str]) -> str:
    short, long, octal, other = match.groups()
    if short or long:
        number = int(short or long, 16)
        return chr(number) if number < 0x110000 else "\ufffd"  # noqa: PLR2004 - Unicode ends here
    if octal:
        return chr(int(octal, 8))
    return match[0] if other in "%_" else _ESCAPED.get(other, other)


def _wrong(text: str, at: int, what: str) -> str:
    before = text[max(0, at - 30) : at]
    return f"the schema can't be read at character {at + 1}, after {before!r}: {what}"
