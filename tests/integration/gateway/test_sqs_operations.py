"""Each operation in both protocols, on standard and FIFO queues, as AWS's documentation tells it.

`tests/sqs/test_moto.py` runs the same scenarios at moto's server.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from cassieq_spark.http.sqs.operations import OPERATIONS
from tests.integration.gateway.test_sqs import client_of, made, protocol
from tests.support.gateway import Account
from tests.support.sqs import close
from tests.support.sqs_scenarios import SCENARIOS, TYPES, Scene

__all__ = ["client_of", "protocol"]


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("operation", sorted(OPERATIONS))
def test_an_operation_answers_as_it_is_documented(
    operation: str, kind: str, protocol: str, account: Account, client_of: Callable[..., Any]
):
    client = made(client_of, protocol, account)
    scene = Scene(client, account.name, kind == "fifo")

    SCENARIOS[operation](scene)
    close(client)

    assert scene.differences == {}


def test_there_is_no_scenario_of_another_operation():
    assert SCENARIOS.keys() == OPERATIONS.keys()
