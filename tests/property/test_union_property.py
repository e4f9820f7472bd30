"""Columns of several queues together: no value is lost, or the queues are refused."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from cassieq_spark.errors import OptionError
from cassieq_spark.schemas.ddl import schema_of, to_ddl
from cassieq_spark.schemas.evolution import present
from cassieq_spark.schemas.union import misfit, united
from tests.support.schemas import batches, histories, schemas

NAMES = st.sampled_from(["a", "A", "b", "c"])


def check(queues: Mapping[str, Sequence[str]], data: st.DataObject) -> None:
    """Rows of any version of each queue are shown, and have all of their values still."""
    whole = united(queues)
    for versions in queues.values():
        assert misfit(whole, versions) is None
        written = schema_of(versions[-1])
        batch = data.draw(batches(written))
        shown = present(batch, written, whole)
        shown.validate(full=True)
        assert repr(present(shown, whole, written).to_pylist()) == repr(batch.to_pylist())
    for versions in queues.values():
        for ddl in versions[:-1]:
            batch = data.draw(batches(schema_of(ddl)))
            present(batch, schema_of(ddl), whole).validate(full=True)


@given(histories(), st.data())
def test_versions_of_one_schema_are_read_together(versions: list[pa.Schema], data: st.DataObject):
    ddls = [to_ddl(each) for each in versions]
    count = data.draw(st.integers(1, len(ddls)))

    check({"one": ddls[:count], "two": [data.draw(st.sampled_from(ddls))]}, data)


@given(st.lists(schemas(NAMES, depth=1), min_size=2, max_size=3), st.data())
def test_any_queues_are_read_together_or_refused(found: list[pa.Schema], data: st.DataObject):
    with suppress(OptionError):
        check({str(at): [to_ddl(each)] for at, each in enumerate(found)}, data)
