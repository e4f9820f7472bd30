"""From trials to coefficients: least squares of relative errors, and none below zero. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations

import numpy as np

from cassieq_spark.planning.costs import PUBLISH, READ, Work, further_replicas

#: A trial that cost next to nothing must not count more than one that cost this much.
_LEAST = 0.02
#: Bytes of a batch from which on its log is that of its messages.
_MUCH = 1e5


@dataclass(frozen=True, slots=True)
class Trial:
    """A trial, and what it cost.

    Attributes:
        operation: ``publish``, ``read`` or a step of the repair.
        work: What was done.
        replicas: Of the keyspace.
        costs: Seconds or bytes, for each figure that was measured.
    """

    operation: str
    work: Work
    replicas: int = 1
    costs: Mapping[str, float] = field(default_factory=dict)


def fit(counts: Sequence[Sequence[float]], costs: Sequence[float]) -> list[float]:
    """What each thing costs, so that the sums come near the costs; nothing costs less than zero.

    Args:
        counts: Of each trial, how many of each thing.
        costs: Of each trial.

    >>> [round(each, 3) for each in fit([[1, 0], [2, 100], [0, 100]], [1.0, 4.0, 2.0])]
    [1.0, 0.02]
    >>> fit([[1.0, 1.0], [1.0, 2.0]], [2.0, 1.0])[1]
    0.0
    """
    usual = max(map(abs, costs), default=0.0)
    weights = 1 / np.maximum(np.array(costs), _LEAST * usual or 1.0)
    matrix = np.array(counts, dtype=float) * weights[:, None]
    wanted = np.array(costs) * weights
    scale = np.maximum(np.abs(matrix).max(axis=0), 1e-300)
    things = range(matrix.shape[1])
    best, found = float(wanted @ wanted), np.zeros(len(things))
    for size in range(1, len(things) + 1):
        for chosen in map(list, combinations(things, size)):
            part = matrix[:, chosen] / scale[chosen]
            solution = np.linalg.lstsq(part, wanted, rcond=None)[0]
            error = float(((part @ solution - wanted) ** 2).sum())
            if (solution >= 0).all() and error < best - 1e-12:
                best, found = error, np.zeros(len(things))
                found[chosen] = solution / scale[chosen]
    return [float(each) for each in found]


#: The attribute of `Work` for each thing of a coefficient's name.
_IN_CASSANDRA = {"message": "message", "byte": "stored", "block": "block", "batch": "lwt"}
_IN_CLIENT = {"message": "message", "byte": "raw", "task": "task", "batch": "batch"}
_FILES = {"message": "message", "byte": "stored"}


def coefficients_of(
    found: Sequence[Trial], streams: Sequence[Trial], idle: float
) -> dict[str, float]:
    """All coefficients that are fitted.

    Args:
        found: Trials without Spark, which tell what Cassandra does.
        streams: Trials with Spark, which tell what Spark does.
        idle: Cores of a node that has nothing to do.
    """
    values = _storing(found) | _repair(found, idle)
    for operation in (PUBLISH, READ):
        rows = [each for each in found if each.operation == operation]
        values |= _cassandra(rows, operation, idle) | _bytes(rows, operation)
        values |= _counts(rows, operation)
        values |= _fitted(
            [each for each in streams if each.operation == operation],
            lambda trial: trial.costs["spark"],
            f"{operation}.client",
            _IN_CLIENT,
        )
    return values


def _busy(trial: Trial, idle: float) -> float:
    """Processor time of Cassandra, without that of idle nodes."""
    wall, nodes = trial.costs["wall"], trial.replicas
    return max(0.0, trial.costs["cassandra"] - idle * nodes * wall)


def _cassandra(rows: Sequence[Trial], operation: str, idle: float) -> dict[str, float]:
    """Processor time of the first replica and of each further one, fitted together."""
    counts = []
    for row in rows:
        once = [getattr(row.work, name) for name in _IN_CASSANDRA.values()]
        further = further_replicas(operation, row.replicas)
        counts.append([*once, *(each * further for each in once)])
    names = (
        f"{operation}.{part}.{thing}"
        for part in ("cassandra", "replica")
        for thing in _IN_CASSANDRA
    )
    return dict(zip(names, fit(counts, [_busy(row, idle) for row in rows]), strict=True))


def _bytes(rows: Sequence[Trial], operation: str) -> dict[str, float]:
    """Bytes on the wire, between nodes, in the log, and in files."""
    one = [each for each in rows if each.replicas == 1]
    several = [each for each in rows if each.replicas > 1]
    found = _fitted(one, lambda trial: trial.costs["wire"], f"wire.{operation}", _IN_CASSANDRA)
    found |= _fitted(
        several,
        lambda trial: trial.costs["between"] / further_replicas(operation, trial.replicas),
        f"wire.{operation}.nodes",
        _IN_CASSANDRA,
    )
    if operation == PUBLISH:
        # The log of few messages is that of LWTs.
        large = [each for each in one if each.work.stored > _MUCH * each.work.lwt]
        for kind in ("log", "disk"):
            found |= _fitted(large, lambda trial: trial.costs[kind], kind, _FILES)  # noqa: B023
    return found


def _counts(rows: Sequence[Trial], operation: str) -> dict[str, float]:
    """LWTs and reads of state of a micro-batch that has one block."""
    one = [each for each in rows if each.replicas == 1 and each.work.block == each.work.batch]
    batches = sum(each.work.lwt for each in one)
    return {
        f"count.{operation}.{kind}": sum(each.costs[kind] for each in one) / batches
        for kind in ("lwts", "reads")
    }


def _storing(rows: Sequence[Trial]) -> dict[str, float]:
    """Processor time of writing memtables out, over everything, as it comes at its own time."""
    written = sum(each.costs["flush bytes"] for each in rows)
    return {"flush.byte": sum(each.costs["flush"] for each in rows) / written}


def _repair(rows: Sequence[Trial], idle: float) -> dict[str, float]:
    found: dict[str, float] = {}
    for step in ("delete", "scan"):
        own = [each for each in rows if each.operation == step]
        cassandra, client = f"repair.cassandra.{step}", f"repair.client.{step}"
        found |= _fitted(own, lambda trial: _busy(trial, idle), cassandra, _FILES)
        found |= _fitted(own, lambda trial: trial.costs["own"], client, _FILES)
    return found


def _fitted(
    rows: Sequence[Trial], cost: Callable[[Trial], float], prefix: str, things: Mapping[str, str]
) -> dict[str, float]:
    counts = [[getattr(row.work, name) for name in things.values()] for row in rows]
    found = fit(counts, list(map(cost, rows)))
    return {f"{prefix}.{thing}": value for thing, value in zip(things, found, strict=True)}
