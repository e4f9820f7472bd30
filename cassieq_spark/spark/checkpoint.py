"""Reads what Spark keeps in a query's checkpoint: which batch is planned, which is committed.

Spark writes ``offsets/<batch>``, the plan of a batch, before the batch runs, and
``commits/<batch>`` once it is done. A replay runs by the same file. Spark gives a data source in
Python neither the location of the checkpoint nor its content: a sink learns the location from its
options, a source from an option of its own. The processes of a data source cannot call the JVM
and its file systems, so this module uses those of pyarrow.
"""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from typing import Any, NamedTuple
from urllib.parse import quote
from uuid import UUID

import pyarrow as pa
from pyarrow import fs

from cassieq_spark.model import QueueId

logger = logging.getLogger(__name__)

#: The sink cannot read the plan of its batches, so it compares their content.
PLAN_UNREADABLE = "checkpoint.plan_unreadable"

#: Seconds before a location that could not be read is tried again: some file systems take seconds
#: to fail, and a sink looks once per batch.
_TRY_AGAIN_AFTER = 600.0
#: When to retry a location that could not be read, by this process's clock.
_unreadable_until: dict[str, float] = {}

_TROUBLE = (OSError, ValueError, KeyError, TypeError, pa.ArrowException)


class Told(NamedTuple):
    """The information of a checkpoint about a batch.

    Attributes:
        is_committed: True if Spark has committed the batch.
        trouble: Why the checkpoint does not say so; empty if it does.
    """

    is_committed: bool
    trouble: str = ""


@dataclass(frozen=True, slots=True)
class Plan:
    """The last batch that Spark has planned.

    Attributes:
        query: The id of the query.
        batch_id: The number of the batch; -1 if Spark has planned none.
        committed: The number of the last batch that is committed; -1 if there is none.
        text: The plan of the batch as Spark has logged it.
    """

    query: str
    batch_id: int
    committed: int
    text: str

    @property
    def digest(self) -> str:
        """A digest of the plan, which differs from that of every other plan of that number."""
        return sha256(self.text.encode()).hexdigest()[:32]

    def offsets(self) -> Iterator[dict[str, Any]]:
        """The JSON objects in the plan that may be offsets of sources."""
        for line in self.text.splitlines():
            try:
                values = json.loads(line)
            except ValueError:
                continue
            if isinstance(values, dict):
                yield values


def read_plan(location: str) -> Plan | None:
    """Read the last batch that Spark has planned. Lists two folders and reads two files.

    Args:
        location: The query's ``checkpointLocation``; see `look_up`.

    Returns:
        None if this process cannot read the checkpoint; the next attempt is ten minutes later.
    """
    if time.monotonic() < _unreadable_until.get(location, 0.0):
        return None
    try:
        files, path = _open(location)
        query = str(json.loads(_read(files, f"{path}/metadata"))["id"])
        planned, committed = (_latest(files, f"{path}/{log}") for log in ("offsets", "commits"))
        text = "" if planned < 0 else _read(files, f"{path}/offsets/{planned}")
    except _TROUBLE as error:
        _unreadable_until[location] = time.monotonic() + _TRY_AGAIN_AFTER
        logger.warning(
            "the checkpoint %s cannot be read from this process (%s: %s), so a batch that Spark "
            "repeats is known by its content: rows that differ from run to run stop the query",
            location,
            type(error).__name__,
            error,
            extra={"action": PLAN_UNREADABLE},
        )
        return None
    return Plan(query, planned, committed, text)


def look_up(location: str, lease: UUID, queue_id: QueueId) -> Told:
    """Read whether the batch of a lease is committed. Lists one folder and reads two files.

    Args:
        location: The query's ``checkpointLocation``: a path of this machine, or a URI that
            `pyarrow.fs` knows. The path is not percent-encoded, as Spark takes it.
        lease: The token of the batch.
        queue_id: The queue that the query reads.
    """
    try:
        files, path = _open(location)
        last = _latest(files, f"{path}/offsets", is_needed=True)
        offsets = "" if last < 0 else _read(files, f"{path}/offsets/{last}")
        if str(lease) in offsets:
            done = files.get_file_info(f"{path}/commits/{last}")
            return Told(done.type == fs.FileType.File and done.size > 0)
    except _TROUBLE as error:
        return Told(is_committed=False, trouble=f"{type(error).__name__}: {error}")
    if last >= 0 and f'"{queue_id}"' not in offsets:
        return Told(is_committed=False, trouble=f"no batch of queue {queue_id} is logged there")
    return Told(is_committed=False)


def _latest(files: fs.FileSystem, log: str, *, is_needed: bool = False) -> int:
    """The latest batch in a log of Spark's; -1 if there is none."""
    found = files.get_file_info(fs.FileSelector(log, allow_not_found=not is_needed))
    return max((int(each.base_name) for each in found if each.base_name.isdecimal()), default=-1)


def _read(files: fs.FileSystem, path: str) -> str:
    with files.open_input_stream(path) as stream:
        return bytes(stream.read()).decode()


def _open(location: str) -> tuple[fs.FileSystem, str]:
    scheme, colon, rest = location.partition(":")
    if not colon or "/" in scheme:
        return fs.LocalFileSystem(), os.path.abspath(location)  # noqa: PTH100 (no other path)
    if scheme == "file":
        return fs.LocalFileSystem(), "/" + rest.lstrip("/")
    # Hadoop has names of its own for the scheme that others call s3.
    scheme = "s3" if scheme in {"s3a", "s3n"} else scheme
    # Hadoop takes the path as it is written, and pyarrow decodes it. What follows a question mark
    # is for pyarrow, as in `?region=...`; the authority may hold a password that is encoded.
    written, mark, parameters = rest.partition("?")
    slashes = "//" if written.startswith("//") else ""
    authority, slash, path = written.removeprefix(slashes).partition("/")
    uri = f"{scheme}:{slashes}{authority}{slash}{quote(path)}{mark}{parameters}"
    return _from_uri(uri)


@cache
def _from_uri(uri: str) -> tuple[fs.FileSystem, str]:
    """The file system of a URI, whose connections a process keeps, and the path in it."""
    files, path = fs.FileSystem.from_uri(uri)
    return files, path
