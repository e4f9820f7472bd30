from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.support.sqs import PROTOCOLS, Door, clients


@pytest.fixture(scope="session")
def client_of() -> Callable[..., Any]:
    return clients()


@pytest.fixture
def door() -> Door:
    return Door()


@pytest.fixture(params=PROTOCOLS)
def protocol(request) -> str:
    return request.param


@pytest.fixture
def client(protocol, door, client_of) -> Any:
    return client_of(protocol, door)
