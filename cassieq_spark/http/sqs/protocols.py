"""Which protocol a request speaks."""

from __future__ import annotations

from cassieq_spark.http.sqs.json_protocol import JSON, TARGET
from cassieq_spark.http.sqs.query_protocol import QUERY
from cassieq_spark.http.sqs.wire import Protocol, Received

_JSON_TYPE = b"application/x-amz-json"


def protocol_of(received: Received) -> Protocol:
    """The protocol of a request, by its headers; it answers errors, too."""
    if received.header(TARGET) is not None:
        return JSON
    content_type = received.header(b"content-type") or b""
    return JSON if content_type.lower().startswith(_JSON_TYPE) else QUERY
