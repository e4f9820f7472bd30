"""The SQS door: requests of AWS's clients, served by the gateway.

`cassieq_spark.http.sqs` reads and writes the protocol. Here is what its operations mean for
queues.

| module | contents |
|---|---|
| `door` | which requests are of SQS; authorization, admission, errors, and the answer |
| `calls` | a request as its handler sees it, the table of handlers, errors as those of SQS |
| `known_queues` | definition and attributes of queues, each read once a second |
| `settings` | attributes of SQS as settings and attributes of a queue, and back; pure |
| `queues` | operations on queues |
| `messages` | operations on messages |
"""
