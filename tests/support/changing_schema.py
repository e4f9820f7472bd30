"""A queue's schema that changes, and what a reader of it may be shown of a message."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

#: How many columns there ever are beside the one that every version has.
_MOST = 4
#: What a wide column holds, and a narrow one does not.
_WIDE = 1 << 40


@dataclass(slots=True)
class ChangingSchema:
    """Columns that come, get wider, go, and come back.

    Attributes:
        always: The column that every version has, and its type.
        versions: The columns of each version, with their types, the first version first.
    """

    always: tuple[str, str]
    versions: list[dict[str, str]] = field(default_factory=lambda: [{}])
    _types: dict[str, str] = field(default_factory=dict)

    @property
    def now(self) -> int:
        """The number of the version that the queue has."""
        return len(self.versions) - 1

    @property
    def ddl(self) -> str:
        """The version that the queue has."""
        name, kind = self.always
        others = [f"{each} {kind}" for each, kind in self.versions[-1].items()]
        return ", ".join([f"{name} {kind} not null", *others])

    def change(self, what: int) -> None:
        """Add, widen, drop or bring back a column, whichever can be done; ``what`` chooses."""
        columns = dict(self.versions[-1])
        gone = [name for name in self._types if name not in columns]
        narrow = [name for name, kind in columns.items() if kind == "int"]
        ways = ["new"] * (len(self._types) < _MOST) + gone + narrow + list(columns)
        at = what % len(ways)
        name = ways[at]
        if name == "new":
            columns[f"c{len(self._types)}"] = "int"
        elif name in gone:
            columns[name] = self._types[name]
        elif at < len(ways) - len(columns):
            columns[name] = "bigint"
        else:
            del columns[name]
        self._types |= columns
        self.versions.append(columns)

    @property
    def unsafe(self) -> str | None:
        """A version that the queue refuses: a column that was wide once is narrow in it."""
        wide = [name for name, kind in self._types.items() if kind == "bigint"]
        if not wide:
            return None
        name, kind = self.always
        others = [f"{each} {kind}" for each, kind in self.versions[-1].items() if each != wide[-1]]
        return ", ".join([f"{name} {kind} not null", *others, f"{wide[-1]} int"])

    def row(self, number: int, of: Any) -> dict[str, Any]:
        """A message of the version that the queue has: what is always there, and numbers."""
        others = {
            name: number + (_WIDE if kind == "bigint" else 0)
            for name, kind in self.versions[-1].items()
        }
        return {self.always[0]: of} | others

    def shows(self, value: Mapping[str, Any], put: Mapping[str, Any], *, since: int) -> bool:
        """Whether it is the message as a version since then shows it.

        Args:
            value: What a reader got.
            put: What was put.
            since: The oldest version that the reader may know.
        """
        name = self.always[0]
        may_have = [{name, *columns} for columns in self.versions[since:]]
        return {*value} in may_have and all(value[each] == put.get(each) for each in value)
