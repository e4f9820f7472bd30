"""For tests, ours and yours: what every store must do, and stores that count calls or fail on demand."""

from __future__ import annotations
