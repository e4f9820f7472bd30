"""``python -m cassieq_spark.options`` prints docs/options.md."""

from __future__ import annotations

import sys

from cassieq_spark.options import documentation

sys.stdout.write(documentation())
