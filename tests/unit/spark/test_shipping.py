"""A task restores a reader or writer, or says what its Python lacks."""

from __future__ import annotations

import pickle
import sys
from importlib.util import find_spec

import pyarrow as pa
import pyspark
import pytest
from pyspark import cloudpickle

import cassieq_spark
from cassieq_spark.errors import OptionError, SetupError
from cassieq_spark.spark import shipping
from cassieq_spark.spark.shipping import check_platform, restore
from cassieq_spark.spark.source.stream import RefusedStreamReader

READER = RefusedStreamReader(OptionError("no such option"))


def test_a_reader_is_restored_with_its_state():
    restored = pickle.loads(cloudpickle.dumps(READER))

    assert type(restored) is RefusedStreamReader
    with pytest.raises(OptionError, match="no such option"):
        restored.initialOffset()


def test_a_python_without_the_package_is_named(monkeypatch: pytest.MonkeyPatch):
    pickled = cloudpickle.dumps(READER)
    monkeypatch.setitem(sys.modules, "cassieq_spark", None)

    with pytest.raises(ModuleNotFoundError) as raised:
        pickle.loads(pickled)

    text = str(raised.value)
    assert text.startswith(f"cassieq-spark is missing in {sys.executable} (Python 3.")
    assert f"install cassieq-spark {cassieq_spark.__version__} there" in text
    assert raised.value.name == "cassieq_spark"


def test_another_release_in_the_tasks_python_is_refused(monkeypatch: pytest.MonkeyPatch):
    pickled = cloudpickle.dumps(READER)
    here = cassieq_spark.__version__
    monkeypatch.setattr(cassieq_spark, "__version__", "0.0.9")

    with pytest.raises(SetupError, match=rf"is 0\.0\.9 in .*, and {here} where the driver runs"):
        pickle.loads(pickled)


def test_all_packages_that_are_missing_are_named(monkeypatch: pytest.MonkeyPatch):
    absent = {"cassandra", "mmh3"}
    monkeypatch.setattr(
        shipping, "find_spec", lambda name: None if name in absent else find_spec(name)
    )

    with pytest.raises(SetupError, match="cassandra-driver and mmh3 are missing in "):
        restore(cassieq_spark.__version__, b"")


@pytest.mark.parametrize("module", [pa, pyspark], ids=["pyarrow", "Spark"])
def test_a_package_that_is_too_old_is_named(module: object, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "__version__", "4.1.9")

    with pytest.raises(SetupError, match=r"4\.1\.9 .*is too old"):
        check_platform()
