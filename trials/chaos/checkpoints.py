"""Checkpoints that are restored from older copies, as by an operator who picks the wrong one.

Each step is one renaming, so a process that is killed in between leaves what the next one
understands: while the newest checkpoint stands aside, an older one is in its place.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

_COPIES, _ASIDE, _GONE = "copies", "newest", "gone"
#: A copy is too old for any replay: Spark replays its last batch, and the sink knows that one.
_BEHIND = 2


class Checkpoint:
    """A query's checkpoint, and older copies of it.

    Nobody may have the query running while anything here is done.

    Args:
        folder: Of the program; the checkpoint is in it.
    """

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
