from __future__ import annotations

import json
from importlib.util import cache_from_source
from pathlib import Path
from zipfile import ZipFile

import pytest

from cassieq_spark.spark import bytecode
from tests.support.command_line import cassieq


@pytest.fixture
def spark_home(tmp_path: Path) -> Path:
    folder = tmp_path / "python" / "lib"
    folder.mkdir(parents=True)
    with ZipFile(folder / "pyspark.zip", "w") as made:
        made.writestr("pyspark/__init__.py", "")
    return tmp_path


def test_it_tells_what_it_has_compiled_and_that_nothing_was_left_to_do(
    spark_home: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("SPARK_HOME", str(spark_home))

    first = cassieq("spark", "compile", "--json")
    again = cassieq("spark", "compile", "--spark-home", str(spark_home))

    told = json.loads(first.out)
    assert told.pop("compiled") == [f"{spark_home}/python/lib/pyspark.zip"]
    assert told.pop("modules") >= 0
    assert told == {"refused": []}
    assert (again.code, again.out) == (0, "All modules are compiled already.\n")
    # This package, too, whether or not Python stores bytecode here.
    assert Path(cache_from_source(bytecode.__file__)).exists()


def test_a_folder_without_spark_is_an_error_in_a_line(tmp_path: Path):
    ended = cassieq("spark", "compile", "--spark-home", str(tmp_path))

    assert ended.code == 1
    assert ended.err.startswith(f"cassieq: {tmp_path}/python/lib has no zip file")


def test_an_archive_for_executors_gets_bytecode_and_loses_nothing(tmp_path: Path):
    archive = tmp_path / "package.zip"
    with ZipFile(archive, "w") as made:
        made.writestr("package/__init__.py", "")
        made.writestr("package/tests/test_it.py", "")

    first = cassieq("spark", "compile", str(archive), "--json")
    again = cassieq("spark", "compile", str(archive))

    assert json.loads(first.out) == {"compiled": [str(archive)], "modules": 0, "refused": []}
    assert (again.code, again.out) == (0, "All modules are compiled already.\n")
    with ZipFile(archive) as made:
        assert sorted(made.namelist()) == [
            "package/__init__.py",
            "package/__init__.pyc",
            "package/tests/test_it.py",
            "package/tests/test_it.pyc",
        ]


def test_what_is_no_archive_is_refused_by_name(tmp_path: Path):
    wrong = tmp_path / "package.zip"
    wrong.write_text("no zip file")

    ended = cassieq("spark", "compile", str(wrong))
    missing = cassieq("spark", "compile", str(tmp_path / "missing.zip"))

    assert ended.code == 1
    assert ended.err.startswith(f"cassieq: {wrong} is not a zip file")
    assert (missing.code, missing.err) == (
        1,
        f"cassieq: there is no file {tmp_path}/missing.zip\n",
    )


def test_archives_and_an_installation_are_not_compiled_by_one_command(
    spark_home: Path, tmp_path: Path
):
    archive = tmp_path / "package.zip"
    with ZipFile(archive, "w") as made:
        made.writestr("package/__init__.py", "")

    ended = cassieq("spark", "compile", str(archive), "--spark-home", str(spark_home))

    assert ended.code == 2
    assert ended.err.startswith(f"cassieq: --spark-home {spark_home} does not go with archives")
    assert ZipFile(archive).namelist() == ["package/__init__.py"]
