"""A durable work queue on Apache Cassandra for Spark.

``spark.readStream.format("cassieq")`` and ``df.writeStream.format("cassieq")`` need no import;
`register` makes the format known where Spark's own discovery does not. `Client` and `AsyncClient`
are the queue for programs without Spark. Importing this package imports neither Spark nor the
driver nor Arrow.

The one thing that the import does: Spark's Python collects garbage faster, see `gc_tuning`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cassieq_spark.arguments import shown as _shown
from cassieq_spark.errors import CassieqError
from cassieq_spark.errors import OptionError as _OptionError
from cassieq_spark.settings import options_from_session
from cassieq_spark.spark.gc_tuning import spare_spark as _spare_spark
from cassieq_spark.spark.progress import Progress, progress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from cassieq_spark.client import AsyncClient, Client, Message, NewMessage, Producer

__all__ = [
    "AsyncClient",
    "CassieqError",
    "Client",
    "Message",
    "NewMessage",
    "Producer",
    "Progress",
    "options_from_session",
    "progress",
    "register",
]

__version__ = "0.1.0"

_spare_spark()


def register(spark: SparkSession) -> None:
    """Make ``format("cassieq")`` known to a session, where Spark's own discovery does not.

    Discovery fails, for example, when any other module named ``pyspark_...`` can't be imported.

    Raises:
        OptionError: It is no SparkSession.
    """
    if not hasattr(getattr(spark, "dataSource", None), "register"):
        raise _OptionError(f"a SparkSession is needed, not {_shown(spark)}")
    from cassieq_spark.spark.datasource import CassieqDataSource  # noqa: PLC0415 (needs Spark)

    spark.dataSource.register(CassieqDataSource)


def __getattr__(name: str) -> object:
    if name in {"AsyncClient", "Client", "Message", "NewMessage", "Producer"}:
        from cassieq_spark import client  # noqa: PLC0415 (needs Arrow, which takes a while)

        return getattr(client, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
