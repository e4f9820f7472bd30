"""The wheel: what is in it, and, for `make test-wheel`, that it works where nothing else is."""

from __future__ import annotations
