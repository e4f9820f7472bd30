"""The verdict on an attack, by its observed effects; and the report on all attacks. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import quantiles

#: The innocent may be served this many times slower while they share the gateway.
MOST_SLOWER = 2.0
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
    all_seen: Sequence[Seen], peak_rss_mb: float, quiet: Sequence[float], attacked: Sequence[float]
) -> dict[str, float]:
    """The report: how many attacks have which verdict, and how much slower the innocent were.

    Args:
        all_seen: All attacks.
        peak_rss_mb: Most memory of the gateway, or of a consumer.
        quiet: Seconds of requests of innocent clients before the attacks.
        attacked: The same during the attacks.
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
