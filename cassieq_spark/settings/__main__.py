"""``python -m cassieq_spark.settings`` prints docs/options.md."""

from __future__ import annotations

import sys

from cassieq_spark.settings import documentation

sys.stdout.write(documentation())
