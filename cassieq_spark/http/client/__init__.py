"""The queues of a gateway, for Python programs that reach nothing else: needs httpx only."""

from __future__ import annotations

from cassieq_spark.http.client.messages import HttpError, HttpMessage
from cassieq_spark.http.client.queue import HttpQueue

__all__ = ["HttpError", "HttpMessage", "HttpQueue"]
