"""Reads from a query's checkpoint whether Spark has committed a batch.

Spark tells a Python source neither where the checkpoint is nor that a batch is committed: it calls
`commit` with the next batch, so never for the last one. So an option names the checkpoint.
"""

from __future__ import annotations

import os
from typing import NamedTuple
from urllib.parse import quote
from uuid import UUID

import pyarrow as pa
from pyarrow import fs

from cassieq_spark.model import QueueId


class Told(NamedTuple):
    """What a checkpoint says about a batch.

    Attributes:
        is_committed: Whether Spark has committed the batch.
        trouble: Why the checkpoint does not say it; empty if it does.
    """

    is_committed: bool
    trouble: str = ""


def look_up(location: str, lease: UUID, queue_id: QueueId) -> Told:
    """Read whether the batch of a lease is committed. Lists a folder and reads two files.

    Spark writes the offset of a batch, with the token of its lease, to ``offsets/<batch>`` before
    the batch runs, and ``commits/<batch>`` once it is done.

    Args:
        location: The query's ``checkpointLocation``: a path of this machine, or a URI that
            `pyarrow.fs` knows. Its path is not percent-encoded, as Spark takes it.
        lease: The token of the batch.
        queue_id: The queue that the query reads.
    """
    try:
        files, path = _open(location)
        names = [
            each.base_name for each in files.get_file_info(fs.FileSelector(f"{path}/offsets"))
        ]
        last = max((int(name) for name in names if name.isdecimal()), default=None)
        offsets = ""
        if last is not None:
            with files.open_input_stream(f"{path}/offsets/{last}") as stream:
                offsets = bytes(stream.read()).decode()
        if str(lease) in offsets:
            done = files.get_file_info(f"{path}/commits/{last}")
            return Told(done.type == fs.FileType.File and done.size > 0)
    except (OSError, ValueError, pa.ArrowException) as error:
        return Told(is_committed=False, trouble=f"{type(error).__name__}: {error}")
    if last is not None and f'"{queue_id}"' not in offsets:
        return Told(is_committed=False, trouble=f"no batch of queue {queue_id} is logged there")
    return Told(is_committed=False)


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
    files, path = fs.FileSystem.from_uri(uri)
    return files, path
