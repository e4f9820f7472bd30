"""Kill queries at the worst moments, and compare what they published with what their source had.

Each cell of the matrix is one query: a source (a queue, Kafka, files, the rate source), what it
computes, the moment at which its driver is killed, how often (1 to 6 times), and a checkpoint that
is kept, rewound or copied in between. Any two values of different dimensions meet in some cell.
Prints, as JSON, how many cells there were and what was wrong. The exit code is 1 if anything was.
"""

from __future__ import annotations

import itertools
import json
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import asdict, replace
from pathlib import Path
from random import Random

from pyspark.sql import SparkSession

from benchmarks.bench.jars import KAFKA_CONNECTOR, resolve
from benchmarks.bench.lab import Broker
from cassieq_spark.settings.connection import ConnectionOptions
from cassieq_spark.store import open_store
from trials.environment import Report, arguments, carry_out, cassandra, tell
from trials.processes import Program
from trials.replays.cell import (
    QUERIES,
    Cell,
    Checkpoint,
    QueryFailedError,
    Trial,
    play,
)
from trials.replays.striking import Fault, Moment
from trials.spark import start_spark, stop_spark

_SOURCES = ("queue", "kafka", "files", "rate")
_KILLED, _FAILED = 137, 3


def main() -> int:
    if sys.argv[1:2] == ["run"]:
        return _run(*sys.argv[2:])
    parser = arguments(__doc__)
    parser.add_argument("--only", metavar="TEXT", help="cells whose description has this text")
    parser.add_argument(
        "--drivers", type=int, default=8, help="cells that are repeated with killed drivers"
    )
    given = parser.parse_args()
    tell(f"seed {given.seed}")
    cells = [each for each in matrix(given.seed) if not given.only or given.only in str(each)]

    def play_all(folder: Path) -> Report:
        wrong: dict[str, list[str]] = {}
        with cassandra(nodes=1) as nodes:
            (folder / "kafka").mkdir()
            with Broker(folder / "kafka") as broker:
                options = options_of(nodes.connection)

                def trial_of(number: int, cell: Cell) -> Trial:
                    name = f"{given.seed}-{number}"
                    return Trial(cell, nodes.store, options, folder / name, broker.address)

                wrong |= _in_one_session(folder, cells, trial_of)
                drivers = _with_drivers(cells, given.drivers, given.seed)
                for number, cell in enumerate(drivers, len(cells)):
                    _note(wrong, cell, play(trial_of(number, cell), _run_program))
        runs = {"cells": len(cells), "cells with killed drivers": len(drivers)}
        return {"seed": given.seed, **runs, "wrong": wrong}

    return carry_out("replays", play_all, fine=lambda report: not report["wrong"])


def matrix(seed: int) -> list[Cell]:
    """Cells in which each two values of different dimensions meet.

    Greedy: of some random cells, the one with most pairs that have not met yet comes next.
    """
    chance = Random(seed)
    dimensions: list[Sequence[object]] = [
        _SOURCES,
        tuple(QUERIES),
        tuple(Moment),
        range(1, 7),
        tuple(Checkpoint),
    ]
    left = {
        pair
        for one, other in itertools.combinations(range(len(dimensions)), 2)
        for pair in itertools.product(
            [(one, each) for each in dimensions[one]],
            [(other, each) for each in dimensions[other]],
        )
        if _can_meet(dict(pair))
    }
    cells: list[Cell] = []
    while left:
        drawn = [[chance.choice(list(each)) for each in dimensions] for _ in range(200)]
        drawn = [each for each in drawn if _can_meet(dict(enumerate(each)))]
        best = max(drawn, key=lambda each: len(_pairs(each) & left))
        left -= _pairs(best)
        cells.append(Cell(*best))  # type: ignore[arg-type]
    return cells


def _pairs(values: Sequence[object]) -> set[object]:
    return set(itertools.combinations(enumerate(values), 2))


def _can_meet(values: dict[int, object]) -> bool:
    """Without a published batch, a rewound checkpoint is refused by nobody: it is planned anew."""
    is_published = values.get(2) in {None, Moment.HALF, Moment.AFTER}
    return is_published or values.get(4) is not Checkpoint.REWOUND


def _with_drivers(cells: Sequence[Cell], count: int, seed: int) -> list[Cell]:
    """Some of the cells, with the driver or the JVM alone killed; fewer times, as each takes 10 s.

    Most are of queues, whose readers die with the driver.
    """
    chance = Random(seed)
    queues = [each for each in cells if each.source == "queue"]
    chosen = chance.sample(queues, min(count, len(queues)))
    faults = itertools.cycle([Fault.DRIVER, Fault.JVM])
    return [
        replace(each, fault=fault, kills=min(each.kills, 3))
        for each, fault in zip(chosen, faults, strict=False)
    ]


def _in_one_session(
    folder: Path, cells: Sequence[Cell], trial_of: Callable[[int, Cell], Trial]
) -> dict[str, list[str]]:
    """Play cells in one Spark: only the process that reads the queue is killed."""
    wrong: dict[str, list[str]] = {}
    spark = _spark(folder / "spark")
    try:
        for number, cell in enumerate(cells):
            _note(wrong, cell, play(trial_of(number, cell), lambda trial: trial.run(spark)))
    finally:
        stop_spark(spark)
    return wrong


def _note(wrong: dict[str, list[str]], cell: Cell, found: list[str]) -> None:
    tell(f"{cell}: {'; '.join(found) or 'fine'}")
    if found:
        wrong[str(cell)] = found


def _run_program(trial: Trial) -> None:
    """Run the query of a cell in a program of its own, which may be killed."""
    told = json.dumps(
        {
            "cell": asdict(trial.cell),
            "options": dict(trial.options),
            "folder": str(trial.folder),
            "checkpoint": str(trial.checkpoint),
            "kafka": trial.kafka,
        }
    )
    command = [sys.executable, "-m", "trials.replays", "run", told]
    log = trial.folder / "program.log"
    with Program("query", command, log) as program:
        code = program.wait()
    if code not in {0, _KILLED} and trial.left() == trial.cell.kills:
        raise QueryFailedError(log.read_text(errors="replace")[-4000:])
    if code == _FAILED:
        raise QueryFailedError((trial.folder / "error").read_text())


def _run(told: str) -> int:
    """Run the query of a cell once, as a program: exit code 3 if it fails."""
    values = json.loads(told)
    cell, folder = values["cell"], Path(values["folder"])
    cell |= {
        "moment": Moment(cell["moment"]),
        "checkpoint": Checkpoint(cell["checkpoint"]),
        "fault": Fault(cell["fault"]),
    }
    connection = connection_of(values["options"])
    with closing(open_store(connection)) as store:
        trial = Trial(Cell(**cell), store, values["options"], folder, values["kafka"])
        trial.checkpoint = Path(values["checkpoint"])
        spark = _spark(folder / "spark")
        try:
            trial.run(spark)
        except QueryFailedError as error:
            (folder / "error").write_text(str(error))
            return _FAILED
        finally:
            stop_spark(spark)
    return 0


def _spark(scratch: Path) -> SparkSession:
    # The workers import the data source that strikes, in any folder.
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [os.getcwd(), *sys.path]))  # noqa: PTH109
    jars = ",".join(map(str, resolve(KAFKA_CONNECTOR)))
    scratch.mkdir(parents=True, exist_ok=True)
    return start_spark(
        "replays", scratch, log_level="OFF", settings={"spark.jars": jars}, log=scratch / "log"
    )


def options_of(connection: ConnectionOptions) -> dict[str, str]:
    """The options by which Spark reaches a Cassandra."""
    return {
        "spark.cassandra.connection.host": ",".join(connection.contact_points),
        "keyspace": connection.keyspace,
    }


def connection_of(options: dict[str, str]) -> ConnectionOptions:
    """The connection that `options_of` describes."""
    hosts = tuple(options["spark.cassandra.connection.host"].split(","))
    return ConnectionOptions(contact_points=hosts, keyspace=options["keyspace"])


if __name__ == "__main__":
    sys.exit(main())
