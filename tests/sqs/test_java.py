"""Both SDKs for Java, the first of them in both protocols."""

from __future__ import annotations

from pathlib import Path

import pytest

from cassieq_spark.node.java import find_java
from tests.sqs.conftest import output_of
from tests.sqs.jars import JAVA, class_path

#: Compile once: they end within seconds. Sources are UTF-8, whatever the locale.
OPTIONS = ("-XX:TieredStopAtLevel=1", "-Dfile.encoding=UTF-8")
#: What each of the programs says, with the codes of the errors that it has caught by class.
SAYS = [
    "found: true",
    "timeout: 45",
    "whole: true é -1 1",
    "again: 2",
    "sent: a, refused: b InvalidParameterValue",
    "held: 1",
    "deleted: 1",
    "left: 0",
    "tags: {team=shop}",
    "queues: true",
    "in order: [ada: 5, ada: 7, ben: 3]",
    "missing: AWS.SimpleQueueService.NonExistentQueue 400",
    "exists: QueueAlreadyExists",
    "handle: ReceiptHandleIsInvalid",
    "twice: AWS.SimpleQueueService.BatchEntryIdsNotDistinct",
    "buffered: 25",
]


@pytest.mark.parametrize(
    ("sdk", "program"),
    [
        ("v1", "VersionOne.java"),
        ("v1-query", "VersionOne.java"),
        ("v2", "VersionTwo.java"),
    ],
)
def test_the_sdk_sends_receives_and_knows_errors_by_class(
    sdk: str, program: str, environment: dict[str, str], tmp_path: Path
):
    command = [find_java(), *OPTIONS, "-cp", class_path(sdk), JAVA / program]

    said = output_of(command, tmp_path, environment)

    assert said == SAYS
