"""Finding and reading messages: where they are, and their chunks as Arrow batches."""

from __future__ import annotations
