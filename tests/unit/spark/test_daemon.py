"""The daemon as Spark starts it: by ``python -m``, with its address on standard output."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import psutil
import pytest

from cassieq_spark.spark.daemon import warm_up
from tests.support.programs import output_of

COMMAND = [sys.executable, "-m", "cassieq_spark.spark.daemon", "pyspark.worker"]
#: Ends where Spark's own daemon begins.
WITHOUT_SPARK = """
    import gc, os, sys
    from cassieq_spark.spark import daemon

    def stand_in(module, *, run_name, alter_sys):
        print(module, run_name, alter_sys)
        print({*daemon.MODULES, "pandas"} <= set(sys.modules))
        print("JE_ARROW_MALLOC_CONF" in os.environ)
        print(gc.get_freeze_count() > 10_000, daemon.freeze_survivors in gc.callbacks)

    daemon.run_module = stand_in
    daemon.main()
"""


def start(folder: Path) -> subprocess.Popen[bytes]:
    """Start a daemon whose imports look into a folder first."""
    return subprocess.Popen(
        COMMAND,
        cwd=folder,
        env=os.environ | {"OMP_NUM_THREADS": "1"},  # as Spark does
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def port_of(daemon: subprocess.Popen[bytes]) -> int:
    assert daemon.stdout is not None
    return int.from_bytes(daemon.stdout.read(4))


def test_a_daemon_has_imported_everything_before_sparks_own_runs_in_its_place():
    assert output_of(WITHOUT_SPARK).split("\n") == [
        "pyspark.daemon __main__ True",
        "True",
        "False",
        "True True",
        "",
    ]


def test_a_daemon_has_one_thread_when_it_forks(tmp_path: Path):
    with start(tmp_path) as daemon:
        port = port_of(daemon)
        threads = psutil.Process(daemon.pid).num_threads()
        _, said = daemon.communicate()

    assert port > 1023
    assert threads == 1
    assert said == b""


def test_a_daemon_without_a_package_says_so_and_works_without(tmp_path: Path):
    broken = "print('hello')\nraise ImportError('no murmur today')"
    (tmp_path / "mmh3.py").write_text(broken)

    with start(tmp_path) as daemon:
        port = port_of(daemon)
        _, said = daemon.communicate()

    assert port > 1023
    printed, line, end = said.decode().split("\n")
    assert (printed, end) == ("hello", "")
    assert line.startswith("cassieq_spark.spark.daemon: tasks import what they need themselves")
    assert line.endswith(f"failed in {sys.executable}: ImportError: no murmur today")


def test_what_is_imported_before_a_failure_stays(capsys: pytest.CaptureFixture[str]):
    warm_up(("json", "there_is_no_such_module", "neither_is_this"))

    said = capsys.readouterr().err
    assert "ModuleNotFoundError: No module named 'there_is_no_such_module'" in said
    assert "neither" not in said


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    path = tmp_path / "sparky.zip"
    with ZipFile(path, "w") as made:
        made.writestr("sparky/__init__.py", "")
        made.writestr("sparky/inner.py", "answer = 42\n")
    return path


def test_a_worker_that_gets_another_folder_reads_no_list_of_an_archive_again(archive: Path):
    told = output_of(f"""
        import importlib, os, sys
        from cassieq_spark.spark import daemon

        def stand_in(*_, **__):
            if os.fork() == 0:
                opened = []
                sys.addaudithook(lambda name, about: name == "open" and opened.append(about[0]))
                importlib.invalidate_caches()
                print({str(archive)!r} in opened)
                import sparky.inner
                print(sparky.inner.answer, flush=True)
                os._exit(0)
            os.wait()

        sys.path.insert(0, {str(archive)!r})
        import sparky
        daemon.MODULES = ()
        daemon.run_module = stand_in
        daemon.main()
        """)

    assert told == "False\n42\n"


def test_workers_draw_different_random_numbers():
    drawn = output_of("""
        import os, sys
        import numpy.random
        from cassieq_spark.spark.daemon import warm_up

        warm_up(())
        for _ in range(2):
            if os.fork() == 0:
                print(numpy.random.random(), flush=True)
                os._exit(0)
            os.wait()
        """)

    first, second = drawn.split()
    assert first != second
