"""Translates the driver's errors into ours, which say whether the request was applied."""

from __future__ import annotations

import re
from enum import Enum, auto

import cassandra
from cassandra import cluster, connection, metadata, pool, protocol, query, segment

from cassieq_spark.errors import (
    ConnectError,
    MissingSchemaError,
    NotAppliedError,
    OutcomeUnknownError,
    StoreError,
)
from cassieq_spark.settings.connection import ConnectionOptions
from cassieq_spark.store.cassandra.tls import advice


class Fate(Enum):
    """The fate of a request that failed."""

    #: The request was certainly not carried out; it may succeed a little later.
    NOT_CARRIED_OUT = auto()
    #: The request was carried out, or was not, or is not yet.
    UNKNOWN = auto()
    #: Cassandra refused the request, and would refuse it again.
    REFUSED = auto()
    #: Cassandra refused the credentials.
    FORBIDDEN_ENTRY = auto()


class Request(Enum):
    """The kind of a request, which decides what an unknown fate means."""

    CONNECT = auto()
    #: Includes the preparation of statements.
    READ = auto()
    #: Plain and idempotent: chunks, rows with a time to live, and deletions of buckets.
    WRITE = auto()
    CAS = auto()
    #: Creates keyspace and tables.
    DDL = auto()


FATES: dict[type[BaseException], Fate] = {
    # cassandra
    cassandra.DriverException: Fate.UNKNOWN,
    cassandra.RequestExecutionException: Fate.UNKNOWN,
    cassandra.Unavailable: Fate.NOT_CARRIED_OUT,
    cassandra.Timeout: Fate.UNKNOWN,
    cassandra.ReadTimeout: Fate.UNKNOWN,
    cassandra.WriteTimeout: Fate.UNKNOWN,
    cassandra.CDCWriteFailure: Fate.UNKNOWN,
    cassandra.CoordinationFailure: Fate.UNKNOWN,
    cassandra.ReadFailure: Fate.UNKNOWN,
    cassandra.WriteFailure: Fate.UNKNOWN,
    cassandra.FunctionFailure: Fate.REFUSED,
    cassandra.RequestValidationException: Fate.REFUSED,
    cassandra.ConfigurationException: Fate.REFUSED,
    cassandra.AlreadyExists: Fate.REFUSED,
    cassandra.InvalidRequest: Fate.REFUSED,
    cassandra.Unauthorized: Fate.REFUSED,
    cassandra.AuthenticationFailed: Fate.FORBIDDEN_ENTRY,
    cassandra.OperationTimedOut: Fate.UNKNOWN,
    cassandra.UnsupportedOperation: Fate.REFUSED,
    cassandra.UnresolvableContactPoints: Fate.NOT_CARRIED_OUT,
    cassandra.DependencyException: Fate.REFUSED,
    # cassandra.cluster, .pool, .metadata, .query
    cluster.NoHostAvailable: Fate.UNKNOWN,  # see fate_of
    cluster.UserTypeDoesNotExist: Fate.REFUSED,
    cluster.QueryExhausted: Fate.REFUSED,
    pool.NoConnectionsAvailable: Fate.NOT_CARRIED_OUT,
    metadata.NoMurmur3: Fate.REFUSED,
    query.TraceUnavailable: Fate.REFUSED,
    # cassandra.connection, .segment
    connection.ConnectionException: Fate.UNKNOWN,
    connection.ConnectionShutdown: Fate.UNKNOWN,
    connection.ProtocolVersionUnsupported: Fate.REFUSED,
    connection.ConnectionBusy: Fate.NOT_CARRIED_OUT,
    connection.ProtocolError: Fate.UNKNOWN,
    connection.CrcMismatchException: Fate.UNKNOWN,
    segment.CrcException: Fate.UNKNOWN,
    # cassandra.protocol: answers of the server. The base class stands for codes that the driver
    # does not know, such as CAS_WRITE_UNKNOWN (0x1700).
    protocol.ErrorMessage: Fate.UNKNOWN,
    protocol.ErrorMessageSub: Fate.UNKNOWN,
    protocol.NotSupportedError: Fate.UNKNOWN,
    protocol.InternalError: Fate.UNKNOWN,
    protocol.RequestExecutionException: Fate.UNKNOWN,
    protocol.RequestValidationException: Fate.REFUSED,
    protocol.ServerError: Fate.UNKNOWN,
    protocol.ProtocolException: Fate.UNKNOWN,
    protocol.BadCredentials: Fate.FORBIDDEN_ENTRY,
    protocol.UnavailableErrorMessage: Fate.UNKNOWN,
    protocol.OverloadedErrorMessage: Fate.UNKNOWN,
    protocol.IsBootstrappingErrorMessage: Fate.UNKNOWN,
    protocol.TruncateError: Fate.UNKNOWN,
    protocol.WriteTimeoutErrorMessage: Fate.UNKNOWN,
    protocol.ReadTimeoutErrorMessage: Fate.UNKNOWN,
    protocol.ReadFailureMessage: Fate.UNKNOWN,
    protocol.FunctionFailureMessage: Fate.REFUSED,
    protocol.WriteFailureMessage: Fate.UNKNOWN,
    protocol.CDCWriteException: Fate.UNKNOWN,
    protocol.SyntaxException: Fate.REFUSED,
    protocol.UnauthorizedErrorMessage: Fate.REFUSED,
    protocol.InvalidRequestException: Fate.REFUSED,
    protocol.ConfigurationException: Fate.REFUSED,
    protocol.PreparedQueryNotFound: Fate.NOT_CARRIED_OUT,
    protocol.AlreadyExistsException: Fate.REFUSED,
    protocol.ClientWriteError: Fate.UNKNOWN,
}

#: The errors of driver calls; any other error is a bug, and is not caught.
DRIVER_ERRORS = tuple(FATES)

_MISSING = re.compile(
    r"unconfigured table|(keyspace|table) \S+ does not exist|unknown (keyspace|table)",
    re.IGNORECASE,
)
_OTHER_COLUMNS = re.compile(r"undefined column name|unknown identifier", re.IGNORECASE)
#: The driver turns an error of TLS into another error, one about permissions.
_OF_TLS = re.compile(r"\[SSL: .*")
#: The driver wraps the message of the operating system.
_OF_SYSTEM = re.compile(r"Tried connecting to .* Last error: (?P<reason>.*)", re.DOTALL)
_REASON_LENGTH = 300
_NEVER_SENT = ("Host has been marked down or removed", "Pool is shutdown")


def fate_of(error: BaseException, request: Request) -> Fate:
    """The fate of a request, by the nearest class of its error in `FATES`."""
    if isinstance(error, cluster.NoHostAvailable):
        return _fate_of_all(error, request)
    if isinstance(error, cassandra.Unavailable) and request is Request.CAS:
        # Usually it is the consensus phase that finds too few replicas. If it is the commit, at a
        # plain consistency level, it leaves behind an update that others may finish.
        serial = cassandra.ConsistencyLevel.is_serial(error.consistency)
        return Fate.NOT_CARRIED_OUT if serial else Fate.UNKNOWN
    return next(FATES[base] for base in type(error).__mro__ if base in FATES)


def is_repeatable(error: BaseException, request: Request) -> bool:
    """True if a request can be repeated: it was not carried out, or is idempotent."""
    fate = fate_of(error, request)
    return fate is Fate.NOT_CARRIED_OUT or (
        fate is Fate.UNKNOWN and request in (Request.READ, Request.WRITE)
    )


def translate(
    error: BaseException, request: Request, doing: str, options: ConnectionOptions
) -> StoreError:
    """Our error for an error of the driver; the caller raises it ``from`` the driver's error.

    Args:
        error: The last error of the driver, after all repetitions.
        request: The kind of request.
        doing: The request in words, with table and partition, such as ``read of ledger q@1``.
        options: The source of contact points, role and keyspace in the message.
    """
    reason = _reason(error)
    fate = fate_of(error, request)
    if fate is Fate.FORBIDDEN_ENTRY:
        who = f"user {options.username!r}" if options.username else "a login without user name"
        return ConnectError(f"the cluster refuses {who}: {reason}")
    if request is Request.CONNECT:
        where = f" in data centre {options.local_dc!r}" if options.local_dc else ""
        return ConnectError(
            f"no node answers at {options.address}{where}: {reason}; {advice(reason, options)}"
        )
    if fate is Fate.REFUSED:
        if _MISSING.search(str(error)):
            return missing_schema(doing, options, reason)
        if _OTHER_COLUMNS.search(str(error)):
            return MissingSchemaError(
                f"{doing}: the tables of keyspace {options.keyspace!r} were made by another "
                f"release of cassieq-spark: {reason}; to add what they lack, run: "
                f"cassieq schema apply --keyspace {options.keyspace}"
            )
        if isinstance(error, cassandra.Unauthorized):
            reason += "; what a role needs is printed by: cassieq schema grants"
        return StoreError(f"{doing}: Cassandra refuses it: {reason}")
    return _transient(error, request, f"{doing}: {reason}")


def missing_schema(doing: str, options: ConnectionOptions, reason: str) -> MissingSchemaError:
    """The error for a keyspace or table that does not exist."""
    return MissingSchemaError(
        f"{doing}: keyspace {options.keyspace!r} lacks tables or does not exist: {reason}; "
        f"run: cassieq schema apply --keyspace {options.keyspace}"
    )


def _transient(error: BaseException, request: Request, message: str) -> StoreError:
    if request is not Request.CAS and _found_nobody(error):
        return ConnectError(f"{message}; no node of the cluster can be reached")
    if fate_of(error, request) is Fate.NOT_CARRIED_OUT or request is Request.READ:
        return NotAppliedError(f"{message}; not carried out: try again later")
    if request is Request.CAS:
        return OutcomeUnknownError(f"{message}; it may have been applied: a serial read shows it")
    return OutcomeUnknownError(f"{message}; some of it may be written: safe to repeat as it is")


def _by_host(error: cluster.NoHostAvailable) -> dict[object, BaseException]:
    return error.errors if isinstance(error.errors, dict) else {}


def _fate_of_all(error: cluster.NoHostAvailable, request: Request) -> Fate:
    fates = {_fate_of_one(one, request) for one in _by_host(error).values()}
    if Fate.FORBIDDEN_ENTRY in fates:
        return Fate.FORBIDDEN_ENTRY
    return Fate.NOT_CARRIED_OUT if fates == {Fate.NOT_CARRIED_OUT} else Fate.UNKNOWN


def _fate_of_one(error: BaseException, request: Request) -> Fate:
    if isinstance(error, (connection.ConnectionBusy, pool.NoConnectionsAvailable)) or (
        type(error) is connection.ConnectionException and str(error) in _NEVER_SENT
    ):
        return Fate.NOT_CARRIED_OUT
    return fate_of(error, request) if isinstance(error, DRIVER_ERRORS) else Fate.UNKNOWN


def _found_nobody(error: BaseException) -> bool:
    return isinstance(error, cluster.NoHostAvailable) and all(
        isinstance(one, (connection.ConnectionException, OSError))
        for one in _by_host(error).values()
    )


def _reason(error: BaseException) -> str:
    if isinstance(error, cluster.NoHostAvailable):
        for host, first in _by_host(error).items():
            return f"{host}: {_reason(first)}"
        return "none of the nodes that were found may be used"
    if isinstance(error, cassandra.UnresolvableContactPoints):
        return "these names cannot be resolved"
    if isinstance(error, OSError) and (of_tls := _OF_TLS.search(str(error))):
        return of_tls[0][:_REASON_LENGTH]
    if isinstance(error, OSError) and (of_system := _OF_SYSTEM.search(str(error))):
        return of_system["reason"][:_REASON_LENGTH]
    return f"{type(error).__name__}: {error}"[:_REASON_LENGTH]
