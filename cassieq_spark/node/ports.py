"""Claims ports that are free on every address of a cluster, so that other clusters avoid them."""

from __future__ import annotations

import errno
import fcntl
import os
import socket
import stat
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

from cassieq_spark.errors import SetupError

# Below the ephemeral ports of Linux and macOS, so that no outgoing connection takes one.
NATIVE_PORTS = (9042, *range(19042, 19242))
STORAGE_PORTS = (7000, *range(17000, 17200))


def is_free(address: str, port: int) -> bool:
    """True if a server could listen there now.

    Raises:
        SetupError: This machine does not have the address.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # As servers do, so that connections that are still closing do not count.
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

    A node listens some seconds after its start. Until then, a lock on one file per port keeps
    other clusters off it. The folder must belong to this user and not be a link; the files are not
    written to, and not followed if they are links.
    """

    def __init__(
        self, folder: Path | None = None, *, free: Callable[[str, int], bool] = is_free
    ) -> None:
        self._folder = folder or Path(tempfile.gettempdir(), f"cassieq-ports-{os.getuid()}")
        self._free = free
        self._held = ExitStack()

    def claim(self, addresses: Sequence[str], candidates: Sequence[int]) -> int:
        """Take the first of ``candidates`` that is free on all of ``addresses``.

        Raises:
            SetupError: No candidate is free.
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
        """Give the ports back; safe to repeat."""
        self._held.close()

    def _lock(self, port: int) -> bool:
        try:
            self._folder.mkdir(mode=0o700, exist_ok=True)
            folder = os.open(self._folder, os.O_DIRECTORY | os.O_NOFOLLOW)
        except OSError as exc:
            raise self._refused(exc.strerror or str(exc)) from exc
        try:
            # The open folder is checked and used, so nobody can replace it between the two.
            self._check(os.fstat(folder))
            file = os.open(
                str(port), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, mode=0o600, dir_fd=folder
            )
        except OSError as exc:
            raise self._refused(exc.strerror or str(exc)) from exc
        finally:
            os.close(folder)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(file)
            return False
        self._held.callback(os.close, file)
        return True

    def _check(self, found: os.stat_result) -> None:
        if found.st_uid != os.getuid():
            raise self._refused(f"it belongs to user {found.st_uid}")
        if stat.S_IMODE(found.st_mode) & (stat.S_IWGRP | stat.S_IWOTH):
            raise self._refused("others may write there")

    def _refused(self, why: str) -> SetupError:
        return SetupError(
            f"Cannot keep locks of ports in {self._folder} ({why}): remove it, or set TMPDIR to a "
            "folder that is yours alone."
        )
