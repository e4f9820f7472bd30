"""Three nodes and a Spark cluster, on which everybody is killed or stopped now and then.

Two producers publish numbered messages, two consumers share them, a relay passes all of them on to
another queue, two repair runs clean up after them; each with a wall clock of its own. Their
queries stop and begin again at random, and use `Trigger.AvailableNow` now and then; checkpoints
of the producers and the relay are restored from older copies. A schedule, drawn from a seed,
kills and stops drivers, the Python processes beside them, executors, the Python processes of
those, repair runs, and one Cassandra node at a time, or sets that node's clock wrong by a day.
Who was killed is started again. In the end all is drained, and every message is looked for in
what the consumers have stored and in what the relay has published. The last line is a report as
JSON; exit code 1 if anything is off.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path

from rich.console import Console

from cassieq_spark import Client
from cassieq_spark.errors import SetupError, StoreError
from cassieq_spark.queues import read_queue
from cassieq_spark.queues.stats import queue_stats
from trials.chaos.checker import Row, judge, judge_relay, rewinds
from trials.chaos.records import row_of
from trials.chaos.schedule import Fault, kinds, plan
from trials.chaos.stage import (
    DEAD,
    GROUP,
    ONWARD,
    QUEUE,
    RELAYED,
    ROWS_PER_BATCH,
    Scene,
    repair_command,
    stage,
)
from trials.chaos.supervision import supervise, wait_until

_TELL_SECONDS = 60.0
_START_SECONDS = 300.0
_DRAIN_SECONDS = 600.0
_MOST_MESSAGES = 1_000_000
_INTERRUPTED = 130


def main() -> int:
    """Run it on clusters of its own."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10, help="of faults; %(default)s")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    given = parser.parse_args()
    if given.minutes <= 0:
        parser.error(f"--minutes must be more than 0, not {given.minutes}")
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    console = Console(stderr=True, highlight=False)
    faults = plan(given.seed, timedelta(minutes=given.minutes))
    console.print(f"seed {given.seed}, {len(faults)} faults:")
    for fault in faults:
        console.print(f"  {fault}")
    folder = Path(tempfile.mkdtemp(prefix="cassieq-chaos-"))
    report: dict[str, object] = {}
    try:
        with stage(folder, given.seed, console) as scene:
            report = play(scene, faults)
    except KeyboardInterrupt:
        console.print("stopped")
        shutil.rmtree(folder, ignore_errors=True)
        return _INTERRUPTED
    report |= {"minutes": given.minutes, "seed": given.seed}
    if report["fine"]:
        shutil.rmtree(folder, ignore_errors=True)
    else:
        console.print(f"logs and results are kept in {folder}")
    print(json.dumps(report))
    return 0 if report["fine"] else 1


def play(scene: Scene, faults: Sequence[Fault]) -> dict[str, object]:
    """Let everybody work, strike them, let them finish; then judge."""
    began = time.monotonic()
    begin(scene)
    scene.tell("everybody works")
    strike_all(scene, faults)
    scene.striker.wait()
    scene.tell("no more faults; draining")
    drained = drain(scene)
    sent = [each.sent(ROWS_PER_BATCH) for each in scene.sent_by]
    dead = letters(scene)
    verdict = judge(
        sent, [result for each in scene.stored_by for result in each.results()], dead[GROUP]
    )
    relay_verdict = judge_relay(
        sent,
        [each for notebook in scene.relayed_by for each in notebook.tries()],
        rows_of(scene, RELAYED),
        dead[ONWARD],
    )
    rewound = rewinds(
        event for each in (*scene.sent_by, *scene.relayed_by) for event in each.events()
    )
    troubles = [*scene.striker.troubles, *scene.packages_not_shipped()]
    whole = audit(scene)
    fine = (verdict.is_fine, relay_verdict.is_fine, not rewound.not_refused, drained, whole)
    return (
        verdict.to_json()
        | relay_verdict.to_json()
        | asdict(rewound)
        | {
            "kills": {kind: scene.striker.struck[kind] for kind in kinds()},
            "starts": {each.name: each.starts for each in scene.everybody},
            "drained": drained,
            "audit_whole": whole,
            "troubles": troubles,
            "seconds": round(time.monotonic() - began),
            "fine": all(fine) and not troubles,
        }
    )


def letters(scene: Scene) -> dict[str, list[Row]]:
    """What is in the dead-letter queue, by group."""
    found: dict[str, list[Row]] = {GROUP: [], ONWARD: []}
    for each in Client.from_store(scene.store).peek(DEAD, max=_MOST_MESSAGES):
        found[str(each.headers["cassieq.origin-group"])].append(row_of(each.key, each.value, 1))
    return found


def rows_of(scene: Scene, queue: str) -> list[Row]:
    """What is in a queue that nobody has read."""
    found = Client.from_store(scene.store).peek(queue, max=_MOST_MESSAGES)
    return [row_of(each.key, each.value, 1) for each in found]


def begin(scene: Scene) -> None:
    """Start everybody, and return when consumers and relays have all processed something.

    Raises:
        SetupError: That takes too long.
    """

    def works() -> bool:
        supervise(scene.everybody, for_ever=True)
        stored = all(each.count_stored() for each in scene.stored_by)
        return stored and all(each.tries() for each in scene.relayed_by)

    if not wait_until(works, _START_SECONDS):
        raise SetupError(f"not everybody has begun to work: see the logs in {scene.folder}")


def strike_all(scene: Scene, faults: Sequence[Fault]) -> None:
    """Carry out the schedule; return when its last fault has begun."""
    began = told = time.monotonic()
    to_come = list(faults)

    def all_have_begun() -> bool:
        nonlocal told
        now = time.monotonic()
        while to_come and now - began >= to_come[0].at.total_seconds():
            scene.striker.strike(to_come.pop(0))
        supervise(scene.everybody, for_ever=True)
        if now - told >= _TELL_SECONDS:
            told = now
            scene.tell(f"{sum(each.count_stored() for each in scene.stored_by):,} stored")
        return not to_come

    wait_until(all_have_begun, math.inf)


def drain(scene: Scene) -> bool:
    """Let producers end, then consumers when their group is owed nothing; True if it is so."""
    scene.calm_down()
    scene.end_producers()

    def producers_ended() -> bool:
        supervise([*scene.receivers, *scene.repairs], for_ever=True)
        return not supervise(scene.producers, for_ever=False)

    def nothing_is_owed() -> bool:
        supervise([*scene.receivers, *scene.repairs], for_ever=True)
        with suppress(StoreError):
            queue = read_queue(scene.store, QUEUE)
            groups = queue_stats(scene.store, queue.queue_id).groups
            return all(group.depth == 0 for group in groups)
        return False

    def clocks_are_fixed() -> bool:
        with suppress(StoreError):
            scene.fix_clocks()
            return True
        return False

    def receivers_ended() -> bool:
        return not supervise(scene.receivers, for_ever=False)

    drained = wait_until(producers_ended, _DRAIN_SECONDS)
    drained = wait_until(clocks_are_fixed, _DRAIN_SECONDS) and drained
    drained = wait_until(nothing_is_owed, _DRAIN_SECONDS) and drained
    scene.end_receivers()
    drained = wait_until(receivers_ended, _DRAIN_SECONDS) and drained
    for repair in scene.repairs:
        repair.kill()
    return drained


def audit(scene: Scene) -> bool:
    """Run the repair once more, in peace; whether the queue finds itself whole."""
    command = repair_command(Path(sys.executable), scene.hosts)
    with (scene.folder / "audit.log").open("wb") as log:
        repaired = subprocess.run(command, stdout=log, stderr=log, check=False)
    return repaired.returncode == 0


if __name__ == "__main__":
    sys.exit(main())
