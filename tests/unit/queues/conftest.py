from __future__ import annotations

import pytest

from tests.unit.queues.scene import Scene


@pytest.fixture
def scene() -> Scene:
    return Scene()
