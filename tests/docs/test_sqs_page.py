"""The program of docs/sqs.md runs as it stands, with boto3 and nothing but its environment."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from cassieq_spark.http.gateway.sqs.calls import HANDLERS
from cassieq_spark.http.sqs.operations import OPERATIONS
from tests.docs.pages import blocks_of
from tests.support.gateway import running_on_memory

PAGE = "docs/sqs.md"


def test_the_program_runs_as_it_stands(tmp_path: Path):
    program = "\n".join(block.text for block in blocks_of(PAGE) if block.language == "python")
    (tmp_path / "program.py").write_text(program)

    with running_on_memory(tmp_path / "log") as gateway:
        account = gateway.account()
        own = {
            "AWS_ENDPOINT_URL_SQS": account.url,
            "AWS_REGION": "eu-central-1",
            "AWS_DEFAULT_REGION": "eu-central-1",
            "AWS_ACCESS_KEY_ID": account.name,
            "AWS_SECRET_ACCESS_KEY": account.key,
        }
        done = subprocess.run(
            [sys.executable, "program.py"],
            cwd=tmp_path,
            env=os.environ | own,
            capture_output=True,
            text=True,
            check=False,
        )

    assert done.returncode == 0, done.stderr
    assert done.stdout == "an order en\nada: 5 | ben: 3\nto move: 0\n"


def test_every_operation_is_served():
    assert OPERATIONS.keys() == HANDLERS.keys()
