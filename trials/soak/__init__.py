"""`make soak`: a queue that everybody uses at once for minutes."""

from __future__ import annotations
