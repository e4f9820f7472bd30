"""Queues into files and back."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cassieq_spark import Client, NewMessage
from cassieq_spark.client.files import export_queue, import_file, schema_of_file
from cassieq_spark.errors import (
    BatchChangedError,
    ExistsError,
    MessageError,
    OptionError,
    OutcomeUnknownError,
    SchemaError,
)
from cassieq_spark.producer import partitioned
from cassieq_spark.producer.publisher import publish_written
from cassieq_spark.queues import read_queue
from cassieq_spark.testing.stores import CountingStore

FORMATS = ("x.parquet", "x.arrow", "x.jsonl")
SCHEMA = (
    "vendor string not null, fare decimal(10,2), at timestamp, raw binary, "
    "stops array<struct<zone:int>>, tags map<string,int>"
)
TRIPS: list[Any] = [
    NewMessage(
        {
            "vendor": f"v{number}",
            "fare": Decimal(number).scaleb(-2),
            "at": datetime(2026, 11, 23, 12, 0, 0, number, tzinfo=UTC),
            "raw": bytes([number % 256]),
            "stops": [{"zone": number}, None],
            "tags": {"n": number, "": None},
        },
        key=b"\xff%d" % number,
        headers={"h": str(number)},
    )
    for number in range(600)
] + [{"vendor": "only"}]
BYTES = [NewMessage(b"\xff\x00", key=b"\xfe"), NewMessage("text", headers={"a": "b"}), b""]


def untold(*_: int) -> None:
    """Nobody watches."""


def all_of(client: Client, queue: str) -> list[tuple[Any, ...]]:
    return [(each.key, each.value, dict(each.headers)) for each in client.peek(queue, max=10_000)]


@pytest.mark.parametrize("schema", [SCHEMA, None])
@pytest.mark.parametrize("name", FORMATS)
def test_a_queue_comes_back_from_a_file_as_it_was(
    client: Client, store: CountingStore, tmp_path: Path, name: str, schema: str | None
):
    for queue in ("a", "b"):
        client.create_queue(queue, schema=schema)
    client.put_many("a", TRIPS if schema else BYTES)
    file, told = tmp_path / name, []

    count = export_queue(
        store, read_queue(store, "a"), file, force=False, watch=lambda *it: told.append(it)
    )
    store.reset()
    imported = import_file(store, read_queue(store, "b"), file, watch=untold)

    assert count == told[-1][0] == told[-1][1] == len(TRIPS if schema else BYTES)
    assert imported == count
    assert store.cas_count == 1
    assert all_of(client, "b") == all_of(client, "a")
    assert [each.name for each in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize("name", FORMATS)
def test_an_empty_queue_is_an_empty_file(
    client: Client, store: CountingStore, tmp_path: Path, name: str
):
    client.create_queue("a", schema=SCHEMA)
    queue = read_queue(store, "a")

    assert export_queue(store, queue, tmp_path / name, force=False, watch=untold) == 0
    assert import_file(store, queue, tmp_path / name, watch=untold) == 0


def test_a_file_that_is_there_is_left_alone(client: Client, store: CountingStore, tmp_path: Path):
    file = tmp_path / "x.parquet"
    file.write_text("mine")
    queue = read_queue(store, "q")
    client.put("q", "a")

    with pytest.raises(ExistsError, match="exists already: name another file, or give --force"):
        export_queue(store, queue, file, force=False, watch=untold)
    assert file.read_text() == "mine"

    assert export_queue(store, queue, file, force=True, watch=untold) == 1
    assert pq.read_table(file).column_names == ["key", "value", "headers"]


def test_a_copy_touches_no_other_file(client: Client, store: CountingStore, tmp_path: Path):
    client.put("q", b"x")
    own = tmp_path / "x.arrow.part"
    own.write_text("mine")

    export_queue(store, read_queue(store, "q"), tmp_path / "x.arrow", force=False, watch=untold)

    assert own.read_text() == "mine"
    assert {each.name for each in tmp_path.iterdir()} == {"x.arrow", "x.arrow.part"}


def test_a_copy_that_breaks_off_leaves_no_file(
    client: Client, store: CountingStore, tmp_path: Path
):
    client.put_many("q", ["a"] * 2_000)

    def stop(*_: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        export_queue(store, read_queue(store, "q"), tmp_path / "x.arrow", force=False, watch=stop)

    assert list(tmp_path.iterdir()) == []


def test_a_queue_may_have_the_columns_of_a_file(client: Client, tmp_path: Path):
    client.create_queue("a", schema=SCHEMA)
    client.put_many("a", TRIPS[:3])
    table = pa.table({"a": pa.array([1], pa.uint16()), "_key": ["k"]})
    pq.write_table(table, tmp_path / "x.parquet")

    assert schema_of_file(tmp_path / "x.parquet") == pa.schema([("a", pa.int32())])
    with pytest.raises(OptionError, match="does not say which types"):
        schema_of_file(tmp_path / "x.jsonl")


BAD = [
    ("x.parquet", b"no parquet", OptionError, "can't be read"),
    ("x.arrow", b"no arrow", OptionError, "can't be read"),
    ("x.jsonl", b'{"vendor": "v"}\n{"vendor": 1}\n', MessageError, "'vendor', row 1"),
    ("x.jsonl", b'{"vendor": "v"}\n[\n', MessageError, "line 1 .* no JSON"),
    ("x.jsonl", b'{"vendr": "v"}\n', SchemaError, "did you mean 'vendor'"),
    ("gone.parquet", None, OptionError, "can't be read"),
]


@pytest.mark.parametrize("bad", BAD, ids=lambda bad: f"{bad[0]} {bad[3]}")
def test_a_file_that_does_not_fit_changes_nothing(
    client: Client,
    store: CountingStore,
    tmp_path: Path,
    bad: tuple[str, bytes | None, type[Exception], str],
):
    name, content, error, problem = bad
    client.create_queue("a", schema=SCHEMA)
    if content is not None:
        (tmp_path / name).write_bytes(content)

    with pytest.raises(error, match=problem):
        import_file(store, read_queue(store, "a"), tmp_path / name, watch=untold)

    assert client.peek("a") == []


def test_a_queue_without_a_schema_takes_no_other_columns(
    store: CountingStore, client: Client, tmp_path: Path
):
    file = tmp_path / "x.parquet"
    pq.write_table(pa.table({"value": ["a"], "fare": [1]}), file)

    with pytest.raises(SchemaError, match="'q' has no schema and takes value, key and headers"):
        import_file(store, read_queue(store, "q"), file, watch=untold)

    assert client.peek("q") == []


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("key", ["vendor", "n"])
def test_a_column_of_a_file_becomes_the_key(
    client: Client, store: CountingStore, tmp_path: Path, name: str, key: str
):
    keys = {"vendor": [b"v", b"w"], "n": [b"7", None]}[key]
    for queue in ("a", "b"):
        client.create_queue(queue, schema="vendor string, n bigint")
    client.put_many("a", [{"vendor": "v", "n": 7}, {"vendor": "w"}])
    file = tmp_path / name
    export_queue(store, read_queue(store, "a"), file, force=False, watch=untold)

    import_file(store, read_queue(store, "b"), file, key=key, watch=untold)

    assert [each.key for each in client.peek("b", max=10)] == keys


def test_a_key_that_no_column_gives_is_refused(
    client: Client, store: CountingStore, tmp_path: Path
):
    client.create_queue("a", schema="vendor string, stops array<int>")
    queue, file = read_queue(store, "a"), tmp_path / "x.parquet"
    pq.write_table(pa.table({"vendor": ["v"], "stops": [[1]], "_key": ["k"]}), file)

    for key, problem in [
        ("vendr", "did you mean 'vendor'"),
        ("vendor", "a column '_key' with keys"),
    ]:
        with pytest.raises(OptionError, match=problem):
            import_file(store, queue, file, key=key, watch=untold)
    pq.write_table(pa.table({"vendor": ["v"], "stops": [[1]]}), file)
    with pytest.raises(OptionError, match="can't be keys"):
        import_file(store, queue, file, key="stops", watch=untold)
    with pytest.raises(OptionError, match="'q' has no schema"):
        import_file(store, read_queue(store, "q"), file, key="vendor", watch=untold)

    assert client.peek("a") == []


def test_a_file_that_delays_its_rows_is_refused_by_a_queue_with_an_order(
    client: Client, store: CountingStore, tmp_path: Path
):
    client.create_queue("k", schema="a int", order="key", partitions=2)
    file = tmp_path / "x.parquet"
    pq.write_table(pa.table({"a": [1], "_key": ["x"], "_delay": [3600]}), file)

    with pytest.raises(OptionError, match="ordered by key, so a delayed message would hold up"):
        import_file(store, read_queue(store, "k"), file, watch=untold)

    assert client.peek("k") == []


@pytest.mark.parametrize("name", ["x.parquet", "x.arrow"])
def test_the_index_of_a_frame_is_read_from_a_file_if_it_has_a_name(
    client: Client, store: CountingStore, tmp_path: Path, name: str
):
    frame = pd.DataFrame({"fare": [1.5, 2.5, 3.5]})
    for number, index in enumerate([pd.RangeIndex(1, 4, name="trip"), pd.Index([5, 6, 7])]):
        table = pa.Table.from_pandas(frame.set_index(index))
        if name.endswith("parquet"):
            pq.write_table(table, tmp_path / name)
        else:
            with pa.ipc.new_stream(tmp_path / name, table.schema) as writer:
                writer.write_table(table, max_chunksize=2)
        client.create_queue(f"q{number}", schema=schema_of_file(tmp_path / name))

        import_file(store, read_queue(store, f"q{number}"), tmp_path / name, watch=untold)

    assert [each.value for each in client.peek("q0")] == [
        {"fare": 1.5, "trip": 1},
        {"fare": 2.5, "trip": 2},
        {"fare": 3.5, "trip": 3},
    ]
    assert [each.value for each in client.peek("q1")] == [{"fare": fare} for fare in frame.fare]


def test_a_copy_that_breaks_off_between_partitions_is_completed_under_its_name(
    client: Client, store: CountingStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    client.create_queue("parts", partitions=4)
    file = tmp_path / "x.parquet"
    numbers = [str(n) for n in range(40)]
    pq.write_table(pa.table({"value": numbers, "key": numbers}), file)
    queue = read_queue(store, "parts")
    published = []

    def publish_two(store: Any, written: Any, **how: Any) -> Any:
        if len(published) == 2:
            raise OutcomeUnknownError("no answer")
        published.append(written[0].queue_id)
        return publish_written(store, written, **how)

    with monkeypatch.context() as patch:
        patch.setattr(partitioned, "publish_written", publish_two)
        with pytest.raises(OutcomeUnknownError) as told:
            import_file(store, queue, file, watch=untold)
    assert 0 < len(client.peek("parts", max=100)) < 40
    (note,) = (each for each in told.value.__notes__ if "--idempotency-key" in each)
    name = note.split("--idempotency-key ")[1].split(":")[0]

    left = import_file(store, queue, file, idempotency_key=name, watch=untold)
    again = import_file(store, queue, file, idempotency_key=name, watch=untold)

    assert sorted(int(each.value) for each in client.peek("parts", max=100)) == [*range(40)]
    assert (0 < left < 40, again) == (True, 0)
    pq.write_table(pa.table({"value": ["another"], "key": ["1"]}), file)
    with pytest.raises(BatchChangedError):
        import_file(store, queue, file, idempotency_key=name, watch=untold)


def test_two_copies_of_a_file_are_two(client: Client, store: CountingStore, tmp_path: Path):
    client.create_queue("parts")
    file = tmp_path / "x.parquet"
    pq.write_table(pa.table({"value": ["a"]}), file)
    queue = read_queue(store, "parts")

    counts = [import_file(store, queue, file, watch=untold) for _ in range(2)]

    assert counts == [1, 1]
    assert len(client.peek("parts", max=10)) == 2
