"""What a mutant is: one exact text of one source file, replaced."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = "cassieq_spark"


@dataclass(frozen=True, slots=True)
class Mutant:
    """A bug on purpose, which the tests must find.

    Attributes:
        name: Says what is wrong, in a few words.
        breaks: Which promise, or invariant of docs/design.md section 8.
        file: Path within the package.
        text: What is replaced; occurs once in the file.
        by: What it is replaced by.
        tests: Files under ``tests/property`` that are to find it, if no unit test does, or tests
            of them (``file::test``). Each property test goes on until it fails: name the one that
            does, where a file has several.
    """

    name: str
    breaks: str
    file: str
    text: str
    by: str
    tests: tuple[str, ...] = ("test_queue_machine.py",)

    def read(self, root: Path = ROOT) -> str:
        """The source file as it is."""
        return (root / PACKAGE / self.file).read_text(encoding="utf-8")

    def apply(self, root: Path) -> None:
        """Mutate the file below another root."""
        mutated = self.read(root).replace(self.text, self.by)
        file = root / PACKAGE / self.file
        file.write_text(mutated, encoding="utf-8")
        # It may be as old and as long as the one that Python has compiled.
        for compiled in file.parent.glob(f"__pycache__/{file.stem}.*"):
            compiled.unlink()
