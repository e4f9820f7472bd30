"""The limits of the HTTP gateway, and the budgets of its accounts. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from datetime import timedelta

from cassieq_spark.errors import OptionError
from cassieq_spark.settings.declaration import option
from cassieq_spark.settings.kinds import BOOLEAN, duration, size, whole_number

_MIB = 1 << 20
_BYTES = size(1 << 40)
_COUNT = whole_number(1)
_PERIOD = duration(timedelta(days=1))
_LEASE = duration(timedelta(days=365))
_PERIOD_OR_NONE = duration(timedelta(days=1), zero=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a gateway takes; more is refused.

    No account gets the last of what all share: one that holds more than would be left of the
    requests, the bytes or the long polls gets no more of them, whatever its budget.
    """

    body_bytes: int = field(
        default=8 * _MIB,
        metadata=option("max-message", _BYTES, "Bytes of the body of one message."),
    )
    batch_bytes: int = field(
        default=32 * _MIB,
        metadata=option("max-batch-bytes", _BYTES, "Bytes of the body of a batch."),
    )
    batch_count: int = field(
        default=10_000,
        metadata=option("max-batch", _COUNT, "Messages of a batch, and receipts of a request."),
    )
    answer_bytes: int = field(
        default=32 * _MIB,
        metadata=option(
            "max-answer",
            _BYTES,
            "Bytes of messages that are read for one answer, or for those of one turn; a message "
            "at least. JSON takes up to three times as many.",
        ),
    )
    head_bytes: int = field(
        default=32 << 10,
        metadata=option("max-head", _BYTES, "Bytes of the request line and all headers."),
    )
    header_count: int = field(
        default=100,
        metadata=option("max-headers", _COUNT, "Headers of a request."),
    )
    head_time: timedelta = field(
        default=timedelta(seconds=10),
        metadata=option(
            "head-time",
            _PERIOD,
            "Time until the headers of a request are complete, and until a body has to arrive at "
            "`min-rate`.",
        ),
    )
    body_rate: int = field(
        default=16 << 10,
        metadata=option(
            "min-rate",
            _BYTES,
            "Bytes a second that a body has to arrive with; slower ones get 408.",
        ),
    )
    wait: timedelta = field(
        default=timedelta(minutes=1),
        metadata=option("max-wait", _PERIOD_OR_NONE, "How long a get may wait for messages."),
    )
    lease: timedelta = field(
        default=timedelta(hours=12),
        metadata=option(
            "max-lease",
            _LEASE,
            "How long a request may keep messages from others, by holding them or by giving them "
            "back for later.",
        ),
    )
    read_lease: timedelta = field(
        default=timedelta(minutes=15),
        metadata=option("max-read-lease", _LEASE, "The same, without the right UpdateMessage."),
    )
    skew: timedelta = field(
        default=timedelta(minutes=1),
        metadata=option(
            "clock-skew", _PERIOD_OR_NONE, "By how much the clocks of those who sign may differ."
        ),
    )
    cassieq_signatures: bool = field(
        default=False,
        metadata=option(
            "cassieq-signatures",
            BOOLEAN,
            "Let in what CassieQ's clients sign: neither query nor body, and no nonce.",
        ),
    )
    linger: timedelta = field(
        default=timedelta(milliseconds=2),
        metadata=option(
            "linger",
            _PERIOD_OR_NONE,
            "How long a put waits for others, and a get or ack for those just answered.",
        ),
    )

    connections: int = field(
        default=4_000,
        metadata=option("max-connections", _COUNT, "Connections at a time; more get 503."),
    )
    address_connections: int = field(
        default=1_000,
        metadata=option(
            "max-address-connections",
            _COUNT,
            "Connections at a time from one address (IPv6: one /64), except those of `--proxy`.",
        ),
    )
    requests: int = field(
        default=2_000,
        metadata=option("max-requests", _COUNT, "Requests at a time, those that wait included."),
    )
    held_bytes: int = field(
        default=256 * _MIB,
        metadata=option(
            "max-held",
            _BYTES,
            "Bytes of bodies at a time; and of large answers.",
        ),
    )
    polls: int = field(
        default=1_500,
        metadata=option("max-polls", _COUNT, "Gets that wait (long polls) at a time."),
    )

    account_requests: int = field(
        default=1_000,
        metadata=option("max-account-requests", _COUNT, "Requests of one account at a time."),
    )
    key_requests: int = field(
        default=750,
        metadata=option("max-key-requests", _COUNT, "Requests of one key at a time."),
    )
    account_bytes: int = field(
        default=128 * _MIB,
        metadata=option("max-account-held", _BYTES, "Bytes of bodies of one account at a time."),
    )
    key_bytes: int = field(
        default=96 * _MIB,
        metadata=option("max-key-held", _BYTES, "Bytes of bodies of one key at a time."),
    )
    account_polls: int = field(
        default=500,
        metadata=option("max-account-polls", _COUNT, "Long polls of one account at a time."),
    )
    key_polls: int = field(
        default=375,
        metadata=option("max-key-polls", _COUNT, "Long polls of one key at a time."),
    )
    account_queues: int = field(
        default=1_000,
        metadata=option(
            "max-account-queues",
            _COUNT,
            "Queues of one account, dead-letter queues included. What other gateways make is "
            "noticed within 5 seconds.",
        ),
    )
    account_messages: int = field(
        default=100_000_000,
        metadata=option(
            "max-account-messages",
            _COUNT,
            "Messages that the queues of one account store, until the sweep deletes them. Counted "
            "every 30 seconds; in between, only what this gateway puts is added.",
        ),
    )

    def __post_init__(self) -> None:
        values = (getattr(self, it.name) for it in fields(self))
        if min(it for it in values if type(it) is int) < 1 or not self.head_time:
            raise OptionError("every limit of the gateway must be at least 1")
