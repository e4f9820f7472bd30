"""Every setting, declared once: Spark options, flags, keys of the configuration file and help.

Only `file` and `secret` read files. `declaration` turns fields into settings, and `kinds` has the
kinds of values; `connection`, `writing`, `reading` and `gateway` declare the settings.
``python -m cassieq_spark.settings`` prints docs/options.md.
"""

from __future__ import annotations

from cassieq_spark.settings.reading import MESSAGES, SourceOptions
from cassieq_spark.settings.spark import options_from_session
from cassieq_spark.settings.writing import SinkOptions

__all__ = ["MESSAGES", "SinkOptions", "SourceOptions", "options_from_session"]
