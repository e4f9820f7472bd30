"""A cluster whose executors have another Python than the driver."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path
from uuid import uuid4

import pytest

import cassieq_spark
from cassieq_spark.client import Client
from cassieq_spark.settings.connection import ConnectionOptions
from cassieq_spark.spark.daemon import MODULES, NAME
from cassieq_spark.store.protocol import Store
from tests.support.connect_server import SPARK_HOME
from tests.support.spark_session import recommended_settings
from trials.spark import QUICK_JAVA

PROGRAMS = Path(__file__).parent / "programs"


def environment_without_the_package(folder: Path) -> Path:
    """Create an environment with all that is installed here but this package; its commands."""
    venv.create(folder, with_pip=False)
    (packages,) = folder.glob("lib/python*/site-packages")
    # A folder that a path file names is searched, but path files in it are not followed.
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
    return folder / "bin"


def options_of(connection: ConnectionOptions, queue: str) -> dict[str, str]:
    return {
        "spark.cassandra.connection.host": ",".join(connection.contact_points),
        "spark.cassandra.connection.port": str(connection.port),
        "keyspace": connection.keyspace,
        "queue": queue,
    }


def run_on_a_cluster(program: str, *arguments: str, commands: Path, folder: Path) -> str:
    """Run a program with a master, a worker and an executor; return its output.

    Args:
        program: Its file among the programs.
        arguments: Its arguments after the settings of the session.
        commands: The folder of the executor's Python.
        folder: Where to run it.
    """
    settings = recommended_settings() | {
        # A master and a worker in the driver's JVM, and an executor in one of its own.
        "spark.master": "local-cluster[1,1,1024]",
        "spark.executorEnv.PATH": f"{commands}{os.pathsep}{os.environ['PATH']}",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.extraJavaOptions": QUICK_JAVA,
        "spark.executor.extraJavaOptions": QUICK_JAVA,
        "spark.task.maxFailures": "1",
        "spark.ui.enabled": "false",
    }
    if arguments:
        settings |= json.loads(arguments[0])
    done = subprocess.run(
        [sys.executable, PROGRAMS / program, json.dumps(settings), *arguments[1:]],
        cwd=folder,
        env={key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        | {
            # Found on the path of each machine.
            "PYSPARK_PYTHON": "python3",
            "PYSPARK_DRIVER_PYTHON": "python3",
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "SPARK_HOME": str(SPARK_HOME),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr[-5000:]
    return done.stdout


NO_MODULE = r"^ *{python}: Error while finding module specification for 'cassieq_spark\."
#: Of two tasks that begin at once, one may find that the daemon of the other has no address.
NO_ADDRESS = r"NullPointerException\n(?:.*\n){{1,5}}\s+at java.base/java.net.UnixDomainSocketAddr"


@pytest.mark.parametrize(
    ("daemon", "message"),
    [
        ("pyspark.daemon", r"^ModuleNotFoundError: cassieq-spark is missing in {python} "),
        (NAME, f"{NO_MODULE}|{NO_ADDRESS}"),
    ],
)
def test_executors_without_the_package_say_so(
    daemon: str,
    message: str,
    cassandra_store: Store,
    connection: ConnectionOptions,
    tmp_path: Path,
):
    with Client.from_store(cassandra_store) as client:
        name = client.create_queue(f"q-{uuid4().hex[:12]}").name
        client.put(name, b"one")
    theirs = environment_without_the_package(tmp_path / "theirs")

    output = run_on_a_cluster(
        "fail_on_executors.py",
        json.dumps({"spark.python.daemon.module": daemon}),
        json.dumps(options_of(connection, name)),
        str(tmp_path / "checkpoint"),
        commands=theirs,
        folder=tmp_path,
    )

    said = dict(re.findall(r"^== (\S+)\n(.*?)(?=^== |\Z)", output, re.DOTALL | re.MULTILINE))
    assert list(said) == ["write", "read", "stream"]
    expected = message.format(python=rf"{re.escape(str(theirs))}/python3")
    for text in said.values():
        assert re.search(expected, text, re.MULTILINE), text
        if daemon != NAME:
            assert f"install cassieq-spark {cassieq_spark.__version__} there" in text


def test_a_worker_of_an_executor_has_imported_what_tasks_need(tmp_path: Path):
    output = run_on_a_cluster(
        "loaded_on_executors.py", commands=Path(sys.executable).parent, folder=tmp_path
    )

    assert set(MODULES) <= set(output.split())
