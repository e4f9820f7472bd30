"""What the programs of a chaos run leave on disk, and how it is read: never torn by a kill."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from trials.chaos.checker import Result, Row, Sent, Try, acked_batches
from trials.chaos.checkpoints import Checkpoint, last_batch

#: Asks all programs to end.
STOP = "stop"
#: Asks all programs to let their queries run undisturbed.
CALM = "calm"
_EVENTS = "events.jsonl"
_RESULTS = "results"
_TRIES = "tries"
_REWOUND = "rewound"
_SUFFIX = ".parquet"


class Notebook:
    """The folder of one program, which its successor goes on with.

    Args:
        folder: Where; made if it is not there.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        for each in (_RESULTS, _TRIES, "copies"):
            (folder / each).mkdir(parents=True, exist_ok=True)
        self.kept = Checkpoint(folder)

    @property
    def checkpoint(self) -> Path:
        """Where Spark keeps the checkpoint of the program's query."""
        return self.kept.path

    @property
    def is_over(self) -> bool:
        """Whether the program is asked to end."""
        return (self._folder.parent / STOP).exists()

    @property
    def is_calm(self) -> bool:
        """Whether queries are neither stopped nor rewound any more."""
        return (self._folder.parent.parent / CALM).exists()

    def tell(self, event: str, **more: Any) -> None:
        """Note what happens; a line is written as a whole or not at all."""
        with (self._folder / _EVENTS).open("a") as file:
            file.write(json.dumps({"event": event, **more}) + "\n")

    def store(self, batch: int, rows: pa.Table) -> None:
        """Store what a batch had: key, value and delivery_count. Done again, it is replaced."""
        path = self._folder / _RESULTS / f"{batch}{_SUFFIX}"
        unfinished = path.with_name(f".{batch}")
        pq.write_table(rows, unfinished)
        unfinished.replace(path)

    def try_batch(self, batch: int, rows: pa.Table) -> None:
        """Note what a batch has before it is published; each try is kept."""
        folder = self._folder / _TRIES
        number = len(list(folder.glob("[0-9]*")))
        kept = self.kept
        name = f"{number}_{kept.query}_{batch}_{_REWOUND if kept.is_rewound else ''}{_SUFFIX}"
        unfinished = folder / f".{name}"
        pq.write_table(rows, unfinished)
        unfinished.replace(folder / name)

    def tries(self) -> list[Try]:
        """All that was tried."""
        found = []
        for path in (self._folder / _TRIES).glob(f"[0-9]*{_SUFFIX}"):
            _, query, batch, rewound = path.stem.split("_")
            found.append(Try(query, int(batch), _rows(path), rewound=rewound == _REWOUND))
        return found

    def events(self) -> list[dict[str, Any]]:
        """All that was told, in order."""
        path = self._folder / _EVENTS
        lines = path.read_text().splitlines() if path.exists() else []
        return [json.loads(line) for line in lines]

    def results(self) -> list[Result]:
        """All that was stored."""
        acked = acked_batches(self.events())
        paths = (self._folder / _RESULTS).glob(f"[0-9]*{_SUFFIX}")
        return [
            Result(self._folder.name, int(path.stem), _rows(path), int(path.stem) in acked)
            for path in paths
        ]

    def count_stored(self) -> int:
        """How many messages the results have."""
        paths = (self._folder / _RESULTS).glob(f"[0-9]*{_SUFFIX}")
        return sum(int(pq.read_metadata(path).num_rows) for path in paths)

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


def _rows(path: Path) -> list[Row]:
    table = pq.read_table(path)
    columns = (table.column(name).to_pylist() for name in ("key", "value", "delivery_count"))
    return [row_of(*each) for each in zip(*columns, strict=True)]
