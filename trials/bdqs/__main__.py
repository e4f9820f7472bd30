"""The experiments of the BDQS paper: ``python -m trials.bdqs run``, then ``report``.

``run`` writes a line of JSON for each cell, ``report`` makes docs/bdqs.md and its figures of them.
Exit code 1 if a message was lost or damaged.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from rich.console import Console

from cassieq_spark.node import Cluster
from cassieq_spark.settings.connection import ConnectionOptions
from cassieq_spark.store import open_store
from cassieq_spark.store.cassandra.schema import apply_schema
from trials.bdqs.cells import PROFILES, Experiment, Profile
from trials.bdqs.crew import Processes
from trials.bdqs.journal import Line
from trials.bdqs.nodes import CommandedNodes, EmbeddedNodes, Nodes
from trials.bdqs.report import LINES, read_lines, write_report
from trials.bdqs.run import Stage, about_this, run_experiment

#: So that the tables of a run are not mixed with anybody's queues.
KEYSPACE = "cassieq_bdqs"
#: Those that embedded Cassandra has for experiments in which one of them fails.
_NODES = 3


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command."""
    given = _parse(arguments)
    if given.command == "report":
        write_report(read_lines(given.lines))
        return 0
    chosen = [Experiment(name) for name in given.experiment or list(Experiment)]
    if given.contact_points and Experiment.SERVER in chosen and not given.fail:
        chosen.remove(Experiment.SERVER)
    kept = [line for line in read_lines(given.lines) if line["experiment"] not in chosen]
    new: list[Line] = []
    for experiment in chosen:
        new += _run(given, experiment)
        _write(given.lines, kept + new)
    print(json.dumps(_summary(new)))
    return 1 if any(line["figures"]["loss"] for line in new) else 0


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="trials.bdqs", description=__doc__)
    parser.add_argument("command", choices=["run", "report"])
    parser.add_argument("--lines", type=Path, default=LINES, help="the file of lines of JSON")
    parser.add_argument("--profile", choices=PROFILES, default="small")
    parser.add_argument("--experiment", action="append", choices=list(Experiment))
    parser.add_argument("--processes", type=int, help="how many share the senders and receivers")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    parser.add_argument("--contact-points", help="your own cluster: host[:port],...: all nodes")
    parser.add_argument("--fail", help="command that kills Cassandra on {host}")
    parser.add_argument("--repair", help="command that starts Cassandra on {host}")
    given = parser.parse_args(arguments)
    if given.profile == "paper" and not given.contact_points and given.command == "run":
        parser.error("--profile paper needs a cluster: give --contact-points")
    if bool(given.fail) != bool(given.repair) or (given.fail and not given.contact_points):
        parser.error("--fail and --repair go together, and with --contact-points")
    return given


def _run(given: argparse.Namespace, experiment: Experiment) -> Iterator[Line]:
    console = Console(stderr=True)
    profile = PROFILES[given.profile]
    with _stage(given, experiment, profile) as stage:
        yield from run_experiment(stage, experiment, profile, seed=given.seed, tell=console.print)


@contextmanager
def _stage(given: argparse.Namespace, experiment: Experiment, profile: Profile) -> Iterator[Stage]:
    """Connect to the cluster that is given, or start one."""
    with ExitStack() as held:
        nodes: Nodes | None = None
        if given.contact_points:
            points = tuple(given.contact_points.split(","))
            if given.fail:
                hosts = tuple(point.partition(":")[0] for point in points)
                nodes = CommandedNodes(hosts, fail=given.fail, repair=given.repair)
        else:
            count = _NODES if experiment is Experiment.SERVER else 1
            cluster = held.enter_context(Cluster(nodes=count, write_through=count > 1))
            points = tuple(f"{host}:{cluster.port}" for host in cluster.contact_points)
            nodes = EmbeddedNodes(cluster) if experiment is Experiment.SERVER else None
        connection = ConnectionOptions(contact_points=points, keyspace=KEYSPACE)
        apply_schema(connection)
        store = open_store(connection)
        held.callback(store.close)
        crew = held.enter_context(Processes(connection, given.processes or profile.processes))
        about = about_this(
            profile=given.profile,
            nodes=len(points),
            replicas=min(3, len(points)),
            consistency=connection.consistency,
            processes=crew.size,
        )
        yield Stage(store=store, crew=crew, nodes=nodes, about=about)


def _write(path: Path, lines: list[Line]) -> None:
    order = list(Experiment)
    lines = sorted(lines, key=lambda line: order.index(line["experiment"]))
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def _summary(lines: list[Line]) -> Line:
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
