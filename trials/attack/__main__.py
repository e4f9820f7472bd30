"""Attacks on a gateway and on its tables, with a verdict on each.

Starts a Cassandra and a gateway as users do. Nine innocent clients put, get, ack and ask for
figures; their slowest request counts. The last line is a report as JSON. The exit code is 1 if an
attack is open, or if an innocent was refused, or waited too long.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tests.support.gateway import running

# Each module adds its attacks to EVERY.
from trials.attack import (  # noqa: F401
    access,
    bodies,
    chunks,
    connections,
    floods,
    generated,
    sqs,
)
from trials.attack.target import EVERY, Attack, Target, Watch, innocent
from trials.attack.verdicts import Seen, Verdict, is_fine, judge, report
from trials.environment import Report, carry_out, cassandra, tell

_QUIET_SECONDS = 10.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="only attacks whose names contain this")
    given = parser.parse_args()
    chosen = [each for each in EVERY if given.only in each.__name__]

    def play(folder: Path) -> Report:
        with (
            cassandra(nodes=1) as nodes,
            running(folder / "log", "--contact-points", nodes.hosts, "--sqs") as gateway,
        ):
            target = Target(gateway, nodes.hosts)
            with innocent(target) as met:
                time.sleep(_QUIET_SECONDS)
                met()
                time.sleep(_QUIET_SECONDS)
                quiet = met()
                all_seen, peak, growth = attack_all(target, chosen)
                attacked = met()
            peak = max(peak, target.consumer_peak_mb)
            return report(all_seen, peak, growth, quiet, attacked)

    return carry_out("attack", play, fine=is_fine)


def attack_all(target: Target, attacks: Sequence[Attack]) -> tuple[list[Seen], float, float]:
    """Carry out attacks one by one.

    Returns:
        The verdicts, the gateway's most memory, and its most growth in one attack, in MB.
    """
    all_seen, peak, growth = [], 0.0, 0.0
    for attack in attacks:
        with Watch(target) as watch:
            try:
                seen = attack(target)
            except Exception as error:  # noqa: BLE001 (any error means that the attack is open)
                seen = Seen(Verdict.OPEN, f"{type(error).__name__}: {error}"[:200])
        seen = judge(seen, watch.told)
        peak, growth = max(peak, watch.peak_mb), max(growth, watch.told.growth_mb)
        all_seen.append(seen)
        tell(f"{seen.verdict:9} {attack.__name__}: {seen.told}")
    return all_seen, peak, growth


if __name__ == "__main__":
    sys.exit(main())
