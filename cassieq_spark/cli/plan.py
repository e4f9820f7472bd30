"""``cassieq plan``: what a load needs of Cassandra and of Spark."""

from __future__ import annotations

from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from typing import Annotated

import typer

from cassieq_spark.cli.options import AsJson, Value, command
from cassieq_spark.cli.output import print_json
from cassieq_spark.cli.tables import Column, print_table
from cassieq_spark.model import Order
from cassieq_spark.planning.coefficients import VALUES, read_coefficients
from cassieq_spark.planning.plan import MEASURED, PAPER, CapacityPlan, Load
from cassieq_spark.planning.units import FACTOR, NETWORK, PERIOD, RATE, SHARE, SIZE
from cassieq_spark.settings.kinds import choice, whole_number
from cassieq_spark.terminal import echo

app = typer.Typer()

_LOAD, _MACHINES = "Load", "Machines"


def load_of(  # noqa: PLR0913 (one for each option)
    *,
    rate: Annotated[
        float, Value(RATE, "Messages a second, on average: 200k/s, 12M/day.", panel=_LOAD)
    ],
    size: Annotated[
        float, Value(SIZE, "Size of a message, with key and headers: 300B, 1kB.", panel=_LOAD)
    ],
    groups: Annotated[
        int, Value(whole_number(0, 1000), "Consumer groups; each reads all.", panel=_LOAD)
    ] = 1,
    keep: Annotated[
        timedelta,
        Value(
            PERIOD,
            "How long messages are stored: until all groups have settled them, or longer.",
            panel=_LOAD,
        ),
    ] = timedelta(days=1),
    rf: Annotated[int, Value(whole_number(1, 10), "Replicas of each message.", panel=_LOAD)] = 3,
    compression: Annotated[
        float,
        Value(
            FACTOR,
            "Bytes of messages for each byte as stored; JSON in chunks has 2 to 4.",
            panel=_LOAD,
        ),
    ] = 1.0,
    interval: Annotated[
        timedelta, Value(PERIOD, "From one micro-batch to the next.", panel=_LOAD)
    ] = timedelta(seconds=10),
    batch: Annotated[
        int | None,
        Value(
            whole_number(1),
            "Messages of a micro-batch at the peak.",
            without="as many as arrive in the interval",
            panel=_LOAD,
        ),
    ] = None,
    order: Annotated[
        str, Value(choice(*(each.value for each in Order)), "Order of the queue.", panel=_LOAD)
    ] = Order.NONE.value,
    peak: Annotated[
        float, Value(FACTOR, "How many times the average the busiest minutes have.", panel=_LOAD)
    ] = 2.0,
    headroom: Annotated[
        float, Value(SHARE, "Share of cores and network that is free then.", panel=_MACHINES)
    ] = 0.4,
    cores_per_node: Annotated[
        int, Value(whole_number(1, 1024), "Cores of a node of Cassandra.", panel=_MACHINES)
    ] = 16,
    disk_per_node: Annotated[
        float, Value(SIZE, "Disks of a node of Cassandra.", panel=_MACHINES)
    ] = 4e12,
    network: Annotated[
        float, Value(NETWORK, "Network of a node, in each direction.", panel=_MACHINES)
    ] = 10e9 / 8,
    heap: Annotated[float, Value(SIZE, "Heap of a node of Cassandra.", panel=_MACHINES)] = 8e9,
    cores_per_executor: Annotated[
        int, Value(whole_number(1, 1024), "Cores of an executor of Spark.", panel=_MACHINES)
    ] = 4,
) -> Load:
    """The load that the options describe."""
    return Load(
        rate=rate,
        size=size,
        groups=groups,
        keep=keep,
        replicas=rf,
        compression=compression,
        interval=interval,
        batch=batch,
        order=Order(order),
        peak=peak,
        headroom=headroom,
        cores=cores_per_node,
        disk=disk_per_node,
        network=network,
        heap=heap,
        executor_cores=cores_per_executor,
    )


@command(app, "plan", panel="Operate", load=load_of)
def plan(
    *,
    load: Load,
    coefficients: Annotated[
        Path,
        typer.Option(
            help="File of coefficients that python -m benchmarks.capacity has written.",
            show_default="that of the package",
            metavar="FILE",
        ),
    ] = VALUES,
    as_json: AsJson = False,
) -> None:
    """Plan a cluster for a load: nodes, disks, network, partitions, executors of Spark.

    Connects to nothing. Each line says what it follows from, and whether its basis was measured
    or is on paper: extrapolated to more nodes, more data or other machines. docs/capacity.md
    explains the plan.

    Examples:
        cassieq plan --rate 200k/s --size 1kB --groups 3 --keep 7d --rf 3
        cassieq plan --rate 12M/day --size 300B --batch 10000 --order key --json
    """
    load.check()
    known = read_coefficients(coefficients)
    lines = CapacityPlan(load, known).lines()
    if as_json:
        print_json({"measured": dict(known.measured), "lines": [asdict(each) for each in lines]})
        return
    names = ("part", "figure", "value", "follows from", "basis")
    columns = [Column(name, wraps=name in {"figure", "follows from"}) for name in names]
    print_table(columns, [(it.part, it.name, it.text, it.follows, it.basis) for it in lines])
    echo(
        f"{MEASURED}: on {known.measured['machine']}, {known.measured['date']}, with "
        f"{known.measured['versions']}; {PAPER}: extrapolated from that."
    )
