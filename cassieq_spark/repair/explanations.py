"""What the audit's findings mean, in lines for people and in values for programs. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from cassieq_spark.repair.diagnosis import Belonging, Diagnosis, Stray

_ADVICE = {
    Belonging.NO_QUEUE: "it is left alone; if nobody needs it, delete its partitions by hand",
    Belonging.GARBAGE: "the step clean deletes it",
    Belonging.LOST: "it is left alone; compare it with the messages that the ledger lacks",
    Belonging.UNPUBLISHED: "its write may be under way; if not, the step clean deletes it later",
}


def diagnosis_lines(queue: str, diagnosis: Diagnosis) -> Iterator[str]:
    """A diagnosis of a queue: what was found, what happened, who is owed it, what can be done."""
    finding = diagnosis.finding
    where = f", block {finding.block}" if finding.block else ""
    count = f"{len(finding.monotons):,} message(s)"
    yield f"{queue}: {count} {finding.monotons} {finding.problem}{where}"
    yield f"  what happened: {diagnosis.happened}"
    for each in diagnosis.owed:
        parts = ", ".join(map(str, each.monotons))
        yield f"  owed to group {each.group}: {each.monotons.count:,} of them: {parts}"
    if not diagnosis.owed:
        yield "  owed to no group"
    yield from (f"  can be done: {remedy}" for remedy in diagnosis.remedies)


def diagnosis_to_json(diagnosis: Diagnosis) -> dict[str, Any]:
    """The same for programs; monotons are ``start`` and, exclusive, ``stop``."""
    finding = diagnosis.finding
    return {
        "problem": finding.problem,
        "start": finding.monotons.start,
        "stop": finding.monotons.stop,
        "block": str(finding.block) if finding.block else None,
        "happened": diagnosis.happened,
        "owed": [
            {
                "group": each.group,
                "ranges": [[part.start, part.stop] for part in each.monotons],
                "seek_gives_up": each.given_up,
                "seek_repeats": each.repeated,
            }
            for each in diagnosis.owed
        ],
        "remedies": diagnosis.remedies,
    }


def stray_line(stray: Stray) -> str:
    """A block that no ledger names, and what becomes of it."""
    begun = stray.begun_at.isoformat(timespec="seconds")
    return (
        f"{stray.queue_id}: block {stray.block} of {stray.messages:,} message(s), begun {begun}: "
        f"{stray.belonging}; {_ADVICE[stray.belonging]}"
    )


def stray_to_json(stray: Stray) -> dict[str, Any]:
    """The same for programs."""
    return {
        "queue_id": stray.queue_id,
        "block": str(stray.block),
        "messages": stray.messages,
        "begun_at": stray.begun_at.isoformat(timespec="milliseconds"),
        "belonging": stray.belonging,
    }
