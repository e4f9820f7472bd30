"""The cells of each experiment, for one machine and for a cluster. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from datetime import timedelta
from enum import StrEnum
from itertools import product

#: The chances of the paper, and 0 to compare with.
CHANCES = (0.0, 0.0001, 0.001, 0.01, 0.1)


class Experiment(StrEnum):
    """The paper's experiments, in its order."""

    THROUGHPUT = "throughput"
    RESPONSE = "response"
    CONSISTENCY = "consistency"
    NETWORK = "network"
    CLIENT = "client"
    SERVER = "server"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One run: all is sent, then all is received. Defaults are those of the paper, if it has any.

    Attributes:
        queues: Number of queues, each with senders and receivers of its own.
        senders: Senders of each queue.
        receivers: Receivers of each queue, in one group.
        messages: Messages of each sender.
        body_bytes: Random bytes of each message.
        send_pause: Pause of a sender after each message.
        receive_pause: Pause of a receiver for each message, as if it worked.
        lease: Length of a lease; the paper's visibility timeout.
        batch: Most messages of a receive.
        gathered: Whether the senders of a queue share a producer.
        named: Whether each put has a name, so that it may be repeated.
        lost: Chance that a request to Cassandra, or its answer, is lost.
        killed: Chance that a receiver dies in a cycle of receiving and acking.
        mttf: Mean time to failure of each node; None: no node fails.
        repetition: Number among equal cells, from 0.
    """

    queues: int = 4
    senders: int = 3
    receivers: int = 3
    messages: int = 100
    body_bytes: int = 2048
    send_pause: timedelta = timedelta(0)
    receive_pause: timedelta = timedelta(0)
    lease: timedelta = timedelta(seconds=10)
    batch: int = 1
    gathered: bool = False
    named: bool = False
    lost: float = 0.0
    killed: float = 0.0
    mttf: timedelta | None = None
    repetition: int = 0

    @property
    def count(self) -> int:
        return self.queues * self.senders * self.messages

    def to_json(self) -> dict[str, object]:
        """Its attributes, with durations in seconds."""
        return {
            name: value.total_seconds() if isinstance(value, timedelta) else value
            for name, value in asdict(self).items()
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """The cells for a size of cluster.

    Attributes:
        cells: The cells of each experiment.
        processes: The number of processes, among which the queues are divided.
        warm_up: The cell that is run before each experiment, and not reported.
        repair: How long a failed node stays down.
    """

    cells: Mapping[Experiment, tuple[Cell, ...]]
    processes: int
    warm_up: Cell = Cell(messages=60)
    repair: timedelta = timedelta(seconds=10)


def _seconds(seconds: float) -> timedelta:
    return timedelta(seconds=seconds)


def _repeated(times: int, *cells: Cell) -> tuple[Cell, ...]:
    return tuple(replace(cell, repetition=n) for cell in cells for n in range(times))


SMALL = Profile(
    processes=2,
    cells={
        Experiment.THROUGHPUT: _repeated(
            2,
            *(Cell(queues=queues, messages=50) for queues in (1, 4, 16)),
            *(
                Cell(queues=queues, messages=300, batch=100, gathered=True)
                for queues in (1, 4, 16)
            ),
        ),
        Experiment.RESPONSE: (
            *(
                Cell(messages=50, send_pause=_seconds(pause), receive_pause=_seconds(pause))
                for pause in (0.2, 0.1, 0.05, 0.02, 0.0)
            ),
            Cell(queues=16, messages=30),
        ),
        Experiment.CONSISTENCY: tuple(
            Cell(
                queues=4,
                receivers=receivers,
                messages=30,
                receive_pause=_seconds(0.1),
                lease=_seconds(1),
                batch=batch,
            )
            for receivers, batch in product((1, 2, 3, 6), (1, 3, 5))
        ),
        Experiment.NETWORK: tuple(
            Cell(named=True, lost=lost, lease=_seconds(2)) for lost in CHANCES
        ),
        Experiment.CLIENT: tuple(Cell(killed=killed, lease=_seconds(2)) for killed in CHANCES),
        Experiment.SERVER: tuple(
            Cell(
                messages=60,
                named=True,
                send_pause=_seconds(0.5),
                receive_pause=_seconds(0.5),
                lease=_seconds(2.5),
                mttf=mttf,
            )
            for mttf in (None, _seconds(100), _seconds(30))
        ),
    },
)

PAPER = Profile(
    processes=20,
    cells={
        Experiment.THROUGHPUT: _repeated(
            3, *(Cell(queues=queues) for queues in (20, 100, 200, 400, 1000))
        ),
        Experiment.RESPONSE: tuple(
            Cell(queues=queues, send_pause=_seconds(pause), receive_pause=_seconds(pause))
            for queues, pause in product((100, 200, 400, 1000), (1.0, 0.1, 0.0))
        ),
        Experiment.CONSISTENCY: tuple(
            Cell(queues=400, receivers=receivers, receive_pause=_seconds(1), batch=batch)
            for receivers, batch in product((1, 2, 3), (1, 3, 5))
        ),
        Experiment.NETWORK: tuple(Cell(queues=400, named=True, lost=lost) for lost in CHANCES),
        Experiment.CLIENT: tuple(Cell(queues=400, killed=killed) for killed in CHANCES),
        Experiment.SERVER: tuple(
            Cell(
                queues=200,
                named=True,
                send_pause=_seconds(0.5),
                receive_pause=_seconds(2),
                mttf=mttf,
            )
            for mttf in (None, _seconds(10_000), _seconds(1000), _seconds(100))
        ),
    },
)

PROFILES = {"small": SMALL, "paper": PAPER}
