"""Messages of four kinds, as Parquet files; a micro-batch takes two of them. Rows of two kinds."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from demo.flights import find_data, read_flights, write_files

#: Sizes of the micro-batches of streams.
BATCHES = (20_000, 100_000)
#: Spark makes a task of each file, so both cores are busy.
FILES_PER_BATCH = 2

_SEED = 7
_TABLE_FILES = 4
#: Orders that are made; a table of more rows repeats them.
_ORDERS = 50_000
_KB = 1024
_WORDS = ("mug", "lamp", "chair", "table", "kettle", "shelf", "carpet", "blanket", "candle")
_STREETS = ("Mill Lane", "High Street", "Station Road", "Church Hill", "Queen's Avenue")


@dataclass(frozen=True, slots=True)
class Payload:
    """Messages of one kind; ``folder`` has a folder of files for each size of a micro-batch."""

    name: str
    count: int
    mean_bytes: int
    folder: Path

    def files(self, batch: int) -> str:
        """The folder for a size of micro-batches, of which each takes two files."""
        return str(self.folder / str(batch))

    def repeated(self, batch: int, times: int) -> str:
        """A folder that has the same files ``times`` times, by links, which take no space."""
        into = self.folder / f"{batch} x {times}"
        if not into.exists():
            into.mkdir()
            for number in range(times):
                for file in Path(self.files(batch)).iterdir():
                    (into / f"{number}-{file.name}").hardlink_to(file)
        return str(into)


def write_payload(
    name: str, count: int, folder: Path, *, batches: Sequence[int] = BATCHES
) -> Payload:
    """Make messages of a kind, ``count`` at most, and write them for each size of micro-batch."""
    values = pa.array(islice(PAYLOADS[name](folder), count), pa.binary())
    table = pa.table({"value": values})
    for batch in batches:
        into = folder / str(batch)
        into.mkdir(parents=True)
        rows = batch // FILES_PER_BATCH
        for number, start in enumerate(range(0, table.num_rows, rows)):
            file = into / f"part-{number:04}.parquet"
            part = table.slice(start, rows)
            # Not compressed, so that reading them is cheap.
            pq.write_table(part, file, compression="none", use_dictionary=False)
    return Payload(name, table.num_rows, table.nbytes // table.num_rows, folder)


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of one kind, as Parquet files in a folder; ``some`` are three of the columns."""

    name: str
    count: int
    folder: str
    some: tuple[str, ...]


def write_table(name: str, count: int, folder: Path) -> Table:
    """Make rows of a kind, and write them to files.

    A kind has fewer rows, which are repeated with other numbers.
    """
    rows, numbers, some = TABLES[name](folder)
    copies = (_renumbered(rows, numbers, by=copy) for copy in range(-(-count // rows.num_rows)))
    table = pa.concat_tables(copies).slice(0, count)
    folder.mkdir(parents=True)
    size = -(-table.num_rows // _TABLE_FILES)
    for number in range(_TABLE_FILES):
        file = folder / f"part-{number}.parquet"
        pq.write_table(table.slice(number * size, size), file, compression="none")
    return Table(name, table.num_rows, str(folder), some)


def _renumbered(table: pa.Table, numbers: Sequence[str], *, by: int) -> pa.Table:
    """The same rows with other numbers in some columns."""
    for name in numbers:
        at = table.schema.get_field_index(name)
        table = table.set_column(at, name, pc.add(table[name], by))
    return table


def _flight_rows(_: Path) -> tuple[pa.Table, Sequence[str], tuple[str, ...]]:
    """The 336,776 flights with their 19 columns."""
    return read_flights(find_data()), ("year", "flight"), ("carrier", "dest", "arr_delay")


def _order_rows(folder: Path) -> tuple[pa.Table, Sequence[str], tuple[str, ...]]:
    """Orders, whose customer is a struct and whose lines are an array of structs."""
    orders = [json.loads(order) for order in islice(_orders(folder), _ORDERS)]
    return pa.Table.from_pylist(orders), ("number",), ("order_id", "number", "status")


def _random(_: Path) -> Iterator[bytes]:
    chance = random.Random(_SEED)
    while True:
        yield chance.randbytes(_KB)


def _orders(_: Path) -> Iterator[bytes]:
    """Orders of a shop, about 1 KB each."""
    chance = random.Random(_SEED)
    number = 0
    while True:
        number += 1
        order = {
            "order_id": f"{chance.getrandbits(128):032x}",
            "number": number,
            "placed_at": _instant(chance),
            "customer": {
                "id": chance.randrange(1_000_000),
                "email": f"{chance.choice(_WORDS)}{chance.randrange(10_000)}@example.org",
                "address": f"{chance.randrange(1, 200)} {chance.choice(_STREETS)}",
                "postcode": f"{chance.randrange(10_000, 99_999)}",
            },
            "lines": [
                {
                    "sku": f"{chance.getrandbits(40):010x}",
                    "title": f"{chance.choice(_WORDS)} {chance.choice(_WORDS)}",
                    "quantity": chance.randrange(1, 5),
                    "unit_price": chance.randrange(100, 20_000) / 100,
                    "currency": "EUR",
                }
                for _ in range(chance.randrange(5, 10))
            ],
            "status": chance.choice(("placed", "paid", "sent")),
        }
        yield json.dumps(order).encode()


def _readings(_: Path) -> Iterator[bytes]:
    """Readings of sensors, about 200 B each."""
    chance = random.Random(_SEED)
    while True:
        reading = {
            "device": f"sensor-{chance.randrange(5_000):05}",
            "read_at": _instant(chance),
            "temperature": round(chance.gauss(20, 6), 2),
            "humidity": round(chance.uniform(20, 90), 1),
            "battery": round(chance.uniform(2.9, 4.2), 3),
            "id": f"{chance.getrandbits(96):024x}",
            "firmware": f"2.{chance.randrange(9)}.{chance.randrange(20)}",
        }
        yield json.dumps(reading).encode()


def _flights(folder: Path) -> Iterator[bytes]:
    """The flights out of New York in 2013, about 330 B each, as in the demo."""
    lines = folder.with_name(f"{folder.name}-lines")
    write_files(find_data(), lines, files=1)
    for path in lines.iterdir():
        with path.open("rb") as file:
            yield from map(bytes.rstrip, file)
        path.unlink()


def _instant(chance: random.Random) -> str:
    day, second = chance.randrange(1, 29), chance.randrange(86_400)
    clock = f"{second // 3600:02}:{second // 60 % 60:02}:{second % 60:02}"
    return f"2026-11-{day:02}T{clock}.{chance.randrange(1000):03}Z"


RANDOM, ORDERS, READINGS, FLIGHTS = "1 KB random", "1 KB JSON", "200 B JSON", "flights"
PAYLOADS: dict[str, Callable[[Path], Iterator[bytes]]] = {
    RANDOM: _random,
    ORDERS: _orders,
    READINGS: _readings,
    FLIGHTS: _flights,
}
TABLES: dict[str, Callable[[Path], tuple[pa.Table, Sequence[str], tuple[str, ...]]]] = {
    ORDERS: _order_rows,
    FLIGHTS: _flight_rows,
}
