"""Three nodes and a Spark cluster, in which all processes are killed or paused now and then.

Two producers publish numbered messages, two consumers share them, a relay passes all of them on to
another queue, two repair jobs clean up, and three runners put the ticks of a schedule into a queue
of its own; each has a wall clock of its own. Their queries stop
and begin again at random, and use `Trigger.AvailableNow` now and then. Checkpoints of producers
and relay are restored from older copies. A schedule from a seed kills and pauses drivers, the
Python processes beside them, executors, their Python processes, repair jobs, and one Cassandra
node at a time, or sets that node's clock wrong by a day. Killed processes are started again. In
the end everything is drained, and each message is looked for in the results of the consumers and
in the queue of the relay. With ``--by-key``, no consumer may have processed a message before an
earlier one of its key; and clients put messages with unique ids, and receive in a group of their
own. With ``--several``, producers route the messages of one lane to a second queue, and consumers
and the relay read both queues by a pattern. The last line is a report as JSON. The exit code is 1
if anything is wrong.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from datetime import timedelta
from operator import itemgetter
from pathlib import Path

from cassieq_spark import Client
from cassieq_spark.errors import SetupError, StoreError
from trials.chaos.checker import QUEUE, Row, Sent, is_aside, judge, judge_relay, rewinds
from trials.chaos.client_checker import ClientVerdict, judge_clients, put_anew, sent_by
from trials.chaos.environment import (
    COUNTER,
    DEAD,
    GROUP,
    ONWARD,
    PARTITIONS,
    RELAYED,
    ROWS_PER_BATCH,
    SCHEDULE,
    TICKS,
    WINDOW,
    Environment,
    running,
)
from trials.chaos.faults import WRONG_CLOCKS, Fault, kinds, plan
from trials.chaos.history import ends_of, entries_of
from trials.chaos.history_checker import HistoryVerdict, judge_history
from trials.chaos.records import row_of
from trials.chaos.tick_checker import TickVerdict, judge_ticks, ticks_until
from trials.environment import Report, arguments, carry_out, tell
from trials.processes import supervise, wait_until

_TELL_SECONDS = 60.0
_START_SECONDS = 600.0
#: Without any progress.
_DRAIN_SECONDS = 600.0
_MOST_MESSAGES = 1_000_000


def main() -> int:
    parser = arguments(__doc__)
    parser.add_argument("--minutes", type=float, default=10, help="of faults; %(default)s")
    parser.add_argument(
        "--by-key",
        action="store_true",
        help=f"the queue has {PARTITIONS} partitions, in order by key, and clients beside Spark",
    )
    parser.add_argument(
        "--several",
        action="store_true",
        help="queries write to two queues, and read both of them",
    )
    parser.add_argument(
        "--right-clocks", action="store_true", help="the clocks of nodes stay right"
    )
    given = parser.parse_args()
    if given.minutes <= 0:
        parser.error(f"--minutes must be more than 0, not {given.minutes}")
    faults = [
        fault
        for fault in plan(given.seed, timedelta(minutes=given.minutes))
        if not (given.right_clocks and fault.how in WRONG_CLOCKS)
    ]
    tell(f"seed {given.seed}, {len(faults)} faults:")
    for fault in faults:
        tell(f"  {fault}")

    def play(folder: Path) -> Report:
        by_key, several = given.by_key, given.several
        with running(folder, given.seed, by_key=by_key, several=several) as environment:
            report = strike_and_judge(environment, faults, by_key=by_key)
        of_run = {"by_key": by_key, "several": several, "minutes": given.minutes}
        return report | of_run | {"seed": given.seed}

    return carry_out("chaos", play, fine=itemgetter("fine"))


def strike_and_judge(environment: Environment, faults: Sequence[Fault], *, by_key: bool) -> Report:
    """Let all programs work, strike them, let them finish; then judge."""
    striker = environment.striker
    began = time.monotonic()
    begin(environment)
    tell("all programs work")
    strike_all(environment, faults)
    striker.wait()
    tell("no more faults; draining")
    drained = drain(environment)
    sent = [each.sent(ROWS_PER_BATCH) for each in environment.producers.notebooks]
    sent += [sent_by(each.name, each.events()) for each in environment.scribes.notebooks]
    results = [result for each in environment.consumers.notebooks for result in each.results()]
    tries = [each for notebook in environment.relays.notebooks for each in notebook.tries()]
    dead = dead_letters(environment)
    several = put_anew(environment.puts, WINDOW.total_seconds())
    verdict = judge(sent, results, dead[GROUP], by_key=by_key, several=several)
    relayed = rows_of(environment, RELAYED)
    relay_verdict = judge_relay(sent, tries, relayed, dead[ONWARD], several=several)
    client_verdict = judge_all_clients(environment, sent, dead[COUNTER]) if by_key else None
    tick_verdict = judge_schedule(environment)
    rewound = rewinds(event for each in environment.notebooks for event in each.events())
    troubles = [*striker.troubles, *environment.packages_not_shipped()]
    troubles += environment.troubles_of_clients() + environment.troubles_of_runners()
    # By now the clerks have ended, and with them the threads that write the history.
    history = judge_whole_history(environment)
    whole = environment.audit()
    judged = (verdict, relay_verdict, client_verdict, tick_verdict, history)
    verdicts = [each for each in judged if each is not None]
    fine = (*(each.is_fine for each in verdicts), not rewound.not_refused, drained, whole)
    return (
        asdict(verdict)
        | asdict(relay_verdict)
        | (asdict(client_verdict) if client_verdict else {})
        | asdict(tick_verdict)
        | asdict(history)
        | asdict(rewound)
        | {
            "kills": {kind: striker.struck[kind] for kind in kinds()},
            "starts": {each.name: each.starts for each in environment.everybody},
            "drained": drained,
            "audit_whole": whole,
            "troubles": troubles,
            "seconds": round(time.monotonic() - began),
            "fine": all(fine) and not troubles,
        }
    )


def judge_all_clients(
    environment: Environment, sent: Sequence[Sent], dead: Sequence[Row]
) -> ClientVerdict:
    """The verdict on scribes and clerks, who know the first queue only."""
    spread = len(environment.queues) > 1
    routed = {each.name for each in environment.producers.notebooks if spread}
    return judge_clients(
        sent,
        environment.puts,
        [each.events() for each in environment.clerks.notebooks],
        dead,
        window=WINDOW.total_seconds(),
        is_elsewhere=lambda message: message.producer in routed and is_aside(message.number),
    )


def judge_whole_history(environment: Environment) -> HistoryVerdict:
    """The verdict on the history of the messages."""
    store = environment.store
    return judge_history(
        [*entries_of(store, QUEUE, COUNTER, environment.skews)],
        {each.name: each.events() for each in environment.clerks.notebooks},
        environment.puts,
        group=COUNTER,
        ends=ends_of(store, QUEUE),
    )


def judge_schedule(environment: Environment) -> TickVerdict:
    """The verdict on the ticks of the schedule, once this process has put what is missing."""
    client = Client.from_store(environment.store)
    client.schedule_runner().run_once()
    progress = client.schedule(TICKS, SCHEDULE)
    found = [str(each.value, "utf-8") for each in client.peek(TICKS, max=_MOST_MESSAGES)]
    return judge_ticks(ticks_until(progress.schedule, progress.last), found)


def dead_letters(environment: Environment) -> dict[str, list[Row]]:
    """The dead letters, by group."""
    found: dict[str, list[Row]] = {GROUP: [], ONWARD: [], COUNTER: []}
    for each in Client.from_store(environment.store).peek(DEAD, max=_MOST_MESSAGES):
        found[str(each.headers["cassieq.origin-group"])].append(row_of(each.key, each.value, 1))
    return found


def rows_of(environment: Environment, queue: str) -> list[Row]:
    """The messages of a queue that nobody has read."""
    found = Client.from_store(environment.store).peek(queue, max=_MOST_MESSAGES)
    return [row_of(each.key, each.value, 1) for each in found]


def begin(environment: Environment) -> None:
    """Start all programs but clients, until each consumer and relay has processed something.

    Clients need less than a second, and would keep Spark from starting.

    Raises:
        SetupError: That takes too long.
    """
    slow = [each for each in environment.everybody if each not in environment.clients]

    def works() -> bool:
        supervise(slow, for_ever=True)
        stored = all(each.stored.count() for each in environment.consumers.notebooks)
        return stored and all(each.tried.count() for each in environment.relays.notebooks)

    if not wait_until(works, _START_SECONDS):
        raise SetupError(f"not all programs have begun: see the logs in {environment.folder}")


def strike_all(environment: Environment, faults: Sequence[Fault]) -> None:
    """Carry out the schedule; return when the last fault has begun."""
    began = told = time.monotonic()
    to_come = list(faults)

    def all_have_begun() -> bool:
        nonlocal told
        now = time.monotonic()
        while to_come and now - began >= to_come[0].at.total_seconds():
            environment.striker.strike(to_come.pop(0))
        supervise(environment.everybody, for_ever=True)
        if now - told >= _TELL_SECONDS:
            told = now
            tell(
                f"{sum(each.stored.count() for each in environment.consumers.notebooks):,} stored"
            )
        return not to_come

    wait_until(all_have_begun, math.inf)


def drain(environment: Environment) -> bool:
    """Let producers end, then consumers when their groups have settled everything; True if so."""
    environment.calm_down()
    environment.producers.end()
    environment.scribes.end()

    def producers_ended() -> bool:
        supervise([*environment.receivers, *environment.servants], for_ever=True)
        return not supervise(environment.senders, for_ever=False)

    least, fell_at, told = math.inf, 0.0, -math.inf

    def nothing_is_owed_or_nothing_happens() -> bool:
        nonlocal least, fell_at, told
        supervise([*environment.receivers, *environment.servants], for_ever=True)
        now = time.monotonic()
        with suppress(StoreError):
            client = Client.from_store(environment.store)
            groups = [group for each in environment.queues for group in client.stats(each).groups]
            owed = sum(group.depth for group in groups)
            if owed < least:
                least, fell_at = owed, now
            if now - told >= _TELL_SECONDS:
                told = now
                tell(f"{owed:,} deliveries are owed")
        return least == 0 or now - fell_at > _DRAIN_SECONDS

    def clocks_are_fixed() -> bool:
        with suppress(StoreError):
            environment.fix_clocks()
            return True
        return False

    def receivers_ended() -> bool:
        return not supervise(environment.receivers, for_ever=False)

    drained = wait_until(producers_ended, _DRAIN_SECONDS)
    drained = wait_until(clocks_are_fixed, _DRAIN_SECONDS) and drained
    # However long it takes, as a machine may be slow, if only there are fewer and fewer.
    fell_at = time.monotonic()
    wait_until(nothing_is_owed_or_nothing_happens, math.inf)
    drained = least == 0 and drained
    environment.consumers.end()
    environment.relays.end()
    environment.clerks.end()
    drained = wait_until(receivers_ended, _DRAIN_SECONDS) and drained
    for servant in environment.servants:
        servant.kill()
    return drained


if __name__ == "__main__":
    sys.exit(main())
