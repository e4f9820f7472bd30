"""Tell whether a node serves, without a driver: by its protocol, and by its log."""

from __future__ import annotations

import re
import socket
import ssl
import struct
from contextlib import suppress
from pathlib import Path

_OPTIONS, _SUPPORTED = 0x05, 0x06
_REQUEST, _RESPONSE = 0x04, 0x84
_HEADER = struct.Struct(">BBhBI")
_ANSWER_SECONDS = 2.0

_UP = re.compile(r"InetAddress /(?P<address>[\d.]+):\d+ is now UP")


def answers_cql(address: str, port: int, *, identity: Path | None = None) -> bool:
    """Ask a node which protocol options it supports, and tell whether it says so.

    Args:
        address: Where the node is.
        port: Its CQL port.
        identity: PEM file of a key and certificate to ask with, by TLS; in the clear unless given.
    """
    try:
        with socket.create_connection((address, port), timeout=_ANSWER_SECONDS) as connection:
            if identity:
                with _wrapped(connection, identity) as encrypted:
                    return _says_supported(encrypted)
            return _says_supported(connection)
    except OSError:
        return False


def peers_up(log: str) -> set[str]:
    """Name the nodes that a node has seen come up, by its log.

    >>> peers_up("INFO  [GossipStage:1] Gossiper - InetAddress /127.0.0.2:7000 is now UP")
    {'127.0.0.2'}
    """
    return {match["address"] for match in _UP.finditer(log)}


def has_superuser(log: str) -> bool:
    """Tell whether a node has made the role that the first login needs, by its log.

    >>> has_superuser("CassandraRoleManager - Created default superuser role 'cassandra'")
    True
    """
    return "Created default superuser role" in log


def _wrapped(connection: socket.socket, identity: Path) -> ssl.SSLSocket:
    # Whether it answers, not who it is: nothing is told to it.
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.load_cert_chain(identity)
    return context.wrap_socket(connection)


def _says_supported(connection: socket.socket) -> bool:
    connection.sendall(_HEADER.pack(_REQUEST, 0, 0, _OPTIONS, 0))
    return _is_supported(_receive(connection, _HEADER.size))


def _receive(connection: socket.socket, size: int) -> bytes:
    received = b""
    while len(received) < size:
        more = connection.recv(size - len(received))
        if not more:
            break
        received += more
    return received


def _is_supported(header: bytes) -> bool:
    with suppress(struct.error):
        version, _, _, opcode, _ = _HEADER.unpack(header)
        return bool((version, opcode) == (_RESPONSE, _SUPPORTED))
    return False
