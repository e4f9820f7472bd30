"""A network that fails on demand: stands between a client and one server."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from types import TracebackType
from typing import Self

_PIECE_BYTES = 1 << 16


class Proxy:
    """Forwards connections to a server; can lose its answers, or cut all connections.

    Args:
        server: Host and port to forward to.
    """

    def __init__(self, server: tuple[str, int]) -> None:
        self._server = server
        self._answers = threading.Event()
        self._answers.set()
        self._sockets: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.host, self.port = self._listener.getsockname()

    def lose_answers(self) -> None:
        """Drop what the server says from now on."""
        self._answers.clear()

    def restore(self) -> None:
        """Forward everything again."""
        self._answers.set()

    def cut(self) -> None:
        """Close all connections; new ones may be made."""
        sockets, self._sockets = self._sockets, []
        for one in sockets:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(self._server)
                self._sockets += [client, server]
                for one in (client, server):
                    one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                for pair in ((client, server, False), (server, client, True)):
                    threading.Thread(target=self._forward, args=pair, daemon=True).start()

    def _forward(self, source: socket.socket, target: socket.socket, is_answer: bool) -> None:
        with suppress(OSError):
            while piece := source.recv(_PIECE_BYTES):
                if not is_answer or self._answers.is_set():
                    target.sendall(piece)
        for one in (source, target):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()
