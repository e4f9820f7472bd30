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

import cassieq_spark
from cassieq_spark.client import Client
from cassieq_spark.settings.connection import ConnectionOptions
from cassieq_spark.store.protocol import Store
from tests.support.connect_server import SPARK_HOME
from tests.support.spark_session import recommended_settings
from trials.spark import QUICK_JAVA

PROGRAM = Path(__file__).parent / "programs" / "fail_on_executors.py"


def environment_without_the_package(folder: Path) -> Path:
    """Create an environment with all that is installed here but this package; its commands."""
    venv.create(folder, with_pip=False)
    (packages,) = folder.glob("lib/python*/site-packages")
    # A folder that a path file names is searched, but path files in it are not followed.
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
    return folder / "bin"


def test_executors_without_the_package_say_so(
    cassandra_store: Store, connection: ConnectionOptions, tmp_path: Path
):
    with Client.from_store(cassandra_store) as client:
        name = client.create_queue(f"q-{uuid4().hex[:12]}").name
        client.put(name, b"one")
    theirs = environment_without_the_package(tmp_path / "theirs")
    options = {
        "spark.cassandra.connection.host": ",".join(connection.contact_points),
        "spark.cassandra.connection.port": str(connection.port),
        "keyspace": connection.keyspace,
        "queue": name,
    }
    settings = recommended_settings() | {
        # A master and a worker in the driver's JVM, and an executor in one of its own.
        "spark.master": "local-cluster[1,1,1024]",
        "spark.executorEnv.PATH": f"{theirs}{os.pathsep}{os.environ['PATH']}",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.extraJavaOptions": QUICK_JAVA,
        "spark.executor.extraJavaOptions": QUICK_JAVA,
        "spark.task.maxFailures": "1",
        "spark.ui.enabled": "false",
    }

    done = subprocess.run(
        [
            sys.executable,
            PROGRAM,
            json.dumps(settings),
            json.dumps(options),
            tmp_path / "checkpoint",
        ],
        cwd=tmp_path,
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
    said = dict(re.findall(r"^== (\S+)\n(.*?)(?=^== |\Z)", done.stdout, re.DOTALL | re.MULTILINE))
    assert list(said) == ["write", "read", "stream"]
    here = rf"cassieq-spark is missing in {re.escape(str(theirs))}/python3 "
    for text in said.values():
        assert re.search(rf"^ModuleNotFoundError: {here}", text, re.MULTILINE), text
        assert f"install cassieq-spark {cassieq_spark.__version__} there" in text
