"""What the programs of a chaos run leave on disk, and how it is read: never torn by a kill."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.chaos.checker import Result, Row, Sent, acked_batches

#: Asks all programs to end.
STOP = "stop"
_EVENTS = "events.jsonl"
_RESULTS = "results"
_CHECKPOINT = "checkpoint"
_SUFFIX = ".parquet"


class Notebook:
    """The folder of one program, which its successor goes on with.

    Args:
        folder: Where; made if it is not there.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        (folder / _RESULTS).mkdir(parents=True, exist_ok=True)

    @property
    def checkpoint(self) -> Path:
        """Where Spark keeps the checkpoint of the program's query."""
        return self._folder / _CHECKPOINT

    @property
    def is_over(self) -> bool:
        """Whether the program is asked to end."""
        return (self._folder.parent / STOP).exists()

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
            acknowledged=_batches(self.checkpoint / "commits") * rows_per_batch,
            attempted=_batches(self.checkpoint / "offsets") * rows_per_batch,
        )


def _batches(log: Path) -> int:
    return max((int(path.name) + 1 for path in log.glob("[0-9]*")), default=0)


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
