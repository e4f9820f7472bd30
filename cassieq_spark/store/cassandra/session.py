"""Sessions: one per process and cluster, shared by threads; a fork opens its own."""

from __future__ import annotations

import os
import socket
import threading
from datetime import datetime
from struct import Struct
from typing import Any
from weakref import WeakSet

from cassandra import ConsistencyLevel
from cassandra.auth import PlainTextAuthProvider
from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile, Session
from cassandra.cqltypes import DateType
from cassandra.metadata import NetworkTopologyStrategy, SimpleStrategy
from cassandra.policies import (
    ConstantSpeculativeExecutionPolicy,
    DCAwareRoundRobinPolicy,
    ExponentialReconnectionPolicy,
    FallthroughRetryPolicy,
    RetryPolicy,
)
from cassandra.protocol import ProtocolHandler, ResultMessage
from cassandra.query import PreparedStatement, tuple_factory

from cassieq_spark.errors import MissingSchemaError, OptionError
from cassieq_spark.model import from_millis
from cassieq_spark.settings.connection import ConnectionOptions
from cassieq_spark.settings.secret import reveal
from cassieq_spark.store.cassandra.clocks import (
    NodeClocks,
    NodesThatComeUp,
    RightClocksFirst,
)
from cassieq_spark.store.cassandra.inspection import read_layout
from cassieq_spark.store.cassandra.mapping import (
    DRIVER_ERRORS,
    Request,
    missing_schema,
    translate,
)
from cassieq_spark.store.cassandra.tls import encryption
from cassieq_spark.store.cassandra.upgrade import check_usable, compare
from cassieq_spark.store.consistency import SIMPLE_STRATEGY, check_consistency

#: Execution profiles, one per kind of call; ``BULK`` is for plain writes.
CAS, READ, SERIAL_READ, BULK, BULK_READ = "cas", "read", "serial_read", "bulk", "bulk_read"

#: With the driver's 4 KiB, each chunk would cost several system calls.
_SOCKET_BUFFER_BYTES = 1 << 18
_CONNECT_SECONDS = 4.0
_MILLISECONDS = Struct(">q")
#: The code of the type ``timestamp`` in Cassandra's protocol.
_TIMESTAMP = 0x000B
_ROWS = ProtocolHandler.message_types_by_opcode[ResultMessage.opcode]


# The underscores keep these classes out of the driver's registries, so that other sessions of the
# process decode as usual.
class _InstantType(DateType):  # type: ignore[misc]
    """A timestamp; outside of our calendar, the first or last instant of the calendar."""

    @staticmethod
    def deserialize(raw: bytes, protocol_version: int) -> datetime:
        del protocol_version
        return from_millis(_MILLISECONDS.unpack(raw)[0])


class _Result(_ROWS):  # type: ignore[misc,valid-type]
    type_codes: dict[int, Any] = _ROWS.type_codes | {_TIMESTAMP: _InstantType}


class Decoding(ProtocolHandler):  # type: ignore[misc]
    """Decodes answers for one session (``session.client_protocol_handler``).

    Cassandra keeps a timestamp as milliseconds in 64 bits, and accepts all such numbers. The
    driver converts it to a `datetime`, which ends with the year 9999. If that fails, the driver
    closes connection and marks the node down, so one such row would stop all queues of the
    process.
    """

    message_types_by_opcode: dict[int, Any] = ProtocolHandler.message_types_by_opcode | {
        ResultMessage.opcode: _Result
    }


class SharedSession:
    """A session of this process, its prepared statements, and the stores that use it."""

    def __init__(
        self,
        options: ConnectionOptions,
        cluster: Cluster,
        session: Session,
        clocks: NodeClocks,
    ) -> None:
        self.pid = os.getpid()
        self.options = options
        self.driver = session
        self.users: WeakSet[object] = WeakSet()
        self.clocks = clocks
        cluster.register_listener(NodesThatComeUp(session, clocks))
        #: Addresses of nodes whose clock was found to be ahead.
        self.nodes_ahead: set[str] = set()
        self._cluster = cluster
        self._prepared: dict[str, PreparedStatement] = {}

    def prepared(self, text: str) -> PreparedStatement:
        """Prepare a text, unless it is prepared already."""
        if text not in self._prepared:
            self._prepared[text] = self.driver.prepare(text)
        return self._prepared[text]

    def close(self) -> None:
        """End the session and its threads."""
        self._cluster.shutdown()


_sessions: dict[tuple[int, ConnectionOptions], SharedSession] = {}
_lock = threading.Lock()


def _renew_lock() -> None:
    # Another thread of the parent may have held the lock. The parent's sessions are left alone, as
    # closing them here would close the parent's connections.
    global _lock  # noqa: PLW0603 - a fork has no other way to replace it
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_renew_lock)


def join(options: ConnectionOptions, user: object) -> SharedSession:
    """This process's session for these options; the first call connects.

    Raises:
        ConnectError, MissingSchemaError, OptionError, SetupError: See `open_store`.
    """
    with _lock:
        key = (os.getpid(), options)
        shared = _sessions.get(key)
        if shared is None:
            shared = _sessions[key] = _connect_to_keyspace(options)
        shared.users.add(user)
        return shared


def leave(shared: SharedSession, user: object) -> None:
    """Close the session, unless another store of this process uses it."""
    with _lock:
        shared.users.discard(user)
        if shared.users or shared.pid != os.getpid():
            return
        _sessions.pop((shared.pid, shared.options), None)
    shared.close()


def connect(
    options: ConnectionOptions, clocks: NodeClocks | None = None
) -> tuple[Cluster, Session]:
    """Open a session that belongs to the caller, whether the keyspace exists or not.

    Args:
        options: The cluster.
        clocks: The clocks of its nodes, as far as the caller sees them.

    Raises:
        ConnectError: No node answers, or the credentials are refused.
        SetupError: This machine lacks a secret or a file of TLS.
    """
    cluster: Cluster | None = None
    try:
        cluster = _cluster(options, clocks or NodeClocks())
        session = cluster.connect()
    except DRIVER_ERRORS as error:
        if cluster is not None:
            cluster.shutdown()
        raise translate(error, Request.CONNECT, "connecting", options) from error
    # Plain writes carry the timestamp of their block, and compare-and-sets have a ballot.
    session.use_client_timestamp = False
    session.client_protocol_handler = Decoding
    return cluster, session


def _connect_to_keyspace(options: ConnectionOptions) -> SharedSession:
    clocks = NodeClocks()
    cluster, session = connect(options, clocks)
    try:
        _check_keyspace(options, cluster, session)
    except (MissingSchemaError, OptionError):
        cluster.shutdown()
        raise
    except DRIVER_ERRORS as error:
        cluster.shutdown()
        raise translate(error, Request.READ, "reading of the keyspace", options) from error
    return SharedSession(options, cluster, session, clocks)


def _check_keyspace(options: ConnectionOptions, cluster: Cluster, session: Session) -> None:
    # Routing by token needs this much schema; reading all of it takes longer than connecting.
    cluster.refresh_keyspace_metadata(options.keyspace, max_schema_agreement_wait=0)
    if options.keyspace not in cluster.metadata.keyspaces:
        raise missing_schema("connecting", options, "there is no such keyspace")
    _check_replication(options, cluster)
    found = read_layout(session, options.keyspace)
    check_usable(compare(found.tables, found.comment), options.keyspace)


def _check_replication(options: ConnectionOptions, cluster: Cluster) -> None:
    match cluster.metadata.keyspaces[options.keyspace].replication_strategy:
        case SimpleStrategy() as strategy:
            replicas = {SIMPLE_STRATEGY: strategy.replication_factor}
        case NetworkTopologyStrategy() as strategy:
            replicas = dict(strategy.dc_replication_factors)
        case _:
            # A strategy of the operator's own.
            return
    check_consistency(
        options.consistency,
        keyspace=options.keyspace,
        replicas=replicas,
        data_centres={host.datacenter for host in cluster.metadata.all_hosts()},
        local_dc=options.local_dc or cluster.get_control_connection_host().datacenter,
        # A secure connect bundle belongs to one data centre.
        local_dc_given=bool(options.local_dc or options.secure_connect_bundle),
    )


def _cluster(options: ConnectionOptions, clocks: NodeClocks) -> Cluster:
    credentials = None
    if options.username is not None:
        password = reveal("password", options.password or "")
        credentials = PlainTextAuthProvider(options.username, password)
    seconds = min(_CONNECT_SECONDS, options.request_timeout.total_seconds())
    return Cluster(
        **encryption(options),
        protocol_version=options.protocol_version,
        auth_provider=credentials,
        execution_profiles=_profiles(options, clocks),
        reconnection_policy=ExponentialReconnectionPolicy(0.5, 10.0),
        connection_class=_connection_class(),
        # Without it each message above 4 KiB waits for the peer's delayed acknowledgement.
        sockopts=[(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)],
        connect_timeout=seconds,
        control_connection_timeout=seconds,
        idle_heartbeat_interval=5,
        idle_heartbeat_timeout=5,
        # A node prepares a statement when it first gets it, so a node that hangs delays nobody.
        prepare_on_all_hosts=False,
        schema_metadata_enabled=False,
        token_metadata_enabled=True,
        monitor_reporting_enabled=False,
        application_name="cassieq-spark",
    )


def _connection_class() -> type:
    """The driver's connection class with larger buffers, whose requests wait for the socket.

    The driver's own connection refuses requests while its socket takes no more bytes
    (ConnectionBusy). Then they go to another node, or fail if there is none. Our requests may
    wait: bulk writes limit themselves (`BYTES_IN_FLIGHT`), and all others are small.
    """
    buffers = {"in_buffer_size": _SOCKET_BUFFER_BYTES, "out_buffer_size": _SOCKET_BUFFER_BYTES}
    always_writable = property(lambda _: True, lambda *_: None)
    attributes = {**buffers, "_socket_writable": always_writable}
    return type("PatientConnection", (Cluster.connection_class,), attributes)


def _profiles(options: ConnectionOptions, clocks: NodeClocks) -> dict[object, ExecutionProfile]:
    levels, chosen = ConsistencyLevel.name_to_value, options.consistency
    plain, serial = levels[chosen.value], levels[chosen.of_conditions]
    seconds = options.request_timeout.total_seconds()

    def profile(
        consistency: int, *, idempotent: bool = True, shuffle_replicas: bool = False
    ) -> ExecutionProfile:
        # An idempotent request is sent to another node, too, if the first node hangs.
        speculation = ConstantSpeculativeExecutionPolicy(seconds / 4, max_attempts=2)
        return ExecutionProfile(
            load_balancing_policy=RightClocksFirst(
                DCAwareRoundRobinPolicy(options.local_dc or ""),
                clocks,
                shuffle_replicas=shuffle_replicas,
            ),
            retry_policy=RetryPolicy() if idempotent else FallthroughRetryPolicy(),
            speculative_execution_policy=speculation if idempotent else None,
            consistency_level=consistency,
            serial_consistency_level=serial,
            request_timeout=seconds,
            row_factory=tuple_factory,
        )

    read = profile(plain)
    return {
        EXEC_PROFILE_DEFAULT: read,
        READ: read,
        SERIAL_READ: profile(serial),
        # Sent twice, the second would hide that the first one won (CASSANDRA-9086). All of one
        # partition go to the same replica first, to queue there instead of fighting over ballots.
        CAS: profile(plain, idempotent=False),
        # These have no such reason, so all replicas share the load.
        BULK: profile(plain, shuffle_replicas=True),
        BULK_READ: profile(plain, shuffle_replicas=True),
    }
