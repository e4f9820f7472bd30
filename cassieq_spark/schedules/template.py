"""Messages of schedules: texts with fields of the tick.

Nothing else goes into a message, so whoever publishes a tick publishes the same content.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime, tzinfo

from cassieq_spark.arguments import did_you_mean
from cassieq_spark.errors import OptionError
from cassieq_spark.settings.schedule import show_instant

_FIELD = re.compile(r"\{\{\s*(\w+)\s*\}\}")
#: What a text may name between double braces.
FIELDS = ("schedule", "queue", "tick", "local", "date", "unix")


def fields_of(schedule: str, queue: str, tick: datetime, zone: tzinfo) -> dict[str, str]:
    """The values of the fields at a tick.

    Args:
        schedule: Name of the schedule.
        queue: Name of the queue.
        tick: The tick; aware.
        zone: The zone of the local time.
    """
    local = tick.astimezone(zone)
    values = (
        schedule,
        queue,
        show_instant(tick),
        local.isoformat(),
        local.date().isoformat(),
        str(int(tick.timestamp())),
    )
    return dict(zip(FIELDS, values, strict=True))


def filled_in(text: str, fields: Mapping[str, str]) -> str:
    """A text with the values of its fields.

    >>> filled_in('{"day": "{{date}}"}', {"date": "2026-11-28"})
    '{"day": "2026-11-28"}'
    """
    return _FIELD.sub(lambda found: fields[found[1]], text)


def check_template(text: str) -> str:
    """Return a text that names known fields only.

    Raises:
        OptionError: It names another one.
    """
    for name in _FIELD.findall(text):
        if name not in FIELDS:
            hint = did_you_mean(name, FIELDS, f"expected one of {', '.join(FIELDS)}")
            raise OptionError(f"the message names {{{{{name}}}}}, which no tick has: {hint}")
    return text
