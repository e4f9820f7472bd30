"""How the console writes figures, instants and untrusted bytes.

Every text that a template outputs goes through `shown`: characters that are invisible, or would
reverse other text, are spelled out. The templates escape the text; nothing here makes markup.
"""

from __future__ import annotations

import json
import re
from base64 import b64encode
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote

from cassieq_spark.display import shown_age, shown_rate, visible
from cassieq_spark.schemas.to_rows import json_of
from cassieq_spark.settings.queue import PERIOD

#: The text where there is no figure.
NOTHING = "-"
#: How many characters of a key or value a table row shows.
BRIEF = 160
#: How many bytes of a value are shown at once.
PART = 16 * 1024
_LINE = 16
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")
_KIB = 1024
#: JSON that is nested deeper than this is not pretty-printed.
_DEEPEST = 60
_PART_OF_JSON = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+')


def shown(value: object) -> object:
    """The output of a template for a value: a text without invisible characters."""
    # Markup is what macros return: their texts came here one by one.
    return visible(value) if type(value) is str else value


def count(number: int | None) -> str:
    """A number with thousands separators.

    >>> count(1234567), count(None)
    ('1,234,567', '-')
    """
    return NOTHING if number is None else f"{number:,}"


def rate(number: float | None) -> str:
    """Messages per second, as ``cassieq top`` shows them."""
    return NOTHING if number is None else shown_rate(number)


def age(length: timedelta | None) -> str:
    """An age in its two largest units, as ``cassieq top`` shows it."""
    return NOTHING if length is None else shown_age(max(timedelta(0), length))


def span(length: timedelta | None) -> str:
    """A setting as its flag takes it.

    >>> span(timedelta(minutes=90)), span(timedelta(days=14)), span(None)
    ('90m', '14d', '-')
    """
    return NOTHING if length is None else PERIOD.show(length)


def size(number: int) -> str:
    """A number of bytes, in its largest unit.

    >>> size(900), size(1536), size(5 << 20)
    ('900 B', '1.5 KiB', '5.0 MiB')
    """
    amount, unit = float(number), 0
    while amount >= _KIB and unit < len(_UNITS) - 1:
        amount, unit = amount / _KIB, unit + 1
    return f"{number} B" if unit == 0 else f"{amount:.1f} {_UNITS[unit]}"


def instant(at: datetime | None) -> str:
    """An instant to the second, in UTC.

    >>> instant(datetime(2026, 11, 20, 12, 0, 5, tzinfo=UTC))
    '2026-11-20 12:00:05'
    """
    return NOTHING if at is None else at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")


def exact(at: datetime | None) -> str:
    """An instant to the millisecond, in UTC, as a position is written."""
    if at is None:
        return ""
    return at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def path_of(*parts: object) -> str:
    """A path of these parts, below the console's root.

    >>> path_of("queues", "acme:a b", "messages")
    '/queues/acme%3Aa%20b/messages'
    """
    return "".join("/" + quote(str(part), safe="") for part in parts)


@dataclass(frozen=True, slots=True)
class ShownBody:
    """A key or a value as it is shown.

    Attributes:
        kind: ``json``, ``text``, ``bytes``, or ``null``.
        text: The text that is shown.
        size: Length in bytes.
        begins, ends: The range of bytes that is shown.
    """

    kind: str
    text: str
    size: int
    begins: int
    ends: int

    @property
    def is_cut(self) -> bool:
        """True if the value is longer than what is shown."""
        return self.begins > 0 or self.ends < self.size


def brief(value: Any) -> ShownBody:
    """A key or value on one line of a table.

    Args:
        value: Bytes, None, or the columns of a queue with a schema.
    """
    if value is None:
        return ShownBody("null", "null", 0, 0, 0)
    data = as_bytes(value)
    head = data[: 4 * BRIEF]
    text = _text_of(head, may_be_cut=len(head) < len(data))
    if text is None:
        return ShownBody(
            "bytes", "0x" + data[: BRIEF // 2].hex(), len(data), 0, min(len(data), 80)
        )
    line = " ".join(text.split())
    is_cut = len(line) > BRIEF or len(head) < len(data)
    return ShownBody("text", line[:BRIEF], len(data), 0, len(data) - 1 if is_cut else len(data))


def whole(value: Any, begin: int = 0, *, form: str | None = None) -> ShownBody:
    """A key or value on a page of its own, or the part of it from a byte on.

    Args:
        value: Bytes, None, or the columns of a queue with a schema.
        begin: The first byte that is shown.
        form: ``hex`` or ``base64``; None for JSON or text, if the value is either.
    """
    if value is None:
        return ShownBody("null", "null", 0, 0, 0)
    data = as_bytes(value)
    begin = max(0, min(begin, len(data)))
    if form is None and begin == 0 and len(data) <= PART:
        pretty = _pretty(data)
        if pretty is not None:
            return ShownBody("json", pretty, len(data), 0, len(data))
    part = data[begin : begin + PART]
    end = begin + len(part)
    if form == "base64":
        return ShownBody("bytes", _wrapped(b64encode(part).decode()), len(data), begin, end)
    if form is None:
        text, end = _text_part(data, begin)
        if text is not None:
            return ShownBody("text", text, len(data), begin, end)
    return ShownBody("bytes", dump(part, begin), len(data), begin, begin + len(part))


def as_bytes(value: Any) -> bytes:
    """A value as it is shown: bytes as they are, columns as JSON."""
    if isinstance(value, bytes):
        return value
    if isinstance(value, dict):
        # Escaped: a column may hold half of a surrogate pair.
        return json.dumps(json_of(value), ensure_ascii=False).encode(errors="backslashreplace")
    return str(value).encode(errors="backslashreplace")


def cell(value: Any) -> str:
    """A column of a typed message in a cell of a table."""
    if value is None:
        return "null"
    (written,) = json_of({"value": value}).values()
    text = written if isinstance(written, str) else json.dumps(written, ensure_ascii=False)
    return text if len(text) <= BRIEF else text[:BRIEF] + "…"


def dump(data: bytes, begin: int = 0) -> str:
    r"""Bytes in hex, sixteen per line, with their ASCII characters.

    >>> print(dump(b"\x00cassieq", 16))
    00000010  00 63 61 73 73 69 65 71                           .cassieq
    """
    lines = []
    for at in range(0, len(data), _LINE):
        row = data[at : at + _LINE]
        hexed = " ".join(f"{byte:02x}" for byte in row)
        legible = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in row)  # noqa: PLR2004 (printable ASCII)
        lines.append(f"{begin + at:08x}  {hexed:<48}  {legible}")
    return "\n".join(lines)


def parse_bytes(text: str) -> bytes:
    r"""A key as a user types it: text, or hex after ``0x``.

    >>> parse_bytes("order-7"), parse_bytes("0xff00")
    (b'order-7', b'\xff\x00')
    """
    if text.startswith("0x"):
        try:
            return bytes.fromhex(text[2:])
        except ValueError:
            pass
    return text.encode()


def _pretty(data: bytes) -> str | None:
    """JSON pretty-printed, each part as it was written; None if the bytes are no JSON."""
    if data.lstrip()[:1] not in {b"{", b"["}:
        return None
    try:
        json.loads(data, parse_float=str, parse_int=str)
        text = data.decode()
    except (ValueError, RecursionError):
        return None
    depth, out = 0, list[str]()
    parts = _PART_OF_JSON.findall(text)
    for number, part in enumerate(parts):
        following = parts[number + 1] if number + 1 < len(parts) else ""
        if part in {"{", "["} and following not in {"}", "]"}:
            depth += 1
            out += [part, "\n", "  " * depth]
        elif part in {"}", "]"} and parts[number - 1] not in {"{", "["}:
            depth -= 1
            out += ["\n", "  " * depth, part]
        elif part == ",":
            out += [",\n", "  " * depth]
        else:
            out.append(": " if part == ":" else part)
        if depth > _DEEPEST:
            return None
    return "".join(out)


def _text_of(data: bytes, *, may_be_cut: bool) -> str | None:
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        # The last character may lack its end.
        if not (may_be_cut and error.start >= len(data) - 3 and error.reason.startswith("unexp")):
            return None
        text = data[: error.start].decode()
    return None if "\x00" in text else text


def _text_part(data: bytes, begin: int) -> tuple[str | None, int]:
    end = min(len(data), begin + PART)
    part = data[begin:end]
    text = _text_of(part, may_be_cut=end < len(data))
    return text, begin + len(part if text is None else text.encode())


def _wrapped(text: str, width: int = 76) -> str:
    return "\n".join(text[at : at + width] for at in range(0, len(text), width))
