"""What Hypothesis would tell, were it not for the driver's threads: see pyproject.toml."""

from __future__ import annotations

import re
from pathlib import Path


def test_strategies_draw_from_hypothesis_alone():
    # Its histories come from numbers, too: of one test that Hypothesis does not run.
    histories = Path(__file__).parent / "features" / "steps.py"
    modules = [each for each in Path(__file__).parent.rglob("*.py") if each != histories]
    drawing = [
        path for path in modules if re.search(r"(?m)^\s*(import|from) random\b", path.read_text())
    ]

    assert len(modules) > 10
    assert drawing == []
