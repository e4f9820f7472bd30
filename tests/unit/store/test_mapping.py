from __future__ import annotations

import importlib
import inspect
from types import ModuleType
from typing import Any

import cassandra
import pytest
from cassandra import ConsistencyLevel, WriteType
from cassandra.cluster import NoHostAvailable
from cassandra.connection import (
    ConnectionBusy,
    ConnectionException,
    ConnectionShutdown,
    ProtocolError,
)
from cassandra.pool import NoConnectionsAvailable
from cassandra.protocol import ErrorMessage, OverloadedErrorMessage, ServerError

from cassieq_spark.errors import (
    ConnectError,
    MissingSchemaError,
    NotAppliedError,
    OutcomeUnknownError,
    StoreError,
)
from cassieq_spark.settings.connection import ConnectionOptions
from cassieq_spark.store.cassandra.mapping import (
    FATES,
    Fate,
    Request,
    fate_of,
    is_repeatable,
    translate,
)

MODULES = [
    importlib.import_module(name)
    for name in (
        "cassandra",
        "cassandra.cluster",
        "cassandra.connection",
        "cassandra.metadata",
        "cassandra.pool",
        "cassandra.protocol",
        "cassandra.query",
        "cassandra.segment",
    )
]
OPTIONS = ConnectionOptions(
    contact_points=("10.0.0.1", "10.0.0.2:9043"), username="ann", password="hunter2"
)

CAS_TIMEOUT = cassandra.WriteTimeout(
    "late", write_type=WriteType.CAS, consistency=ConsistencyLevel.LOCAL_SERIAL
)
BUSY = NoHostAvailable("none", {"a": ConnectionBusy("full"), "b": NoConnectionsAvailable("ids")})
DOWN = NoHostAvailable(
    "none", {"a": ConnectionException("Host has been marked down or removed", "a")}
)
LOST = NoHostAvailable("none", {"a": ConnectionBusy("full"), "b": ConnectionShutdown("gone")})
UNAVAILABLE_TO_AGREE = cassandra.Unavailable("few", consistency=ConsistencyLevel.LOCAL_SERIAL)
UNAVAILABLE_TO_COMMIT = cassandra.Unavailable("few", consistency=ConsistencyLevel.LOCAL_QUORUM)
UNKNOWN_CODE = ErrorMessage(0x1700, "CAS operation outcome unknown", {})
MISSING_TABLE = cassandra.InvalidRequest('code=2200 message="table ledger does not exist"')


def errors_defined_in(module: ModuleType) -> list[type[BaseException]]:
    return [
        found
        for _, found in inspect.getmembers(module, inspect.isclass)
        if issubclass(found, BaseException) and found.__module__ == module.__name__
    ]


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_every_error_of_the_driver_is_mapped(module: ModuleType):
    missing = [found for found in errors_defined_in(module) if found not in FATES]

    assert missing == []


@pytest.mark.parametrize("error", [BUSY, DOWN, UNAVAILABLE_TO_AGREE], ids=repr)
def test_a_compare_and_set_that_was_never_begun_may_be_repeated(error: Exception):
    assert is_repeatable(error, Request.CAS)
    assert isinstance(translate(error, Request.CAS, "cas", OPTIONS), NotAppliedError)


@pytest.mark.parametrize(
    "error",
    [
        CAS_TIMEOUT,
        LOST,
        UNAVAILABLE_TO_COMMIT,
        UNKNOWN_CODE,
        cassandra.ReadTimeout("late"),
        cassandra.WriteFailure("failed", write_type=WriteType.CAS),
        cassandra.OperationTimedOut(),
        ConnectionShutdown("gone"),
        OverloadedErrorMessage(0x1001, "busy", {}),
        ServerError(0, "oops", {}),
    ],
    ids=repr,
)
def test_any_other_failure_of_a_compare_and_set_is_of_unknown_outcome(error: Exception):
    assert not is_repeatable(error, Request.CAS)
    assert isinstance(translate(error, Request.CAS, "cas", OPTIONS), OutcomeUnknownError)


@pytest.mark.parametrize(
    "error",
    [CAS_TIMEOUT, BUSY, DOWN, LOST, UNAVAILABLE_TO_COMMIT, ServerError(0, "", {})],
    ids=repr,
)
@pytest.mark.parametrize("request_", [Request.READ, Request.WRITE])
def test_what_is_idempotent_is_repeated_after_any_transient_error(
    error: Exception, request_: Request
):
    assert is_repeatable(error, request_)


@pytest.mark.parametrize("request_", [Request.READ, Request.WRITE, Request.CAS, Request.DDL])
def test_what_cassandra_refuses_is_never_repeated(request_: Request):
    for error in (cassandra.InvalidRequest("no"), cassandra.Unauthorized("no"), MISSING_TABLE):
        assert not is_repeatable(error, request_)
        assert type(translate(error, request_, "doing", OPTIONS)) in {
            StoreError,
            MissingSchemaError,
        }


def test_a_read_that_failed_in_the_end_has_changed_nothing():
    for error in (cassandra.ReadTimeout("late"), ServerError(0, "oops", {}), BUSY):
        assert isinstance(translate(error, Request.READ, "read", OPTIONS), NotAppliedError)


def test_chunks_that_failed_in_the_end_may_have_been_written():
    error = translate(cassandra.OperationTimedOut(), Request.WRITE, "write", OPTIONS)

    assert isinstance(error, OutcomeUnknownError)
    assert "safe to repeat" in str(error)


def test_a_cluster_that_went_away_is_a_connect_error():
    for request in (Request.READ, Request.WRITE):
        assert isinstance(translate(DOWN, request, "read", OPTIONS), ConnectError)


def test_nodes_that_answer_with_errors_are_not_unreachable():
    error = NoHostAvailable("none", {"a": OverloadedErrorMessage(0x1001, "busy", {})})

    assert isinstance(translate(error, Request.READ, "read", OPTIONS), NotAppliedError)


def test_an_unreachable_cluster_is_named_by_its_contact_points_and_the_first_reason():
    refused = NoHostAvailable("none", {"10.0.0.1:9042": ConnectionRefusedError(111, "refused")})

    error = translate(refused, Request.CONNECT, "connecting", OPTIONS)

    assert isinstance(error, ConnectError)
    assert "10.0.0.1:9042, 10.0.0.2:9043" in str(error)
    assert "refused" in str(error)


@pytest.mark.parametrize(
    ("reach", "is_told"),
    [
        ({}, True),
        ({"port": 9043}, True),
        ({"contact_points": ("10.0.0.1",)}, False),
        ({"secure_connect_bundle": "b.zip"}, False),
    ],
)
def test_where_nobody_has_named_a_node_the_error_says_how_to(reach: Any, is_told: bool):
    refused = NoHostAvailable("none", {"127.0.0.1:9042": ConnectionRefusedError(111, "refused")})

    told = str(translate(refused, Request.CONNECT, "connecting", ConnectionOptions(**reach)))

    assert ("spark.cassandra.connection.host" in told) is is_told
    assert ("Client(contact_points=...) or --contact-points" in told) is is_told


def test_an_answer_that_is_not_cassandras_is_told():
    # The first byte of an answer by HTTP is 72, the letter H.
    strange = ProtocolError("This version of the driver does not support protocol version 72")
    refused = NoHostAvailable("none", {"127.0.0.1:8080": strange})

    told = str(translate(refused, Request.CONNECT, "connecting", ConnectionOptions()))

    assert told.endswith("give the port for CQL, which is 9042 by default")


def test_a_refused_login_names_the_user_and_not_the_password():
    refused = NoHostAvailable("none", {"a": cassandra.AuthenticationFailed("Bad credentials")})

    error = translate(refused, Request.CONNECT, "connecting", OPTIONS)

    assert isinstance(error, ConnectError)
    assert "'ann'" in str(error)
    assert "hunter2" not in f"{error} {OPTIONS}"


def test_a_cluster_that_asks_for_a_login_says_so():
    refused = NoHostAvailable("none", {"a": cassandra.AuthenticationFailed("required")})

    error = translate(refused, Request.CONNECT, "connecting", ConnectionOptions())

    assert "without user name" in str(error)


@pytest.mark.parametrize(
    "message",
    ["unconfigured table ledger", "table ledger does not exist", "keyspace q does not exist"],
)
def test_missing_tables_and_keyspaces_name_the_command_that_makes_them(message: str):
    error = translate(cassandra.InvalidRequest(message), Request.READ, "read", OPTIONS)

    assert isinstance(error, MissingSchemaError)
    assert "cassieq schema apply --keyspace cassieq" in str(error)


def test_tables_with_other_columns_are_told_to_be_of_another_release():
    refusal = cassandra.InvalidRequest("Undefined column name max_deliveries in table q.queue")

    error = translate(refusal, Request.READ, "read", OPTIONS)

    assert isinstance(error, MissingSchemaError)
    assert "made by another release" in str(error)
    assert "cassieq schema apply --keyspace cassieq" in str(error)


def test_an_error_that_a_new_driver_derives_from_a_known_one_has_its_fate():
    class NewTimeout(cassandra.WriteTimeout):
        pass

    assert fate_of(NewTimeout("late", write_type=WriteType.CAS), Request.CAS) is Fate.UNKNOWN
