"""A folder of data that outlives its cluster: one cluster at a time, and always the same one."""

from __future__ import annotations

import fcntl
import json
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import IO

from cassieq_spark.errors import SetupError
from cassieq_spark.node.release import DEFAULT_RELEASE, Release

_DESCRIPTION = "cluster.json"
_PATIENCE_SECONDS = 25.0
_LOOK_SECONDS = 0.1


def lock_data(folder: Path) -> IO[str]:
    """Take the folder for one cluster; created, for this user alone, if it is not there.

    Waits for one that is just ending, as a killed program's does.

    Returns:
        The locked file: whoever has it open has the folder.

    Raises:
        SetupError: Another cluster has it, or it cannot be written.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        file = (folder / "lock").open("w")
    except OSError as exc:
        raise SetupError(f"Cannot keep data in {folder} ({exc.strerror}).") from exc
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while not _locked(file):
        if time.monotonic() > deadline:
            file.close()
            raise SetupError(f"Another cluster uses {folder}: stop it, or choose another folder.")
        time.sleep(_LOOK_SECONDS)
    return file


def read_storage_port(folder: Path, *, nodes: int, release: Release) -> int | None:
    """Return the port its nodes know each other by, or None for a new folder.

    Raises:
        SetupError: The data are those of another number of nodes, or of a later release.
    """
    try:
        description = json.loads((folder / _DESCRIPTION).read_text())
        count, port = int(description["nodes"]), int(description["storage_port"])
        written_by = Release(description.get("release", DEFAULT_RELEASE))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as exc:
        raise SetupError(f"{folder / _DESCRIPTION} is not readable: {exc}") from exc
    if count != nodes:
        raise SetupError(
            f"{folder} holds the data of {count} node(s), not of {nodes}:"
            " start as many, or choose another folder."
        )
    # Cassandra reads the files of the releases before, not of those after.
    if written_by > release:
        raise SetupError(
            f"{folder} holds data of Cassandra {written_by}, which {release} can't read:"
            f" start {written_by}, or choose another folder."
        )
    return port


def write_description(folder: Path, *, nodes: int, release: Release, storage_port: int) -> None:
    """Note what a later start must know."""
    description = {"nodes": nodes, "release": release, "storage_port": storage_port}
    (folder / _DESCRIPTION).write_text(json.dumps(description) + "\n")


def can_pass_page_cache(folder: Path) -> bool:
    """Whether files of this folder can be written past the page cache; in memory, say, not."""
    probe = folder / "probe"
    try:
        os.close(os.open(probe, os.O_CREAT | os.O_WRONLY | os.O_DIRECT))
    except OSError:
        return False
    finally:
        probe.unlink(missing_ok=True)
    return True


def _locked(file: IO[str]) -> bool:
    with suppress(BlockingIOError):
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    return False
