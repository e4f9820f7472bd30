"""``python -m cassieq_spark.cli`` is ``cassieq``."""

from __future__ import annotations

from cassieq_spark.cli import main

main()
