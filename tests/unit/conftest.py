from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest

from cassieq_spark import backoff
from cassieq_spark.model import Ranges


@pytest.fixture(autouse=True, scope="session")
def _no_pauses_between_attempts() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(backoff, "_LONGEST_PAUSE", 0.0)
        yield


@pytest.fixture(autouse=True, scope="session")
def _log_records_name_few_ranges() -> Iterator[None]:
    """A group may hold thousands of ranges: a log record has `Ranges.short`, which is bounded."""
    make = logging.getLogRecordFactory()

    def check(*given: Any, **named: Any) -> logging.LogRecord:
        record = make(*given, **named)
        assert not any(isinstance(each, Ranges) for each in record.args or ()), record.msg
        return record

    logging.setLogRecordFactory(check)
    yield
    logging.setLogRecordFactory(make)
