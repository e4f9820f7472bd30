"""Measure the coefficients of the capacity model on this machine, and check what it predicts.

Starts nodes and a Spark of its own, one after the other. Without options, it runs trials on them,
and writes the coefficients into the package and docs/capacity.md; with --check, it runs loads of
other sizes, and writes the table of predictions there. Processor time and bytes are measured, so
others may work on the machine meanwhile; only rates of LWTs need a quiet one.
"""

from __future__ import annotations

import argparse
import time
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.capacity import report
from benchmarks.capacity.check import check
from benchmarks.capacity.fit import coefficients_of
from benchmarks.capacity.place import open_place
from benchmarks.capacity.trials import (
    churn_trial,
    idle_cores,
    lwt_trial,
    store_trials,
    stream_trials,
)
from cassieq_spark.planning.coefficients import VALUES, Coefficients, read_coefficients
from trials.environment import tell

_CHURN_MIB = 8


def main() -> None:
    parser = argparse.ArgumentParser(
        "python -m benchmarks.capacity", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--check", action="store_true", help="check predictions instead")
    parser.add_argument("--rounds", type=int, default=1, help="of all trials")
    parser.add_argument(
        "--into", type=Path, metavar="FILE", help="write the coefficients there, and no page"
    )
    given = parser.parse_args()
    if given.check:
        found = list(check(read_coefficients(given.into or VALUES), tell))
        report.write_page({"check": report.check_table(found, datetime.now(UTC))})
        return
    known = measure(given.rounds)
    (given.into or VALUES).write_text(known.text(), encoding="utf-8")
    if given.into is None:
        read_coefficients.cache_clear()
        report.write_page(report.tables(read_coefficients()))


def measure(rounds: int) -> Coefficients:
    """Run all trials, and fit the coefficients."""
    began = time.monotonic()
    with open_place(memtables_mib=_CHURN_MIB) as place:
        values = churn_trial(place, _CHURN_MIB)
        tell(values)
    with open_place(with_spark=True) as place:
        found = store_trials(place, rounds, tell)
        idle = idle_cores(place)
        values |= lwt_trial(place) | {"idle.node": idle}
        streams, values["idle.query"] = stream_trials(place, rounds, tell)
    with open_place(3) as place:
        found += store_trials(place, rounds, tell)
    values |= coefficients_of(found, streams, idle)
    tell(f"{time.monotonic() - began:.0f} s in all")
    return Coefficients(values, report.about(datetime.now(UTC)))


if __name__ == "__main__":
    main()
