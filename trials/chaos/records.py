"""The files of the programs of a chaos run, which stay valid if a program is killed.

Checkpoints are restored from older copies, as by an operator who picks the wrong one. Each step is
one renaming, so the next process can continue from any state. While the newest checkpoint is
aside, an older one is in its place.
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
#: A copy so many batches behind is too old for a replay: Spark replays only its last batch.
_BEHIND = 2


class Checkpoint:
    """The checkpoint of a query that does not run now, with older copies."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.path = folder / "checkpoint"
        self._aside = folder / _ASIDE

    @property
    def newest(self) -> Path:
        """The newest checkpoint."""
        return self._aside if self._aside.exists() else self.path

    @property
    def is_rewound(self) -> bool:
        """Whether an older copy is in its place."""
        return self._aside.exists()

    @property
    def query(self) -> str:
        """The id of its query; empty before the first start."""
        metadata = self.path / "metadata"
        return str(json.loads(metadata.read_text())["id"]) if metadata.exists() else ""

    @property
    def last_committed(self) -> int:
        """The last batch that Spark has committed; -1 before the first."""
        return last_batch(self.path / "commits")

    def recover(self) -> None:
        """Put the newest checkpoint back, if a killed program has left none in its place."""
        if self._aside.exists() and not self.path.exists():
            self._aside.rename(self.path)

    def copy(self) -> None:
        """Keep a copy, unless the checkpoint is rewound or has not changed."""
        logged = last_batch(self.path / "offsets")
        copy = self._folder / _COPIES / str(logged)
        if logged < 0 or self.is_rewound or copy.exists():
            return
        unfinished = copy.with_name(f".{logged}")
        shutil.rmtree(unfinished, ignore_errors=True)
        shutil.copytree(self.path, unfinished)
        unfinished.rename(copy)

    def choices(self) -> list[int]:
        """The copies that are too old for a replay."""
        if self.is_rewound:
            return []
        copies = (self._folder / _COPIES).glob("[0-9]*")
        old = sorted(int(copy.name) for copy in copies)
        return [each for each in old if each + _BEHIND <= self.last_committed]

    def rewind(self, copy: int) -> None:
        """Restore an older copy, and put the newest checkpoint aside."""
        restored = self._folder / f".restored-{copy}"
        shutil.rmtree(restored, ignore_errors=True)
        shutil.copytree(self._folder / _COPIES / str(copy), restored)
        self.path.rename(self._aside)
        restored.rename(self.path)

    def go_on(self) -> None:
        """Put the newest checkpoint back, as docs/sink.md says."""
        self._throw(self.path)
        self._aside.rename(self.path)

    def begin_anew(self) -> None:
        """Remove all checkpoints, as if the newest one were lost."""
        self._throw(self._folder / _COPIES)
        self._throw(self.path)
        self._throw(self._aside)

    def _throw(self, path: Path) -> None:
        if path.exists():
            gone = self._folder / _GONE
            gone.mkdir(exist_ok=True)
            path.rename(gone / f"{len(list(gone.iterdir()))}-{path.name}")


def last_batch(log: Path) -> int:
    """The last batch in one of Spark's logs; -1 if there is none."""
    return max((int(path.name) for path in log.glob("[0-9]*")), default=-1)


#: Tells all programs to end.
STOP = "stop"
#: Tells all programs to let their queries run without stops.
CALM = "calm"
_REWOUND = "rewound"


class Notebook:
    """The folder of one program; a restarted program continues with it.

    Attributes:
        kept: The checkpoint of its query, with copies.
        stored: The rows of each batch: key, value and delivery_count.
        tried: The same for each attempt to publish a batch.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.kept = Checkpoint(folder)
        self.stored = Results(folder)
        self.tried = Results(folder, "tries")

    @property
    def name(self) -> str:
        """The name of the program."""
        return self._folder.name

    @property
    def peers(self) -> list[Notebook]:
        """Those of all programs of its role."""
        return [Notebook(each) for each in sorted(self._folder.parent.iterdir()) if each.is_dir()]

    @property
    def checkpoint(self) -> Path:
        return self.kept.path

    @property
    def is_over(self) -> bool:
        """Whether the program is to end."""
        return (self._folder.parent / STOP).exists()

    @property
    def is_calm(self) -> bool:
        """Whether queries are to run without stops and rewinds."""
        return (self._folder.parent.parent / CALM).exists()

    @property
    def _events(self) -> Path:
        return self._folder / "events.jsonl"

    def tell(self, event: str, **more: Any) -> None:
        """Record an event, as one line."""
        with self._events.open("a") as file:
            file.write(json.dumps({"event": event, **more}) + "\n")

    def events(self) -> list[dict[str, Any]]:
        """All events, in order."""
        lines = self._events.read_text().splitlines() if self._events.exists() else []
        return [json.loads(line) for line in lines]

    def try_batch(self, batch: int, rows: pa.Table) -> None:
        """Record a batch before it is published; each try is kept."""
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
                self.name,
                int(batch),
                _rows(rows),
                int(batch) in acked,
                self.stored.stored_at(batch),
            )
            for batch, rows in self.stored.tables()
        ]

    def sent(self, rows_per_batch: int) -> Sent:
        """What a producer has sent, by Spark's logs of offsets and commits."""
        return Sent(
            self.name,
            acknowledged=(last_batch(self.kept.newest / "commits") + 1) * rows_per_batch,
            attempted=(last_batch(self.kept.newest / "offsets") + 1) * rows_per_batch,
        )


def row_of(key: bytes | None, value: bytes, deliveries: int) -> Row:
    """A message as text, even if it is damaged."""
    return Row(
        None if key is None else key.decode(errors="replace"),
        value.decode(errors="replace"),
        deliveries,
    )


def _rows(table: pa.Table) -> list[Row]:
    columns = (table.column(name).to_pylist() for name in ("key", "value", "delivery_count"))
    return [row_of(*each) for each in zip(*columns, strict=True)]
