"""Runs cells, one after the other: makes queues, sends, receives, judges."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any
from uuid import uuid4

from cassieq_spark import Client, __version__
from cassieq_spark.store.protocol import Store
from trials.bdqs.cells import Cell, Experiment, Profile
from trials.bdqs.clients import Shift, receive, send
from trials.bdqs.crew import Crew
from trials.bdqs.journal import Line, figures_of
from trials.bdqs.nodes import Nodes, Wrecker

_LEAST_LEASE = timedelta(seconds=1)

Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """Where cells are run.

    Attributes:
        store: For all that is not measured.
        crew: Senders and receivers.
        nodes: What may fail; None where nothing does.
        about: What a line says of the place.
    """

    store: Store
    crew: Crew
    nodes: Nodes | None
    about: Line


def run_experiment(
    stage: Stage, experiment: Experiment, profile: Profile, *, seed: int, tell: Tell
) -> Iterator[Line]:
    """Run the cells of one experiment, after some messages to warm up; a line for each.

    Args:
        stage: Where.
        experiment: Which.
        profile: How large.
        seed: Decides what is lost, who dies and which node fails; threads take turns anew.
        tell: Is told what is going on.
    """
    tell(f"{experiment}: warming up")
    run_cell(stage, profile.warm_up, seed=seed, repair=profile.repair)
    cells = profile.cells[experiment]
    for number, cell in enumerate(cells, start=1):
        began = time.monotonic()
        figures = run_cell(stage, cell, seed=seed + number, repair=profile.repair)
        seconds = round(time.monotonic() - began, 1)
        tell(f"{experiment}: {number} of {len(cells)}, {seconds} s")
        yield {
            "experiment": experiment,
            "cell": cell.to_json(),
            "figures": _rounded(figures),
            "seconds": seconds,
            "seed": seed,
            **stage.about,
        }


def run_cell(stage: Stage, cell: Cell, *, seed: int, repair: timedelta) -> Line:
    """Run one cell in queues of its own; its figures."""
    queues = _make_queues(stage.store, cell)
    dealt = [tuple(queues[member :: stage.crew.size]) for member in range(stage.crew.size)]
    shifts = [
        Shift(cell, names, seed=seed * stage.crew.size + member)
        for member, names in enumerate(dealt)
        if names
    ]
    wrecker: AbstractContextManager[Wrecker | None] = nullcontext()
    if stage.nodes is not None:
        wrecker = Wrecker(stage.nodes, cell.mttf, repair, Random(seed))
    with wrecker as breaking:
        journals = stage.crew.work(send, shifts)
        for queue, received in stage.crew.work(receive, shifts).items():
            journals[queue].add(received)
    outages = {} if breaking is None else breaking.figures()
    return {**figures_of(list(journals.values())), **outages}


def about_this(**more: Any) -> Line:
    """What a line says of the code, the day and the machine, and whatever else is given."""
    return {
        "version": __version__,
        "day": datetime.now(UTC).date().isoformat(),
        "cores": os.cpu_count(),
        **more,
    }


def _make_queues(store: Store, cell: Cell) -> list[str]:
    """Queues without a limit of deliveries, as those of BDQS have none."""
    client = Client.from_store(store)
    names = [f"bdqs-{uuid4().hex[:12]}" for _ in range(cell.queues)]
    for name in names:
        client.create_queue(name, lease=max(_LEAST_LEASE, _whole(cell.lease)), max_deliveries=0)
    return names


def _whole(length: timedelta) -> timedelta:
    return timedelta(seconds=round(length.total_seconds()))


def _rounded(figures: Line) -> Line:
    return {
        name: round(value, 5) if isinstance(value, float) else value
        for name, value in figures.items()
    }
