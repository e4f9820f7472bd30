"""The options of reading and writing: one declaration each for parser, defaults, errors and docs.

Pure. `kinds` says what sorts of values there are, `declaration` how a field becomes an option,
`cluster` and `roles` which options there are; `table` makes docs/options.md of them.
"""

from __future__ import annotations

from cassieq_spark.options.cluster import options_from_session
from cassieq_spark.options.roles import MESSAGES, SinkOptions, SourceOptions
from cassieq_spark.options.table import documentation

__all__ = [
    "MESSAGES",
    "SinkOptions",
    "SourceOptions",
    "documentation",
    "options_from_session",
]
