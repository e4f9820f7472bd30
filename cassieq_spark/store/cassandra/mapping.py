"""Turns the driver's errors into ours: what each one says about the request that met it."""

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
    """What became of a request that failed."""

    #: Certainly not carried out; it may succeed a little later.
    NOT_CARRIED_OUT = auto()
    #: Carried out, or not, or not yet.
    UNKNOWN = auto()
    #: Cassandra refuses it, and will again.
    REFUSED = auto()
    #: Cassandra refuses the credentials.
    FORBIDDEN_ENTRY = auto()


class Request(Enum):
    """What was asked for; decides what an uncertain fate means."""

    CONNECT = auto()
    #: Also the preparation of statements.
    READ = auto()
    #: Plain and idempotent: chunks, and the deletion of buckets.
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
    # cassandra.protocol; as the server words them. Bare: codes that the driver does not know,
    # CAS_WRITE_UNKNOWN (0x1700) among them.
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

#: What a driver call may raise; anything else is a bug, and passes through.
DRIVER_ERRORS = tuple(FATES)

_MISSING = re.compile(
    r"unconfigured table|(keyspace|table) \S+ does not exist|unknown (keyspace|table)",
    re.IGNORECASE,
)
_OTHER_COLUMNS = re.compile(r"undefined column name|unknown identifier", re.IGNORECASE)
#: The driver makes another error of it, by chance that of missing permissions.
_OF_TLS = re.compile(r"\[SSL: .*")
_REASON_LENGTH = 300
_NEVER_SENT = ("Host has been marked down or removed", "Pool is shutdown")


def fate_of(error: BaseException, request: Request) -> Fate:
    """What an error says about a request; the nearest class decides that is listed in `FATES`."""
    if isinstance(error, cluster.NoHostAvailable):
        return _fate_of_all(error, request)
    if isinstance(error, cassandra.Unavailable) and request is Request.CAS:
        # The consensus phase comes first and is what most replicas are counted for; a commit that
        # finds too few of them (at a plain consistency level) leaves an update behind that others
        # may finish.
        serial = cassandra.ConsistencyLevel.is_serial(error.consistency)
        return Fate.NOT_CARRIED_OUT if serial else Fate.UNKNOWN
    return next(FATES[base] for base in type(error).__mro__ if base in FATES)


def is_repeatable(error: BaseException, request: Request) -> bool:
    """Whether to send it again: it was not carried out, or twice is as good as once."""
    fate = fate_of(error, request)
    return fate is Fate.NOT_CARRIED_OUT or (
        fate is Fate.UNKNOWN and request in (Request.READ, Request.WRITE)
    )


def translate(
    error: BaseException, request: Request, doing: str, options: ConnectionOptions
) -> StoreError:
    """Our error for the driver's; the caller raises it ``from`` that one.

    Args:
        error: What the driver raised, after all repetitions.
        request: What was asked for.
        doing: The same in words, with table and partition: ``read of ledger q@1``.
        options: Names contact points, role and keyspace in the message.
    """
    reason = _reason(error)
    fate = fate_of(error, request)
    if fate is Fate.FORBIDDEN_ENTRY:
        who = f"user {options.username!r}" if options.username else "a login without user name"
        return ConnectError(f"the cluster refuses {who}: {reason}")
    if request is Request.CONNECT:
        points = options.secure_connect_bundle or ", ".join(
            f"{host}:{port}" for host, port in options.endpoints
        )
        where = f" in data centre {options.local_dc!r}" if options.local_dc else ""
        return ConnectError(
            f"no node answers at {points}{where}: {reason}; {advice(reason, options)}"
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
    """The error for a keyspace or table that is not there."""
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
        return OutcomeUnknownError(f"{message}; it may have been applied: a serial read tells")
    return OutcomeUnknownError(f"{message}; some of it may be written: safe to repeat as it is")


def _fate_of_all(error: cluster.NoHostAvailable, request: Request) -> Fate:
    inner = error.errors.values() if isinstance(error.errors, dict) else ()
    fates = {
        Fate.NOT_CARRIED_OUT
        if _was_never_sent(one)
        else fate_of(one, request)
        if isinstance(one, DRIVER_ERRORS)
        else Fate.UNKNOWN
        for one in inner
    }
    if Fate.FORBIDDEN_ENTRY in fates:
        return Fate.FORBIDDEN_ENTRY
    return Fate.NOT_CARRIED_OUT if fates == {Fate.NOT_CARRIED_OUT} else Fate.UNKNOWN


def _found_nobody(error: BaseException) -> bool:
    if not isinstance(error, cluster.NoHostAvailable):
        return False
    inner = error.errors.values() if isinstance(error.errors, dict) else ()
    return all(isinstance(one, (connection.ConnectionException, OSError)) for one in inner)


def _was_never_sent(error: BaseException) -> bool:
    if isinstance(error, (connection.ConnectionBusy, pool.NoConnectionsAvailable)):
        return True
    return type(error) is connection.ConnectionException and str(error) in _NEVER_SENT


def _reason(error: BaseException) -> str:
    if isinstance(error, cluster.NoHostAvailable):
        if isinstance(error.errors, dict) and error.errors:
            host, first = next(iter(error.errors.items()))
            return f"{host}: {_reason(first)}"
        return "none of the nodes that were found may be used"
    if isinstance(error, cassandra.UnresolvableContactPoints):
        return "these names cannot be resolved"
    if isinstance(error, OSError) and (of_tls := _OF_TLS.search(str(error))):
        return of_tls[0][:_REASON_LENGTH]
    return f"{type(error).__name__}: {error}"[:_REASON_LENGTH]
