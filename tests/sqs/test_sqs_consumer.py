"""sqs-consumer of npm with AWS's SDK for JavaScript, as its lock file has them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from tests.sqs.conftest import output_of

NODE = Path(__file__).with_name("node")


def test_a_consumer_handles_batches_fails_once_and_holds_what_takes_long(
    environment: dict[str, str], tmp_path: Path
):
    folder = shutil.copytree(NODE, tmp_path / "node")
    output_of(["npm", "ci", "--silent", "--no-fund", "--no-audit"], folder, environment)

    (said,) = output_of(["node", "consume.mjs"], folder, environment)

    told = json.loads(said)
    assert dict(told["handled"]) == {number: 1 + (number == 7) for number in range(20)}
    assert len(told["failures"]) == 1
    assert "order 7 fails at first" in told["failures"][0]
