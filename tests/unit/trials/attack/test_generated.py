"""Attacks follow from what endpoints declare; each endpoint has a path to be attacked at."""

from __future__ import annotations

import pytest

from cassieq_spark.http.gateway.requests import ENDPOINTS, Endpoint
from trials.attack.generated import _path


@pytest.mark.parametrize("endpoint", ENDPOINTS, ids=lambda endpoint: endpoint.operation)
def test_the_attacks_know_each_name_in_the_path_of_an_endpoint(endpoint: Endpoint):
    assert "{" not in _path(endpoint, "acme", "orders")
