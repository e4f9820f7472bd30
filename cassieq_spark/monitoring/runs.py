"""Which run of the repair took each step last, and which one has something to say. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from cassieq_spark.repair.history import PastRun
from cassieq_spark.repair.report import Outcome


@dataclass(frozen=True, slots=True)
class LastRuns:
    """The runs that count, by step.

    Attributes:
        done: The last that came to its end.
        judged: The last that came to its end or found a problem: one that was stopped early and
            found nothing has not looked at everything.
    """

    done: Mapping[str, PastRun] = field(default_factory=dict)
    judged: Mapping[str, PastRun] = field(default_factory=dict)

    def after(self, runs: Sequence[PastRun]) -> LastRuns:
        """What counts once these are known, too; in any order, known ones among them."""
        done, judged = dict(self.done), dict(self.judged)
        for run in sorted(runs, key=lambda run: run.epoch):
            for step in run.steps:
                if run.outcome is Outcome.DONE:
                    _keep_later(done, step, run)
                if run.outcome is Outcome.DONE or run.problems:
                    _keep_later(judged, step, run)
        return LastRuns(done, judged)


def _keep_later(kept: dict[str, PastRun], step: str, run: PastRun) -> None:
    if step not in kept or kept[step].epoch <= run.epoch:
        kept[step] = run
