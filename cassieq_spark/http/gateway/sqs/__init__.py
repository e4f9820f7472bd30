"""The SQS door, an interface of the gateway that serves the requests of AWS's clients.

`cassieq_spark.http.sqs` reads and writes the protocol. This package applies its operations to
queues.

| module | contents |
|---|---|
| `door` | which requests are of SQS; authorization, admission, errors, and the answer |
| `calls` | a request as its handler sees it, the table of handlers, errors as those of SQS |
| `known_queues` | definition and attributes of queues, each read once a second |
| `settings` | attributes of SQS as settings and attributes of a queue, and back |
| `queues` | operations on queues |
| `messages` | operations on messages |
"""
