"""Whatever the description allows, and much that it does not, is asked for: nothing is a 500."""

from __future__ import annotations

import os
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error, status_code_conformance

from cassieq_spark.http.gateway import Limits
from cassieq_spark.http.gateway.app import ENDPOINTS
from cassieq_spark.http.gateway.formats import ARROW, LINES
from cassieq_spark.http.gateway.requests import Endpoint
from tests.support.gateway import ADMIN, Account, RunningGateway

#: How many in all; ``make fuzz-gateway`` has more.
REQUESTS = int(os.environ.get("CASSIEQ_FUZZ_REQUESTS", "2500"))
EXAMPLES = -(-REQUESTS // (len(ENDPOINTS) * len(GenerationMode)))
#: Seconds.
_A_MOMENT, _LONGEST_WAIT = 0.1, Limits().wait.total_seconds()


@schemathesis.serializer(LINES, ARROW)
def _as_text(_: object, value: object) -> bytes:
    return str(value).encode(errors="replace")


@pytest.fixture(scope="module")
def schema(gateway: RunningGateway) -> Any:
    return schemathesis.openapi.from_url(f"{gateway.url}/openapi.json")


@pytest.fixture(scope="module")
def account(gateway: RunningGateway) -> Account:
    account = gateway.account()
    account.ask("POST", json={"queueName": "orders"})
    return account


@pytest.mark.parametrize("mode", GenerationMode, ids=lambda mode: mode.value)
@pytest.mark.parametrize("endpoint", ENDPOINTS, ids=lambda endpoint: endpoint.operation)
def test_each_endpoint_answers_anything_with_what_it_says_it_may(
    schema: Any, account: Account, endpoint: Endpoint, mode: GenerationMode
):
    operation = schema[endpoint.path][endpoint.method]
    headers = {"Authorization": f"Key {account.key}"} if endpoint.right else ADMIN
    strategy = operation.as_strategy(generation_mode=mode)

    @settings(
        max_examples=EXAMPLES,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=strategy, there=st.booleans())
    def ask(case: Any, there: bool) -> None:
        for name, value in (("account", account.name), ("queue", "orders")):
            if there and endpoint.right and name in (case.path_parameters or {}):
                case.path_parameters[name] = value
        # A wait that is accepted lasts as long, if the queue is empty: longer than the client's.
        wait = (case.query or {}).get("wait")
        if isinstance(wait, int | float) and _A_MOMENT < wait <= _LONGEST_WAIT:
            case.query["wait"] = _A_MOMENT
        case.call_and_validate(
            headers=headers, checks=[not_a_server_error, status_code_conformance]
        )

    ask()
