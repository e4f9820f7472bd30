"""Putting messages: into blocks, which one publish makes visible."""

from __future__ import annotations
