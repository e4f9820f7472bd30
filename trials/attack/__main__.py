"""Attacks on a gateway and on its tables, with a verdict on each.

Starts a Cassandra and a gateway as users do. Eight innocent clients put, get and ack all the time;
their latency during the attacks is compared with that before. The last line is a report as JSON.
The exit code is 1 if an attack is open, or if the innocent were served too slowly.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tests.support.gateway import running

# Each module adds its attacks to EVERY.
from trials.attack import access, bodies, chunks, connections  # noqa: F401
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
            running(folder / "log", "--contact-points", nodes.hosts) as gateway,
        ):
            target = Target(gateway, nodes.hosts)
            with innocent(target) as seconds:
                time.sleep(_QUIET_SECONDS)
                seconds()
                time.sleep(_QUIET_SECONDS)
                quiet = seconds()
                all_seen, peak = attack_all(target, chosen)
                attacked = seconds()
            return report(all_seen, max(peak, target.consumer_peak_mb), quiet, attacked)

    return carry_out("attack", play, fine=is_fine)


def attack_all(target: Target, attacks: Sequence[Attack]) -> tuple[list[Seen], float]:
    """Carry out attacks one by one; returns the verdicts, and the gateway's most memory in MB."""
    all_seen, peak = [], 0.0
    for attack in attacks:
        with Watch(target) as watch:
            try:
                seen = attack(target)
            except Exception as error:  # noqa: BLE001 (any error means that the attack is open)
                seen = Seen(Verdict.OPEN, f"{type(error).__name__}: {error}"[:200])
        seen = judge(seen, watch.told)
        peak = max(peak, watch.peak_mb)
        all_seen.append(seen)
        tell(f"{seen.verdict:9} {attack.__name__}: {seen.told}")
    return all_seen, peak


if __name__ == "__main__":
    sys.exit(main())
