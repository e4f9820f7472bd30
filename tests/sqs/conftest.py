"""Programs of Amazon SQS at a gateway, unchanged; `make test-sqs` has what they need.

The gateway is a process on a store in memory, and knows nothing of who asks.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import boto3
import pytest

from tests.support.gateway import Account, RunningGateway, running_on_memory
from tests.support.sqs import close

#: With the folder where pip has put the commands `aws` and `celery`.
PATH = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"


@pytest.fixture(scope="session")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    with running_on_memory(tmp_path_factory.mktemp("gateway") / "log") as gateway:
        yield gateway
        assert gateway.stop() == 0
        assert "Traceback" not in gateway.log.read_text()


@pytest.fixture
def account(gateway: RunningGateway) -> Account:
    """An account of this test's own."""
    return gateway.account()


@pytest.fixture
def environment(account: Account) -> dict[str, str]:
    """What the programs get to know of the gateway and the account, and their commands."""
    return account.aws | {"PATH": PATH}


@pytest.fixture
def sqs(account: Account) -> Iterator[Any]:
    """A client that looks at the queues of the account."""
    client = boto3.client(
        "sqs",
        region_name="eu-central-1",
        endpoint_url=account.url,
        aws_access_key_id=account.name,
        aws_secret_access_key=account.key,
    )
    yield client
    close(client)


def run(
    command: Sequence[str | Path], folder: Path, environment: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    """Run a program to its end."""
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


def output_of(
    command: Sequence[str | Path], folder: Path, environment: Mapping[str, str]
) -> list[str]:
    """The lines that a program has printed, which ended well."""
    done = run(command, folder, environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


def counts(sqs: Any, url: str) -> tuple[int, int, int]:
    """Messages of a queue that are visible, in flight and delayed."""
    told = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
    begin = "ApproximateNumberOfMessages"
    return int(told[begin]), int(told[f"{begin}NotVisible"]), int(told[f"{begin}Delayed"])
