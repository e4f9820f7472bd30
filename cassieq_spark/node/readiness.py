"""Tell whether a node serves, without a driver: by its protocol, and by its log."""

from __future__ import annotations

import re
import socket
import struct
from contextlib import suppress

_OPTIONS, _SUPPORTED = 0x05, 0x06
_REQUEST, _RESPONSE = 0x04, 0x84
_HEADER = struct.Struct(">BBhBI")
_ANSWER_SECONDS = 2.0

_UP = re.compile(r"InetAddress /(?P<address>[\d.]+):\d+ is now UP")


def answers_cql(address: str, port: int) -> bool:
    """Ask a node which protocol options it supports, and tell whether it says so."""
    try:
        with socket.create_connection((address, port), timeout=_ANSWER_SECONDS) as connection:
            connection.sendall(_HEADER.pack(_REQUEST, 0, 0, _OPTIONS, 0))
            return _is_supported(_receive(connection, _HEADER.size))
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
