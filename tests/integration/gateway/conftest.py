from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.gateway import Account, RunningGateway, running_on_memory


@pytest.fixture(scope="session")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    """A gateway on a store in memory, which ends as it should."""
    with running_on_memory(tmp_path_factory.mktemp("gateway") / "log") as gateway:
        yield gateway
        assert gateway.stop() == 0


@pytest.fixture
def account(gateway: RunningGateway) -> Account:
    """An account of this test's own."""
    return gateway.account()
