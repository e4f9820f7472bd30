"""Draws docs/figures/architecture.svg, which process talks to what; ``make figures`` runs it.

The dashed frames are the reader's own clusters. Blue is what contains the library, yellow is what
runs as a process of its own, green is data.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from docs.figures.drawing import arrow, box, picture, text

_WIDTH, _HEIGHT = 950, 590
_SPARK = (24, 24, 376, 236)
_CASSANDRA = (610, 24, 316, 524)
#: Where the names of the clusters stand, from the top of their frames.
_NAME = 26
_WIDE, _HALF, _NODE = (312, 56), (150, 56), (84, 56)
_LEFT, _RIGHT = 212, 768
_LABEL = 506


@dataclass(frozen=True, slots=True)
class Part:
    """A process, a program or a table: where its middle is, its name, and what it does."""

    x: int
    y: int
    name: str
    note: str
    kind: str = "box"
    size: tuple[int, int] = _WIDE


@dataclass(frozen=True, slots=True)
class Call:
    """What one part asks of another, and what is written at the arrow."""

    start: int
    stop: int
    y: int
    lines: tuple[str, ...] = ()
    lwt: bool = False


PARTS = (
    Part(_LEFT, 98, "driver", 'your query, with format("cassieq")'),
    Part(_LEFT, 208, "executors", "your code; they write and read messages"),
    Part(_LEFT, 304, "your Python program", "cassieq_spark.Client, no Spark"),
    Part(131, 376, "any program", "by HTTP", "plain", _HALF),
    Part(293, 376, "gateway", "if you need HTTP", "aside", _HALF),
    Part(_LEFT, 448, "repair", "deletes what every group has settled", "aside"),
    Part(_LEFT, 520, "console, exporter", "if you want to look", "aside"),
    Part(_RIGHT, 98, "ledger, group state", "who has which messages", "end", (280, 56)),
    Part(_RIGHT, 208, "chunks", "the messages, as Arrow batches", "end", (280, 56)),
    *(
        Part(x, 448, "node", "a replica", "plain", _NODE)
        for x in (_RIGHT - 98, _RIGHT, _RIGHT + 98)
    ),
)
CALLS = (
    Call(368, 628, 98, ("one LWT publishes a batch,", "one acks and leases the next"), lwt=True),
    Call(368, 628, 208, ("chunks of up to 512 messages,", "on all nodes in parallel")),
    Call(368, 610, 304, ("put, receive, ack",)),
    Call(206, 218, 376),
    Call(368, 610, 376, ("requests share LWTs",)),
    Call(368, 610, 448, ("often; all steps once a day",)),
    Call(368, 610, 520, ("reads, unless you allow changes",)),
)
_IN_CASSANDRA = ("One keyspace beside your own.", "Your replication, backups,", "roles and TLS.")
_BELOW = (
    "Blue: the library, inside your jobs and programs. "
    "Yellow: processes of its own. There is no broker."
)


def draw() -> str:
    """The picture as SVG."""
    return picture(
        _WIDTH,
        _HEIGHT,
        "Spark's driver and executors, programs, the gateway, the repair and the console "
        "all talk to your Cassandra cluster, and to nothing else",
        _frame(_SPARK, "Your Spark cluster"),
        _frame(_CASSANDRA, "Your Cassandra cluster"),
        *(_drawn(each) for each in CALLS),
        arrow(((_LEFT, 126), (_LEFT, 180))),
        text(_LEFT + 28, 157, "note", "tasks"),
        *(box((each.x, each.y), each.size, each.kind, each.name, each.note) for each in PARTS),
        *(text(_RIGHT, 300 + 22 * at, "said", line) for at, line in enumerate(_IN_CASSANDRA)),
        text(_WIDTH // 2, 570, "note", _BELOW),
    )


def _frame(place: tuple[int, int, int, int], name: str) -> str:
    x, y, width, height = place
    size = f'x="{x}" y="{y}" width="{width}" height="{height}"'
    middle = x + width // 2
    return f'<rect class="frame" {size} rx="12"/>\n{text(middle, y + _NAME, "name", name)}'


def _drawn(call: Call) -> str:
    kind = "note lwt" if call.lwt else "note"
    first = call.y - 8 - 15 * (len(call.lines) - 1)
    lines = [text(_LABEL, first + 15 * at, kind, line) for at, line in enumerate(call.lines)]
    return "\n".join((arrow(((call.start, call.y), (call.stop, call.y))), *lines))


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(draw(), encoding="utf-8")
