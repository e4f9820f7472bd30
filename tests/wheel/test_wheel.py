from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import cassieq_spark
from tests.docs.pages import ROOT

PACKAGES = ("cassieq_spark", "pyspark_cassieq")
INFO = {"METADATA", "WHEEL", "RECORD", "entry_points.txt", "licenses/LICENSE"}


def test_the_wheel_holds_the_packages_and_nothing_else(tmp_path: Path):
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps"]
    command += ["--no-build-isolation", "--wheel-dir", str(tmp_path), str(ROOT)]
    subprocess.run(command, check=True, capture_output=True)

    (wheel,) = tmp_path.iterdir()
    info = f"cassieq_spark-{cassieq_spark.__version__}.dist-info"
    expected = {
        path.relative_to(ROOT).as_posix()
        for package in PACKAGES
        for path in (ROOT / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert "cassieq_spark/store/cassandra/statements.cql" in expected
    with ZipFile(wheel) as files:
        assert set(files.namelist()) == expected | {f"{info}/{name}" for name in INFO}
