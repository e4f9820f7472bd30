"""The programs of docs/sqs.md that need more than boto3 run as they stand."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

from cassieq_spark.node.java import find_java
from tests.docs.pages import ROOT, blocks_of
from tests.sqs.conftest import counts, output_of
from tests.sqs.jars import SDKS, class_path

PAGE = "docs/sqs.md"
PATIENCE = 120


def text_of(section: str, language: str) -> str:
    return "".join(block.text for block in blocks_of(PAGE, section) if block.language == language)


def test_the_commands_for_the_aws_cli_run(environment: dict[str, str], tmp_path: Path):
    script = text_of("AWS CLI", "sh")

    printed = "".join(output_of(["bash", "-eu", "-c", script], tmp_path, environment))

    sent, end = json.JSONDecoder().raw_decode(printed)
    (message,) = json.loads(printed[end:])["Messages"]
    assert (message["Body"], message["MessageId"]) == ("an invoice", sent["MessageId"])


def test_the_worker_of_celery_runs_a_task(environment: dict[str, str], sqs: Any, tmp_path: Path):
    (tmp_path / "shop.py").write_text(text_of("Celery", "python"))
    send = "from shop import greet; greet.delay('Ada')"
    output_of([sys.executable, "-c", send], tmp_path, environment)
    (url,) = sqs.list_queues()["QueueUrls"]
    log = tmp_path / "log"

    with log.open("w") as file:
        worker = subprocess.Popen(
            ["bash", "-c", f"exec {text_of('Celery', 'sh')}"],
            cwd=tmp_path,
            env=environment,
            stdout=file,
            stderr=file,
        )
    try:
        deadline = time.monotonic() + PATIENCE
        while "Good morning, Ada" not in log.read_text() or counts(sqs, url) != (0, 0, 0):
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.1)
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(PATIENCE) == 0
    finally:
        worker.kill()
        worker.wait()


def test_the_program_in_java_runs(environment: dict[str, str], tmp_path: Path):
    (tmp_path / "Orders.java").write_text(text_of("Java", "java"))

    said = output_of([find_java(), "-cp", class_path("v2"), "Orders.java"], tmp_path, environment)

    assert said == ["a parcel"]


def test_the_page_tells_the_versions_that_are_tried():
    page = (ROOT / PAGE).read_text()
    package = json.loads(Path(__file__).with_name("node").joinpath("package.json").read_text())
    jars = [re.sub(r"^.*:|\.\d+$", "", SDKS[sdk]) for sdk in ("v2", "v1", "v1-query")]
    pythons = {name: version(name).rpartition(".")[0] for name in ("awscli", "celery", "kombu")}
    consumer = package["dependencies"]["sqs-consumer"].rpartition(".")[0]

    assert pythons["celery"] == pythons["kombu"]
    assert f"AWS CLI {pythons['awscli']}, Celery and kombu {pythons['celery']}" in page
    assert "the SDK for Java {}, {} and {}".format(*jars) in page
    assert f"sqs-consumer {consumer} on node" in page
