"""A client of the HTTP gateway for Python programs that cannot reach Cassandra; needs httpx."""

from __future__ import annotations

from cassieq_spark.http.client.answers import HttpError, HttpStateError, HttpSurvey
from cassieq_spark.http.client.asynchronous import AsyncHttpQueue
from cassieq_spark.http.client.queue import HttpQueue

__all__ = ["AsyncHttpQueue", "HttpError", "HttpQueue", "HttpStateError", "HttpSurvey"]
