"""The options of reading and writing: one declaration each for parser, defaults, errors and docs.

Pure. `kinds` says what sorts of values there are, `declaration` how a field becomes an option,
`cluster`,
`writing` and `reading` which options there are; `table` makes docs/options.md of them.
"""

from __future__ import annotations

from cassieq_spark.settings.cluster import options_from_session
from cassieq_spark.settings.reading import MESSAGES, SourceOptions
from cassieq_spark.settings.table import documentation
from cassieq_spark.settings.writing import SinkOptions

__all__ = [
    "MESSAGES",
    "SinkOptions",
    "SourceOptions",
    "documentation",
    "options_from_session",
]
