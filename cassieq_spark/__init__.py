"""A durable work queue on Apache Cassandra for Spark.

``spark.readStream.format("cassieq")`` and ``df.writeStream.format("cassieq")`` need no import;
`register` makes the format known where Spark's own discovery does not. `Client` and `AsyncClient`
are the queue for programs without Spark.

docs/api.md lists what is public. Every other module, class and function is internal, and may
change in any release. Importing this package imports neither Spark nor the driver nor Arrow, and
changes nothing in the process.
"""

from __future__ import annotations

from importlib import import_module as _import_module
from typing import TYPE_CHECKING

from cassieq_spark.arguments import shown as _shown
from cassieq_spark.errors import CassieqError
from cassieq_spark.errors import OptionError as _OptionError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from cassieq_spark.client import AsyncClient, Client, Message, NewMessage, Producer
    from cassieq_spark.settings import options_from_session
    from cassieq_spark.spark.progress import Progress, progress
    from cassieq_spark.spark.watch import watch

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
    "watch",
]

__version__ = "0.1.0"

_MODULES = {
    "cassieq_spark.client": ("AsyncClient", "Client", "Message", "NewMessage", "Producer"),
    "cassieq_spark.settings": ("options_from_session",),
    "cassieq_spark.spark.progress": ("Progress", "progress"),
    "cassieq_spark.spark.watch": ("watch",),
}
#: Names that are imported on first use: the client needs Arrow, which takes a while.
_LAZY = {name: module for module, names in _MODULES.items() for name in names}


def register(spark: SparkSession) -> None:
    """Make ``format("cassieq")`` known to a session, where Spark's own discovery does not.

    Discovery fails, for example, when any other module named ``pyspark_...`` can't be imported.

    Raises:
        OptionError: ``spark`` is no SparkSession.
    """
    if not hasattr(getattr(spark, "dataSource", None), "register"):
        raise _OptionError(f"a SparkSession is needed, not {_shown(spark)}")
    from cassieq_spark.spark.datasource import CassieqDataSource  # noqa: PLC0415 (needs Spark)

    spark.dataSource.register(CassieqDataSource)


def __getattr__(name: str) -> object:
    if name in _LAZY:
        return getattr(_import_module(_LAZY[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """The names that a REPL completes, with those that are imported on first use."""
    return sorted({*globals(), *__all__})
