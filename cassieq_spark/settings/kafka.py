"""The counterparts of the options of Spark's Kafka source and sink.

Errors for unknown options and a table of docs/migrating.md are made from this module.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class KafkaOption:
    """Kafka options with one meaning.

    Attributes:
        names: Their names in Kafka.
        ours: The option that takes their place; None: no option does.
        note: What differs; completes a sentence after a colon or a comma.
    """

    names: tuple[str, ...]
    ours: str | None
    note: str = ""


OPTIONS = (
    KafkaOption(
        ("kafka.bootstrap.servers",),
        "spark.cassandra.connection.host",
        "nodes of Cassandra, by default 127.0.0.1",
    ),
    KafkaOption(
        ("subscribe", "assign", "topic"),
        "queue",
        "for a stream also several names with commas; to publish to several queues, queueColumn",
    ),
    KafkaOption(("subscribePattern",), "queuePattern", "of a stream; whole names match"),
    KafkaOption(
        ("kafka.group.id", "groupIdPrefix"),
        "group",
        "a stream needs it; queries of one group share its messages",
    ),
    KafkaOption(
        ("startingOffsets", "startingOffsetsByTimestamp", "startingTimestamp"),
        "startingPosition",
        "earliest, latest, a monoton, or an instant such as 2026-11-20T12:00:00Z; a new group is "
        "by default at the earliest message, not at the latest",
    ),
    KafkaOption(
        ("endingOffsets", "endingOffsetsByTimestamp", "endingTimestamp"),
        "endingPosition",
        "of a batch read: latest, a monoton, or an instant; the end is exclusive",
    ),
    KafkaOption(("maxOffsetsPerTrigger",), "maxMessagesPerTrigger", "by default 1,000,000"),
    KafkaOption(("minOffsetsPerTrigger",), "minMessagesPerTrigger"),
    KafkaOption(("maxTriggerDelay",), "maxTriggerDelay", "the same"),
    KafkaOption(
        ("failOnDataLoss",),
        "failOnDataLoss",
        "for a startingPosition that is deleted, and for one of several queues that is deleted",
    ),
    KafkaOption(
        ("includeHeaders",),
        "includeHeaders",
        "of the source: headers are a map of text; the sink takes a column headers without it",
    ),
    KafkaOption(
        ("minPartitions",), "minPartitions", "the same; keys stay together in their order"
    ),
    KafkaOption(("maxRecordsPerPartition",), "messagesPerTask"),
    KafkaOption(
        ("kafka.security.protocol", "kafka.ssl.truststore.location"),
        "sslCaFile",
        "a PEM file; or spark.cassandra.connection.ssl.enabled, if the machine trusts the nodes",
    ),
    KafkaOption(
        ("kafka.sasl.mechanism", "kafka.sasl.jaas.config"),
        "spark.cassandra.auth.username",
        "with spark.cassandra.auth.password",
    ),
    KafkaOption(
        (
            "startingOffsetsByTimestampStrategy",
            "kafkaConsumer.pollTimeoutMs",
            "fetchOffset.numRetries",
            "fetchOffset.retryIntervalMs",
        ),
        None,
        "nothing here needs it",
    ),
)
#: The prefix of all other options of Kafka clients.
_OF_CLIENTS = "kafka."
_BY_NAME = {name.lower(): (name, each) for each in OPTIONS for name in each.names}


def kafka_advice(key: str) -> str | None:
    """Advise what to do with a Kafka option; None if the option is not Kafka's.

    >>> kafka_advice("maxoffsetspertrigger")
    "option 'maxOffsetsPerTrigger' is Kafka's: use 'maxMessagesPerTrigger', by default 1,000,000"

    Args:
        key: The name of the option, in lower case.
    """
    if key in _BY_NAME:
        name, option = _BY_NAME[key]
        if option.ours is None:
            return f"option {name!r} is Kafka's: leave it out, {option.note}"
        note = f", {option.note}" if option.note else ""
        return f"option {name!r} is Kafka's: use {option.ours!r}{note}"
    if key.startswith(_OF_CLIENTS):
        return f"option {key!r} is of Kafka's clients: leave it out, no such client is used here"
    return None


def table() -> str:
    """The table of docs/migrating.md; ``python -m cassieq_spark.settings kafka`` prints it."""
    rows = [
        (
            ", ".join(f"`{name}`" for name in each.names),
            f"`{each.ours}`" if each.ours else "",
            each.note,
        )
        for each in OPTIONS
    ]
    rows.append((f"`{_OF_CLIENTS}*`, all others", "", "settings of Kafka's clients"))
    head = ("option of Kafka's source or sink", "here", "note")
    lines = [f"| {' | '.join(row)} |" for row in (head, ("---",) * len(head), *rows)]
    return "\n".join(lines).replace("  ", " ") + "\n"
