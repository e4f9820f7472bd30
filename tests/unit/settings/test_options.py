from __future__ import annotations

import sys
from dataclasses import fields
from datetime import timedelta
from pathlib import Path
from runpy import run_module

import pytest

from cassieq_spark.errors import OptionError
from cassieq_spark.groups.lease import LeaseRequest
from cassieq_spark.settings import (
    SinkOptions,
    SourceOptions,
    options_from_session,
)
from cassieq_spark.settings.__main__ import documentation
from cassieq_spark.settings.connection import ConnectionOptions, Consistency
from cassieq_spark.settings.declaration import settings_by_option, settings_of
from cassieq_spark.settings.kafka import OPTIONS, table

Role = type[SinkOptions] | type[SourceOptions]

DOCS = Path(__file__).parents[3] / "docs" / "options.md"


class Session:
    """Quacks like a SparkSession as far as its configuration goes."""

    def __init__(self, conf: dict[str, str]) -> None:
        self.conf = conf


def refusal(role: Role, **raw: str) -> str:
    with pytest.raises(OptionError) as caught:
        role.parse(raw)
    return str(caught.value)


def test_only_the_queue_is_required():
    assert SinkOptions.parse({"queue": "orders"}) == SinkOptions(queue="orders")
    assert SourceOptions.parse({"queue": "orders"}) == SourceOptions(queue="orders")


def test_a_sink_reads_all_its_options_in_lower_case_as_spark_hands_them_over():
    options = SinkOptions.parse(
        {
            "queue": "orders",
            "txnappid": "loader",
            "txnversion": "7",
            "compression": "ZSTD",
            "chunkbytes": "64k",
            "maxmessagebytes": "1m",
            "operation": "Release",
            "delay": "90s",
        }
    )

    assert options == SinkOptions(
        queue="orders",
        txn_app_id="loader",
        txn_version=7,
        compression="zstd",
        chunk_bytes=65_536,
        max_message_bytes=1_048_576,
        operation="release",
        delay=timedelta(seconds=90),
    )


def test_a_source_reads_all_its_options_in_the_case_that_the_docs_show():
    options = SourceOptions.parse(
        {
            "queue": "orders",
            "group": "billing",
            "startingPosition": "latest",
            "maxMessagesPerTrigger": "10",
            "messagesPerTask": "5",
            "minPartitions": "16",
            "leaseSeconds": "30",
            "includeHeaders": "True",
            "includeReceipts": "TRUE",
        }
    )

    assert options == SourceOptions(
        queue="orders",
        group="billing",
        starting_position="latest",
        max_messages_per_trigger=10,
        messages_per_task=5,
        min_partitions=16,
        lease=timedelta(seconds=30),
        include_headers=True,
        include_receipts=True,
    )


def test_a_write_publishes_unless_it_is_to_settle():
    options = SinkOptions.parse({"queue": "orders"})

    assert (options.operation, options.delay) == ("publish", timedelta(0))
    assert not SourceOptions.parse({"queue": "orders"}).include_receipts


@pytest.mark.parametrize(
    ("given", "delay"),
    [
        ("0s", timedelta(0)),
        ("0ms", timedelta(0)),
        ("1ms", timedelta(milliseconds=1)),
        ("2H", timedelta(hours=2)),
        ("365d", timedelta(days=365)),
    ],
)
def test_a_delay_may_be_nothing_at_all_or_a_year(given: str, delay: timedelta):
    raw = {"queue": "orders", "operation": "release", "delay": given}

    assert SinkOptions.parse(raw).delay == delay


def test_settling_belongs_to_writing_and_receipts_to_reading():
    assert refusal(SourceOptions, queue="orders", delay="1s") == (
        "option 'delay' belongs to writing, not reading"
    )
    assert refusal(SinkOptions, queue="orders", includereceipts="true") == (
        "option 'includeReceipts' belongs to reading, not writing"
    )


@pytest.mark.parametrize("role", [SinkOptions, SourceOptions])
def test_both_roles_say_how_to_reach_cassandra(role: Role):
    options = role.parse(
        {
            "queue": "orders",
            "spark.cassandra.connection.host": "10.0.0.1, 10.0.0.2:9043",
            "spark.cassandra.connection.port": "9142",
            "spark.cassandra.connection.localdc": "dc1",
            "spark.cassandra.auth.username": "anna",
            "spark.cassandra.auth.password": "hunter2",
            "spark.cassandra.connection.ssl.enabled": "true",
            "sslcafile": "ca.pem",
            "sslcertfile": "own.pem",
            "sslkeyfile": "own.key",
            "sslcheckhostname": "false",
            "consistency": "quorum",
            "keyspace": "queues",
        }
    )

    assert options.connection == ConnectionOptions(
        contact_points=("10.0.0.1", "10.0.0.2:9043"),
        port=9142,
        local_dc="dc1",
        username="anna",
        password="hunter2",
        ssl=True,
        ssl_ca_file="ca.pem",
        ssl_cert_file="own.pem",
        ssl_key_file="own.key",
        ssl_check_hostname=False,
        consistency=Consistency.QUORUM,
        keyspace="queues",
    )


def test_options_reach_cassandra_by_default_as_the_store_does():
    assert SinkOptions(queue="orders").connection == ConnectionOptions()


def test_every_way_to_connect_is_a_setting_but_what_only_programs_choose():
    declared = {item.attribute for item in settings_of(ConnectionOptions)}
    others = {"protocol_version", "request_timeout", "patience"}

    assert declared | others == {each.name for each in fields(ConnectionOptions)}
    assert declared & others == set()


def test_options_that_spark_adds_are_passed_over():
    raw = {"queue": "orders", "checkpointlocation": "checkpoints/c", "queryName": "copy"}

    assert SinkOptions.parse(raw) == SinkOptions(queue="orders")


def test_a_path_is_refused_with_what_to_use_instead():
    assert refusal(SourceOptions, path="orders") == (
        "cassieq reads and writes a queue, not a path: use .option('queue', 'orders') instead of "
        "load('orders') or save('orders')"
    )
    assert "use .option('queue', ...) instead" in refusal(SinkOptions, path="/data/orders")


def test_a_missing_queue_is_asked_for():
    assert refusal(SinkOptions, keyspace="queues") == (
        "option 'queue' is missing: give it with .option('queue', ...); only "
        ".option('queueColumn', ...) does without"
    )


@pytest.mark.parametrize("role", [SinkOptions, SourceOptions])
def test_where_there_is_no_option_at_all_a_table_of_the_catalog_may_be_the_cause(role: Role):
    message = refusal(role)

    assert message.startswith("option 'queue' is missing: give it with .option('queue', ...); if ")
    assert "if this is a table of Spark's catalog, drop it" in message


def test_a_table_of_the_catalog_is_refused_with_one_sentence():
    message = refusal(
        SourceOptions, provider="cassieq", owner="ann", queue="q", **{"option.queue": "q"}
    )

    assert message == (
        "a queue is no table of Spark's catalog, which keeps no options: for SQL use CREATE "
        "TEMPORARY VIEW ... USING cassieq OPTIONS (queue '...'), and to publish "
        "df.write.format('cassieq')"
    )


def test_an_unknown_option_is_answered_with_the_nearest_one():
    assert refusal(SourceOptions, queue="orders", maxmessagepertrigger="1") == (
        "unknown option 'maxmessagepertrigger'; did you mean 'maxMessagesPerTrigger'?"
    )


def test_an_unknown_option_near_to_none_is_answered_with_all():
    message = refusal(SinkOptions, queue="orders", zzz="1")

    assert message.startswith("unknown option 'zzz'; known: queue, queueColumn, txnAppId, ")
    assert message.endswith(", keyspace")


def test_an_option_of_the_other_role_is_told_apart_from_an_unknown_one():
    assert refusal(SinkOptions, queue="orders", group="billing") == (
        "option 'group' belongs to reading, not writing"
    )
    assert refusal(SourceOptions, queue="orders", chunkbytes="1k") == (
        "option 'chunkBytes' belongs to writing, not reading"
    )


@pytest.mark.parametrize(
    ("role", "key", "given", "expected"),
    [
        (SinkOptions, "txnAppId", " ", "text"),
        (SinkOptions, "txnVersion", "-1", "a whole number of at least 0"),
        (SinkOptions, "compression", "gzip", "lz4, zstd or none"),
        (SinkOptions, "chunkBytes", "0", "a size such as 64k or 1m, at most 8m"),
        (SinkOptions, "maxMessageBytes", "9m", "a size such as 64k or 1m, at most 8m"),
        (
            SinkOptions,
            "operation",
            "settle",
            "publish, ack, release, extend, reject, replace or each",
        ),
        (SinkOptions, "delay", "0", "a duration such as 500ms, 10s or 5m, at most 365d"),
        (SinkOptions, "delay", "-1s", "a duration such as 500ms, 10s or 5m, at most 365d"),
        (SinkOptions, "delay", "366d", "a duration such as 500ms, 10s or 5m, at most 365d"),
        (
            SourceOptions,
            "startingPosition",
            "middle",
            "earliest, latest, a monoton or an instant such as 2026-11-20T12:00:00Z",
        ),
        (SourceOptions, "failOnDataLoss", "no", "true or false"),
        (SourceOptions, "maxMessagesPerTrigger", "1_000", "a whole number of at least 1"),
        (SourceOptions, "messagesPerTask", "0", "a whole number of at least 1"),
        (SourceOptions, "leaseSeconds", "1.5", "a whole number of seconds, from 1 to 2147483647"),
        (SourceOptions, "includeHeaders", "yes", "true or false"),
        (SourceOptions, "includeReceipts", "1", "true or false"),
        (
            SourceOptions,
            "spark.cassandra.connection.port",
            "65536",
            "a whole number from 1 to 65535",
        ),
    ],
)
def test_a_malformed_value_is_answered_with_what_was_expected(
    role: Role, key: str, given: str, expected: str
):
    message = refusal(role, queue="orders", **{key.lower(): given})

    assert message == f"option {key!r} must be {expected}, not {given!r}"


@pytest.mark.parametrize(
    "key",
    [
        "maxMessagesPerTrigger",
        "maxInFlight",
        "messagesPerTask",
        "minPartitions",
        "maxMessages",
        "txnVersion",
    ],
)
def test_a_limit_may_be_the_largest_number_of_64_bits(key: str):
    role = SinkOptions if key == "txnVersion" else SourceOptions
    more = {"txnAppId": "loader"} if key == "txnVersion" else {}

    role.parse({"queue": "orders", key: str(2**63 - 1)} | more)

    assert refusal(role, **({"queue": "orders", key: str(2**63)} | more)) == (
        f"option {key!r}: 9223372036854775808 is too large: at most 9223372036854775807"
    )


def test_a_minimum_above_the_maximum_is_refused():
    given = {"minMessagesPerTrigger": "500", "maxMessagesPerTrigger": "499"}

    assert refusal(SourceOptions, queue="orders", **given) == (
        "option 'minMessagesPerTrigger' is 500, and 'maxMessagesPerTrigger' is 499: a batch can't "
        "have that many; give a minimum up to the maximum"
    )
    SourceOptions.parse({"queue": "orders"} | given | {"maxMessagesPerTrigger": "500"})


@pytest.mark.parametrize(
    "point",
    [
        "http://10.0.0.1",
        "http://10.0.0.1:9042",
        "cassandra://node-1",
        "node-1/queues",
        "node-1:9042/queues",
        "ann@node-1",
        "node 1",
    ],
)
def test_a_url_is_no_contact_point(point: str):
    given = {"spark.cassandra.connection.host": f"10.0.0.2,{point}"}

    assert refusal(SourceOptions, queue="orders", **given) == (
        f"option 'spark.cassandra.connection.host': contact point {point!r} is not valid: "
        "expected host or host:port alone, without http:// in front and without a path or a user"
    )


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("subscribe", "use 'queue', for a stream also several names"),
        ("startingOffsets", "use 'startingPosition', earliest, latest, a monoton"),
        ("maxOffsetsPerTrigger", "use 'maxMessagesPerTrigger', by default 1,000,000"),
        ("minOffsetsPerTrigger", "use 'minMessagesPerTrigger'"),
        ("kafka.bootstrap.servers", "use 'spark.cassandra.connection.host', nodes of Cassandra"),
        ("kafka.group.id", "use 'group', a stream needs it"),
        ("fetchOffset.numRetries", "leave it out, nothing here needs it"),
    ],
)
@pytest.mark.parametrize("is_lower", [False, True])
def test_an_option_of_kafka_is_answered_with_ours(key: str, expected: str, is_lower: bool):
    message = refusal(SourceOptions, queue="orders", **{key.lower() if is_lower else key: "1"})

    assert message.startswith(f"option {key!r} is Kafka's: {expected}")


@pytest.mark.parametrize("key", ["contactPoints", "contact-points", "contact_points"])
def test_an_option_that_is_named_like_a_flag_is_answered_with_sparks_name(key: str):
    with pytest.raises(OptionError, match=r"called 'spark\.cassandra\.connection\.host'"):
        SourceOptions.parse({"queue": "orders", "group": "g", key: "10.0.0.1"})


def test_an_option_of_kafkas_sink_is_answered_with_ours():
    first, second = refusal(SinkOptions, topic="orders").splitlines()

    assert first.startswith(
        "option 'topic' is Kafka's: use 'queue', for a stream also several names"
    )
    assert second.startswith("option 'queue' is missing: give it with .option('queue', ...)")


def test_settings_of_kafkas_clients_are_left_out():
    assert refusal(SinkOptions, queue="orders", **{"kafka.linger.ms": "5"}) == (
        "option 'kafka.linger.ms' is of Kafka's clients: leave it out, no such client is used here"
    )


def test_what_takes_the_place_of_an_option_of_kafka_exists():
    known = settings_by_option(SinkOptions, SourceOptions, ConnectionOptions)

    assert all(each.ours.lower() in known for each in OPTIONS if each.ours)


def test_the_page_for_migrating_lists_the_options_of_kafka():
    page = (DOCS.parent / "migrating.md").read_text(encoding="utf-8")

    assert table() in page, (
        "put the output of `python -m cassieq_spark.settings kafka` into docs/migrating.md"
    )


@pytest.mark.parametrize(
    ("key", "given"),
    [
        ("queue", "no spaces"),
        ("group", ""),
        ("keyspace", "Queues"),
        ("spark.cassandra.connection.host", "10.0.0.1,"),
    ],
)
def test_a_value_that_breaks_a_rule_of_the_queue_is_answered_with_the_rule(key: str, given: str):
    message = refusal(SourceOptions, **({"queue": "orders"} | {key: given}))

    assert message.startswith(f"option {key!r}: ")
    assert "is not valid: expected " in message


def test_all_problems_are_told_at_once():
    assert refusal(SinkOptions, queu="orders", chunkbytes="many").splitlines() == [
        "unknown option 'queu'; did you mean 'queue'?",
        (
            "option 'queue' is missing: give it with .option('queue', ...); only "
            ".option('queueColumn', ...) does without"
        ),
        "option 'chunkBytes' must be a size such as 64k or 1m, at most 8m, not 'many'",
    ]


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ("txnAppId", "option 'txnAppId' needs option 'txnVersion'"),
        ("txnVersion", "option 'txnVersion' needs option 'txnAppId'"),
        ("spark.cassandra.auth.username", "a user name needs a password"),
        ("spark.cassandra.auth.password", "a password needs a user name"),
    ],
)
def test_what_belongs_together_comes_together(given: str, complaint: str):
    message = refusal(SinkOptions, queue="orders", **{given: "7"})

    assert message == f"{complaint}: give both, or neither"


def test_a_write_that_belongs_to_its_batch_may_have_a_name_and_has_no_version():
    by_batch = {"queue": "orders", "exactlyOnce": "batch"}

    assert SinkOptions.parse(by_batch).exactly_once == "batch"
    assert SinkOptions.parse(by_batch | {"txnAppId": "second"}).txn_app_id == "second"
    assert "leave out 'txnVersion'" in refusal(SinkOptions, **by_batch, txnVersion="7")
    assert "for publishing, not for" in refusal(SinkOptions, **by_batch, operation="ack")


def test_a_password_is_in_no_repr():
    raw = {"spark.cassandra.auth.username": "anna", "spark.cassandra.auth.password": "hunter2"}

    assert "hunter2" not in repr(SinkOptions.parse({"queue": "orders"} | raw))
    assert "hunter2" not in repr(ConnectionOptions(username="anna", password="hunter2"))


def test_a_password_is_in_no_error():
    message = refusal(SinkOptions, queue="orders", **{"spark.cassandra.auth.password": "   "})

    assert message == (
        "option 'spark.cassandra.auth.password' must be text, env:NAME or file:PATH, not what was "
        "given"
    )


def test_a_malformed_reference_to_a_password_is_refused_without_showing_it():
    raw = {"spark.cassandra.auth.username": "anna", "spark.cassandra.auth.password": "env:hun ter"}

    message = refusal(SinkOptions, queue="orders", **raw)

    assert "'spark.cassandra.auth.password'" in message
    assert "env:NAME or file:PATH" in message
    assert "hun ter" not in message


def test_a_weak_consistency_is_refused_with_a_reason():
    message = refusal(SourceOptions, queue="orders", consistency="ONE")

    assert message.startswith("option 'consistency': consistency 'ONE' is not supported")


def test_a_bundle_takes_the_place_of_the_address():
    bundle = {"spark.cassandra.connection.config.cloud.path": "secure-connect.zip"}

    options = SinkOptions.parse({"queue": "orders"} | bundle)
    assert options.connection.secure_connect_bundle == "secure-connect.zip"
    host = {"spark.cassandra.connection.host": "10.0.0.1"}
    assert "leave out: contact points" in refusal(SinkOptions, queue="orders", **bundle, **host)


def test_a_stream_needs_a_group_and_a_batch_read_does_not():
    assert SourceOptions(queue="orders", group="billing").stream_group() == "billing"

    with pytest.raises(OptionError, match=r"consumer group: option 'group' is missing"):
        SourceOptions(queue="orders").stream_group()


def test_a_session_hands_over_what_it_knows_of_the_cluster():
    known = {
        "spark.cassandra.connection.host": "10.0.0.1",
        "spark.cassandra.connection.localDC": "dc1",
        "spark.cassandra.auth.username": "anna",
        "spark.cassandra.auth.password": "hunter2",
        "spark.cassandra.connection.ssl.enabled": "true",
    }
    session = Session(known | {"keyspace": "no", "spark.app.name": "x"})

    options = options_from_session(session)

    assert options == known
    assert SinkOptions.parse(options | {"queue": "orders"}).connection.local_dc == "dc1"


def test_the_docs_are_what_the_declarations_say():
    assert DOCS.read_text(encoding="utf-8") == documentation(), (
        "run: python -m cassieq_spark.settings > docs/options.md"
    )


def test_the_package_run_as_a_program_prints_the_docs(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.delitem(sys.modules, "cassieq_spark.settings.__main__")

    run_module("cassieq_spark.settings", run_name="__main__")

    assert capsys.readouterr().out == documentation()


def test_the_docs_tell_required_defaulted_and_optional_options_apart():
    lines = documentation().splitlines()

    assert any(
        line.startswith("| `queue` | a name | required unless `queueColumn`") for line in lines
    )
    assert any("| none |" in line for line in lines if "`group`" in line)


def test_a_lease_request_follows_from_the_options_that_limit_it():
    options = SourceOptions(
        queue="q",
        lease=timedelta(minutes=2),
        min_messages_per_trigger=3,
        max_bytes_per_trigger=4,
        max_in_flight=5,
        skip_older_than=timedelta(hours=6),
        retry_backoff=timedelta(seconds=7),
    )

    asked = LeaseRequest(**options.lease_limits)

    assert asked == LeaseRequest(
        token=asked.token,
        lease=timedelta(minutes=2),
        min_messages=3,
        max_bytes=4,
        max_in_flight=5,
        skip_older_than=timedelta(hours=6),
        retry_backoff=timedelta(seconds=7),
    )


def test_without_options_a_lease_has_no_limits():
    asked = LeaseRequest(**SourceOptions(queue="q").lease_limits)

    assert asked == LeaseRequest(token=asked.token)
