"""The verdict on an attack, by its observed effects; and the report on all attacks. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import quantiles

#: Seconds that any request of an innocent may take while they share the gateway.
MOST_SECONDS = 3.0
#: The gateway's memory may grow by this much in an attack.
MOST_GROWTH_MB = 400.0
#: A health check may take this long.
MOST_STALL_SECONDS = 3.0


class Verdict(StrEnum):
    """Whether an attack was refused, did no harm, or succeeded."""

    REFUSED = "refused"
    CONTAINED = "contained"
    OPEN = "open"


@dataclass(frozen=True, slots=True)
class Seen:
    """The verdict on an attack, and what was seen of it, for people."""

    verdict: Verdict
    told: str


def refused_if(condition: object, told: object) -> Seen:
    """The attack was refused if the condition holds; else it is open."""
    return Seen(Verdict.REFUSED if condition else Verdict.OPEN, str(told)[:200])


def contained_if(condition: object, told: object) -> Seen:
    """The attack did no harm if the condition holds; else it is open."""
    return Seen(Verdict.CONTAINED if condition else Verdict.OPEN, str(told)[:200])


def served_within(slowest: float, told: object = "") -> Seen:
    """The attack did no harm if the victim's slowest request took so few seconds."""
    seen = f"the slowest request of the victim took {slowest:.1f} s {told}".rstrip()
    return contained_if(slowest < MOST_SECONDS, seen)


@dataclass(frozen=True, slots=True)
class Watched:
    """The gateway during an attack.

    Attributes:
        growth_mb: The growth of its memory.
        stall: Seconds of the slowest health check.
        alive: Whether its process still runs afterwards.
    """

    growth_mb: float
    stall: float
    alive: bool


@dataclass(frozen=True, slots=True)
class Innocent:
    """What innocent clients have met.

    Attributes:
        seconds: Of each request that was answered.
        slowest: Seconds of the slowest request, whether it was answered or not yet.
        refused: Answers that were errors, and connections that were closed.
    """

    seconds: Sequence[float]
    slowest: float
    refused: int


def judge(seen: Seen, watched: Watched) -> Seen:
    """The verdict, with the harm to the gateway considered."""
    harm = []
    if not watched.alive:
        harm.append("the gateway has ended")
    if watched.growth_mb > MOST_GROWTH_MB:
        harm.append(f"the gateway grew by {watched.growth_mb:.0f} MB")
    if watched.stall > MOST_STALL_SECONDS:
        harm.append(f"a health check took {watched.stall:.1f} s")
    return Seen(Verdict.OPEN, f"{'; '.join(harm)}; {seen.told}") if harm else seen


def p95(seconds: Sequence[float]) -> float:
    """The 95th percentile; 0 if there are fewer than two."""
    return quantiles(seconds, n=20)[18] if len(seconds) > 1 else 0.0


def report(
    all_seen: Sequence[Seen],
    peak_rss_mb: float,
    growth_mb: float,
    quiet: Innocent,
    attacked: Innocent,
) -> dict[str, float]:
    """The report: how many attacks have which verdict, and what the innocent met.

    Args:
        all_seen: All attacks.
        peak_rss_mb: Most memory of the gateway, or of a consumer.
        growth_mb: By how much an attack let the gateway grow, at most.
        quiet: What the innocent met before the attacks.
        attacked: What they met during the attacks.
    """
    counts = {str(kind): sum(seen.verdict == kind for seen in all_seen) for kind in Verdict}
    before = p95(quiet.seconds)
    ratio = p95(attacked.seconds) / before if before else 0.0
    return {
        "attacks": len(all_seen),
        **counts,
        "peak_rss_mb": round(peak_rss_mb),
        "growth_mb": round(growth_mb),
        "innocent_slowest_seconds": round(attacked.slowest, 2),
        "innocent_refused": attacked.refused,
        "innocent_p95_ratio": round(ratio, 2),
    }


def is_fine(told: dict[str, float]) -> bool:
    """Whether no attack is open, and no innocent was refused, or waited for long."""
    is_slow = told["innocent_slowest_seconds"] > MOST_SECONDS
    return not (told["open"] or told["innocent_refused"] or is_slow)
