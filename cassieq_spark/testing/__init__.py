"""For tests, ours and yours: what every store must do, and stores that count or fail."""

from __future__ import annotations
