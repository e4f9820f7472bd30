"""The experiments of the BDQS paper: ``python -m trials.bdqs run``, then ``report``.

``run`` writes a line of JSON for each cell; ``report`` makes docs/bdqs.md and its figures from
these lines. The exit code is 1 if a message was lost or damaged.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any
from uuid import uuid4

from cassieq_spark import Client, __version__
from cassieq_spark.settings.connection import ConnectionOptions
from cassieq_spark.store import open_store
from cassieq_spark.store.cassandra.schema import apply_schema
from cassieq_spark.store.protocol import Store
from trials.bdqs.cells import PROFILES, Cell, Experiment, Profile
from trials.bdqs.clients import Crew, Processes, Shift, receive, send
from trials.bdqs.journal import Line, figures_of
from trials.bdqs.nodes import Nodes, Wrecker, commanded_nodes
from trials.bdqs.report import LINES, read_lines, write_report
from trials.environment import Report, arguments, carry_out, cassandra, tell

#: A keyspace of its own, for a run on a cluster that others use.
KEYSPACE = "cassieq_bdqs"
#: Embedded nodes for the experiment in which nodes fail.
_NODES = 3
_LEAST_LEASE = timedelta(seconds=1)


def main(words: Sequence[str] | None = None) -> int:
    given = _parse(words)
    if given.command == "report":
        write_report(read_lines(given.lines))
        return 0
    chosen = [Experiment(name) for name in given.experiment or list(Experiment)]
    if given.contact_points and Experiment.SERVER in chosen and not given.fail:
        chosen.remove(Experiment.SERVER)

    def play(_: Path) -> Report:
        kept = [line for line in read_lines(given.lines) if line["experiment"] not in chosen]
        new: list[Line] = []
        for experiment in chosen:
            profile = PROFILES[given.profile]
            with _environment(given, experiment, profile) as environment:
                new += run_experiment(environment, experiment, profile, seed=given.seed)
            _write(given.lines, kept + new)
        return _summary(new)

    return carry_out("bdqs", play, fine=lambda report: not report["worst_loss"])


def _parse(words: Sequence[str] | None) -> argparse.Namespace:
    parser = arguments(__doc__)
    parser.add_argument("command", choices=["run", "report"])
    parser.add_argument("--lines", type=Path, default=LINES, help="file of the lines of JSON")
    parser.add_argument("--profile", choices=PROFILES, default="small")
    parser.add_argument("--experiment", action="append", choices=list(Experiment))
    parser.add_argument("--processes", type=int, help="processes of senders and receivers")
    parser.add_argument("--contact-points", help="your own cluster: host[:port],...: all nodes")
    parser.add_argument("--fail", help="command that kills Cassandra on {host}")
    parser.add_argument("--repair", help="command that starts Cassandra on {host}")
    given = parser.parse_args(words)
    if given.profile == "paper" and not given.contact_points and given.command == "run":
        parser.error("--profile paper needs a cluster: give --contact-points")
    if bool(given.fail) != bool(given.repair) or (given.fail and not given.contact_points):
        parser.error("--fail and --repair go together, and with --contact-points")
    return given


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """The environment of cells.

    Attributes:
        store: For what is not measured.
        crew: The senders and receivers.
        nodes: The nodes that fail; None if none does.
        about: Code, day and machine, for the lines.
    """

    store: Store
    crew: Crew
    nodes: Nodes | None
    about: Line


@contextmanager
def _environment(
    given: argparse.Namespace, experiment: Experiment, profile: Profile
) -> Iterator[Environment]:
    """Connect to the given cluster, or start one."""
    with ExitStack() as held:
        nodes: Nodes | None = None
        if given.contact_points:
            points = tuple(given.contact_points.split(","))
            connection = ConnectionOptions(contact_points=points, keyspace=KEYSPACE)
            apply_schema(connection)
            store = held.enter_context(closing(open_store(connection)))
            if given.fail:
                hosts = tuple(point.partition(":")[0] for point in points)
                nodes = commanded_nodes(hosts, fail=given.fail, repair=given.repair)
        else:
            count = _NODES if experiment is Experiment.SERVER else 1
            ours = held.enter_context(cassandra(KEYSPACE, nodes=count, write_through=count > 1))
            connection, store = ours.connection, ours.store
            if experiment is Experiment.SERVER:
                nodes = Nodes(count, ours.cluster.kill, ours.cluster.start)
        crew = held.enter_context(Processes(connection, given.processes or profile.processes))
        points = connection.contact_points
        about = {
            "version": __version__,
            "day": datetime.now(UTC).date().isoformat(),
            "cores": os.cpu_count(),
            "profile": given.profile,
            "nodes": len(points),
            "replicas": min(3, len(points)),
            "consistency": connection.consistency,
            "processes": crew.size,
        }
        yield Environment(store=store, crew=crew, nodes=nodes, about=about)


def run_experiment(
    environment: Environment, experiment: Experiment, profile: Profile, *, seed: int
) -> Iterator[Line]:
    """Run the cells of one experiment after a warm-up; yields a line for each.

    ``seed`` decides which requests are lost, who dies and which node fails, but not the order of
    threads.
    """
    tell(f"{experiment}: warming up")
    run_cell(environment, profile.warm_up, seed=seed, repair=profile.repair)
    cells = profile.cells[experiment]
    for number, cell in enumerate(cells, start=1):
        began = time.monotonic()
        figures = run_cell(environment, cell, seed=seed + number, repair=profile.repair)
        seconds = round(time.monotonic() - began, 1)
        tell(f"{experiment}: {number} of {len(cells)}, {seconds} s")
        yield {
            "experiment": experiment,
            "cell": cell.to_json(),
            "figures": _rounded(figures),
            "seconds": seconds,
            "seed": seed,
            **environment.about,
        }


def run_cell(environment: Environment, cell: Cell, *, seed: int, repair: timedelta) -> Line:
    """Run one cell in new queues, and return its figures."""
    queues = _make_queues(environment.store, cell)
    crew = environment.crew
    dealt = [tuple(queues[member :: crew.size]) for member in range(crew.size)]
    shifts = [
        Shift(cell, names, seed=seed * crew.size + member)
        for member, names in enumerate(dealt)
        if names
    ]
    wrecker: AbstractContextManager[Wrecker | None] = nullcontext()
    if environment.nodes is not None:
        wrecker = Wrecker(environment.nodes, cell.mttf, repair, Random(seed))
    with wrecker as breaking:
        journals = crew.work(send, shifts)
        for queue, received in crew.work(receive, shifts).items():
            journals[queue].add(received)
    outages = {} if breaking is None else breaking.figures()
    return {**figures_of(list(journals.values())), **outages}


def _make_queues(store: Store, cell: Cell) -> list[str]:
    """Create queues without a limit of deliveries, like those of BDQS."""
    client = Client.from_store(store)
    names = [f"bdqs-{uuid4().hex[:12]}" for _ in range(cell.queues)]
    lease = max(_LEAST_LEASE, timedelta(seconds=round(cell.lease.total_seconds())))
    for name in names:
        client.create_queue(name, lease=lease, max_deliveries=0)
    return names


def _rounded(figures: Line) -> Line:
    return {
        name: round(value, 5) if isinstance(value, float) else value
        for name, value in figures.items()
    }


def _write(path: Path, lines: list[Line]) -> None:
    order = list(Experiment)
    lines = sorted(lines, key=lambda line: order.index(line["experiment"]))
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def _summary(lines: list[Line]) -> dict[str, Any]:
    figures = [line["figures"] for line in lines]
    return {
        "cells": len(lines),
        "sent": sum(each["sent"] for each in figures),
        "worst_loss": max(each["loss"] for each in figures),
        "seconds": round(sum(line["seconds"] for line in lines)),
        "seed": lines[0]["seed"],
    }


if __name__ == "__main__":
    sys.exit(main())
