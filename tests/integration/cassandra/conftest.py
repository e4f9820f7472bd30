from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta

import pytest

from cassieq_spark.settings.connection import ConnectionOptions
from tests.support.proxy import Proxy


@pytest.fixture
def proxy(connection: ConnectionOptions) -> Iterator[Proxy]:
    with Proxy(connection.endpoints[0]) as proxy:
        yield proxy


@pytest.fixture
def through_proxy(connection: ConnectionOptions, proxy: Proxy) -> ConnectionOptions:
    return replace(
        connection,
        contact_points=(f"{proxy.host}:{proxy.port}",),
        port=proxy.port,
        request_timeout=timedelta(milliseconds=400),
        patience=timedelta(seconds=20),
    )
