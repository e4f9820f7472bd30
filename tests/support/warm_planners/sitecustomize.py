"""Run by each Python that has this folder in ``PYTHONPATH``, before its program.

Spark starts two or three processes to plan and commit each read, each write and each query of a
source in Python. Its daemon forks them without having imported anything of ours, so each process
would import Arrow, the driver and this package anew: half a second of processor time, which is
more than most tests need for all the rest. Here the daemon imports them once.
"""

from __future__ import annotations

import sys

if "pyspark.daemon" in sys.orig_argv:
    import gc
    from contextlib import redirect_stdout

    from cassieq_spark.spark import daemon

    # Spark reads the daemon's address from its standard output.
    with redirect_stdout(sys.stderr), daemon._environment(*daemon._NO_THREAD):
        daemon.warm_up(daemon.MODULES)
    gc.collect()
    gc.freeze()
