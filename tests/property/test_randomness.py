"""What Hypothesis would tell, were it not for the driver's threads: see pyproject.toml."""

from __future__ import annotations

import re
from pathlib import Path


def test_strategies_draw_from_hypothesis_alone():
    folder = Path(__file__).parent
    # Histories of features come from numbers, too, and orders of turns are drawn: for tests that
    # Hypothesis does not run.
    others = ("features/steps.py", "test_features_machine.py", "interleavings/schedule.py")
    modules = [
        each for each in folder.rglob("*.py") if each not in {folder / other for other in others}
    ]
    drawing = [
        path for path in modules if re.search(r"(?m)^\s*(import|from) random\b", path.read_text())
    ]

    assert len(modules) > 10
    assert drawing == []
