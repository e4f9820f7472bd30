from __future__ import annotations

from collections.abc import Iterator

import pytest

from cassieq_spark import backoff


@pytest.fixture(autouse=True, scope="session")
def _no_pauses_between_attempts() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(backoff, "_LONGEST_PAUSE", 0.0)
        yield
