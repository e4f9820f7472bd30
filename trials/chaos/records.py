"""What the programs of a chaos run leave on disk, and how it is read: never torn by a kill.

Checkpoints are restored from older copies, as by an operator who picks the wrong one. Each step is
one renaming, so a process that is killed in between leaves what the next one understands: while
the newest checkpoint stands aside, an older one is in its place.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa

from trials.chaos.checker import Result, Row, Sent, Try, acked_batches
from trials.spark import Results

_COPIES, _ASIDE, _GONE = "copies", "newest", "gone"
#: A copy is too old for any replay: Spark replays its last batch, and the sink knows that one.
_BEHIND = 2


class Checkpoint:
    """The checkpoint of a query that does not run now, and older copies of it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.path = folder / "checkpoint"
        self._aside = folder / _ASIDE

    @property
    def newest(self) -> Path:
        """The one that the query has come furthest with."""
        return self._aside if self._aside.exists() else self.path

    @property
    def is_rewound(self) -> bool:
        """Whether an older copy is in its place."""
        return self._aside.exists()

    @property
    def query(self) -> str:
        """The id of its query; none before its first start."""
        metadata = self.path / "metadata"
        return str(json.loads(metadata.read_text())["id"]) if metadata.exists() else ""

    @property
    def last_committed(self) -> int:
        """Number of the last batch that Spark has committed; -1 before the first."""
        return last_batch(self.path / "commits")

    def recover(self) -> None:
        """Make good what was left by a program that was killed: the newest one, and nothing else.

        For the program whose checkpoint it is, and nobody else.
        """
        if self._aside.exists() and not self.path.exists():
            self._aside.rename(self.path)

    def copy(self) -> None:
        """Keep a copy of it as it is, unless it is rewound or has come no further."""
        logged = last_batch(self.path / "offsets")
        copy = self._folder / _COPIES / str(logged)
        if logged < 0 or self.is_rewound or copy.exists():
            return
        unfinished = copy.with_name(f".{logged}")
        shutil.rmtree(unfinished, ignore_errors=True)
        shutil.copytree(self.path, unfinished)
        unfinished.rename(copy)

    def choices(self) -> list[int]:
        """Which copies are so old that none of their batches could be taken for a replay."""
        if self.is_rewound:
            return []
        copies = (self._folder / _COPIES).glob("[0-9]*")
        old = sorted(int(copy.name) for copy in copies)
        return [each for each in old if each + _BEHIND <= self.last_committed]

    def rewind(self, copy: int) -> None:
        """Put an older copy in its place, and the newest one aside."""
        restored = self._folder / f".restored-{copy}"
        shutil.rmtree(restored, ignore_errors=True)
        shutil.copytree(self._folder / _COPIES / str(copy), restored)
        self.path.rename(self._aside)
        restored.rename(self.path)

    def go_on(self) -> None:
        """Put the newest one back: what docs/sink.md says is to be done."""
        self._throw(self.path)
        self._aside.rename(self.path)

    def begin_anew(self) -> None:
        """Forget all of them, the newest one too: what is to be done if that one is lost."""
        self._throw(self._folder / _COPIES)
        self._throw(self.path)
        self._throw(self._aside)

    def _throw(self, path: Path) -> None:
        if path.exists():
            gone = self._folder / _GONE
            gone.mkdir(exist_ok=True)
            path.rename(gone / f"{len(list(gone.iterdir()))}-{path.name}")


def last_batch(log: Path) -> int:
    """Number of the last batch in one of Spark's logs; -1 for none."""
    return max((int(path.name) for path in log.glob("[0-9]*")), default=-1)


#: Asks all programs to end.
STOP = "stop"
#: Asks all programs to let their queries run undisturbed.
CALM = "calm"
_REWOUND = "rewound"


class Notebook:
    """The folder of one program, which its successor goes on with.

    Attributes:
        kept: The checkpoint of its query, and copies of that.
        stored: What each batch had: key, value and delivery_count.
        tried: The same of each attempt to publish a batch.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.kept = Checkpoint(folder)
        self.stored = Results(folder)
        self.tried = Results(folder, "tries")

    @property
    def checkpoint(self) -> Path:
        return self.kept.path

    @property
    def is_over(self) -> bool:
        """Whether the program is asked to end."""
        return (self._folder.parent / STOP).exists()

    @property
    def is_calm(self) -> bool:
        """Whether queries are neither stopped nor rewound any more."""
        return (self._folder.parent.parent / CALM).exists()

    @property
    def _events(self) -> Path:
        return self._folder / "events.jsonl"

    def tell(self, event: str, **more: Any) -> None:
        """Note what happens; a line is written as a whole or not at all."""
        with self._events.open("a") as file:
            file.write(json.dumps({"event": event, **more}) + "\n")

    def events(self) -> list[dict[str, Any]]:
        """All that was told, in order."""
        lines = self._events.read_text().splitlines() if self._events.exists() else []
        return [json.loads(line) for line in lines]

    def try_batch(self, batch: int, rows: pa.Table) -> None:
        """Note what a batch has before it is published; each try is kept."""
        number = len(self.tried.paths())
        rewound = _REWOUND if self.kept.is_rewound else ""
        self.tried.store(f"{number}_{self.kept.query}_{batch}_{rewound}", rows)

    def tries(self) -> list[Try]:
        found = []
        for name, rows in self.tried.tables():
            _, query, batch, rewound = name.split("_")
            found.append(Try(query, int(batch), _rows(rows), rewound=rewound == _REWOUND))
        return found

    def results(self) -> list[Result]:
        acked = acked_batches(self.events())
        return [
            Result(
                self._folder.name,
                int(batch),
                _rows(rows),
                int(batch) in acked,
                self.stored.stored_at(batch),
            )
            for batch, rows in self.stored.tables()
        ]

    def sent(self, rows_per_batch: int) -> Sent:
        """What a producer has sent, as Spark's log of offsets and its log of commits say."""
        return Sent(
            self._folder.name,
            acknowledged=(last_batch(self.kept.newest / "commits") + 1) * rows_per_batch,
            attempted=(last_batch(self.kept.newest / "offsets") + 1) * rows_per_batch,
        )


def row_of(key: bytes | None, value: bytes, deliveries: int) -> Row:
    """A message as text, whatever has become of it."""
    return Row(
        None if key is None else key.decode(errors="replace"),
        value.decode(errors="replace"),
        deliveries,
    )


def _rows(table: pa.Table) -> list[Row]:
    columns = (table.column(name).to_pylist() for name in ("key", "value", "delivery_count"))
    return [row_of(*each) for each in zip(*columns, strict=True)]
