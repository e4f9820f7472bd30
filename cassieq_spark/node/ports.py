"""Choose ports that are free on every address of a cluster, and keep other clusters off them."""

from __future__ import annotations

import errno
import fcntl
import os
import socket
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

from cassieq_spark.errors import SetupError

# Below the ephemeral ports of Linux and macOS: no outgoing connection takes one meanwhile.
NATIVE_PORTS = (9042, *range(19042, 19242))
STORAGE_PORTS = (7000, *range(17000, 17200))


def is_free(address: str, port: int) -> bool:
    """Tell whether a server could listen there now.

    Raises:
        SetupError: This machine does not have the address.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # As servers do it: connections that are still closing down do not count.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, port))
        except OSError as exc:
            if exc.errno == errno.EADDRNOTAVAIL:
                raise SetupError(
                    f"This machine does not answer to {address}, which a further node needs."
                    f" On macOS add it: sudo ifconfig lo0 alias {address}"
                ) from exc
            return False
        return True


class PortClaims:
    """Ports that no other cluster of this user takes until ``release``, or this process ends.

    A node takes some seconds from being started to listening; a lock on a file per port bridges
    them, so that two clusters started at once get different ports.
    """

    def __init__(
        self, folder: Path | None = None, *, free: Callable[[str, int], bool] = is_free
    ) -> None:
        """Keep the lock files in ``folder``; in the temporary folder unless given."""
        self._folder = folder or Path(tempfile.gettempdir(), f"cassieq-ports-{os.getuid()}")
        self._free = free
        self._held = ExitStack()

    def claim(self, addresses: Sequence[str], candidates: Sequence[int]) -> int:
        """Take the first of ``candidates`` that is free on all of ``addresses``.

        Raises:
            SetupError: None of them is.
        """
        for port in candidates:
            if all(self._free(address, port) for address in addresses) and self._lock(port):
                return port
        first, last = candidates[0], candidates[-1]
        ports = f"Port {first} is" if first == last else f"Ports {first} to {last} are"
        raise SetupError(
            f"{ports} in use on {', '.join(addresses)}: stop what listens there"
            " (cassieq node status; ss -ltnp), or choose another port."
        )

    def release(self) -> None:
        """Let others have the ports; harmless when repeated."""
        self._held.close()

    def _lock(self, port: int) -> bool:
        try:
            self._folder.mkdir(mode=0o700, exist_ok=True)
            file = (self._folder / str(port)).open("w")
        except OSError as exc:
            raise SetupError(f"Cannot write {self._folder} ({exc.strerror}).") from exc
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
            return False
        self._held.push(file)
        return True
