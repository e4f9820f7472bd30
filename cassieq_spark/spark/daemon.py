"""A daemon of Spark's Python workers that imports what tasks need before it forks.

Spark's own daemon imports nothing for the workers that it forks. A worker ends after a minute of
rest, so the first task after that imports Arrow, the driver and this package in a new process:
half a second of CPU time. With the setting ``spark.python.daemon.module`` this daemon imports them
once, and its workers share the memory.

Spark uses the setting for tasks only. The processes that plan and commit on the driver's machine
always come from Spark's own daemon.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from importlib import import_module
from runpy import run_module
from zipimport import zipimporter

from cassieq_spark.spark.gc_tuning import freeze_survivors

#: The setting ``spark.python.daemon.module``.
NAME = "cassieq_spark.spark.daemon"
#: What runs in a worker, and what tasks of the source and the sink import, also in functions.
MODULES = (
    "pyspark.worker",
    # Spark keeps in them what its tasks call to read from, and to write to, a source in Python.
    "pyspark.sql.worker.plan_data_source_read",
    "pyspark.sql.worker.write_into_data_source",
    "pyarrow.compute",
    "cassieq_spark.fetch.read",
    "cassieq_spark.schemas.evolution",
    "cassieq_spark.spark.datasource",
    "cassieq_spark.spark.sink.message_writer",
    "cassieq_spark.spark.sink.receipt_writer",
    "cassieq_spark.spark.source.browse",
    "cassieq_spark.spark.source.stream",
    "cassieq_spark.store.cassandra.store",
)
#: Arrow's second allocator would start a thread, and a process with threads should not fork.
_NO_THREAD = ("JE_ARROW_MALLOC_CONF", "background_thread:false")


def main() -> None:
    """Import the modules, then run Spark's own daemon in this process."""
    # Spark reads the daemon's address from its standard output.
    with redirect_stdout(sys.stderr), _environment(*_NO_THREAD):
        warm_up(MODULES)
    gc.collect()
    # The collector of a worker would write to, and so copy, the memory that the workers share.
    gc.freeze()
    gc.callbacks.append(freeze_survivors)
    os.register_at_fork(after_in_child=forget_archives)
    run_module("pyspark.daemon", run_name="__main__", alter_sys=True)


def warm_up(modules: tuple[str, ...]) -> None:
    """Import modules; if one cannot be imported, say so and leave the rest to the tasks."""
    try:
        for each in modules:
            import_module(each)
        # If there is pandas, Arrow imports it for this; each task that writes makes an array.
        import_module("pyarrow").array([b""])
    except Exception as error:  # noqa: BLE001 (whatever it is, a worker works without)
        sys.stderr.write(
            f"{NAME}: tasks import what they need themselves, as an import failed in "
            f"{sys.executable}: {type(error).__name__}: {error}\n"
        )
    random = sys.modules.get("numpy.random")
    if random is not None:
        # Each worker would draw the same numbers; Python's own generator sees to that itself.
        os.register_at_fork(after_in_child=random.seed)


def forget_archives() -> None:
    """Forget who finds modules in which archive; the lists of the archives stay.

    A new worker adds a folder to its path, and so makes all finders look again. Before Python
    3.13 the finder of each package of an archive then reads the archive's whole list: 0.1 s of CPU
    time for the 17 packages of Spark. Archives do not change while Spark runs, and an import that
    needs a finder makes one.
    """
    cached = sys.path_importer_cache
    for path in [path for path, finder in cached.items() if isinstance(finder, zipimporter)]:
        del cached[path]


@contextmanager
def _environment(name: str, value: str) -> Iterator[None]:
    """Set a variable of the environment if it is not set, and remove it afterwards."""
    is_ours = name not in os.environ
    os.environ.setdefault(name, value)
    try:
        yield
    finally:
        if is_ours:
            del os.environ[name]


if __name__ == "__main__":
    main()
