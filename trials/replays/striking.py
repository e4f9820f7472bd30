"""``format("striking")``: the data source ``cassieq``, which strikes its own query at a moment.

Spark makes it in several processes. So what it is to do is in a file beside the checkpoint.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any, NoReturn

from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import StructType

from cassieq_spark.ledger.publish import Published
from cassieq_spark.producer.partitioned import publish_all
from cassieq_spark.producer.publisher import Written, publish_written
from cassieq_spark.spark.datasource import CassieqDataSource
from cassieq_spark.spark.sink.message_writer import MessageStreamWriter, TaskDone

#: What the error of a query says that was struck.
STRUCK = "struck on purpose"
_READER = "python_streaming_source_runner"


class Moment(StrEnum):
    """When a batch is struck."""

    BEFORE = "before the publish"
    HALF = "after the publish of some partitions"
    AFTER = "after the publish"
    #: The batch is done and acked, and the next one is planned.
    ACKED = "after the ack"


class Fault(StrEnum):
    """What is killed."""

    #: The Python process that reads the queue; the query ends with an error, and Spark goes on.
    READER = "reader"
    #: The JVM, the Python program and the reader.
    DRIVER = "driver"
    #: The JVM alone: its Python processes see that it is gone.
    JVM = "jvm"


@dataclass(frozen=True)
class Strikes:
    """What is still to be struck.

    Attributes:
        moment: When.
        fault: What is killed.
        left: How often.
        first: The number of the first batch that is struck.
    """

    moment: Moment
    fault: Fault
    left: int
    first: int = 1

    @classmethod
    def read(cls, file: Path) -> Strikes:
        """Read what `write` has written."""
        told: dict[str, Any] = json.loads(file.read_text())
        return cls(Moment(told["moment"]), Fault(told["fault"]), told["left"], told["first"])

    def write(self, file: Path) -> None:
        """Write it as a whole."""
        new = file.with_suffix(".new")
        new.write_text(json.dumps(asdict(self)))
        new.rename(file)


class StrikingDataSource(CassieqDataSource):
    """The data source, for the sink of a query with ``checkpointLocation``."""

    @classmethod
    def name(cls) -> str:
        """The text for ``format(...)``."""
        return "striking"

    def streamWriter(self, schema: StructType, overwrite: bool) -> MessageStreamWriter:
        """The writer, which strikes when it commits; or strikes now, where a batch is planned."""
        checkpoint = Path(self.options["checkpointLocation"])
        file = strikes_of(checkpoint)
        if not self._is_copy:
            _strike(file, Moment.ACKED, _planned(checkpoint))
        writer = super().streamWriter(schema, overwrite)
        striking = StrikingWriter.__new__(StrikingWriter)
        striking.__dict__.update(writer.__dict__, file=str(file))
        return striking


class StrikingWriter(MessageStreamWriter):
    """The writer of a stream, which strikes around its publish."""

    file: str

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Publish, and strike before, in between or after, if that is to be done."""
        file = Path(self.file)
        _strike(file, Moment.BEFORE, batchId)
        if is_due(file, Moment.HALF, batchId):
            self._publish_first(messages)
            _strike(file, Moment.HALF, batchId)
        super().commit(messages, batchId)
        _strike(file, Moment.AFTER, batchId)

    def _publish_first(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Publish to one partition that has not published the batch, if there are two of them."""
        written = [it for done in messages if isinstance(done, TaskDone) for it in done.written]
        left = sorted({it.queue_id for it in written if it.published is None and it.blocks})

        def publish(found: Sequence[Written]) -> Published:
            if len(left) > 1 and found[0].queue_id == left[0]:
                return publish_written(self._store(), found)
            if found[0].published is not None:
                return Published(None)
            raise _DiedError

        with suppress(_DiedError):
            publish_all(self._store(), written, publish=publish)


class _DiedError(Exception):
    """The driver died before it published to a partition."""


def strikes_of(checkpoint: Path) -> Path:
    """The file with the strikes of a query."""
    return checkpoint.parent / "strikes.json"


def is_due(file: Path, moment: Moment, batch: int) -> bool:
    """Whether a batch is to be struck at this moment."""
    strikes = Strikes.read(file)
    return strikes.left > 0 and strikes.moment is moment and batch >= strikes.first


def _strike(file: Path, moment: Moment, batch: int) -> None:
    if is_due(file, moment, batch):
        strikes = Strikes.read(file)
        replace(strikes, left=strikes.left - 1).write(file)
        _kill(strikes.fault)


def _kill(fault: Fault) -> NoReturn:
    """Kill what belongs to the JVM above this process."""
    jvm = next(pid for pid in _ancestors(os.getpid()) if "java" in _command(pid)[0])
    readers = [pid for pid in _children(jvm) if _READER in " ".join(_command(pid))]
    victims = {
        Fault.READER: readers,
        Fault.DRIVER: [*readers, _parent(jvm), jvm],
        Fault.JVM: [jvm],
    }[fault]
    for pid in victims:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    raise RuntimeError(STRUCK)


def _ancestors(pid: int) -> list[int]:
    found = []
    while pid > 1:
        pid = _parent(pid)
        found.append(pid)
    return found


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def _children(pid: int) -> list[int]:
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if _parent(int(entry.name)) == pid:
                found.append(int(entry.name))
    return found


def _command(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/cmdline").read_text().split("\0")


def _planned(checkpoint: Path) -> int:
    numbers = (file.name for file in (checkpoint / "offsets").iterdir())
    return max(int(name) for name in numbers if name.isdecimal())
