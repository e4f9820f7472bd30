"""``cassieq copy``: what is refused changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import Result
from typer.testing import CliRunner

from cassieq_spark import Client
from cassieq_spark.cli import app, copy
from cassieq_spark.errors import OptionError
from cassieq_spark.store.memory import MemoryStore

Command = Callable[..., Result]


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def copied(store: MemoryStore, monkeypatch: pytest.MonkeyPatch) -> Command:
    monkeypatch.setattr(copy, "open_store", lambda _: store)

    def run(*arguments: str) -> Result:
        result = CliRunner().invoke(app, ["copy", *arguments])
        if result.exception and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result

    return run


@pytest.fixture
def trips(tmp_path: Path) -> str:
    path = tmp_path / "trips.parquet"
    pq.write_table(pa.table({"vendor": ["v", "w"], "stops": [[1], None]}), path)
    return str(path)


def test_a_file_becomes_a_queue_and_a_column_the_key(
    copied: Command, store: MemoryStore, trips: str
):
    copied(trips, "trips", "--create", "--key", "vendor")

    found = Client.from_store(store).peek("trips", max=10)
    assert [(each.key, each.value) for each in found] == [
        (b"v", {"vendor": "v", "stops": [1]}),
        (b"w", {"vendor": "w", "stops": None}),
    ]


@pytest.mark.parametrize(
    ("key", "problem"),
    [
        ("vendr", "trips.parquet has no column 'vendr': did you mean 'vendor'?"),
        ("fare", "it has vendor, stops"),
        ("stops", "is array<bigint>, whose values can't be keys"),
    ],
)
def test_no_queue_is_created_for_a_key_that_no_column_gives(
    copied: Command, store: MemoryStore, trips: str, key: str, problem: str
):
    with pytest.raises(OptionError, match=problem.replace("?", r"\?")):
        copied(trips, "trips", "--create", "--key", key)

    assert Client.from_store(store).queues() == []
