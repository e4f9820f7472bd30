"""The limits of the HTTP gateway, and the quotas of its accounts."""

from __future__ import annotations

from dataclasses import dataclass, fields
from datetime import timedelta
from typing import TypeVar

from cassieq_spark.errors import OptionError
from cassieq_spark.settings.declaration import setting
from cassieq_spark.settings.kinds import BOOLEAN, Kind, duration, size, whole_number

_T = TypeVar("_T")

_MIB = 1 << 20
_BYTES = size(1 << 40)
_COUNT = whole_number(1)
_PERIOD = duration(timedelta(days=1))
_LEASE = duration(timedelta(days=365))
_PERIOD_OR_NONE = duration(timedelta(days=1), zero=True)


def _limit(flag: str, kind: Kind[_T], default: _T, meaning: str) -> _T:
    return setting(kind, default, meaning, option=None, flag=flag)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The limits of a gateway; requests beyond them are refused.

    No account can take the last of the requests, bytes or long polls that all accounts share: an
    account that holds more of them than would be left gets no more, whatever its quota.

    `threads` and `account_threads` limit the `AsyncClient` of the gateway: further calls to
    Cassandra wait.
    """

    body_bytes: int = _limit("max-message", _BYTES, 8 * _MIB, "Bytes of the body of one message.")
    batch_bytes: int = _limit(
        "max-batch-bytes", _BYTES, 32 * _MIB, "Bytes of the body of a batch."
    )
    batch_count: int = _limit(
        "max-batch", _COUNT, 10_000, "Messages of a batch, and receipts of a request."
    )
    answer_bytes: int = _limit(
        "max-answer",
        _BYTES,
        32 * _MIB,
        "Bytes of messages that are read for one answer, or for requests that share an LWT; at "
        "least one message is read. JSON takes up to three times as many bytes.",
    )
    head_bytes: int = _limit(
        "max-head", _BYTES, 32 << 10, "Bytes of the request line and all headers."
    )
    header_count: int = _limit("max-headers", _COUNT, 100, "Headers of a request.")
    head_time: timedelta = _limit(
        "head-time",
        _PERIOD,
        timedelta(seconds=10),
        "Time until a TLS handshake is complete, until the headers of a request are, and until a "
        "body must arrive at `min-rate`.",
    )
    body_rate: int = _limit(
        "min-rate",
        _BYTES,
        16 << 10,
        "Bytes per second at which a body must arrive; slower requests get 408.",
    )
    wait: timedelta = _limit(
        "max-wait", _PERIOD_OR_NONE, timedelta(minutes=1), "How long a receive may wait."
    )
    lease: timedelta = _limit(
        "max-lease",
        _LEASE,
        timedelta(hours=12),
        "How long a request may keep messages from others, by a lease or by a "
        "release with a delay.",
    )
    read_lease: timedelta = _limit(
        "max-read-lease",
        _LEASE,
        timedelta(minutes=15),
        "The same, for keys without the right UpdateMessage.",
    )
    skew: timedelta = _limit(
        "clock-skew",
        _PERIOD_OR_NONE,
        timedelta(minutes=1),
        "By how much the clock of a client that signs may differ.",
    )
    cassieq_signatures: bool = _limit(
        "cassieq-signatures",
        BOOLEAN,
        False,
        "Accept signatures of CassieQ's clients, which cover neither query nor body nor a nonce.",
    )
    linger: timedelta = _limit(
        "linger",
        _PERIOD_OR_NONE,
        timedelta(milliseconds=2),
        "How long a put waits for other puts, and a receive or ack for the last clients.",
    )
    purge_pause: timedelta = _limit(
        "sqs-purge-pause",
        _PERIOD_OR_NONE,
        timedelta(minutes=1),
        "Time between two purges of a queue by SQS, as at AWS; `0s` for none.",
    )

    connections: int = _limit(
        "max-connections", _COUNT, 4_000, "Connections at a time; more get 503."
    )
    address_connections: int = _limit(
        "max-address-connections",
        _COUNT,
        1_000,
        "Connections at a time from one address (IPv6: one /64), except those of `--proxy`.",
    )
    requests: int = _limit(
        "max-requests", _COUNT, 2_000, "Requests at a time, including those that wait."
    )
    held_bytes: int = _limit(
        "max-held", _BYTES, 256 * _MIB, "Bytes of bodies at a time; the same for large answers."
    )
    polls: int = _limit("max-polls", _COUNT, 1_500, "Receives that wait (long polls) at a time.")

    account_requests: int = _limit(
        "max-account-requests", _COUNT, 1_000, "Requests of one account at a time."
    )
    key_requests: int = _limit("max-key-requests", _COUNT, 750, "Requests of one key at a time.")
    account_bytes: int = _limit(
        "max-account-held", _BYTES, 128 * _MIB, "Bytes of bodies of one account at a time."
    )
    key_bytes: int = _limit(
        "max-key-held", _BYTES, 96 * _MIB, "Bytes of bodies of one key at a time."
    )
    account_polls: int = _limit(
        "max-account-polls", _COUNT, 500, "Long polls of one account at a time."
    )
    key_polls: int = _limit("max-key-polls", _COUNT, 375, "Long polls of one key at a time.")
    account_queues: int = _limit(
        "max-account-queues",
        _COUNT,
        1_000,
        "Queues of one account, dead-letter queues included. Queues that other "
        "gateways create are noticed within 5 seconds.",
    )
    queue_groups: int = _limit(
        "max-queue-groups",
        _COUNT,
        100,
        "Consumer groups of one queue. Two that are created at a time may be one too many.",
    )
    account_schedules: int = _limit(
        "max-account-schedules",
        _COUNT,
        500,
        "Schedules of one account. Two that are created at a time may be one too many.",
    )
    account_messages: int = _limit(
        "max-account-messages",
        _COUNT,
        100_000_000,
        "Messages that the queues of one account store, until the repair deletes them. Counted "
        "every 30 seconds; in between, only what this gateway puts is added.",
    )
    account_stored_bytes: int = _limit(
        "max-account-stored",
        _BYTES,
        100 << 30,
        "Bytes of these messages as they are stored, compressed and without replicas.",
    )

    threads: int = _limit(
        "threads", _COUNT, 32, "Calls to Cassandra at a time, at most; puts are not counted."
    )
    account_threads: int = _limit(
        "max-account-threads",
        _COUNT,
        8,
        "Calls to Cassandra of one account at a time; more of them wait.",
    )

    def __post_init__(self) -> None:
        values = (getattr(self, it.name) for it in fields(self))
        if min(it for it in values if type(it) is int) < 1 or not self.head_time:
            raise OptionError("every limit of the gateway must be at least 1")
