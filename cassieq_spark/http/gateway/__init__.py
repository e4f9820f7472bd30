"""The HTTP gateway: CassieQ's API, extended, on top of this package's client.

    put -> the producer of the queue -> one publish for all puts that arrive within a moment
    receive, ack -> the coalescer of the group -> one LWT for all requests of a round
    release, extend, reject -> one call for all requests that wait for the last one

Gateways share nothing but Cassandra: a receipt from one gateway is valid at another.

| event | result |
|---|---|
| a put was answered with 201 | the message is published, on a quorum of replicas |
| a put got no answer | it may be published; a put with an Idempotency-Key is safe to repeat |
| a gateway is killed | clients keep their leases; other leases end: messages come again |
| a client disconnects while it waits | the messages leased for it are released at once |
| requests exceed a limit or quota | 429 with Retry-After; memory stays bounded |
| Cassandra is down | 503 with Retry-After, not ready; it recovers by itself |
| SIGTERM | not ready; long polls are answered, and requests under way are finished |
"""

from __future__ import annotations

from cassieq_spark.http.gateway.server import Serving, serve
from cassieq_spark.settings.gateway import Limits

__all__ = ["Limits", "Serving", "serve"]
