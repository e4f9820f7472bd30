"""The protocol of SQS: requests as calls of operations, and outputs and errors as answers.

Nothing here has a side effect, and nothing imports the gateway.

| module | contents |
|---|---|
| `errors` | every error, with its shape, Query code, status and AWS's text |
| `wire` | `Received`, a request without its body; `Answer`; `Stamp`; `Protocol` |
| `json_protocol`, `query_protocol` | decode a call, encode an output or an error; `protocol_of` |
| `signature` | Signature V4: `claim_of`, then `Claim.signer` with the secrets of the keys |
| `operations` | `OPERATIONS`, `Operation` with the right that it needs, `Call` |
| `inputs`, `outputs` | inputs (pydantic) and outputs (typed dicts), with names as on the wire |
| `contents` | a message that is sent, checked: body, attributes, headers, digests, size |
| `message_attributes` | attributes of messages: checks, digests, filters, headers |
| `queue_attributes` | attributes of queues: bounds, defaults, redrive policies |
| `addresses` | queue URLs and ARNs |
| `texts` | characters of XML, and ids |

A request is served in these steps; each may raise an `SqsError`, which ``refuse`` answers:

    received = Received(method, raw_path, query_string, headers)
    protocol = protocol_of(received)
    claim = claim_of(received, now)            # before the body is read
    secrets = ...                              # of the keys that claim.key_id may name
    claim.signer(secrets, sha256 of the body)
    call = protocol.decode(received, body)     # call.operation, call.input, call.queue
    answer = protocol.encode(call.operation, output, Stamp(request_id, now))
    answer = protocol.refuse(error, Stamp(request_id, now))

A message is sent by ``contents = call.input.contents()``, ``contents.check_for(...)`` and
``contents.check_size(...)`` for its queue, then ``contents.headers(sender)`` and, for the answer,
``contents.answer(message_id)``. In a batch each entry has ``contents`` of its own, and
``entry.failure(error)``. A message is received by ``from_headers``, ``selected``, ``outputs_of``
and ``digest_of`` of `message_attributes`, and `texts.text_of` of its value.
"""
