"""The page of the repair: its last runs, what each did, and when each step was done last."""

from __future__ import annotations

from dataclasses import fields

from starlette.responses import Response

from cassieq_spark.console.pages import PageCall, page
from cassieq_spark.errors import NotFoundError
from cassieq_spark.monitoring.metrics import LastRuns
from cassieq_spark.repair.report import Counts, Outcome
from cassieq_spark.repair.runs import PastRun, read_history
from cassieq_spark.repair.steps import Step

#: How many runs are read, and how many are listed.
_READ, _LISTED = 1000, 50
#: The counts of a run that its line shows; its page shows all.
SHOWN = ("finalised", "settled_buckets", "unpublished_blocks", "expired", "dead_lettered")
#: Outcomes that a person should look at.
_BAD = {Outcome.FAILED, Outcome.SOME_FAILED, Outcome.BROKEN_OFF, Outcome.LOCK_LOST}


@page("/repair")
def repair(call: PageCall) -> Response:
    """Show the last runs. Two reads."""
    runs = read_history(call.console.watcher.looking, _READ)
    last = LastRuns().after(runs)
    only_problems = call.asked("show") == "problems"
    chosen = [each for each in runs if not only_problems or is_bad(each)]
    return call.render(
        "repair.html",
        runs=chosen[:_LISTED],
        total=len(chosen),
        most=_READ,
        only_problems=only_problems,
        steps=[(step.value, last.done.get(step), last.judged.get(step)) for step in Step],
        shown=SHOWN,
        is_bad=is_bad,
        worst=[each for each in runs[:1] if is_bad(each)],
    )


@page("/repair/{epoch}")
def run(call: PageCall) -> Response:
    """Show one repair run: what it did and what it found. Two reads."""
    text = call.name("epoch")
    runs = read_history(call.console.watcher.looking, _READ)
    found = [each for each in runs if str(each.epoch) == text]
    if not found:
        raise NotFoundError(f"there is no repair run {text} among the last {_READ:,}")
    counts = found[0].counts or {}
    names = [each.name for each in fields(Counts)]
    others = sorted(set(counts) - set(names))
    return call.render(
        "run.html",
        run=found[0],
        counts=[(name, counts.get(name, 0)) for name in [*names, *others]],
        is_bad=is_bad,
    )


def is_bad(run: PastRun) -> bool:
    """True if a person should look at the run."""
    return bool(run.problems) or run.outcome in _BAD
