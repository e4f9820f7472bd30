"""A standalone Spark cluster from the PySpark package, and applications on it."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Self

import pyspark

from cassieq_spark.errors import SetupError
from cassieq_spark.spark.bytecode import compile_archive
from trials.processes import Program, wait_until
from trials.spark import QUICK_JAVA, spark_settings

ROOT = Path(__file__).parents[2]
_JAVA = f"{QUICK_JAVA} -Xss512k"
#: The name of the package as it is shipped.
ARCHIVE = "cassieq_spark.zip"
_HOST = "127.0.0.1"
_START_SECONDS = 120.0
_WORKERS = 2
_CORES = 4
_MASTER_URL = re.compile(r"Starting Spark master at (spark://\S+)")
_REGISTERED = "Successfully registered with master"


class SparkCluster:
    """A Master and two Workers during a ``with`` block; ``folder`` is for logs and executors."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._held = ExitStack()
        self.workers: list[Program] = []
        self.url = ""

    def __enter__(self) -> Self:
        with ExitStack() as held:
            master = held.enter_context(
                self._start("master", "master.Master", "--host", _HOST, "--port", "0")
            )
            self.url = _wait_for(master, _MASTER_URL)
            for number in range(_WORKERS):
                work = self._folder / f"work-{number}"
                settings = ["--cores", str(_CORES), "--memory", "4g", "--work-dir", str(work)]
                worker = self._start(
                    f"worker-{number}", "worker.Worker", "--host", _HOST, *settings, self.url
                )
                self.workers.append(held.enter_context(worker))
            for worker in self.workers:
                _wait_for(worker, re.compile(f"({_REGISTERED})"))
            self._held = held.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._held.close()

    def _start(self, name: str, java_class: str, *arguments: str) -> Program:
        command = [
            *_clean_environment(SPARK_DAEMON_MEMORY="256m", SPARK_DAEMON_JAVA_OPTS=_JAVA),
            str(spark_home() / "bin" / "spark-class"),
            f"org.apache.spark.deploy.{java_class}",
            "--webui-port",
            "0",
            *arguments,
        ]
        return Program(name, command, self._folder / f"{name}.log")


def ship(folder: Path) -> Path:
    """Make the archive of this package for executors, and return its path.

    It is the wheel with bytecode and another suffix: Spark puts .zip, .egg and .jar files on the
    Python path of executors, and ignores .whl.
    """
    wheels = folder / "wheels"
    command = ["-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(wheels), str(ROOT)]
    subprocess.run([sys.executable, *command], check=True)
    archive = folder / ARCHIVE
    shutil.copy(next(wheels.glob("*.whl")), archive)
    compile_archive(archive)
    return archive


def submit(
    cluster: SparkCluster,
    role: str,
    *,
    folder: Path,
    archive: Path,
    python: Path,
    cores: int,
    arguments: Mapping[str, object],
) -> Program:
    """Describe an application that is submitted as users do; its folder has its name.

    Args:
        cluster: The Spark cluster.
        role: One of the roles of `programs`.
        folder: Its folder, for checkpoint and results.
        archive: The archive that `ship` has made.
        python: The Python of its driver and its executors.
        cores: The number of its executors, with one core each.
        arguments: The arguments of the role.
    """
    scratch = folder.parent / f"{folder.name}-scratch"
    settings = spark_settings(scratch) | {
        # Executors have the package from the archive, which Spark's daemon does not look into.
        "spark.python.daemon.module": "pyspark.daemon",
        "spark.driver.extraJavaOptions": f"{_JAVA} -Djava.io.tmpdir={scratch}",
        "spark.executor.cores": "1",
        "spark.executor.extraJavaOptions": _JAVA,
    }
    command = [
        # spark.pyspark.python does not apply to data sources; the driver's environment does.
        *_clean_environment(PYTHONPATH=str(ROOT), PYSPARK_PYTHON=str(python)),
        str(spark_home() / "bin" / "spark-submit"),
        *("--master", cluster.url, "--name", folder.name),
        *("--properties-file", str(ROOT / "conf" / "spark-defaults.conf")),
        *("--driver-memory", "512m", "--executor-memory", "512m"),
        *("--total-executor-cores", str(cores), "--py-files", str(archive)),
        *(f"--conf={name}={value}" for name, value in settings.items()),
        str(Path(__file__).parent / "programs.py"),
        *(role, "--folder", str(folder)),
        *(f"--{name.replace('_', '-')}={json.dumps(value)}" for name, value in arguments.items()),
    ]
    return Program(folder.name, command, log=folder.parent / f"{folder.name}.log")


def spark_home() -> Path:
    return Path(pyspark.__file__).parent


def _clean_environment(**variables: str) -> list[str]:
    """The beginning of a command without variables of Spark and Python, except these."""
    foreign = [
        name for name in os.environ if name.startswith(("SPARK_", "PYSPARK_", "PYTHONPATH"))
    ]
    unset = [part for name in foreign for part in ("-u", name)]
    ours = {"SPARK_HOME": str(spark_home()), "SPARK_LOCAL_IP": _HOST, **variables}
    return ["env", *unset, *(f"{name}={value}" for name, value in ours.items())]


def _wait_for(program: Program, wanted: re.Pattern[str]) -> str:
    """Wait for a line in a program's log, and return the first group of the pattern."""

    def said() -> re.Match[str] | None:
        return wanted.search(program.log.read_text(errors="replace"))

    wait_until(lambda: bool(said() or program.exit_code is not None), _START_SECONDS)
    if found := said():
        return found[1]
    end = program.log.read_text(errors="replace")[-2000:]
    raise SetupError(f"Spark's {program.name} did not start: {end}")
