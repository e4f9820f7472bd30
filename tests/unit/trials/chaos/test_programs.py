"""Queries of a chaos run are stopped and begun again, and one with an old checkpoint must die."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Self

import pytest
from pyspark.errors import StreamingQueryException

from trials.chaos.checker import Rewinds, rewinds
from trials.chaos.programs import RewoundRuns, Runs
from trials.chaos.records import CALM, STOP, Notebook


class Query:
    """Does something when it is waited for, and has ended then."""

    def __init__(self, act: Callable[[], None]) -> None:
        self._act = act

    def awaitTermination(self, _: float) -> bool:
        self._act()
        return True

    def stop(self) -> None:
        pass


class Writer:
    """Makes one query after another; stands in for Spark's."""

    def __init__(self, act: Callable[[], None]) -> None:
        self.triggers: list[str] = []
        self._act = act

    def option(self, *_: str) -> Self:
        return self

    def trigger(self, **trigger: object) -> Self:
        self.triggers += trigger
        return self

    def start(self) -> Query:
        return Query(self._act)


def commit(notebook: Notebook, batches: int = 1) -> None:
    """Go on by so many batches."""
    kept = notebook.kept
    first = kept.last_committed + 1
    for log in ("offsets", "commits"):
        (kept.path / log).mkdir(parents=True, exist_ok=True)
        for number in range(first, first + batches):
            (kept.path / log / str(number)).touch()
    (kept.path / "metadata").write_text('{"id":"q"}')


def notes(notebook: Notebook) -> list[str]:
    return [event["event"] for event in notebook.events() if event["event"] != "query"]


def test_a_query_is_begun_again_with_either_trigger_until_the_end(tmp_path: Path):
    notebook = Notebook(tmp_path / "left")
    writer = Writer(lambda: len(writer.triggers) == 60 and (tmp_path / STOP).touch())

    Runs(notebook, lambda: writer, every="1 second").go_on()  # type: ignore[arg-type, return-value]

    assert len(writer.triggers) == len(notebook.events()) == 60
    assert set(writer.triggers) == {"availableNow", "processingTime"}


def test_in_the_end_queries_are_neither_rewound_nor_told_to_take_what_is_there(tmp_path: Path):
    (tmp_path / CALM).touch()
    notebook = Notebook(tmp_path / "relays" / "onward")
    commit(notebook, 4)
    notebook.kept.copy()
    commit(notebook, 6)
    writer = Writer(lambda: len(writer.triggers) == 40 and (tmp_path / "relays" / STOP).touch())

    runs = RewoundRuns(
        notebook,
        lambda: writer,  # type: ignore[arg-type, return-value]
        every="1 second",
        may_lose=True,
    )
    runs.go_on()

    assert set(writer.triggers) == {"processingTime"}
    assert notes(notebook) == []


class Relay:
    """A program with a checkpoint of ten batches, and a copy of its first four."""

    def __init__(self, folder: Path, *, may_lose: bool, act: Callable[[Relay], None]) -> None:
        self.notebook = Notebook(folder)
        commit(self.notebook, 4)
        self.notebook.kept.copy()
        commit(self.notebook, 6)
        writer = Writer(lambda: act(self))
        self.runs = RewoundRuns(
            self.notebook,
            lambda: writer,  # type: ignore[arg-type, return-value]
            every="1 second",
            may_lose=may_lose,
        )

    def run_until(self, event: str) -> None:
        while event not in notes(self.notebook):
            self.runs.run()

    def refuse(self) -> None:
        """As the sink does."""
        if self.notebook.kept.is_rewound:
            raise StreamingQueryException("... cassieq_spark.errors.BatchOrderError: sink ...")


def test_a_rewound_query_that_was_refused_goes_on_with_the_newest_checkpoint(tmp_path: Path):
    relay = Relay(tmp_path, may_lose=False, act=Relay.refuse)

    relay.run_until("mended")

    assert notes(relay.notebook) == ["rewinding", "refused", "mended"]
    assert relay.notebook.kept.last_committed == 9
    assert not relay.notebook.kept.is_rewound


def test_where_the_newest_checkpoint_may_be_lost_it_is_now_and_then(tmp_path: Path):
    last = set()
    for number in range(20):
        relay = Relay(tmp_path / str(number), may_lose=True, act=Relay.refuse)
        relay.run_until("mended")
        last.add(relay.notebook.kept.last_committed)

    assert last == {-1, 9}


def test_a_rewound_query_that_goes_on_is_noted(tmp_path: Path):
    relay = Relay(tmp_path, may_lose=False, act=lambda self: commit(self.notebook))

    relay.run_until("not refused")

    assert rewinds(relay.notebook.events()) == Rewinds(rewound=1, refused=0, not_refused=1)


def test_another_error_ends_the_program_and_its_successor_is_still_rewound(tmp_path: Path):
    def fail(self: Relay) -> None:
        if self.notebook.kept.is_rewound:
            raise StreamingQueryException("no node answers")

    relay = Relay(tmp_path, may_lose=False, act=fail)

    with pytest.raises(StreamingQueryException, match="no node"):
        relay.run_until("refused")

    assert Notebook(tmp_path).kept.is_rewound


def test_an_error_of_a_query_with_its_own_checkpoint_ends_the_program(tmp_path: Path):
    def fail(_: Relay) -> None:
        raise StreamingQueryException("BatchOrderError")

    relay = Relay(tmp_path, may_lose=False, act=fail)
    shutil.rmtree(tmp_path / "copies")

    with pytest.raises(StreamingQueryException):
        relay.run_until("refused")

    assert notes(relay.notebook) == []
