from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchmarks.bench.payloads import RANDOM, TABLES, write_payload, write_table


def test_rows_are_repeated_with_other_numbers_up_to_the_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    few = pa.table({"year": [2013, 2014, None], "carrier": ["UA", "AA", "B6"]})
    monkeypatch.setitem(TABLES, "few", lambda _: (few, ("year",), ("carrier",)))

    table = write_table("few", 8, tmp_path / "rows")

    rows = pq.read_table(table.folder).to_pydict()
    assert (table.count, table.some) == (8, ("carrier",))
    assert rows == {
        "year": [2013, 2014, None, 2014, 2015, None, 2015, 2016],
        "carrier": ["UA", "AA", "B6", "UA", "AA", "B6", "UA", "AA"],
    }


def test_a_stream_may_have_the_files_of_a_payload_several_times(tmp_path: Path):
    payload = write_payload(RANDOM, 30, tmp_path / "messages", batches=(20,))

    once = pq.read_table(payload.files(20))["value"].to_pylist()
    folder = payload.repeated(20, 3)

    assert len(once) == 30
    assert sorted(pq.read_table(folder)["value"].to_pylist()) == sorted(once * 3)
    assert payload.repeated(20, 3) == folder, "made once"
