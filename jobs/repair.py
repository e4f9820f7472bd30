"""The repair as a Spark job.

spark-submit --packages com.datastax.spark:spark-cassandra-connector_2.13:3.5.1 jobs/repair.py
--help
"""

from __future__ import annotations

import sys

from cassieq_spark.cli.repair import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
