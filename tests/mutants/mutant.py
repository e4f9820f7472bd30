"""What a mutant is: one function of the package, with one small change of its syntax tree."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from pathlib import Path

from tests.mutants.changes import Change, changed

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = "cassieq_spark"
#: What finds a mutant that names no test, if no unit test does.
QUEUE_MACHINE = "property/test_queue_machine.py"


@dataclass(frozen=True, slots=True)
class Mutant:
    """A bug on purpose, which the tests must find.

    Attributes:
        name: Says what is wrong, in a few words.
        breaks: Which promise, or invariant of docs/design.md section 8.
        where: Module within the package, and the qualified name of a function, a class or a
            constant in it: ``groups.state:Slot.is_held``. A module alone is all of it.
        change: What is changed there.
        tests: Files and folders under ``tests`` that are to find it, or tests of a file
            (``file::test``). Unit tests come first. Each property test goes on until it fails:
            name the one that does, where a file has several.
    """

    name: str
    breaks: str
    where: str
    change: Change
    tests: tuple[str, ...] = (QUEUE_MACHINE,)

    @property
    def file(self) -> Path:
        """Path of the module within the package."""
        path = Path(self.where.partition(":")[0].replace(".", "/"))
        return (
            path / "__init__.py" if (ROOT / PACKAGE / path).is_dir() else path.with_suffix(".py")
        )

    def tests_in(self, folder: str) -> list[str]:
        """Its tests that are in a folder."""
        return [each for each in self.tests if each.startswith(f"{folder}/")]

    def read(self, root: Path = ROOT) -> ast.Module:
        """The module as it is."""
        return ast.parse((root / PACKAGE / self.file).read_text(encoding="utf-8"))

    def mutated(self, root: Path = ROOT) -> ast.Module:
        """The module with the change.

        Raises:
            ChangeError: The change does not fit.
        """
        return changed(self.read(root), self.where.partition(":")[2], self.change)

    def apply(self, root: Path) -> None:
        """Mutate the file below another root.

        The whole module is written from its tree, since that is exact for each text of several
        lines, and no test reads comments or counts lines of the package.
        """
        file = root / PACKAGE / self.file
        file.write_text(ast.unparse(self.mutated(root)), encoding="utf-8")
        # It may be as old and as long as the one that Python has compiled.
        for compiled in file.parent.glob(f"__pycache__/{file.stem}.*"):
            compiled.unlink()
