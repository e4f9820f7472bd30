"""For tests, ours and yours: the conformance suite of stores, and stores that count or fail."""

from __future__ import annotations
