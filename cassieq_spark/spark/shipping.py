"""Readers and writers on their way to executors, and whether the Python there can run them.

Spark pickles a writer, or a reader with its data source, and each task restores it. Where this
package is missing, a task would fail with the bare name of a module; where it is of another
release, with any error or with none. So these objects are pickled as the function `restore` and
opaque bytes. cloudpickle pickles that function with its code, so the function runs before anything
of this package is imported, and reports what is wrong with the Python that runs it.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec
from typing import Any

import pyspark
from pyspark import cloudpickle

from cassieq_spark import __version__
from cassieq_spark.errors import SetupError

_OLDEST_SPARK = (4, 2)
_OLDEST_PYARROW = 19
#: The modules that tasks import, and the packages that contain them.
_NEEDED = {"cassandra": "cassandra-driver", "mmh3": "mmh3", "numpy": "numpy", "pyarrow": "pyarrow"}

# With its code: see the module's docstring. It concerns the functions of this module alone.
cloudpickle.register_pickle_by_value(sys.modules[__name__])


class Shipped:
    """Base of the data source, readers and writers that Spark pickles to executors."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the object such that `restore` restores it."""
        return restore, (__version__, cloudpickle.dumps((type(self), self.__getstate__())))


def restore(release: str, pickled: bytes) -> object:
    """Restore a reader or writer in the Python of a task.

    The function imports all that it uses, as only its code is shipped.

    Args:
        release: The release of this package that has pickled the object.
        pickled: The class and the state of the object.

    Raises:
        ModuleNotFoundError: This Python lacks the package.
        SetupError: This Python has another release, or lacks another required package.
    """
    import pickle
    import platform
    import sys

    here = f"{sys.executable} (Python {platform.python_version()}) on {platform.node()}"
    try:
        import cassieq_spark
    except ModuleNotFoundError as error:
        if error.name != "cassieq_spark":
            raise
        raise ModuleNotFoundError(
            f"cassieq-spark is missing in {here}, which runs Spark's tasks: install "
            f"cassieq-spark {release} there, on every machine of the cluster, or set "
            "PYSPARK_PYTHON where the driver starts to a Python that has it on all of them",
            name=error.name,
        ) from None
    from cassieq_spark.errors import SetupError

    if cassieq_spark.__version__ != release:
        raise SetupError(
            f"cassieq-spark is {cassieq_spark.__version__} in {here}, which runs Spark's tasks, "
            f"and {release} where the driver runs: install the same release in both"
        )
    from cassieq_spark.spark.shipping import check_platform

    check_platform()
    made, state = pickle.loads(pickled)
    restored = made.__new__(made)
    restored.__dict__.update(state or {})
    return restored


def check_platform() -> None:
    """Name a package that is missing or too old in this Python, before an import fails.

    Raises:
        SetupError: A package is missing or too old.
    """
    missing = [package for module, package in _NEEDED.items() if find_spec(module) is None]
    if missing:
        raise SetupError(
            f"{' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing in "
            f"{sys.executable}, the Python that Spark runs: pip install 'cassieq-spark[spark]' "
            "there, or set PYSPARK_PYTHON to one that has it"
        )
    import pyarrow as pa

    if int(pa.__version__.split(".")[0]) < _OLDEST_PYARROW:
        raise SetupError(
            f"pyarrow {pa.__version__} in {sys.executable}, the Python that Spark runs, is too "
            f"old: pip install 'pyarrow>={_OLDEST_PYARROW}' there"
        )
    if tuple(map(int, pyspark.__version__.split(".")[:2])) < _OLDEST_SPARK:
        raise SetupError(
            f"Spark {pyspark.__version__} is too old: streams in Python have read limits and "
            "AvailableNow only from Spark 4.2 on; pip install 'pyspark>=4.2,<4.4'"
        )
