"""``python -m cassieq_spark.spark.source`` prints docs/views.md."""

from __future__ import annotations

import sys

from cassieq_spark.spark.source.views import documentation

sys.stdout.write(documentation())
