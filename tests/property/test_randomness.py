"""What Hypothesis would tell, were it not for the driver's threads: see pyproject.toml."""

from __future__ import annotations

import re
from pathlib import Path


def test_strategies_draw_from_hypothesis_alone():
    folder = Path(__file__).parent
    # Histories of features come from numbers, too: for a test that Hypothesis does not run.
    histories = {folder / "features" / "steps.py", folder / "test_features_machine.py"}
    modules = [each for each in folder.rglob("*.py") if each not in histories]
    drawing = [
        path for path in modules if re.search(r"(?m)^\s*(import|from) random\b", path.read_text())
    ]

    assert len(modules) > 10
    assert drawing == []
