"""Attacks on a gateway and on its tables, each with what was seen of it.

Starts a Cassandra and a gateway as users do. Eight innocent clients put, get and ack all the time;
their latency is compared with that before. The last line is a report as JSON; exit code 1 if an
attack is open, or the innocent were served too slowly.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from cassieq_spark.node import Cluster
from cassieq_spark.settings.connection import ConnectionOptions
from cassieq_spark.store.cassandra.schema import apply_schema
from tests.support.gateway import ADMIN, running

# Each of them adds its attacks.
from trials.attack import access, bodies, chunks, connections, instants  # noqa: F401
from trials.attack.innocents import innocent
from trials.attack.stage import EVERY, ON_TABLES, Attack, Stage, Watch
from trials.attack.verdicts import Seen, Verdict, is_fine, judge, report

_QUIET_SECONDS = 10.0


def main() -> int:
    """Run it on a node and a gateway of its own."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="attacks whose names have this in them")
    given = parser.parse_args()
    chosen = [each for each in EVERY if given.only in each.__name__]
    with tempfile.TemporaryDirectory(prefix="attack-") as folder, Cluster(nodes=1) as nodes:
        host = f"{nodes.contact_points[0]}:{nodes.port}"
        apply_schema(ConnectionOptions(contact_points=(host,)))
        log = Path(folder) / "log"
        with running(log, "--contact-points", host) as gateway:
            stage = Stage(gateway.url, gateway.process.pid, log, ADMIN, (host,))
            with innocent(stage) as seconds:
                time.sleep(_QUIET_SECONDS)
                seconds()
                quiet = _after(_QUIET_SECONDS, seconds)
                all_seen, peak = carry_out(stage, chosen)
                attacked = seconds()
    told = report(all_seen, max(peak, stage.consumer_peak_mb), quiet, attacked)
    print(json.dumps(told))
    return 0 if is_fine(told) else 1


def carry_out(stage: Stage, attacks: Sequence[Attack]) -> tuple[list[Seen], float]:
    """Carry attacks out, one by one; what was seen, and the gateway's most memory in MB."""
    all_seen, peak = [], 0.0
    for attack in attacks:
        with Watch(stage) as watch:
            try:
                seen = attack(stage)
            except Exception as error:  # noqa: BLE001 (whatever it is, it is not as it should be)
                seen = Seen(Verdict.OPEN, f"{type(error).__name__}: {error}"[:200])
        seen = judge(seen, watch.told)
        peak = max(peak, watch.peak_mb)
        all_seen.append(seen)
        print(f"{seen.verdict:9} {attack.__name__}: {seen.told}", file=sys.stderr, flush=True)
    return all_seen, peak


def without_tables() -> list[Attack]:
    """The attacks that need no Cassandra."""
    return [each for each in EVERY if each.__name__ not in ON_TABLES]


def _after(wait: float, seconds: Callable[[], list[float]]) -> list[float]:
    time.sleep(wait)
    return seconds()


if __name__ == "__main__":
    sys.exit(main())
