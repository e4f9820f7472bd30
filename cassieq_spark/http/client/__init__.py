"""A client of the HTTP gateway, for Python programs that cannot reach Cassandra; needs httpx."""

from __future__ import annotations

from cassieq_spark.http.client.messages import HttpError, HttpMessage
from cassieq_spark.http.client.queue import HttpQueue

__all__ = ["HttpError", "HttpMessage", "HttpQueue"]
