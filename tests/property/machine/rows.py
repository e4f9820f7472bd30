"""The rows of a queue, message by message: decoded here, not by the code under test."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any
from uuid import UUID

#: Rows as a store returns them; whatever a column holds.
AnyRows = Sequence[Any]

#: What is to become of a message once its batch is acked: with a reason, or after how many ms.
Outcome = tuple[str, str | int]

MILLISECOND = timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a message is that was offered and is owed; without a token it waits.

    Attributes:
        token: Who has it.
        due: In ms: until when it is held, or from when on it may be offered.
        deliveries: How often it was handed out.
        reason: Why it is dead, if it was marked dead.
        row: The key of the row that it is in.
    """

    token: UUID | None
    due: int
    deliveries: int
    reason: str | None = None
    row: tuple[str, int, int] = field(default=("", 0, 0), compare=False)


def members(ranges: str) -> list[int]:
    """The monotons that a column ``ranges`` names.

    >>> members("0-3,5-6")
    [0, 1, 2, 5]
    """
    pairs = [part.split("-") for part in ranges.split(",") if part]
    return [at for start, stop in pairs for at in range(int(start), int(stop))]


def ranges_of(monotons: Iterable[int]) -> str:
    """The column ``ranges`` that names these monotons.

    >>> ranges_of([5, 0, 2, 1])
    '0-3,5-6'
    """
    runs: list[list[int]] = []
    for at in sorted(monotons):
        if runs and runs[-1][1] == at:
            runs[-1][1] += 1
        else:
            runs.append([at, at + 1])
    return ",".join(f"{start}-{stop}" for start, stop in runs)


def of_kind(rows: AnyRows, kind: str) -> AnyRows:
    """Those of one kind, in the order of their keys."""
    return [row for row in rows if row["kind"] == kind]


def places_of(rows: AnyRows) -> dict[int, Place]:
    """Where each message is; I5, I6: in one place only."""
    places: dict[int, Place] = {}
    for row in rows:
        if row["kind"] not in ("slot", "waiting"):
            continue
        monotons = members(row["ranges"])
        assert row["ranges"] == ranges_of(monotons), (row, "not as it is written")
        key = (row["kind"], row["ordinal"], row["position"])
        place = (
            Place(row["lease"], millis(row["due_at"]), row["deliveries"], row=key)
            if row["kind"] == "slot"
            else Place(None, row["ordinal"], row["deliveries"], row["reason"], row=key)
        )
        for at in monotons:
            assert at not in places, (at, place, places[at], "I5, I6: in two places")
            places[at] = place
    return places


def outcomes_of(row: Any) -> dict[int, Outcome]:
    """What is recorded in a slot for the batch in hand, by message; nothing, if for another."""
    told = json.loads(row["outcomes"] or "{}")
    if (told.get("lease"), told.get("deliveries")) != (str(row["lease"]), row["deliveries"]):
        return {}
    found: dict[int, Outcome] = {}
    for fate, by_what in (("reject", "rejected"), ("release", "released"), ("extend", "extended")):
        for what, ranges in told[by_what].items():
            for at in members(ranges):
                assert at not in found, (row, at, "recorded twice")
                found[at] = (fate, what if fate == "reject" else int(what) // 1000)
    return found


def says_published(row: Any) -> bool:
    """Whether a slot says that a sink has published the batch in hand."""
    told = json.loads(row["outcomes"] or "{}")
    whose = (told.get("lease"), told.get("deliveries"))
    return whose == (str(row["lease"]), row["deliveries"]) and told.get("published", False)


def millis(instant: Any) -> int:
    """Milliseconds since 1970, in whole ones."""
    seconds = int(instant.timestamp())
    return seconds * 1000 + instant.microsecond // 1000
