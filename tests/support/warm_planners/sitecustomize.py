"""Run by each Python that has this folder in ``PYTHONPATH``, before its program.

Spark plans and commits in Python processes on the driver's machine: a new one for each query, and
some that it uses again. Its daemon forks them without having imported anything of ours, so each of
them would import Arrow, the driver and this package anew: half a second of processor time, a third
of what a small query takes. Here the daemon imports them once.
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
