"""Which requests are of SQS."""

from __future__ import annotations

import pytest

from cassieq_spark.http.gateway.sqs.door import is_of_sqs


@pytest.mark.parametrize(
    ("method", "path", "query", "is_sqs"),
    [
        ("POST", "/", b"", True),
        ("POST", "/acme/orders", b"", True),
        ("POST", "/console1/orders", b"", True),
        ("GET", "/acme/orders", b"Version=1&Action=ReceiveMessage", True),
        ("GET", "/acme/orders", b"", False),
        ("POST", "/api/v1/accounts/acme/queues", b"Action=ListQueues", False),
        ("POST", "/admin/api/v1/accounts", b"", False),
        ("GET", "/console", b"Action=ListQueues", False),
        ("POST", "/console/login", b"", False),
        ("DELETE", "/acme/orders", b"Action=DeleteQueue", False),
    ],
)
def test_method_and_path_say_which_requests_are_of_sqs(
    method: str, path: str, query: bytes, is_sqs: bool
):
    scope = {"method": method, "path": path, "query_string": query, "headers": []}

    assert is_of_sqs(scope) is is_sqs
    assert is_of_sqs({**scope, "headers": [(b"x-amz-target", b"AmazonSQS.SendMessage")]})
