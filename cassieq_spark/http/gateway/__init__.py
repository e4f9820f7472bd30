"""The queue by HTTP, for programs that speak nothing else: CassieQ's API on our client.

    put -> the producer of its queue -> one publish for all that come within a moment
    get -> the look for its group -> one lease for all who wait, cut into single receipts
    ack -> what waits for its group -> one settle for each lease

Servers know nothing of each other: receipts are good at any, and what one had leased for somebody
whom it could not tell, or had not, is due again when the lease runs out.

| event | result |
|---|---|
| a put was answered with 201 | it is published, on a quorum of replicas |
| a put got no answer | it may be published; repeated under one Idempotency-Key, it is once |
| a server is killed | what its clients hold stays theirs; what they were not told is due again |
| a client goes away while it waits | what came for it is given back at once |
| more comes than can be done | 429 with Retry-After; memory stays bounded |
| Cassandra is away | 503 with Retry-After, not ready; it goes on by itself |
| SIGTERM | not ready, waiting gets end, what is under way is finished |
"""

from __future__ import annotations

from cassieq_spark.http.gateway.server import Serving, serve
from cassieq_spark.settings.gateway import Limits

__all__ = ["Limits", "Serving", "serve"]
