"""The HTTP gateway: CassieQ's API, and more, on our client.

    put -> the producer of the queue -> one publish for all puts that arrive within a moment
    receive, ack -> the coalescer of the group -> one LWT for all requests of a round
    release, extend, reject -> one call for all requests that wait for the last one

Gateways share nothing but Cassandra: a receipt of one is valid at another.

| event | result |
|---|---|
| a put was answered with 201 | the message is published, on a quorum of replicas |
| a put got no answer | it may be published; it is safe to repeat with its Idempotency-Key |
| a gateway is killed | clients keep their leases; others end, and are delivered again |
| a client disconnects while it waits | what was leased for it is released at once |
| requests exceed a limit or quota | 429 with Retry-After; memory stays bounded |
| Cassandra is down | 503 with Retry-After, not ready; it recovers by itself |
| SIGTERM | not ready; long polls are answered, and requests under way are finished |
"""

from __future__ import annotations

from cassieq_spark.http.gateway.server import Serving, serve
from cassieq_spark.settings.gateway import Limits

__all__ = ["Limits", "Serving", "serve"]
