"""Receiving messages of a consumer group, and settling them."""

from __future__ import annotations
