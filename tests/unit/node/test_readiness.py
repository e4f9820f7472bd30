from __future__ import annotations

import socket
import threading
from contextlib import contextmanager

import pytest

from cassieq_spark.node.node import answers_cql, has_superuser, peers_up

SUPPORTED = bytes([0x84, 0, 0, 0, 0x06, 0, 0, 0, 0])
ERROR = bytes([0x84, 0, 0, 0, 0x00, 0, 0, 0, 0])


@contextmanager
def server_that_says(*pieces: bytes):
    with socket.create_server(("127.0.0.1", 0)) as server:
        asked = []

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                asked.append(connection.recv(100))
                for piece in pieces:
                    connection.sendall(piece)

        thread = threading.Thread(target=serve)
        thread.start()
        yield server.getsockname()[1], asked
        thread.join()


def test_a_node_that_tells_its_options_serves():
    with server_that_says(SUPPORTED) as (port, asked):
        assert answers_cql("127.0.0.1", port)

    assert asked == [bytes([0x04, 0, 0, 0, 0x05, 0, 0, 0, 0])]


def test_an_answer_in_pieces_is_put_together():
    with server_that_says(SUPPORTED[:3], SUPPORTED[3:]) as (port, _):
        assert answers_cql("127.0.0.1", port)


@pytest.mark.parametrize("answer", [b"", SUPPORTED[:4], ERROR, b"HTTP/1.1 400 Bad Request"])
def test_anything_else_does_not_serve(answer: bytes):
    with server_that_says(answer) as (port, _):
        assert not answers_cql("127.0.0.1", port)


def test_nobody_listening_does_not_serve():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]

    assert not answers_cql("127.0.0.1", port)


def test_the_log_tells_which_peers_are_up():
    log = """\
INFO  [GossipStage:1] Gossiper - Node /127.0.0.3:7000 is now part of the cluster
INFO  [GossipStage:1] Gossiper - InetAddress /127.0.0.2:7000 is now UP
INFO  [GossipTasks:1] Gossiper - InetAddress /127.0.0.4:7000 is now DOWN
"""

    assert peers_up(log) == {"127.0.0.2"}


def test_a_log_without_the_first_role_says_so():
    assert not has_superuser("INFO Startup complete")
