"""The verdict on an attack, by its observed effects; and the report on all attacks. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import quantiles

#: So much slower may the innocent be served while they share the gateway with an attacker.
MOST_SLOWER = 2.0
#: No attack may make the gateway grow by more.
MOST_GROWTH_MB = 400.0
#: Nobody waits longer for a health check.
MOST_STALL_SECONDS = 3.0


class Verdict(StrEnum):
    """Whether an attack was refused, did no harm, or succeeded."""

    REFUSED = "refused"
    CONTAINED = "contained"
    OPEN = "open"


@dataclass(frozen=True, slots=True)
class Seen:
    """What was seen of an attack.

    Attributes:
        verdict: What became of it.
        told: What was seen, for people.
    """

    verdict: Verdict
    told: str


def refused_if(condition: object, told: object) -> Seen:
    """It was refused if something is so, and else it is open."""
    return Seen(Verdict.REFUSED if condition else Verdict.OPEN, str(told)[:200])


def contained_if(condition: object, told: object) -> Seen:
    """It did what it does, and no harm, if something is so; else it is open."""
    return Seen(Verdict.CONTAINED if condition else Verdict.OPEN, str(told)[:200])


@dataclass(frozen=True, slots=True)
class Watched:
    """What the gateway looked like during an attack.

    Attributes:
        growth_mb: By how much its memory grew.
        stall: Seconds that the slowest health check took.
        alive: Whether the same process answers afterwards.
    """

    growth_mb: float
    stall: float
    alive: bool


def judge(seen: Seen, watched: Watched) -> Seen:
    """The verdict, once what others had of it counts too."""
    harm = []
    if not watched.alive:
        harm.append("the gateway is gone")
    if watched.growth_mb > MOST_GROWTH_MB:
        harm.append(f"the gateway grew by {watched.growth_mb:.0f} MB")
    if watched.stall > MOST_STALL_SECONDS:
        harm.append(f"a health check took {watched.stall:.1f} s")
    return Seen(Verdict.OPEN, f"{'; '.join(harm)}; {seen.told}") if harm else seen


def p95(seconds: Sequence[float]) -> float:
    """What one of twenty takes longer than; 0 if there are too few."""
    return quantiles(seconds, n=20)[18] if len(seconds) > 1 else 0.0


def report(
    all_seen: Sequence[Seen], peak_rss_mb: float, quiet: Sequence[float], attacked: Sequence[float]
) -> dict[str, float]:
    """The report: how many attacks came to what, and what others had of them.

    Args:
        all_seen: What was seen of each.
        peak_rss_mb: Most memory of the gateway, or of a consumer.
        quiet: Seconds of the requests of innocent clients before.
        attacked: The same while the attacks lasted.
    """
    counts = {str(kind): sum(seen.verdict == kind for seen in all_seen) for kind in Verdict}
    before = p95(quiet)
    ratio = p95(attacked) / before if before else 0.0
    return {
        "attacks": len(all_seen),
        **counts,
        "peak_rss_mb": round(peak_rss_mb),
        "innocent_p95_ratio": round(ratio, 2),
    }


def is_fine(told: dict[str, float]) -> bool:
    return told["open"] == 0 and told["innocent_p95_ratio"] <= MOST_SLOWER
